"""Rows that arrive without end: `python -m tests.bench.sustained [views] [--rows N]`.

Events of Nexmark (`nexmark.py`) are copied in, so many at a time, each time in one durable
transaction, after which the view is read. What is printed is how many events a second of wall time
and a second of processor time (server and replicas) take, and the time from the start of COPY to
the answer. At the end the answer is compared with DuckDB's. Peers, if `--pathway` names a Python
that has Pathway, get the same events as files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv

from tests.bench import nexmark
from tests.bench.freshness import Cost, Ours, as_csv, figures, serving
from tests.harness import until

PATHWAY = Path(__file__).parent / "nexmark_pathway.py"


def chunks(count: int, size: int) -> Iterator[dict[str, pa.Table]]:
    """Yield so many times `size` events."""
    for number in range(count):
        yield nexmark.events(number * size, size)


class Stream(Ours):
    """A server with the tables of Nexmark and one view, which has an index."""

    def load(self, data: dict[str, pa.Table]) -> None:
        """Make the tables."""
        for ddl in nexmark.SCHEMA.values():
            self.connection.execute(ddl.encode())

    def hydrate(self) -> Cost:
        """Make the views; return when a replica keeps them up to date."""
        for name in self.views:
            self.connection.execute(f"CREATE VIEW {name} AS {nexmark.VIEWS[name]}".encode())
            self.connection.execute(f"CREATE DEFAULT INDEX ON {name}".encode())
        until(self._all_run, "the views are hydrated")
        return Cost(0, 0, 0)

    def _all_run(self) -> bool:
        sql = "SELECT count(*) FROM mz_internal.mz_dataflow_statuses WHERE state = 'running'"
        (running,) = self.connection.execute(sql).fetchone() or (0,)
        return int(running) == len(self.views)

    def append(self, rows: dict[str, pa.Table]) -> Cost:
        """Copy events in and read the view once."""
        used = {name for view in self.views for name in nexmark.INPUTS[view]}
        texts = {name: as_csv(rows[name]) for name in sorted(used)}
        cpu, began = self.cpu(), time.perf_counter()
        with self.connection.transaction():
            for name, text in texts.items():
                with self.connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
                    copy.write(text)
        changed = time.perf_counter()
        for name in self.views:
            self.connection.execute(f"SELECT count(*) FROM {name}".encode()).fetchall()
        done = time.perf_counter()
        return Cost(changed - began, done - began, self.cpu() - cpu)


def in_duckdb(sql: str) -> str:
    """Return the text of a view for DuckDB."""
    for stride in ("10 s", "2 s", "1 day"):
        sql = sql.replace(f"date_bin('{stride}'", f"time_bucket(INTERVAL '{stride}'")
    return sql.replace("AS hop GROUP", "AS h(hop) GROUP")


def rows_of(data: list[dict[str, pa.Table]], view: str) -> Counter[tuple[Any, ...]]:
    """Return the rows that DuckDB computes of all events."""
    with duckdb.connect() as connection:
        for name in nexmark.SCHEMA:
            connection.register("loaded", pa.concat_tables([each[name] for each in data]))
            connection.execute(f"CREATE TABLE {name} AS FROM loaded")
            connection.unregister("loaded")
        return plain(connection.execute(in_duckdb(nexmark.VIEWS[view])).fetchall())


def plain(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return rows with numbers rounded as both can represent them."""
    return Counter(
        tuple(round(float(v), 3) if hasattr(v, "__float__") else v for v in row) for row in rows
    )


def run(view: str, count: int, size: int) -> None:
    """Print the figures of a view."""
    data = list(chunks(count, size))
    with serving() as server:
        ours = Stream(server, {}, [view])
        costs = [ours.append(rows) for rows in data][count // 4 :]
        memory = ours.memory() >> 20
        answer = plain(ours.connection.execute(f"SELECT * FROM {view}".encode()).fetchall())
    assert answer == rows_of(data, view), (view, [*(answer - rows_of(data, view))][:3])
    events = len(costs) * size
    print(
        f"{view:4} | {events / sum(c.total for c in costs):10,.0f}"
        f" | {events / sum(c.cpu for c in costs):10,.0f} | {figures(costs)} | {memory:6} MB",
        flush=True,
    )


def run_pathway(python: str, view: str, count: int, size: int) -> None:
    """Print the events a second of processor time that Pathway takes."""
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        for number, rows in enumerate(chunks(count, size)):
            for name in nexmark.INPUTS[view]:
                table = rows[name]
                path = Path(folder, name)
                path.mkdir(exist_ok=True)
                names = ["number" if name == "id" else name for name in table.column_names]
                pyarrow.csv.write_csv(table.rename_columns(names), path / f"{number:06}.csv")
        done = subprocess.run(
            [python, str(PATHWAY), view, folder, str(count * size)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    print(f"{view:4} | Pathway: {done.stdout.strip()}", flush=True)


def main() -> None:
    """Print the figures of each view."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*", default=list(nexmark.VIEWS))
    parser.add_argument("--rows", type=int, default=20_000, help="events in a transaction")
    parser.add_argument("--count", type=int, default=40, help="transactions")
    parser.add_argument("--pathway", help="a Python that has Pathway")
    options = parser.parse_args()
    print("view |   events/s | per CPU s  | change, fresh, p99, CPU (ms) | replica")
    for view in options.views:
        run(view, options.count, options.rows)
        if options.pathway:
            run_pathway(options.pathway, view, options.count, options.rows)


if __name__ == "__main__":
    main()
