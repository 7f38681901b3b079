"""Contents of TPC-H's tables, and random refreshes of them: `Database`.

Values are drawn such that each query has an answer over a few thousand orders: fewer nations, types
and sizes than the benchmark has. Each row has two versions. A refresh inserts and deletes orders
with their lines, and gives rows of the other tables their other version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tests.bench.tpch import REGIONS, SEGMENTS

NATIONS = [*"CANADA BRAZIL FRANCE GERMANY INDIA CHINA KENYA".split(), "SAUDI ARABIA"]
REGION_OF = (1, 1, 3, 3, 2, 2, 0, 4)
TYPES = (
    *("ECONOMY ANODIZED STEEL", "PROMO BURNISHED BRASS", "MEDIUM POLISHED TIN"),
    *("STANDARD PLATED COPPER", "LARGE BRUSHED BRASS"),
)
CONTAINERS = ("SM CASE", "SM BOX", "MED BAG", "MED BOX", "LG CASE", "LG PKG")
COLOURS = ("forest", "green", "almond", "ivory")
REMARKS = ("none", "Customer had Complaints", "Customer is fine", "prompt")
WISHES = ("none", "special handling requests", "special care", "requests")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
BRANDS = ("Brand#12", "Brand#23", "Brand#34", "Brand#45")
CODES = (13, 31, 23, 44, 55)
MODES = ("AIR", "AIR REG", "MAIL", "SHIP")
INSTRUCTIONS = ("DELIVER IN PERSON", "NONE")
THERE = 0.8  # of the orders, at the beginning

Change = tuple[pa.Table, pa.Table]  # rows that go, and rows that come


class Database:
    """The tables as they are after some refreshes, and in DuckDB."""

    def __init__(self, scale: float, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._connection = duckdb.connect()
        first, second = _drawn(scale, 0), _drawn(scale, 1000)
        self._versions = {
            name: pa.concat_tables([first[name], second[name]]).combine_chunks() for name in first
        }
        self._state = {name: np.zeros(rows.num_rows, np.int8) for name, rows in first.items()}
        self._order_of_line = first["lineitem"]["l_orderkey"].to_numpy() - 1
        orders = self._state["orders"]
        orders[self._random.random(len(orders)) >= THERE] = -1
        self._state["lineitem"][orders[self._order_of_line] < 0] = -1

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows of each table."""
        return {name: self._rows(name, np.arange(len(s))) for name, s in self._state.items()}

    def refreshed(self) -> dict[str, Change]:
        """Change some rows of one or more tables, and return what goes and what comes of each."""
        changes = {}
        for name in self._random.permutation(
            ["orders", "part", "partsupp", "supplier", "customer"]
        )[: self._random.integers(1, 4)]:
            found = self._orders() if name == "orders" else {name: self._others(name)}
            changes.update({each: self._changed(each, *what) for each, what in found.items()})
        return {name: change for name, change in changes.items() if any(map(len, change))}

    def answer(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the present tables, computed by DuckDB."""
        for name, rows in self.tables().items():
            self._connection.register(name, rows)
        found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
        return found

    def close(self) -> None:
        """Close DuckDB's connection."""
        self._connection.close()

    def _orders(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Choose orders to insert, delete and change; return the next states, with the lines'."""
        count = len(self._state["orders"])
        chosen = self._random.random(count) < self._random.choice((1 / count, 0.01, 0.1))
        orders = np.flatnonzero(chosen)
        lines = np.flatnonzero(chosen[self._order_of_line])
        states = self._state["orders"].copy()
        states[orders] = self._random.integers(-1, 2, len(orders))
        gone = states[self._order_of_line[lines]] < 0
        versions = self._random.integers(0, 2, len(lines)).astype(np.int8)
        return {
            "orders": (orders, states[orders]),
            "lineitem": (lines, np.where(gone, np.int8(-1), versions)),
        }

    def _others(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Choose rows that are there and get their other version; return the next states too."""
        state = self._state[name]
        rows = np.flatnonzero((self._random.random(len(state)) < 0.05) & (state >= 0))
        return rows, 1 - state[rows]

    def _changed(self, name: str, rows: np.ndarray, states: np.ndarray) -> Change:
        """Give rows other states; return what goes and what comes."""
        moved = self._state[name][rows] != states
        rows, states = rows[moved], states[moved]
        old = self._rows(name, rows)
        self._state[name][rows] = states
        return old, self._rows(name, rows)

    def _rows(self, name: str, rows: np.ndarray) -> pa.Table:
        """Return those of the rows that are there."""
        states = self._state[name][rows].astype(np.int64)
        places = rows[states >= 0] + states[states >= 0] * len(self._state[name])
        return self._versions[name].take(pa.array(places)).combine_chunks()


def _drawn(scale: float, seed: int) -> dict[str, pa.Table]:
    """Return all rows of each table; their keys do not depend on the seed."""
    customers, orders, parts, suppliers = (
        int(n * scale) for n in (150_000, 1_500_000, 200_000, 10_000)
    )

    def pick(number: int, below: int, key: str = "i") -> str:
        return f"(hash({key} * 97 + {seed + number}) % {below})::int"

    def one_of(number: int, words: Sequence[object], key: str = "i") -> str:
        return f"({[*words]})[1 + {pick(number, len(words), key)}]"

    def money(number: int, below: int) -> str:
        return f"({pick(number, below * 100)} / 100)::decimal(15, 2)"

    phone = f"{one_of(9, CODES)} || '-' || i"
    line = "o * 8 + n"
    queries = {
        "region": f"SELECT i::int AS r_regionkey, ({[*REGIONS]})[i + 1] AS r_name FROM range(5) t(i)",
        "nation": f"""
            SELECT i::int AS n_nationkey, ({NATIONS})[i + 1] AS n_name,
                ({[*REGION_OF]})[i + 1]::int AS n_regionkey
            FROM range({len(NATIONS)}) t(i)""",
        "supplier": f"""
            SELECT i::int AS s_suppkey, 'Supplier#' || i AS s_name, 'at ' || {pick(1, 90)}
                AS s_address, {pick(2, len(NATIONS))} AS s_nationkey, {phone} AS s_phone,
                {money(3, 900)} AS s_acctbal, {one_of(4, REMARKS)} AS s_comment
            FROM range(1, {suppliers + 1}) t(i)""",
        "part": f"""
            SELECT i::int AS p_partkey, {one_of(1, COLOURS)} || ' ' || {one_of(2, COLOURS)}
                AS p_name, 'Manufacturer#' || {pick(3, 5)} AS p_mfgr, {one_of(4, BRANDS)}
                AS p_brand, {one_of(5, TYPES)} AS p_type, 1 + {pick(6, 15)} AS p_size,
                {one_of(7, CONTAINERS)} AS p_container
            FROM range(1, {parts + 1}) t(i)""",
        "partsupp": f"""
            SELECT i::int AS ps_partkey, ((i + n * {max(suppliers // 4, 1)}) % {suppliers} + 1)::int
                AS ps_suppkey, 1 + {pick(1, 100, "(i * 4 + n)")} AS ps_availqty,
                (1 + {pick(2, 50, "(i * 4 + n)")})::decimal(15, 2) AS ps_supplycost
            FROM range(1, {parts + 1}) t(i), range(4) s(n)""",
        "customer": f"""
            SELECT i::int AS c_custkey, 'Customer#' || i AS c_name, 'at ' || {pick(1, 90)}
                AS c_address, {pick(2, len(NATIONS))} AS c_nationkey, {phone} AS c_phone,
                {money(3, 900)} - 100 AS c_acctbal, {one_of(4, SEGMENTS)} AS c_mktsegment,
                {one_of(5, WISHES)} AS c_comment
            FROM range(1, {customers + 1}) t(i)""",
        "orders": f"""
            SELECT i::int AS o_orderkey, 1 + 3 * {pick(1, customers // 3)} AS o_custkey,
                {one_of(2, ["F", "O", "P"])} AS o_orderstatus, {money(3, 400_000)} AS o_totalprice,
                DATE '1992-12-01' + {pick(4, 1700)} AS o_orderdate,
                {one_of(5, PRIORITIES)} AS o_orderpriority, 0 AS o_shippriority,
                {one_of(6, WISHES)} AS o_comment
            FROM range(1, {orders + 1}) t(i)""",
        "lineitem": f"""
            SELECT o::int AS l_orderkey, p AS l_partkey,
                ((p + {pick(2, 4, line)} * {max(suppliers // 4, 1)}) % {suppliers} + 1)::int
                AS l_suppkey, n::int AS l_linenumber, q::decimal(15, 2) AS l_quantity,
                (q * (900 + p % 1000))::decimal(15, 2) AS l_extendedprice,
                ({pick(4, 11, line)} / 100)::decimal(15, 2) AS l_discount,
                ({pick(5, 9, line)} / 100)::decimal(15, 2) AS l_tax,
                {one_of(6, ["A", "R", "N"], line)} AS l_returnflag,
                {one_of(7, ["F", "O"], line)} AS l_linestatus, s AS l_shipdate,
                s + {pick(8, 60, line)} - 20 AS l_commitdate, s + 1 + {pick(9, 30, line)}
                AS l_receiptdate, {one_of(10, INSTRUCTIONS, line)} AS l_shipinstruct,
                {one_of(11, MODES, line)} AS l_shipmode
            FROM (SELECT o, n, 1 + {pick(1, parts, line)} AS p, 1 + {pick(3, 50, line)} AS q,
                    DATE '1992-12-01' + {pick(12, 1700, "o")} + {pick(13, 121, line)} AS s
                FROM range(1, {orders + 1}) t(o), range(1, 8) r(n)
                WHERE n <= 1 + hash(o) % 7) AS lines""",
    }
    with duckdb.connect() as connection:
        return {
            name: connection.sql(f"SELECT * FROM ({query}) ORDER BY 1, 2").to_arrow_table()
            for name, query in queries.items()
        }
