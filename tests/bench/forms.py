"""Forms of statements beside PostgreSQL 15: `python -m tests.bench forms [NAME ...]`.

Each form is a transaction of pgbench, over tables of 100,000 rows. It runs prepared and as a new
text each time, at 1 and at 16 connections, on both servers by turns. What is printed are the
transactions a second of both, and ours as a share of PostgreSQL's: the median of the turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

import psycopg

from tests.bench.freshness import serving
from tests.harness import postgres, program

TURNS = 3
SECONDS = 1
VARIABLES = "\\set a random(1, 100000)\n\\set b random(1, 100000)\n\\set new random(1, 9000000000000000000)\n"
ROWS = "SELECT i, 0, 'text ' || i, i % 100 FROM generate_series(1, 100000) i"
SETUP = (
    "CREATE TABLE acc (a int PRIMARY KEY, b int, c text, r int)",
    "CREATE TABLE pl (a int PRIMARY KEY, b int, c text, r int)",  # no view reads it
    "CREATE TABLE br (k int PRIMARY KEY, n text)",
    "INSERT INTO br SELECT i, 'n' || i FROM generate_series(0, 99) i",
    f"INSERT INTO acc {ROWS}",
    f"INSERT INTO pl {ROWS}",
    "CREATE INDEX ON acc (r)",
    "CREATE TABLE ins (a bigint PRIMARY KEY, t text)",
    "CREATE TABLE ser (id serial PRIMARY KEY, t text)",
    "CREATE TABLE nk (a int, t text)",
    "CREATE TABLE ch (a bigint PRIMARY KEY, k int REFERENCES br (k))",
    "CREATE SEQUENCE sq",
    "CREATE MATERIALIZED VIEW mv AS SELECT r, count(*) n, sum(b) s FROM acc GROUP BY r",
    "CREATE INDEX ON mv (r)",
)
READS = {
    "key": "SELECT b FROM acc WHERE a = :a",
    "key, all columns": "SELECT * FROM acc WHERE a = :a",
    "key and filter": "SELECT b FROM acc WHERE a = :a AND b >= 0",
    "cast": "SELECT b FROM acc WHERE a = :a::int",
    "WITH": "WITH x AS (SELECT * FROM acc WHERE a = :a) SELECT b FROM x",
    "expressions": "SELECT b + 1, upper(c) FROM acc WHERE a = :a",
    "coalesce": "SELECT coalesce(c, '-') FROM acc WHERE a = :a",
    "CASE": "SELECT CASE WHEN b > 5 THEN 'x' ELSE 'y' END FROM acc WHERE a = :a",
    "LIMIT 1": "SELECT b FROM acc WHERE a = :a LIMIT 1",
    "ORDER BY LIMIT 1": "SELECT b FROM acc WHERE a = :a ORDER BY b LIMIT 1",
    "count": "SELECT count(*) FROM acc WHERE a = :a",
    "EXISTS": "SELECT EXISTS (SELECT 1 FROM acc WHERE a = :a)",
    "IN": "SELECT b FROM acc WHERE a IN (:a, :b)",
    "OR": "SELECT b FROM acc WHERE a = :a OR a = :b",
    "ANY": "SELECT b FROM acc WHERE a = ANY (ARRAY[:a, :b]::int[])",
    "UNION ALL": "SELECT b FROM acc WHERE a = :a UNION ALL SELECT b FROM acc WHERE a = :b",
    "join by keys": "SELECT acc.b, n FROM acc JOIN br ON k = r WHERE a = :a",
    "left join by keys": "SELECT acc.b, n FROM acc LEFT JOIN br ON k = r WHERE a = :a",
    "secondary index": "SELECT a FROM acc WHERE r = :a % 100 LIMIT 5",
    "range of keys": "SELECT b FROM acc WHERE a BETWEEN :a AND :a + 10",
    "row of a view": "SELECT n, s FROM mv WHERE r = :a % 100",
    "top of a view": "SELECT r, s FROM mv ORDER BY s DESC LIMIT 10",
    "count of a view": "SELECT count(*) FROM mv",
    "FOR UPDATE": "SELECT b FROM acc WHERE a = :a FOR UPDATE",
}
NO_TABLE = {
    "SELECT 1": "SELECT 1",
    "now()": "SELECT now()",
    "version()": "SELECT version()",
    "current_user": "SELECT current_user, current_database()",
    "nextval": "SELECT nextval('sq')",
    "SHOW": "SHOW timezone",
    "SET": "SET application_name = 'x'",
    "row of pg_type": "SELECT typname FROM pg_type WHERE oid = 23",
    "row of pg_class": "SELECT relname FROM pg_class WHERE relname = 'acc'",
}
CHANGES = {
    "INSERT": "INSERT INTO ins VALUES (:new, 'x')",
    "INSERT RETURNING": "INSERT INTO ins VALUES (:new, 'x') RETURNING a",
    "INSERT, serial key": "INSERT INTO ser (t) VALUES ('x') RETURNING id",
    "INSERT without a key": "INSERT INTO nk VALUES (:a, 'x')",
    "INSERT, foreign key": "INSERT INTO ch VALUES (:new, :a % 100)",
    "DO NOTHING": "INSERT INTO ins VALUES (:a, 'x') ON CONFLICT DO NOTHING",
    "DO UPDATE": "INSERT INTO ins VALUES (:a, 'x') ON CONFLICT (a) DO UPDATE SET t = EXCLUDED.t",
    "UPDATE": "UPDATE pl SET b = b + 1 WHERE a = :a",
    "UPDATE RETURNING": "UPDATE pl SET b = b + 1 WHERE a = :a RETURNING b",
    "UPDATE of two keys": "UPDATE pl SET b = b + 1 WHERE a IN (:a, :b)",
    "UPDATE below a view": "UPDATE acc SET b = b + 1 WHERE a = :a",
    "DELETE": "DELETE FROM ins WHERE a = :a",
}
BLOCKS = {
    "read": ("SELECT b FROM acc WHERE a = :a",),
    "read and write": (READS["key"], CHANGES["UPDATE"]),
    "two writes": (CHANGES["UPDATE"], "UPDATE pl SET b = b - 1 WHERE a = :b"),
    "FOR UPDATE and write": ("SELECT b FROM pl WHERE a = :a FOR UPDATE", CHANGES["UPDATE"]),
    "savepoint": ("SAVEPOINT s", CHANGES["UPDATE"], "RELEASE s"),
}
FORMS: Mapping[str, Sequence[str]] = {
    **{name: (sql,) for name, sql in (READS | NO_TABLE | CHANGES).items()},
    **{f"block: {name}": ("BEGIN", *each, "COMMIT") for name, each in BLOCKS.items()},
}


def rate(url: str, script: str, mode: str, connections: int) -> float:
    """Return the transactions a second of a script of pgbench; 0 if one has failed."""
    command = (program("pgbench"), "-n", "-M", mode, "-c", str(connections), "-j", "1")
    done = subprocess.run(
        (*command, "-T", str(SECONDS), "-f", "/dev/stdin", url),
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("tps = ")]
    return float(found[0]) if found and not done.returncode else 0.0


def measure(statements: Sequence[str], ours: str, theirs: str) -> str:
    """Return a line of figures: for each mode and number of connections both rates, and a share."""
    script, figures = VARIABLES + "".join(f"{each};\n" for each in statements), []
    for mode in ("prepared", "simple"):
        for connections in (1, 16):
            pairs = [
                (rate(ours, script, mode, connections), rate(theirs, script, mode, connections))
                for _ in range(TURNS)
            ]
            share = statistics.median(a / max(b, 1) for a, b in pairs)
            one, other = (statistics.median(each) for each in zip(*pairs, strict=True))
            figures.append(f"{one:7.0f} {other:7.0f} {share:5.2f}")
    return "   ".join(figures)


def main(names: Sequence[str]) -> None:
    """Print the figures of the forms with these names; all, without names."""
    with serving() as server, postgres() as theirs:
        for url in (server.url, theirs):
            with psycopg.connect(url, autocommit=True) as connection:
                for statement in SETUP:
                    connection.execute(statement.encode())
                connection.execute("ANALYZE")
        heads = [f"{m} {n:2}" for m in ("prepared", "new text") for n in (1, 16)]
        print(f"{'form':22}" + "   ".join(f"{head:>21}" for head in heads))
        for name, statements in FORMS.items():
            if not names or name in names:
                print(f"{name:22}" + measure(statements, server.url, theirs), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
