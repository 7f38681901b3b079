"""The views of the harness, with data and changes: `case(name, scale)` for each of `NAMES`.

    TPC-H           rows of a table get other numbers
    Nexmark         events are appended
    reached         edges of a random graph get other ends

A change is made and taken back, so that the state has the same size at each measurement.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from foreshore.types import arrow_type
from foreshore.update import DIFF, TIME
from tests.bench import nexmark, tpch
from tests.bench.streams import in_duckdb
from tests.sql.catalog import TestCatalog

Change = dict[str, tuple[pa.Table, pa.Table]]  # by table: rows that go, and rows that come
EVENTS = 1_000_000  # of Nexmark, at scale 1
_OF_FIFTY = {"person": 1, "auction": 3, "bid": 46}
EDGES = 300_000
EDGE = "CREATE TABLE edge (a int NOT NULL, b int NOT NULL)"
REACHED = """
    reached (n int) AS (
        SELECT a FROM edge WHERE a < 10 UNION SELECT e.b FROM reached r JOIN edge e ON e.a = r.n)
    SELECT n FROM reached"""
# What changes in views that read other columns than the price and the quantity of lines.
COLUMNS = {name: ("orders", ("o_totalprice",)) for name in ("top", "outer", "share")}
LINES = ("lineitem", ("l_quantity", "l_extendedprice"))


@dataclass(frozen=True)
class Case:
    """A view, its SQL for Foreshore and for DuckDB, and its tables.

    `change` makes a change of so many rows, at most `most`. `is_timed_back` says whether taking it back counts.
    """

    name: str
    sql: str
    peer_sql: str
    ddl: tuple[str, ...]
    tables: Mapping[str, pa.Table]
    change: Callable[[int, np.random.Generator], Change]
    most: int
    is_timed_back: bool = True


NAMES = (*tpch.VIEWS, *tpch.MORE_VIEWS, "reached", *(f"nexmark-{name}" for name in nexmark.VIEWS))


def case(name: str, scale: float) -> Case:
    """Return the case of a view."""
    if name.startswith("nexmark-"):
        return _nexmark(name.removeprefix("nexmark-"), scale)
    return _reached(scale) if name == "reached" else _tpch(name, scale)


def cast(rows: pa.Table, catalog: TestCatalog, table: str) -> pa.Table:
    """Return rows with the types of a table."""
    desc = catalog.resolve_item((table,)).desc
    arrays = [
        column.cast(arrow_type(each.type))
        for column, each in zip(rows.columns, desc.columns, strict=True)
    ]
    return pa.table(arrays, names=list(desc.names))


def at(rows: pa.Table, time: int, diff: int) -> pa.Table:
    """Return rows as updates."""
    for name, value in ((TIME, time), (DIFF, diff)):
        rows = rows.append_column(name, pa.array(np.full(rows.num_rows, value)))
    return rows


# --- TPC-H


@cache
def _tables(scale: float) -> dict[str, pa.Table]:
    """Return the tables in single chunks, of which a few rows are taken at once."""
    return {name: rows.combine_chunks() for name, rows in tpch.tables(scale).items()}


def _tpch(name: str, scale: float) -> Case:
    data = _tables(scale)
    table, columns = COLUMNS.get(name, LINES)
    rows = data[table]

    def change(count: int, random: np.random.Generator) -> Change:
        picked = rows.take(pa.array(random.choice(rows.num_rows, count, replace=False)))
        changed = picked
        for column in columns:
            place = changed.schema.get_field_index(column)
            field = changed.schema.field(place)
            most = 51 if column == "l_quantity" else 100_000
            values = pa.array(random.integers(1, most, count)).cast(pa.decimal128(38, 2))
            changed = changed.set_column(place, field, values.cast(field.type))
        return {table: (picked, changed)}

    sql = {**tpch.VIEWS, **tpch.MORE_VIEWS}[name]
    return Case(name, sql, sql, tuple(tpch.SCHEMA.values()), data, change, rows.num_rows)


# --- Nexmark


@cache
def _events(count: int) -> dict[str, pa.Table]:
    return nexmark.events(0, count)


def _nexmark(name: str, scale: float) -> Case:
    count = int(EVENTS * scale) // 50 * 50
    data = _events(count)
    inputs = nexmark.INPUTS[name]

    def change(rows: int, random: np.random.Generator) -> Change:
        of_fifty = sum(_OF_FIFTY[table] for table in inputs)
        first = count + 50 * int(random.integers(1 << 30))
        more = nexmark.events(first, -(-rows // of_fifty) * 50)
        change: Change = {}
        for table in inputs[:-1]:
            share = rows * _OF_FIFTY[table] // of_fifty
            change[table] = more[table].slice(0, 0), more[table].slice(0, share)
        table, taken = inputs[-1], sum(new.num_rows for _, new in change.values())
        change[table] = more[table].slice(0, 0), more[table].slice(0, rows - taken)
        return change

    tables = {table: data[table] for table in inputs}
    ddl = tuple(nexmark.SCHEMA[table] for table in inputs)
    sql = nexmark.VIEWS[name]
    return Case(
        f"nexmark-{name}", sql, in_duckdb(sql), ddl, tables, change, count, is_timed_back=False
    )


# --- recursion


def _reached(scale: float) -> Case:
    count = int(EDGES * scale)
    nodes = 2 * count // 3
    graph = np.random.default_rng(1).integers(0, nodes, (count, 2)).astype(np.int32)

    def table(edges: np.ndarray) -> pa.Table:
        return pa.table([edges[:, 0], edges[:, 1]], ["a", "b"])

    def change(rows: int, random: np.random.Generator) -> Change:
        old = graph[random.choice(count, rows, replace=False)]
        new = old.copy()
        new[:, 1] = random.integers(0, nodes, rows)
        return {"edge": (table(old), table(new))}

    sql = f"WITH RECURSIVE {REACHED}"
    tables = {"edge": table(graph)}
    return Case("reached", sql, sql.replace(" int)", ")"), (EDGE,), tables, change, count)
