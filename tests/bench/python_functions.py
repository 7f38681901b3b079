"""Functions in Python: `python -m tests.bench.python_functions [--rows N]`.

The same function, by row and vectorized, in a query and in a maintained view, beside the expression
in SQL; and beside DuckDB's own functions in Python, which run in its process, without checks. Times
are in seconds; those of the processor are of all processes that take part.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tests.harness import Server

BY_ROW = "def by_row(a, b): return a * b + 1.0"
BY_COLUMN = """
import pyarrow as pa, pyarrow.compute as pc
def by_column(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(pc.cast(a, pa.float64()), b), 1.0)
"""
CALLS = {"SQL": "a * b + 1", "by row": "by_row(a, b)", "vectorized": "by_column(a, b)"}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    of_duckdb(options.rows)
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        server = Server(
            Path(folder) / "data",
            ("--python-functions",),
            program=("-m", "foreshore.server.main"),
        )
        try:
            run(server.start(), options.rows, options.rounds)
        finally:
            server.stop()


def of_duckdb(rows: int) -> None:
    """Print what DuckDB takes for its own functions."""
    connection = duckdb.connect(config={"threads": 2})
    made = f"SELECT i AS a, i * 0.5::double AS b FROM range({rows}) r(i)"
    connection.execute(f"CREATE TABLE t AS {made}")
    types: Any = ["BIGINT", "DOUBLE"]
    connection.create_function("by_row", lambda a, b: a * b + 1.0, types, "DOUBLE")

    def by_column(a: pa.Array, b: pa.Array) -> pa.Array:
        return pc.add(pc.multiply(pc.cast(a, pa.float64()), b), 1.0)

    connection.create_function("by_column", by_column, types, "DOUBLE", type="arrow")
    for name, call in CALLS.items():
        query = f"SELECT sum({call}) FROM t"

        def once(query: str = query) -> None:
            connection.execute(query).fetchall()

        show(f"DuckDB, {name}", rows, once, lambda: _used(resource.RUSAGE_SELF))


def _used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def show(name: str, rows: int, once: Callable[[], object], used: Callable[[], float]) -> None:
    """Print the least time of three, after a first one."""
    once()
    found = []
    for _ in range(3):
        begun, before = time.perf_counter(), used()
        once()
        found.append((time.perf_counter() - begun, used() - before))
    seconds, processor = min(found)
    print(f"{name:32} {seconds:7.2f} s  {processor:7.2f} s of the processor"
          f"  {rows / seconds:12,.0f} rows/s", flush=True)  # fmt: skip


def run(server: Server, rows: int, rounds: int) -> None:
    """Print the figures of queries and views."""
    connection = server.connect()
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, a int8 NOT NULL, b float8 NOT NULL)")
    connection.execute(f"INSERT INTO t SELECT i, i, i * 0.5 FROM generate_series(1, {rows}) i")
    for name, source in (("by_row", BY_ROW), ("by_column", BY_COLUMN)):
        connection.execute(
            f"CREATE FUNCTION {name}(a int8, b float8) RETURNS float8 LANGUAGE python IMMUTABLE"
            f" STRICT AS $${source}$$"
        )
    for name, call in CALLS.items():
        query = f"SELECT sum({call}) FROM t"

        def once(query: str = query) -> None:
            connection.execute(query).fetchall()

        show(f"query, {name}", rows, once, lambda: ticks(server))
    for number, (name, call) in enumerate(CALLS.items()):
        begun, before = time.perf_counter(), ticks(server)
        connection.execute(f"CREATE MATERIALIZED VIEW v{number} AS SELECT id, {call} AS y FROM t")
        connection.execute(f"SELECT count(*) FROM v{number}").fetchall()
        print(f"hydration, {name:21} {time.perf_counter() - begun:7.2f} s"
              f"  {ticks(server) - before:7.2f} s of the processor", flush=True)  # fmt: skip
        changed = rows // 10

        def churn(number: int = number, changed: int = changed) -> None:
            connection.execute(f"UPDATE t SET a = a + 1 WHERE id <= {changed}")
            connection.execute(f"SELECT count(*) FROM v{number}").fetchall()

        show(f"churn of a tenth, {name}", 2 * changed, churn, lambda: ticks(server))
        wrong = connection.execute(
            f"SELECT count(*) FROM v{number} JOIN t USING (id) WHERE y <> a * b + 1"
        ).fetchall()
        assert wrong == [(0,)], wrong
        connection.execute(f"DROP MATERIALIZED VIEW v{number}")


def ticks(server: Server) -> float:
    """Return the seconds of the processor of the server's processes, those below them included."""
    assert server.process is not None
    total, waiting = 0.0, [server.process.pid]
    while waiting:
        pid = waiting.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(map(int, fields[11:13])) / 100
    return total


if __name__ == "__main__":
    main()
