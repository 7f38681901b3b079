"""A step of TPC-H Q3 beside a kernel written by hand: `python -m tests.bench.fused [scale]`.

The kernel does what this one query needs for changes of `lineitem`, and no more: one time, no
errors, no NULLs, no strings, no way back. It looks orders and customers up in hash tables, adds to
the revenue of orders, and puts out what changed of them. Milliseconds of CPU, in turns.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.convert import integers
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.warm import warm
from tests.bench import cases, flow
from tests.sql.catalog import TestCatalog

BATCHES = {1: 400, 100: 200, 10_000: 15}
DAY = int(np.datetime64("1995-03-15").astype(np.int64))
FACTOR = np.uint64(0x9E3779B97F4A7C15)
Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Columns = tuple[Ints, Ints, Ints, Ints]
Rows = np.ndarray[tuple[int, int], np.dtype[np.int64]]


def kernel(function: Kernel) -> Kernel:
    """Return the function, compiled when it is called."""
    compiled: Kernel = numba.njit(nogil=True)(function)
    return compiled


@kernel
def slot_of(keys: Ints, key: int, mask: np.uint64) -> np.uint64:
    """Return the slot of a key, or the free one where it would be; 0 is no key."""
    slot = (np.uint64(key) * FACTOR >> np.uint64(20)) & mask
    while keys[slot] != 0 and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def load(keys: Ints, values: Rows, table_keys: Ints, table_values: Rows) -> None:
    """Fill a hash table."""
    mask = np.uint64(len(table_keys) - 1)
    for i in range(len(keys)):
        slot = slot_of(table_keys, keys[i], mask)
        table_keys[slot] = keys[i]
        for k in range(values.shape[1]):
            table_values[slot, k] = values[i, k]


@kernel
def step(
    order_key: Ints,
    price: Ints,
    discount: Ints,
    shipped: Ints,
    diffs: Ints,
    order_keys: Ints,
    orders: Rows,
    customer_keys: Ints,
    customers: Rows,
    sum_keys: Ints,
    sums: Rows,
    touched: Rows,
    out: Rows,
) -> int:
    """Apply changes of lines; return the number of changes of the view, which are in `out`."""
    order_mask = np.uint64(len(order_keys) - 1)
    customer_mask = np.uint64(len(customer_keys) - 1)
    sum_mask = np.uint64(len(sum_keys) - 1)
    count = 0
    for i in range(len(diffs)):
        if shipped[i] <= DAY:
            continue
        order = slot_of(order_keys, order_key[i], order_mask)
        if order_keys[order] == 0 or orders[order, 1] >= DAY:
            continue
        customer = slot_of(customer_keys, orders[order, 0], customer_mask)
        if customer_keys[customer] == 0 or customers[customer, 0] == 0:
            continue
        at = slot_of(sum_keys, order_key[i], sum_mask)
        sum_keys[at] = order_key[i]
        if sums[at, 2] == 0:
            sums[at, 2] = 1
            touched[count, 0], touched[count, 1] = np.int64(at), np.int64(order)
            touched[count, 2], touched[count, 3] = sums[at, 0], sums[at, 1]
            count += 1
        sums[at, 0] += diffs[i] * price[i] * (100 - discount[i])
        sums[at, 1] += diffs[i]
    size = 0
    for i in range(count):
        at, order = touched[i, 0], touched[i, 1]
        sums[at, 2] = 0
        if touched[i, 2] == sums[at, 0] and (touched[i, 3] > 0) == (sums[at, 1] > 0):
            continue
        for sign in (-1, 1):
            rows = touched[i, 3] if sign < 0 else sums[at, 1]
            if rows > 0:
                out[size, 0] = sum_keys[at]
                out[size, 1] = touched[i, 2] if sign < 0 else sums[at, 0]
                out[size, 2], out[size, 3] = orders[order, 1], orders[order, 2]
                out[size, 4] = sign
                size += 1
    return size


def words(rows: pa.Table, name: str) -> Ints:
    """Return a column as integers: numerics in their last digit, dates as days."""
    column = rows[name].combine_chunks()
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.decimal128(38, 2))
        halves = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
        return np.ascontiguousarray(halves[column.offset : column.offset + len(column), 0])
    return np.array(integers(column), np.int64)


class ByHand:
    """The state of the kernel."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        orders, customers = tables["orders"], tables["customer"]
        self._orders = self._table(
            words(orders, "o_orderkey"),
            [words(orders, name) for name in ("o_custkey", "o_orderdate", "o_shippriority")],
        )
        is_building = pa.compute.equal(customers["c_mktsegment"], "BUILDING").to_numpy()
        self._customers = self._table(words(customers, "c_custkey"), [is_building.astype(np.int64)])
        size = len(self._orders[0])
        self._sums = np.zeros(size, np.int64), np.zeros((size, 3), np.int64)
        lines = tables["lineitem"]
        self.step(self.columns(lines), np.ones(lines.num_rows, np.int64))

    @staticmethod
    def _table(keys: Ints, values: list[Ints]) -> tuple[Ints, Rows]:
        size = 1 << int(2 * len(keys)).bit_length()
        table = np.zeros(size, np.int64), np.zeros((size, len(values)), np.int64)
        load(keys, np.stack(values, axis=1).copy(), *table)
        return table

    @staticmethod
    def columns(rows: pa.Table) -> Columns:
        """Return what the kernel reads of lines."""
        return (
            words(rows, "l_orderkey"),
            words(rows, "l_extendedprice"),
            words(rows, "l_discount"),
            words(rows, "l_shipdate"),
        )

    def step(self, columns: Columns, diffs: Ints) -> int:
        """Apply changes; return how many changes of the view there are."""
        room = np.empty((len(diffs), 4), np.int64), np.empty((2 * len(diffs), 5), np.int64)
        return int(step(*columns, diffs, *self._orders, *self._customers, *self._sums, *room))


def main() -> None:
    """Print a line for each size of a batch."""
    warm()
    case = cases.case("q3", float(sys.argv[1]) if len(sys.argv) > 1 else 0.1)
    catalog = TestCatalog(*case.ddl)
    typed = flow.typed(case, catalog)
    bulk = DuckDbEngine(memory_limit="8GB")
    relation = flow.planned(catalog, case.sql)
    dataflow, _ = flow.hydrated(relation, flow.in_memory(typed), bulk, Collections(Interner(), 1))
    by_hand = ByHand(dict(case.tables))
    random = np.random.default_rng(1)
    id = catalog.resolve_item(("lineitem",)).id
    now = flow.START
    print(f"load {os.getloadavg()[0]:.0f}")
    for count, times in BATCHES.items():
        ours, hand = [], []
        for _ in range(times):
            old, new = case.change(count, random)["lineitem"]
            for gone, come in ((old, new), (new, old)):
                now += flow.APART
                parts = [cases.cast(each, catalog, "lineitem") for each in (gone, come)]
                signed = [cases.at(each, now, d) for each, d in zip(parts, (-1, 1), strict=True)]
                delta = pa.concat_tables(signed).combine_chunks()
                began = time.process_time_ns()
                output = dataflow.step(now, now + 1, {id: delta})
                ours.append(time.process_time_ns() - began)
                while dataflow.maintenance_due:
                    dataflow.maintain()
                columns = by_hand.columns(delta)
                diffs = np.repeat(np.array([-1, 1]), count)
                began = time.process_time_ns()
                changes = by_hand.step(columns, diffs)
                hand.append(time.process_time_ns() - began)
                assert changes == output.count, (changes, output.count)
        a, b = statistics.median(ours) / 1e6, statistics.median(hand) / 1e6
        print(f"{count:7} rows: {a:8.3f} ms, by hand {b:8.4f}, {a / b:6.1f} times", flush=True)
    dataflow.close()
    bulk.close()


if __name__ == "__main__":
    main()
