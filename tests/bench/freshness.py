"""Six TPC-H views kept up to date, beside DuckDB: `python -m tests.bench.freshness [scale] [views]`.

Rows of `lineitem` are changed in one durable transaction, then each view is read: a small one
whole, a large one by the keys that were changed. A round is from the start of the transaction to
the last row of the last view. The peer changes the same rows and computes the views anew, in turns
with ours. After each size of batch all rows of all views are compared.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv

from tests.bench.tpch import SCHEMA, VIEWS, tables
from tests.harness import Server

ROUNDS = {1: 40, 100: 20, 1_000: 12, 10_000: 5, 100_000: 3}
KEYS = {
    "q1": "l_returnflag, l_linestatus", "q3": "l_orderkey", "q5": "n_name",
    "q9": "nation, o_year", "q15": "s_suppkey", "q18": "o_orderkey",
}  # fmt: skip
BY_ORDER = {"q3": "l_orderkey"}  # large views, and the column by which they are read
KEY_OF_LINES = "PRIMARY KEY (l_orderkey, l_linenumber)"


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds of a round: for the change, in all, and of processors."""

    change: float
    total: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Change:
    """New quantities of some lines."""

    orders: list[int]
    numbers: list[int]
    quantities: list[int]


def as_csv(rows: pa.Table) -> bytes:
    """Return rows as CSV without a header."""
    out = io.BytesIO()
    pyarrow.csv.write_csv(rows, out, pyarrow.csv.WriteOptions(include_header=False))
    return out.getvalue()


class Ours:
    """A server with the tables and the views, each of which has an index."""

    def __init__(self, server: Server, data: dict[str, pa.Table], views: Sequence[str]) -> None:
        self.server = server
        self.views = views
        self.connection = server.connect()
        self.load(data)
        self.hydration = self.hydrate()

    def load(self, data: dict[str, pa.Table]) -> None:
        """Make the tables and copy the rows into them."""
        for name, rows in data.items():
            ddl = SCHEMA[name]
            self.connection.execute(
                (f"{ddl[:-1]}, {KEY_OF_LINES})" if name == "lineitem" else ddl).encode()
            )
            with self.connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
                for batch in rows.to_batches(max_chunksize=100_000):
                    copy.write(as_csv(pa.Table.from_batches([batch])))

    def hydrate(self) -> Cost:
        """Make the views; return what it takes until all can be read."""
        began, cpu = time.perf_counter(), self.cpu()
        for name in self.views:
            self.connection.execute(f"CREATE VIEW {name} AS {VIEWS[name]}".encode())
            self.connection.execute(f"CREATE INDEX ON {name} ({KEYS[name]})".encode())
        for name in self.views:
            self.connection.execute(f"SELECT count(*) FROM {name}".encode())
        seconds = time.perf_counter() - began
        return Cost(0, seconds, self.cpu() - cpu)

    def cpu(self) -> float:
        """Return the processor time of the server and all its processes so far."""
        ticks = 0
        for pid in self.server.processes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Return the bytes that the replica has in memory."""
        pages = sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.server.children()
        )
        return pages * os.sysconf("SC_PAGE_SIZE")

    def round(self, change: Change) -> Cost:
        """Change some lines and read all views."""
        cpu, began = self.cpu(), time.perf_counter()
        self.change(change)
        changed = time.perf_counter()
        with self.connection.pipeline():
            reads = [self.read(name, change) for name in self.views]
            cursors = [self.connection.execute(sql.encode(), args or None) for sql, args in reads]
            for cursor in cursors:
                cursor.fetchall()
        done = time.perf_counter()
        return Cost(changed - began, done - began, self.cpu() - cpu)

    def change(self, change: Change) -> None:
        """Change some lines."""
        if len(change.orders) == 1:
            self.connection.execute(
                "UPDATE lineitem SET l_quantity = %s WHERE l_orderkey = %s AND l_linenumber = %s",
                (change.quantities[0], change.orders[0], change.numbers[0]),
            )
        else:
            self.connection.execute(
                "UPDATE lineitem SET l_quantity = q FROM unnest(%b::int[]) WITH ORDINALITY AS a (o, i)"
                " JOIN unnest(%b::int[]) WITH ORDINALITY AS b (n, i) USING (i)"
                " JOIN unnest(%b::int[]) WITH ORDINALITY AS c (q, i) USING (i)"
                " WHERE l_orderkey = o AND l_linenumber = n",
                (change.orders, change.numbers, change.quantities),
            )

    def read(self, name: str, change: Change) -> tuple[str, tuple[object, ...]]:
        """Return the statement that reads a view, and its parameters."""
        if name in BY_ORDER:
            return f"SELECT * FROM {name} WHERE {BY_ORDER[name]} = ANY(%b)", (change.orders,)
        return f"SELECT * FROM {name}", ()

    def rows(self, name: str) -> set[tuple[Any, ...]]:
        """Return all rows of a view."""
        return set(self.connection.execute(f"SELECT * FROM {name}".encode()).fetchall())


class Peer:
    """DuckDB with the same tables, computing the views anew."""

    def __init__(self, data: dict[str, pa.Table], views: Sequence[str]) -> None:
        self.views = views
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 2")
        for name, rows in data.items():
            self.connection.register("loaded", rows)
            self.connection.execute(f"CREATE TABLE {name} AS FROM loaded")
            self.connection.unregister("loaded")

    def round(self, change: Change) -> Cost:
        """Change some lines and compute all views."""
        cpu, began = time.process_time(), time.perf_counter()
        changes = pa.table([change.orders, change.numbers, change.quantities], ["o", "n", "q"])
        self.connection.register("changes", changes)
        self.connection.execute(
            "UPDATE lineitem SET l_quantity = c.q FROM changes AS c"
            " WHERE l_orderkey = c.o AND l_linenumber = c.n"
        )
        changed = time.perf_counter()
        for name in self.views:
            self.connection.execute(VIEWS[name]).to_arrow_table()
        done = time.perf_counter()
        return Cost(changed - began, done - began, time.process_time() - cpu)

    def rows(self, name: str) -> set[tuple[Any, ...]]:
        """Return all rows of a view."""
        return set(self.connection.execute(VIEWS[name]).fetchall())


def changes(lines: pa.Table, count: int) -> Iterator[Change]:
    """Yield changes of so many lines each, from a seed."""
    random = np.random.default_rng(count)
    while True:
        picked = lines.take(pa.array(random.choice(lines.num_rows, count, replace=False)))
        yield Change(
            picked["l_orderkey"].to_pylist(),
            picked["l_linenumber"].to_pylist(),
            random.integers(1, 51, count).tolist(),
        )


def rounded(rows: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """Return rows with numbers as both print them."""
    return {tuple(round(float(v), 2) if _is_number(v) else v for v in row) for row in rows}


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__")


def agree(ours: Ours, peer: Peer) -> None:
    """Fail if a view differs."""
    for name in ours.views:
        mine, theirs = rounded(ours.rows(name)), rounded(peer.rows(name))
        assert mine == theirs, (name, list(mine ^ theirs)[:4])


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """Run a server without the tests' guard of slow callbacks."""
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        server = Server(Path(folder) / "data", arguments, program=("-m", "foreshore.server.main"))
        try:
            yield server.start()
        finally:
            server.stop()


def figures(costs: Sequence[Cost]) -> str:
    """Return medians, the worst of a hundred if there are many, and mean CPU, in milliseconds."""
    change, total = (
        statistics.median(getattr(cost, name) for cost in costs) * 1e3
        for name in ("change", "total")
    )
    cpu = statistics.mean(cost.cpu for cost in costs) * 1e3  # the clock is too coarse for medians
    worst = sorted(cost.total for cost in costs)[int(len(costs) * 0.99)] * 1e3
    return f"{change:8.1f} {total:8.1f} {worst:8.1f} {cpu:8.1f}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scale", nargs="?", type=float, default=0.1)
    parser.add_argument("views", nargs="*", default=list(VIEWS))
    parser.add_argument("--sizes", type=int, nargs="*", default=list(ROUNDS))
    options = parser.parse_args()
    data = tables(options.scale)
    lines = data["lineitem"].select(["l_orderkey", "l_linenumber"]).combine_chunks()
    with serving() as server:
        ours = Ours(server, data, options.views)
        peer = Peer(data, options.views)
        del data
        agree(ours, peer)
        print(
            f"hydration: {ours.hydration.total:.1f} s, {ours.hydration.cpu:.1f} s CPU;"
            f" replica {ours.memory() >> 20} MB",
            flush=True,
        )
        print("   rows   | ours: change, fresh, p99, CPU (ms)  | DuckDB                | ratio")
        for count in options.sizes:
            drawn = changes(lines, count)
            mine, theirs = [], []
            for number in range(ROUNDS[count] + 2):
                change = next(drawn)
                costs = ours.round(change), peer.round(change)
                if number >= 2:
                    mine.append(costs[0])
                    theirs.append(costs[1])
            agree(ours, peer)
            ratio = statistics.median(a.total / b.total for a, b in zip(mine, theirs, strict=True))
            print(f"{count:8} | {figures(mine)} | {figures(theirs)} | {ratio:.4f}", flush=True)


if __name__ == "__main__":
    main()
