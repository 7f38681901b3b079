"""Statements about one row give the same results by tuples and by columns."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg.adapt import PyFormat, Transformer

from foreshore.adapter.plans.access_path import KeyLookup, PeekPlan
from foreshore.adapter.plans.prepared import Programs
from foreshore.adapter.session.planner import SessionPlanner
from foreshore.catalog.planned import Planned
from foreshore.compute.keys import layout
from foreshore.constraint import Unique
from foreshore.errors import DatabaseError
from foreshore.expr.equality import is_plain
from foreshore.ids import GlobalId
from foreshore.server.message import Bind
from foreshore.server.parameters import arguments
from foreshore.sql.plan import Insert, Plan
from foreshore.types import RelationDesc, SqlType
from tests.adapter.harness import TestEnvironment, told
from tests.effort import examples

TABLE = """CREATE TABLE {t} (id int PRIMARY KEY, code text, n int CHECK (n < 50),
    w numeric(6, 2) NOT NULL DEFAULT 0.5, f float8, s serial, CONSTRAINT {t}_code UNIQUE (code),
    CONSTRAINT {t}_w CHECK (10 / (w - 3) <> 5))"""

STATEMENTS = """INSERT INTO {t} (id, code, n, w) VALUES ({k}, {c}, {n}, {w})
INSERT INTO {t} (id, code, n) VALUES ({k}, {c}, {n}) RETURNING *, n + 1
INSERT INTO {t} VALUES ({k}, {c}, {n}, {w}, -0.0), ({n}, 'z', {k}, 1.005, 'NaN')
INSERT INTO {t} (id) VALUES (NULL)
INSERT INTO {t} (id, n) VALUES (nextval('{t}_s_seq') + 1, currval('{t}_s_seq')) RETURNING id, n, s
INSERT INTO {t} (id, s) VALUES ({k}, 10 / {n}) RETURNING s, lastval()
INSERT INTO {t} (id, n) SELECT g, g FROM generate_series({k}, {n}) g
INSERT INTO {t} (id, code) VALUES ({k}, {c}) ON CONFLICT (id) DO UPDATE SET n = {t}.n + 1
INSERT INTO {t} (id, code) VALUES ({k}, {c}) ON CONFLICT DO NOTHING
INSERT INTO {t} (id, code) VALUES ({k}, {c}), ({n}, 'b'), ({k}, 'y') ON CONFLICT DO NOTHING RETURNING id, code
INSERT INTO {t} (id, code) VALUES ({k}, {c}), ({n}, 'b') ON CONFLICT (id) DO UPDATE SET code = excluded.code, n = excluded.id RETURNING id, code, n
INSERT INTO {t} (id, n) VALUES ({k}, 1), ({n}, 2) ON CONFLICT (id) DO UPDATE SET n = 10 / ({t}.n - excluded.n) WHERE {t}.n <> {n}
INSERT INTO {t} (id, code) VALUES ({k}, {c}) ON CONFLICT (code) DO UPDATE SET id = excluded.id + 1, s = DEFAULT RETURNING *
INSERT INTO {t} (id, code) VALUES ({k}, {c}) ON CONFLICT ON CONSTRAINT {t}_code DO UPDATE SET w = excluded.id, n = {t}.n * 40
UPDATE {t} SET n = n + {n} WHERE id = {k}
UPDATE {t} SET n = n * 2147483647 WHERE id = {k}
UPDATE {t} SET n = NULL, f = 0.1 WHERE id = {k} RETURNING id, n, f
UPDATE {t} SET w = w + {w}, code = {c} WHERE id = {k}
UPDATE {t} SET w = w / {n} WHERE id = {k} AND n > 1
UPDATE {t} SET w = NULL WHERE code = {c}
UPDATE {t} SET id = id + 1 WHERE id = {k}
UPDATE {t} SET id = id + 1, code = code || 'x' WHERE code = {c}
UPDATE {t} SET id = NULL WHERE id = {k}
UPDATE {t} SET id = id + 1
UPDATE {t} SET n = n + 1 WHERE n < {n}
UPDATE {t} SET n = 1 WHERE id IN ({k}, {n})
UPDATE {t} SET n = n + v.b FROM (VALUES ({k}, {n}), ({n}, 2)) v (a, b) WHERE id = v.a
UPDATE {t} SET n = v.b FROM (VALUES ({k}, 1), ({k}, 1)) v (a, b) WHERE id = v.a RETURNING id, v.b, n
UPDATE {t} SET w = w / ({n} - id) WHERE id IN ({k}, 1, {n}) RETURNING id, w, w * 2
UPDATE {t} SET n = n + 1 WHERE n = {n} AND id > {k} RETURNING id, n
UPDATE {t} SET code = 'y' WHERE id IN ({k}, {n})
UPDATE {t} SET n = n + v.b FROM unnest(ARRAY[{k}, {n}, 1], ARRAY[1, 2]) v (a, b) WHERE id = v.a RETURNING id, n, v.b
DELETE FROM {t} WHERE id = ANY (ARRAY[{k}, {n}])
MERGE INTO {t} USING (VALUES ({k}, {n}), ({n}, 3)) v (a, b) ON id = v.a WHEN MATCHED AND n > 3 THEN DELETE WHEN MATCHED THEN UPDATE SET n = v.b, w = 7 / v.b WHEN NOT MATCHED THEN INSERT (id, n) VALUES (v.a, v.b)
MERGE INTO {t} USING (SELECT {k} AS a) v ON id = v.a WHEN MATCHED THEN UPDATE SET code = 'z' WHEN NOT MATCHED THEN DO NOTHING
DELETE FROM {t} USING (VALUES ({k}), ({n})) v (a) WHERE id = v.a RETURNING v.a, code
SELECT id, n, w FROM {t} WHERE id = {k} FOR UPDATE
SELECT id, n FROM {t} WHERE id IN ({k}, {n}) AND n > 1 ORDER BY w, id LIMIT 1 FOR UPDATE NOWAIT
SELECT id / {n} FROM {t} WHERE n = {n} ORDER BY id FOR SHARE
DELETE FROM {t} WHERE id = {k}
DELETE FROM {t} WHERE code = {c} AND n / {n} > 0 RETURNING *
DELETE FROM {t} WHERE n = {n}
SELECT * FROM {t} WHERE id = {k}
SELECT n + {n}, w, code FROM {t} WHERE id = {k} ORDER BY 1
SELECT count(*) FROM {t} WHERE id = {k}
SELECT FROM {t} WHERE id = {k}
SELECT id, n / {n} FROM {t} WHERE code = {c} LIMIT 1
SELECT id FROM {t} WHERE id = {k} AND n / {n} > 0
SELECT f, f + 1 FROM {t} WHERE id = 99999999999
SELECT sum(n), count(f) FROM {t}
BEGIN
SAVEPOINT s
ROLLBACK TO SAVEPOINT s
COMMIT
ROLLBACK""".splitlines()


def statement(rng: random.Random) -> str:
    """Return one that is about few keys, so that it often meets others' rows."""
    return rng.choice(STATEMENTS).format(
        t="{t}",
        k=rng.randrange(6),
        n=rng.randrange(6),
        c=rng.choice(["'a'", "'b'", "'ax'", "NULL"]),
        w=rng.choice(["0.5", "-0.5", "3", "4.99", "2.504", "9999.99"]),
    )


def in_any_order(answer: str) -> list[str]:
    """Return the lines of an answer; rows of RETURNING come in no order."""
    return sorted(answer.replace("columns", "tuples").splitlines())


@contextmanager
def both_ways(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Keep tables whose name begins with columns from using tuples; note the others' statements."""
    taken: list[str] = []

    make = SessionPlanner._compile

    def compile(plan: Plan, peek: PeekPlan | None, planned: Mapping[GlobalId, Planned]) -> Programs:
        programs = make(plan, peek, planned)
        match plan, peek:
            case Insert(table=table), _:
                pass
            case _, PeekPlan(path=KeyLookup(tables=(table,))):
                pass
            case _:
                return programs
        if any(each.name.startswith("columns") for each in planned[table].constraints):
            programs = Programs()
        taken.extend(["insert"] if programs.rules is not None else [])
        is_point = programs.locked_read is not None or programs.row_read is not None
        taken.extend(["point"] if is_point else [])
        return programs

    patch.setattr(SessionPlanner, "_compile", staticmethod(compile))
    can_take = layout.takes_tuples

    def takes_tuples(constraint: Unique, desc: RelationDesc) -> bool:
        return not constraint.name.startswith("columns") and can_take(constraint, desc)

    patch.setattr(layout, "takes_tuples", takes_tuples)
    yield taken


@pytest.mark.scaled
def test_tuple_and_column_statements_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        for seed in range(examples(12)):
            rng = random.Random(seed)
            t, c = f"tuples{seed}", f"columns{seed}"
            for each in (t, c):
                assert await env.query("a", TABLE.format(t=each)) == "CREATE TABLE"
                assert await env.query("a", f"CREATE INDEX ON {each} (n)") == "CREATE INDEX"
            done = []
            for _ in range(30):
                sql = statement(rng)
                done.append(sql)
                one = await env.query("t", sql.format(t=t))
                other = await env.query("c", sql.format(t=c))
                assert in_any_order(one) == in_any_order(other), (seed, done)
                if rng.random() < 0.2:  # somebody else writes between the statements of a block
                    sql = f"INSERT INTO {{t}} (id) VALUES ({rng.randrange(6, 9)})"
                    done.append(sql)
                    one = await env.query("x", sql.format(t=t))
                    other = await env.query("x", sql.format(t=c))
                    assert one == other.replace("columns", "tuples"), (seed, done)
            for each in ("t", "c"):
                await env.query(each, "ROLLBACK")
            rows = [await env.query("a", f"SELECT * FROM {each} ORDER BY id") for each in (t, c)]
            assert rows[0] == rows[1], (seed, done)
            for each in (t, c):
                assert await env.query("a", f"DROP TABLE {each}") == "DROP TABLE"
        await env.close()

    with both_ways(monkeypatch) as by_tuples:
        asyncio.run(main())
    assert by_tuples.count("point") > 2.5 * examples(12)
    assert by_tuples.count("insert") > 0.8 * examples(12)


# Types of columns, and values that are given for them: as text, or as psycopg sends the object.
TYPES: dict[str, list[Any]] = {
    "int2": ["1", "-32768", "32768", 2, 70000],
    "int4": ["0", "1", " 2 ", 1, 1 << 40],
    "int8": ["1", "9223372036854775807", 1, -(1 << 62)],
    "numeric(5, 2)": ["1", "1.005", "999.995", "1e2", Decimal("-0.10"), 3],
    "numeric": ["1.10", "1e20", "1.1", Decimal("0E+3"), 5],
    "float4": ["0.1", "-0", "NaN", "1e39", 0.1, float("inf")],
    "float8": ["0.1", "-0", "0", "NaN", 0.1, -0.0],
    "bool": ["t", "off", "maybe", True],
    "text": ["a", "a ", "", "é", "b" * 100],
    "varchar(3)": ["a", "abc ", "abcd", ""],
    "char(3)": ["a", "a  ", "abcd", ""],
    "date": ["2024-02-29", "infinity", "2023-02-29", date(1, 1, 1)],
    "time": ["12:00", "24:00", "25:00", time(1, 2, 3, 4)],
    "timestamp(3)": ["2024-01-01 00:00:00.0005", "-infinity", datetime(2000, 1, 1)],
    "timestamptz": ["2024-01-01 00:00+02", "infinity", datetime(2000, 1, 1, tzinfo=UTC)],
    "interval": ["1 month", "30 days", "1 day 24:00", timedelta(days=-1, seconds=1)],
    "uuid": ["{A0EEBC99-9C0B4EF8-BB6D6BB9BD380A11}", "a0", UUID(int=1)],
    "bytea": ["\\x00ff", "ab", b"\0\xff"],
    "jsonb": ['{"a": 1.0}', '{"a":1}', "[", "null"],
    "int4[]": ["{1,NULL}", "{}", "{a}", [1, 2]],
}

KEYS = [type for type in TYPES if type.startswith("char") or is_plain(SqlType(type.split("(")[0]))]

PREPARED = """INSERT INTO {t} (a, b, x) VALUES ($1, $2, $3)
INSERT INTO {t} (a, b, x, n) VALUES ($1, $2, $3, 1), ($1, $2, NULL, 2) RETURNING *
INSERT INTO {t} (b, a, x) VALUES ($2, $1, $3) RETURNING now() IS NULL, x, n, a
INSERT INTO {t} (a, b, x) VALUES ($1, $2, $3) ON CONFLICT (a) DO UPDATE SET n = {t}.n + 1
UPDATE {t} SET x = $3 WHERE a = $1
UPDATE {t} SET x = $3, n = n * 3 WHERE a = $1 AND b = $2 RETURNING *
UPDATE {t} SET a = $2, b = NULL WHERE a = $1
UPDATE {t} SET a = $1, b = $2 WHERE b = $2 AND a = $1
UPDATE {t} SET b = $2, n = n + 30000 WHERE a = $1 RETURNING n
DELETE FROM {t} WHERE a = $1
DELETE FROM {t} WHERE a = $1 AND n = 1 RETURNING x
SELECT * FROM {t} WHERE a = $1
SELECT n + 1, x IS NULL, $2, b FROM {t} WHERE a = $1 AND n > 0
SELECT CASE WHEN n > 1 THEN 1 / (n - 3) END, x = $3 FROM {t} WHERE a = $1
SELECT nextval('{t}_s'), n FROM {t} WHERE a = $1
SELECT x, count(*) FROM {t} GROUP BY x ORDER BY 1, 2
UPDATE {t} SET n = n + 1 WHERE n = 1
BEGIN
BEGIN ISOLATION LEVEL SERIALIZABLE
SAVEPOINT s
ROLLBACK TO SAVEPOINT s
COMMIT""".splitlines()


async def execute(env: TestEnvironment, name: str, sql: str, values: list[Any]) -> str:
    """Return what a prepared statement says; strings are given as text, the rest in binary."""
    session = await env.session(name)
    dumping = Transformer()
    values = values[: max([int(digit) for digit in "123" if f"${digit}" in sql], default=0)]
    texts = [isinstance(each, str | None) for each in values]
    sent = dumping.dump_sequence(values, [PyFormat.TEXT if t else PyFormat.BINARY for t in texts])
    oids = dumping.types or ()
    statement = f"{sql} {oids}"
    lines: list[str] = []
    try:
        if statement not in session.statements:
            await session.extended.parse(statement, sql, oids)
        given = [None if each is None else bytes(each) for each in sent]
        bind = Bind("", statement, tuple(0 if text else 1 for text in texts), given, ())
        args = arguments(bind, session.extended.statement(statement).parameters, session.time_zone)
        await session.extended.bind("", statement, args, ())
        lines += await told(await session.extended.execute("", 0))
        await session.extended.sync()
    except DatabaseError as error:
        await session.fail()
        await session.extended.sync()
        lines += [f"ERROR {error.sqlstate}: {error.message}", error.detail or ""]
    env.environment.coordinator.check_consistency()
    return "\n".join([*lines, session.transaction_status])


@pytest.mark.scaled
def test_prepared_tuple_and_column_statements_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns and arguments of all types, keys of two columns, statements that are kept."""

    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        for seed in range(examples(25)):
            rng = random.Random(seed)
            t, c = f"tuples{seed}", f"columns{seed}"
            (a, b), x = rng.choices(KEYS, k=2), rng.choice(list(TYPES))
            for each in (t, c):
                await env.query("a", f"CREATE SEQUENCE {each}_s")
                made = await env.query(
                    "a",
                    f"CREATE TABLE {each} (a {a} PRIMARY KEY, b {b}, x {x}, n int2 DEFAULT 1, i int GENERATED ALWAYS AS IDENTITY,"
                    f" CONSTRAINT {each}_n CHECK (n <> 9), CONSTRAINT {each}_ab UNIQUE (b, a))",
                )
                assert made == "CREATE TABLE", made
            done = []
            for _ in range(40):
                sql = rng.choice(PREPARED)
                values = [rng.choice([*TYPES[type], None]) for type in (a, b, x)]
                done.append((sql, values))
                one = await execute(env, "t", sql.format(t=t), values)
                other = await execute(env, "c", sql.format(t=c), values)
                assert one == other.replace("columns", "tuples"), (seed, (a, b, x), done)
            for each in ("t", "c"):
                await env.query(each, "ROLLBACK")
            rows = [await env.query("a", f"SELECT * FROM {each} ORDER BY a") for each in (t, c)]
            assert rows[0] == rows[1], (seed, (a, b, x), done)
        await env.close()

    with both_ways(monkeypatch) as by_tuples:
        asyncio.run(main())
    assert by_tuples.count("point") > 4 * examples(25)
    assert by_tuples.count("insert") > 2.4 * examples(25)


async def test_statement_after_wait_for_key_sees_new_row(own_env: TestEnvironment) -> None:
    """By columns, too: what was changed by tuples meanwhile is not in the arrangement yet."""
    await own_env.query("a", "CREATE TABLE t (id int PRIMARY KEY, v int)")
    await own_env.query("a", "INSERT INTO t VALUES (1, 0)")
    for waiting in (
        "INSERT INTO t VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET v = t.v + 10",
        "UPDATE t SET v = v + 10 WHERE id IN (1, 2)",
        "UPDATE t SET v = v + 10 WHERE id = 1",
    ):
        assert await own_env.query("a", "BEGIN; UPDATE t SET v = 1 WHERE id = 1")
        task = asyncio.create_task(own_env.query("b", waiting, alone=False))
        await asyncio.sleep(0.1)
        assert not task.done()
        assert await own_env.query("a", "COMMIT", alone=False) == "COMMIT"
        assert not (await task).startswith("ERROR")
        assert (await own_env.query("a", "SELECT sum(v) FROM t")).startswith("11\n")
