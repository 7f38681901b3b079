"""Endless streams of rows for `sustained.py`: events of Nexmark, orders of TPC-H with their lines.

A `Stream` has a view, the tables that it reads, and batches of rows that are appended to some of
these. Batches of TPC-H have whole orders with their lines; all other tables are there before.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tests.bench import nexmark, tpch

TPCH_INPUTS = {
    "q1": ("lineitem",),
    "q3": ("orders", "lineitem"),
    "q5": ("orders", "lineitem"),
    "q18": ("orders", "lineitem"),
}
TPCH_FIXED = {
    "q1": (),
    "q3": ("customer",),
    "q5": ("region", "nation", "supplier", "customer"),
    "q18": ("customer",),
}
LINES_OF_ORDER = 4
Batch = dict[str, pa.Table]


@dataclass(frozen=True, slots=True)
class Stream:
    """A view, the DDL of its tables, what is in them at the start, and what is appended."""

    view: str
    sql: str
    schema: dict[str, str]
    fixed: Batch
    batches: Sequence[Batch]

    @property
    def rows(self) -> int:
        """Return how many rows are appended."""
        return sum(rows_of(batch) for batch in self.batches)

    def answer(self) -> list[tuple[Any, ...]]:
        """Return the rows that DuckDB computes when all has been appended."""
        with duckdb.connect() as connection:
            for name in self.schema:
                parts = [self.fixed[name]] if name in self.fixed else []
                loaded = pa.concat_tables([*parts, *(b[name] for b in self.batches if name in b)])
                connection.register("loaded", loaded)
                connection.execute(f"CREATE TABLE {name} AS FROM loaded")
                connection.unregister("loaded")
            rows: list[tuple[Any, ...]] = connection.execute(in_duckdb(self.sql)).fetchall()
            return rows


def rows_of(batch: Batch) -> int:
    """Return the rows of all tables."""
    return sum(table.num_rows for table in batch.values())


def stream(view: str, count: int, size: int) -> Stream:
    """Return a stream of so many batches, each of about `size` rows or of `size` events."""
    if view in TPCH_INPUTS:
        return _orders(view, count, size)
    inputs = nexmark.INPUTS[view]
    batches = [
        {name: rows for name, rows in nexmark.events(i * size, size).items() if name in inputs}
        for i in range(count)
    ]
    schema = {name: nexmark.SCHEMA[name] for name in inputs}
    return Stream(view, nexmark.VIEWS[view], schema, {}, batches)


def _orders(view: str, count: int, size: int) -> Stream:
    inputs, fixed = TPCH_INPUTS[view], TPCH_FIXED[view]
    of_batch = size // (LINES_OF_ORDER + len(inputs) - 1)
    data = _tables(math.ceil(count * of_batch / 1_500) / 1_000)
    batches = list(_batches({name: data[name] for name in inputs}, count, of_batch))
    schema = {name: tpch.SCHEMA[name] for name in (*fixed, *inputs)}
    return Stream(view, tpch.VIEWS[view], schema, {name: data[name] for name in fixed}, batches)


@cache
def _tables(scale: float) -> Batch:
    return {name: table.combine_chunks() for name, table in tpch.tables(scale).items()}


def _batches(data: Batch, count: int, orders: int) -> Iterator[Batch]:
    """Yield rows of so many orders at a time, in the order of their keys."""
    sorted_by_order = {}
    for name, table in data.items():
        key = "o_orderkey" if name == "orders" else "l_orderkey"
        found = table.take(pc.sort_indices(table, [(key, "ascending")])).combine_chunks()
        sorted_by_order[name] = found, found[key].to_numpy()
    for first, beyond in pairwise(range(1, (count + 1) * orders + 1, orders)):
        batch = {}
        for name, (table, keys) in sorted_by_order.items():
            start, end = keys.searchsorted([first, beyond])
            batch[name] = table.slice(start, end - start)
        yield batch


def in_duckdb(sql: str) -> str:
    """Return the text of a view for DuckDB."""
    for stride in ("10 s", "2 s", "1 day"):
        sql = sql.replace(f"date_bin('{stride}'", f"time_bucket(INTERVAL '{stride}'")
    return sql.replace("AS hop GROUP", "AS h(hop) GROUP")


def check(found: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]]) -> None:
    """Fail unless rows are the same; fractions, which peers have as floats, up to 10^-6 of them."""
    near = {
        i for row in wanted for i, value in enumerate(row) if isinstance(value, float | Decimal)
    }
    mine, theirs = ([_split(row, near) for row in rows] for rows in (found, wanted))
    mine.sort(key=repr)
    theirs.sort(key=repr)
    assert [key for key, _ in mine] == [key for key, _ in theirs], (mine[:2], theirs[:2])
    for (key, left), (_, right) in zip(mine, theirs, strict=True):
        close = [math.isclose(a, b, rel_tol=1e-6) for a, b in zip(left, right, strict=True)]
        assert all(close), (key, left, right)


def _split(row: Sequence[Any], near: set[int]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return what must be equal, as text, and fractions."""
    exact = tuple(_text(value) for i, value in enumerate(row) if i not in near)
    return exact, tuple(float(value) for i, value in enumerate(row) if i in near)


def _text(value: Any) -> str:
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else str(value)
