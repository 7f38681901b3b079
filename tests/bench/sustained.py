"""Rows that arrive without end: `python -m tests.bench.sustained [views] [--rows N]`.

Rows are appended (`streams.py`), so many at a time, each time in one durable transaction, after which
the view is read; by COPY, and by INSERT if `--insert` says so. What is printed is how many rows a
second of wall time and a second of processor time (server and replicas) take, and the time from the
start of the transaction to the answer. Peers get the same rows in the same batches; beside each is
how many times its rows a second of processor time ours are. All answers must be those of DuckDB.

    --pathway PYTHON   a Python that has Pathway (PyPI `pathway`)
    --trickle PYTHON   a Python that has Trickle (PyPI `duckstring-trickle`)
    --pglite FOLDER    with npm's `@electric-sql/pglite` and `@electric-sql/pglite-pg_ivm` installed
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import pyarrow as pa

from tests.bench.freshness import Cost, Ours, as_csv, figures, serving
from tests.bench.peers.run import pathway, pglite, trickle
from tests.bench.streams import TPCH_INPUTS, Batch, Stream, check, rows_of, stream
from tests.harness import Server, until

ROWS_OF_INSERT = 1_000  # in one statement


class Streaming(Ours):
    """A server with the tables of a stream and its view, which has an index."""

    def __init__(self, server: Server, stream: Stream) -> None:
        self.stream = stream
        super().__init__(server, stream.fixed, [stream.view])

    def load(self, data: dict[str, pa.Table]) -> None:
        """Make the tables, and fill those that stay as they are."""
        for ddl in self.stream.schema.values():
            self.connection.execute(ddl.encode())
        self.copy(data)

    def hydrate(self) -> Cost:
        """Make the view; return when a replica keeps it up to date."""
        view = self.stream.view
        self.connection.execute(f"CREATE VIEW {view} AS {self.stream.sql}".encode())
        self.connection.execute(f"CREATE DEFAULT INDEX ON {view}".encode())
        until(self._runs, "the view is hydrated")
        return Cost(0, 0, 0)

    def _runs(self) -> bool:
        sql = "SELECT count(*) FROM mz_internal.mz_dataflow_statuses WHERE state = 'running'"
        return self.connection.execute(sql).fetchone() == (1,)

    def copy(self, batch: Batch) -> None:
        """Copy rows in."""
        for name, rows in batch.items():
            with self.connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
                copy.write(as_csv(rows))

    def append(self, batch: Batch, *, inserting: bool) -> Cost:
        """Append rows and read the view once."""
        texts = {name: as_csv(rows) for name, rows in batch.items()}
        statements = list(inserts(batch)) if inserting else []
        cpu, began = self.cpu(), time.perf_counter()
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement.encode())
            for name, text in texts.items() if not inserting else ():
                with self.connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
                    copy.write(text)
        changed = time.perf_counter()
        self.connection.execute(f"SELECT count(*) FROM {self.stream.view}".encode()).fetchall()
        done = time.perf_counter()
        return Cost(changed - began, done - began, self.cpu() - cpu)


def inserts(batch: Batch) -> Iterator[str]:
    """Yield INSERT statements of literals, as `peers/pglite.mjs` makes them."""
    for name, rows in batch.items():
        for part in rows.to_batches(max_chunksize=ROWS_OF_INSERT):
            columns = [
                [f"'{v}'" if pa.types.is_string(c.type) or pa.types.is_temporal(c.type) else str(v)
                 for v in c.to_pylist()]
                for c in part.columns
            ]  # fmt: skip
            values = ", ".join(f"({', '.join(row)})" for row in zip(*columns, strict=True))
            yield f"INSERT INTO {name} VALUES {values}"


def run(data: Stream, *, inserting: bool) -> float:
    """Print the figures of a view; return the rows for each second of processor time."""
    with serving() as server:
        ours = Streaming(server, data)
        skipped = len(data.batches) // 4
        costs = [ours.append(batch, inserting=inserting) for batch in data.batches][skipped:]
        memory = ours.memory() >> 20
        found = ours.connection.execute(f"SELECT * FROM {data.view}".encode()).fetchall()
    check(found, data.answer())
    rows = sum(map(rows_of, data.batches[skipped:]))
    by_cpu = rows / sum(c.cpu for c in costs)
    way = "INSERT" if inserting else "COPY"
    print(
        f"{data.view:4} | {way:15} | {rows / sum(c.total for c in costs):10,.0f} | {by_cpu:10,.0f}"
        f" |       | {figures(costs)} | {memory:6} MB",
        flush=True,
    )
    return by_cpu


def main() -> None:
    """Print the figures of each view, and of each peer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("views", nargs="*", default=[*TPCH_INPUTS])
    parser.add_argument("--rows", type=int, default=20_000, help="rows or events in a transaction")
    parser.add_argument("--count", type=int, default=40, help="transactions")
    parser.add_argument("--insert", action="store_true", help="by INSERT as well")
    for peer in ("pathway", "trickle", "pglite"):
        parser.add_argument(f"--{peer}")
    options = parser.parse_args()
    print("view | by              |     rows/s | per CPU s  | ratio | change, fresh, p99, CPU (ms)")
    for view in options.views:
        data = stream(view, options.count, options.rows)
        ours = run(data, inserting=False)
        if options.pathway:
            pathway(options.pathway, data, ours)
        if view in TPCH_INPUTS:
            if options.trickle:
                trickle(options.trickle, data, ours)
            if options.pglite:
                pglite(options.pglite, data, ours, inserting=False)
        if options.insert:
            ours = run(data, inserting=True)
            if options.pglite and view in TPCH_INPUTS:
                pglite(options.pglite, data, ours, inserting=True)


if __name__ == "__main__":
    main()
