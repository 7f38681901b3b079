"""CPU of statements that name keys, beside the size of their table: `python -m tests.bench.keys`.

    python -m tests.bench.keys [rows] [directory]

A table has lines of orders with a key of two columns and an index. Each form of a condition is run
as SELECT, UPDATE and DELETE (rolled back); shown are milliseconds of CPU, of all threads of the
server and its replica, and of wall clock, each the median of some runs of a planned statement.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.adapter.harness import TestEnvironment, until

TABLE = """
    CREATE TABLE li (ok int NOT NULL, ln int NOT NULL, part int NOT NULL, quantity numeric(15, 2),
        price numeric(15, 2), flag text NOT NULL, shipped date NOT NULL, n int NOT NULL,
        PRIMARY KEY (ok, ln))"""
ROWS = """
    INSERT INTO li SELECT i / 4, i % 4, i % 200000, i % 50, i % 100000, 'N',
        DATE '1995-01-01' + i % 2000, 0 FROM generate_series({first}, {last}) AS i"""
FORMS = {
    "whole key": "ok = 7 AND ln = 1",
    "row IN": "(ok, ln) IN ((2, 1), (3, 1), (4, 2))",
    "OR of ANDs": "ok = 2 AND ln = 1 OR ok = 3 AND ln = 1",
    "prefix IN": "ok IN (4, 5, 6)",
    "prefix =": "ok = 9",
    "= ANY(array)": "ok = ANY('{4, 5, 6}'::bigint[])",
    "IN (VALUES)": "(ok, ln) IN (VALUES (2, 1), (3, 1))",
    "IN (unnest)": "ok IN (SELECT unnest('{4, 5}'::int[]))",
    "IN (table)": "ok IN (SELECT k FROM small)",
    "index": "part = 77",
}
RUNS = 15


async def cost(env: TestEnvironment, sql: str) -> tuple[float, float, str]:
    """Return CPU and wall milliseconds of a statement, and what it answers."""
    cpu, wall, answer = [], [], ""
    for _ in range(RUNS + 1):
        if not sql.startswith("SELECT"):
            await env.query("x", "ROLLBACK", alone=False)
            await env.query("x", "BEGIN", alone=False)
        await asyncio.sleep(0)
        before = time.process_time(), time.perf_counter()
        answer = await env.query("x", sql, alone=False)
        cpu.append(1000 * (time.process_time() - before[0]))
        wall.append(1000 * (time.perf_counter() - before[1]))
    await env.query("x", "ROLLBACK", alone=False)
    return statistics.median(cpu[1:]), statistics.median(wall[1:]), answer


async def main(rows: int, directory: Path) -> None:
    """Print a table of costs."""
    env = TestEnvironment(directory)
    await env.open()
    started = time.perf_counter()
    await env.ran("x", TABLE, "CREATE TABLE small (k int PRIMARY KEY)")
    await env.ran("x", "INSERT INTO small VALUES (11), (12)")
    step = 1_000_000
    for first in range(0, rows, step):
        await env.ran("x", ROWS.format(first=first, last=min(rows, first + step) - 1))
    await env.ran("x", "CREATE INDEX by_part ON li (part)")
    coordinator = env.environment.coordinator
    await until(lambda: all(map(coordinator.is_hydrated, coordinator.as_ofs)))
    print(f"{rows} rows, made in {time.perf_counter() - started:.0f} s; ms of CPU (wall)")
    for name, where in FORMS.items():
        shown = []
        for sql in (
            f"SELECT * FROM li WHERE {where}",
            f"UPDATE li SET n = n + 1 WHERE {where}",
            f"DELETE FROM li WHERE {where}",
        ):
            cpu, wall, answer = await cost(env, sql)
            shown.append(f"{cpu:7.1f} ({wall:6.1f})")
        print(f"{name:14} {'  '.join(shown)}  {answer.splitlines()[0]}", flush=True)
    await env.close()


if __name__ == "__main__":
    given = sys.argv[1:]
    where = Path(given[1] if len(given) > 1 else tempfile.mkdtemp())
    asyncio.run(main(int(given[0]) if given else 6_000_000, where))
