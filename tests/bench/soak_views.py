"""All views of the harness over tables that change: `Everything` and its peer, used by `soak.py`.

Beside lines of TPC-H, of which some get new quantities, edges of a graph are replaced, and events of
Nexmark arrive while the oldest leave, so that no table grows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tests.bench import nexmark
from tests.bench.freshness import Change, Cost, Ours, Peer, as_csv, rounded
from tests.bench.streams import in_duckdb
from tests.bench.tpch import MORE_VIEWS, VIEWS
from tests.harness import until

EVENTS = 20_000  # of Nexmark that are kept
ARRIVE = 100  # in each round
NODES = 2_000
REACHED = {
    "reached": "WITH MUTUALLY RECURSIVE r (n int) AS (SELECT 0 UNION SELECT e.b FROM r JOIN e"
    " ON e.a = r.n) SELECT n FROM r"
}
_FREE = {"outer": "outer_join", "window": "sums_so_far"}  # for names that are reserved
_MORE = {_FREE.get(name, name): sql for name, sql in MORE_VIEWS.items()}
ALL = {**VIEWS, **_MORE, **REACHED, **nexmark.VIEWS}
# Views that are read by a few keys in each round, and the column; the others are read whole.
BY_KEY = {
    "q3": "l_orderkey", "top": "o_custkey", "outer_join": "c_custkey", "extremes": "l_suppkey",
    "sums_so_far": "l_orderkey", "groups": "o_orderkey", "reached": "n", "q7": "auction", "q8": "id",
    "q5": "auction",
}  # fmt: skip
# DuckDB's names of the views whose text differs.
THEIRS = {
    **VIEWS,
    **_MORE,
    "reached": "WITH RECURSIVE r (n) AS (SELECT 0 UNION SELECT e.b FROM r JOIN e ON e.a = r.n)"
    " SELECT n FROM r",
    **{name: in_duckdb(sql) for name, sql in nexmark.VIEWS.items()},
}


def edges() -> pa.Table:
    """Return the edges of the graph at the start, by number."""
    ends = np.random.default_rng(1).integers(0, NODES, (3 * NODES // 2, 2)).astype(np.int32)
    return pa.table([np.arange(len(ends), dtype=np.int32), *ends.T], ["i", "a", "b"])


class Steps:
    """The changes of each round in tables other than lineitem, the same for both sides."""

    def __init__(self) -> None:
        self.round = EVENTS // ARRIVE
        self.random = np.random.default_rng(2)

    def next(self) -> tuple[dict[str, pa.Table], str, tuple[int, int, int]]:
        """Return events that arrive, the time before which events leave, and an edge (i, a, b)."""
        arriving = nexmark.events(self.round * ARRIVE, ARRIVE)
        oldest = (self.round + 1) * ARRIVE - EVENTS
        leave = nexmark.EPOCH + np.timedelta64(oldest * (1_000_000 // nexmark.RATE), "us")
        self.round += 1
        number, start, end = (int(n) for n in self.random.integers(0, NODES, 3))
        return arriving, str(leave).replace("T", " "), (number % (3 * NODES // 2), start, end)


def first_events() -> dict[str, pa.Table]:
    """Return the events that are there at the start."""
    drawn = [nexmark.events(first, ARRIVE) for first in range(0, EVENTS, ARRIVE)]
    return {name: pa.concat_tables([each[name] for each in drawn]) for name in nexmark.SCHEMA}


class Everything(Ours):
    """A server with all tables and views."""

    def load(self, data: dict[str, pa.Table]) -> None:
        """Make the tables and copy the rows into them."""
        super().load(data)
        self.steps = Steps()
        self.connection.execute(
            "CREATE TABLE e (i int PRIMARY KEY, a int NOT NULL, b int NOT NULL)"
        )
        for ddl in nexmark.SCHEMA.values():
            self.connection.execute(ddl.encode())
        for name, rows in {"e": edges(), **first_events()}.items():
            self._copy(name, rows)

    def _copy(self, name: str, rows: pa.Table) -> None:
        with self.connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
            copy.write(as_csv(rows))

    def hydrate(self) -> Cost:
        """Make the views with an index each; return what it takes until all can be read."""
        began, cpu = time.perf_counter(), self.cpu()
        for name in self.views:
            self.connection.execute(f"CREATE VIEW {name} AS {ALL[name]}".encode())
            key = f"({BY_KEY[name]})" if name in BY_KEY else ""
            made = f"CREATE INDEX ON {name} {key}" if key else f"CREATE DEFAULT INDEX ON {name}"
            self.connection.execute(made.encode())
        until(lambda: self._running() == len(self.views), "the views are hydrated")
        return Cost(0, time.perf_counter() - began, self.cpu() - cpu)

    def _running(self) -> int:
        sql = "SELECT count(*) FROM mz_internal.mz_dataflow_statuses WHERE state = 'running'"
        (running,) = self.connection.execute(sql).fetchone() or (0,)
        return int(running)

    def round(self, change: Change) -> Cost:
        """Change lines, edges and events, each durably, and read all views."""
        arriving, leave, (number, a, b) = self.steps.next()
        cpu, began = self.cpu(), time.perf_counter()
        with self.connection.transaction():
            for name, rows in arriving.items():
                self._copy(name, rows)
        for name in arriving:
            self.connection.execute(f"DELETE FROM {name} WHERE date_time < '{leave}'".encode())
        self.connection.execute("UPDATE e SET a = %s, b = %s WHERE i = %s", (a, b, number))
        cost = super().round(change)
        return Cost(cost.change, time.perf_counter() - began, self.cpu() - cpu)

    def read(self, name: str, change: Change) -> tuple[str, tuple[object, ...]]:
        """Return the statement that reads a view, and its parameters."""
        if name in BY_KEY:
            return f"SELECT * FROM {name} WHERE {BY_KEY[name]} = ANY(%b)", (change.orders,)
        return f"SELECT * FROM {name}", ()


class PeerOfEverything(Peer):
    """DuckDB with the same tables."""

    def __init__(self, data: dict[str, pa.Table], views: Sequence[str]) -> None:
        super().__init__({**data, "e": edges(), **first_events()}, views)
        self.steps = Steps()

    def apply(self, change: Change) -> None:
        """Make the same changes, without computing the views."""
        arriving, leave, (number, a, b) = self.steps.next()
        for name, rows in arriving.items():
            self.connection.register("arriving", rows)
            self.connection.execute(f"INSERT INTO {name} FROM arriving")
            self.connection.unregister("arriving")
            self.connection.execute(f"DELETE FROM {name} WHERE date_time < '{leave}'")
        self.connection.execute("UPDATE e SET a = ?, b = ? WHERE i = ?", [a, b, number])
        views, self.views = self.views, ()
        self.round(change)
        self.views = views

    def rows(self, name: str) -> set[tuple[object, ...]]:
        """Return all rows of a view."""
        return set(self.connection.execute(THEIRS[name]).fetchall())


def differing(ours: Ours, peer: Peer) -> list[str]:
    """Return the views of which some rows differ."""
    return [v for v in ours.views if rounded(ours.rows(v)) != rounded(peer.rows(v))]
