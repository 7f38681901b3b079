"""How many functions of Python a statement enters on the event loop, from a client's bytes to the answer.

    python -m tests.statement_calls                the table of all forms
    python -m tests.statement_calls NAME ...       the functions that these forms enter

The number depends on no clock and on no other process: a form that falls off the short way enters
many more. A client's bytes go to a connection over a transport in memory. Each form has run before,
so its plan is known, and runs several times; the least number counts, as the environment's other
work runs beside it now and then.
"""

import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from tests.adapter.harness import TestEnvironment
from tests.memory_client import SYNC, MemoryClient, bind, execute, parse, query

WARM, COUNTED = 4, 7
OF_VIEW = 50  # runs of forms that read a view, which is late for a moment now and then
INT4 = 23  # its oid

SETUP = (
    "CREATE TABLE acc (a int PRIMARY KEY, b int, c text, r int)",
    "CREATE TABLE pl (a int PRIMARY KEY, b int, c text)",
    "INSERT INTO pl SELECT i, 0, 'text ' || i FROM generate_series(1, 200) i",
    "CREATE TABLE br (k int PRIMARY KEY, n text)",
    "CREATE TABLE ins (a bigint PRIMARY KEY, t text)",
    "CREATE TABLE ser (id serial PRIMARY KEY, t text)",
    "CREATE TABLE ch (a bigint PRIMARY KEY, k int REFERENCES br (k))",
    "CREATE TABLE nk (a int, t text)",
    "CREATE TABLE arr (a int PRIMARY KEY, l int[])",
    "CREATE TABLE ev (k int PRIMARY KEY, at timestamptz UNIQUE)",
    "INSERT INTO arr SELECT i, ARRAY[i, i + 1] FROM generate_series(1, 200) i",
    "INSERT INTO ev SELECT i, now() - i * interval '1 day' FROM generate_series(1, 200) i",
    "CREATE SEQUENCE sq",
    "CREATE INDEX ON acc (r)",
    "INSERT INTO br SELECT i, 'n' || i FROM generate_series(0, 9) i",
    "INSERT INTO acc SELECT i, 0, 'text ' || i, i % 10 FROM generate_series(1, 200) i",
    "CREATE MATERIALIZED VIEW mv AS SELECT r, count(*) n, sum(b) s FROM br JOIN acc ON k = r GROUP BY r",
    "CREATE INDEX ON mv (r)",
)

DECLARE = "DECLARE q CURSOR FOR SELECT b FROM acc WHERE a = 7"
# Of each form its text; `$1`, `$2` are two integers that differ each time.
FORMS = {
    "key": "SELECT b FROM acc WHERE a = $1",
    "key and filter": "SELECT b FROM acc WHERE a = $1 AND b >= 0",
    "expression": "SELECT b + 1, upper(c) FROM acc WHERE a = $1",
    "limit": "SELECT b FROM acc WHERE a = $1 LIMIT 1",
    "order limit": "SELECT b FROM acc WHERE a = $1 ORDER BY b LIMIT 1",
    "in": "SELECT b FROM acc WHERE a IN ($1, $2)",
    "any": "SELECT b FROM acc WHERE a = ANY (ARRAY[$1, $2])",
    "count": "SELECT count(*) FROM acc WHERE a = $1",
    "exists": "SELECT EXISTS (SELECT 1 FROM acc WHERE a = $1)",
    "join": "SELECT acc.b, br.n FROM acc JOIN br ON br.k = acc.r WHERE acc.a = $1",
    "left join": "SELECT acc.b, br.n FROM acc LEFT JOIN br ON br.k = acc.r WHERE acc.a = $1",
    "union": "SELECT b FROM acc WHERE a = $1 UNION ALL SELECT b FROM acc WHERE a = $2",
    "computed key": "SELECT b FROM acc WHERE a = $1 + 1",
    "computed key of join": "SELECT acc.b, br.n FROM acc LEFT JOIN br ON br.k = acc.r WHERE acc.a = $1 + 1",
    "self join": "SELECT x.b, y.c FROM acc x JOIN acc y ON y.a = x.r WHERE x.a = $1",
    "secondary": "SELECT a FROM acc WHERE r = $1 % 10 LIMIT 5",
    "range": "SELECT b FROM acc WHERE a BETWEEN $1 AND $1 + 10",
    "since": "SELECT k FROM ev WHERE at >= now() - interval '10 days 12 hours'",
    "unnest": "SELECT unnest(l) FROM arr WHERE a = $1",
    "unnest beside": "SELECT a, e FROM arr, unnest(l) e WHERE a = $1",
    "series": "SELECT i FROM generate_series(1, $1 % 10) i",
    "frame": "SELECT a, sum(b) OVER (ORDER BY a ROWS 1 PRECEDING) FROM acc WHERE a BETWEEN $1 AND $1 + 5",
    "small table": "SELECT * FROM br",
    "small table by condition": "SELECT n FROM br WHERE n <> 'n' || $1 % 10 ORDER BY n LIMIT 3",
    "page of a group": "SELECT a, c FROM acc WHERE r = $1 % 10 ORDER BY a DESC LIMIT 5",
    "first of a join": "SELECT acc.a, n FROM acc JOIN br ON k = r WHERE r <> $1 ORDER BY acc.a DESC LIMIT 3",
    "page inside": "SELECT p.a, n FROM (SELECT * FROM acc ORDER BY a DESC LIMIT 3) p JOIN br ON k = r",
    "max": "SELECT max(a) FROM acc WHERE b < $1",
    "columns": "SELECT attname, format_type(atttypid, atttypmod), col_description(c.oid, attnum)"
    " FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid WHERE relname = 'acc' AND attnum <> $1",
    "view by key": "SELECT n, s FROM mv WHERE r = $1 % 10",
    "view top": "SELECT r, s FROM mv ORDER BY s DESC LIMIT 3",
    "view count": "SELECT count(*) FROM mv",
    "for update": "SELECT b FROM pl WHERE a = $1 FOR UPDATE",
    "one": "SELECT 1",
    "now": "SELECT now()",
    "current_user": "SELECT current_user, current_database()",
    "nextval": "SELECT nextval('sq')",
    "pg_type": "SELECT typname FROM pg_type WHERE oid = 23",
    "pg_class": "SELECT relname FROM pg_class WHERE relname = 'acc'",
    "show": "SHOW timezone",
    "set": "SET application_name = 'x'",
    "insert": "INSERT INTO ins VALUES ($1::bigint * 1000 + $2, 'x')",
    "insert returning": "INSERT INTO ins VALUES ($1::bigint * 1000 + $2, 'x') RETURNING a",
    "insert serial": "INSERT INTO ser (t) VALUES ('x') RETURNING id",
    "insert no key": "INSERT INTO nk VALUES ($1, 'x')",
    "insert fk": "INSERT INTO ch VALUES ($1::bigint * 1000 + $2, $1 % 10)",
    "conflict nothing": "INSERT INTO ins VALUES ($1, 'x') ON CONFLICT DO NOTHING",
    "conflict update": "INSERT INTO ins VALUES ($1, 'x') ON CONFLICT (a) DO UPDATE SET t = excluded.t",
    "update": "UPDATE pl SET b = b + 1 WHERE a = $1",
    "update constant": "UPDATE pl SET c = 'zz' WHERE a = $1",
    "update returning": "UPDATE pl SET b = b + 1 WHERE a = $1 RETURNING b",
    "update two": "UPDATE pl SET b = b + 1 WHERE a IN ($1, $2)",
    "update unnest": "UPDATE pl SET b = n FROM unnest(ARRAY[$1, $2], ARRAY[7, 8]) AS u (i, n) WHERE a = i",
    "merge": "MERGE INTO pl USING (VALUES ($1, $2)) AS v (i, n) ON a = i WHEN MATCHED THEN UPDATE SET b = n"
    " WHEN NOT MATCHED THEN INSERT VALUES (i, n, 'new')",
    "delete": "DELETE FROM ins WHERE a = $1",
    "begin": "BEGIN",
    "read in block": "SELECT b FROM acc WHERE a = $1",
    "update in block": "UPDATE pl SET b = b + 1 WHERE a = $1",
    "for update in block": "SELECT b FROM pl WHERE a = $1 FOR UPDATE",
    "savepoint": "SAVEPOINT s",
    "declare": DECLARE,
    "fetch": "FETCH 5 FROM q",
    "commit": "COMMIT",
}
# Forms that are counted as texts of Query messages, too.
QUERY = "query: "
QUERIES = (
    "one",
    "key",
    "show",
    "set",
    "insert no key",
    "update",
    "begin",
    "read in block",
    "commit",
)
ALL = (*FORMS, *(QUERY + name for name in QUERIES))
# Forms that are a part of a block, and what comes before and after each.
IN_BLOCK = {
    "begin": ((), ("ROLLBACK",)),
    "read in block": (("BEGIN",), ("COMMIT",)),
    "update in block": (("BEGIN",), ("COMMIT",)),
    "for update in block": (("BEGIN",), ("COMMIT",)),
    "savepoint": (("BEGIN",), ("COMMIT",)),
    "declare": (("BEGIN",), ("COMMIT",)),
    "fetch": (("BEGIN", DECLARE), ("COMMIT",)),
    "commit": (("BEGIN", "UPDATE pl SET b = b + 1 WHERE a = 7"), ()),
}


def _parameters(sql: str) -> int:
    return 2 if "$2" in sql else 1 if "$1" in sql else 0


def _with_values(sql: str, values: Sequence[int]) -> str:
    for number, value in enumerate(values, 1):
        sql = sql.replace(f"${number}", str(value))
    return sql


class Calls:
    """Counts the functions of Python that this thread enters, while it is on."""

    def __init__(self) -> None:
        self.entered: Counter[str] = Counter()

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            self.entered[f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"] += 1

    def __enter__(self) -> "Calls":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def _arguments() -> Iterator[tuple[int, int]]:
    """Yield two arguments, other ones each time."""
    for number in count():
        yield number % 190 + 1, number * 7 % 190 + 3


async def count_calls(env: TestEnvironment, names: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the functions that each form enters, prepared; the environment is as after SETUP."""
    client = await MemoryClient.connect(await env.session("counted"))
    found, arguments = {}, _arguments()
    for name in names:
        form = name.removeprefix(QUERY)
        sql, is_query = FORMS[form], form != name
        before, after = IN_BLOCK.get(form, ((), ()))
        statement = f"s {form}"
        if not is_query:
            await client.send(parse(statement, sql, [INT4] * _parameters(sql)) + SYNC)
        least = None
        for number in range(WARM + (OF_VIEW if "view" in name else COUNTED)):
            for each in before:
                await client.send(query(each))
            values = next(arguments)[: _parameters(sql)]
            args = [struct.pack("!i", each) for each in values]
            text = query(_with_values(sql, values))
            with Calls() as calls:
                asked = text if is_query else bind(statement, args, [1], [1]) + execute() + SYNC
                answer = await client.send(asked)
            assert b"SERROR" not in answer, (name, answer)
            for each in after:
                await client.send(query(each))
            entered = calls.entered
            if number >= WARM and (least is None or entered.total() < least.total()):
                least = entered
        assert least is not None
        found[name] = least
    await client.close()
    return found


async def measure(names: Sequence[str], directory: Path) -> dict[str, Counter[str]]:
    """Return the functions that each form enters in an environment of its own."""
    env = TestEnvironment(directory)
    await env.open()
    try:
        await env.ran("s", *SETUP)
        mirrors = env.environment.coordinator.compute.mirrors
        while not mirrors._mirrors:
            await env.query("s", "SELECT n FROM mv WHERE r = 1")
        return await count_calls(env, names)
    finally:
        await env.close()


def main() -> None:
    """Print the number of functions that the forms enter, and which, of those that are named."""
    names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        found = uvloop.run(measure(names or ALL, Path(directory)))
    for name, calls in found.items():
        print(f"{name:20} {calls.total():6}")
        for place, times in calls.items() if names else ():
            print(f"    {times:4} {place.rpartition('foreshore/')[2]}")


if __name__ == "__main__":
    main()
