"""TPCH: the tables of TPC-H at a scale, and refreshes that replace one order after another.

The first ticks make the tables, each a slice of all of them. Each later one deletes an order with
its lines and inserts another one with its key. Names and comments are shorter than the standard's.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from foreshore.sources.generators import LoadGenerator
from foreshore.storage.ingest.generators.drawn import (
    Numbers,
    cents,
    drawn,
    numbered,
    picked,
    rows,
)
from foreshore.storage.ingest.generators.tpch_words import (
    COLORS,
    COMMENTS,
    CONTAINERS,
    INSTRUCTIONS,
    MODES,
    NATIONS,
    PRIORITIES,
    REGIONS,
    SEGMENTS,
    TYPES,
)

ORDERS_AT_ONCE = 15_000  # of a tick that makes tables
FIRST_DAY = 8035  # 1992-01-01
DAYS = 2406 - 151  # of orders
MOST_LINES = 7
SHIPPED_BY = 9298  # 1995-06-17: what was received by then has a return flag


def slices(spec: LoadGenerator) -> int:
    """Return the number of ticks that make the tables."""
    return -(-_counts(spec)["orders"] // ORDERS_AT_ONCE)


def ticks(spec: LoadGenerator, begin: int, end: int) -> Mapping[str, pa.Table]:
    """Return the rows of ticks `begin` to `end`, exclusive."""
    counts, whole = _counts(spec), slices(spec)
    found = {} if begin else {"region": _regions(), "nation": _nations()}
    first, last = min(begin, whole), min(end, whole)
    orders = np.arange(0, dtype=np.int64)
    if first < last:

        def part(table: str) -> Numbers:
            count = counts[table]
            return np.arange(count * first // whole, count * last // whole, dtype=np.int64) + 1

        found["supplier"] = _suppliers(part("supplier"))
        found["part"] = _parts(part("part"))
        found["partsupp"] = _part_suppliers(part("part"), counts["supplier"])
        found["customer"] = _customers(part("customer"))
        orders = part("orders")
    refreshed = np.arange(max(begin - whole, 0), max(end - whole, 0), dtype=np.int64)
    replaced = np.repeat(refreshed % counts["orders"] + 1, 2)
    versions = np.repeat(refreshed // counts["orders"], 2)
    versions[1::2] += 1
    keys = np.concatenate([orders, replaced])
    version = np.concatenate([np.zeros(len(orders), np.int64), versions])
    swapped = np.tile(np.array([-1, 1], dtype=np.int64), len(refreshed))
    diffs = np.concatenate([np.ones(len(orders), np.int64), swapped])
    return found | _orders_and_lines(keys, version, diffs, counts)


def _counts(spec: LoadGenerator) -> Mapping[str, int]:
    sizes = {"supplier": 10_000, "part": 200_000, "customer": 150_000, "orders": 1_500_000}
    return {name: max(size * spec.scale_percent // 100, 1) for name, size in sizes.items()}


def _int4(numbers: Numbers) -> pa.Array:
    return pa.array(numbers.astype(np.int32))


def _days(numbers: Numbers) -> pa.Array:
    return pa.array(numbers.astype(np.int32)).cast(pa.date32())


def _regions() -> pa.Table:
    keys = np.arange(len(REGIONS), dtype=np.int64)
    return rows(r_regionkey=_int4(keys), r_name=list(REGIONS), r_comment=picked(COMMENTS, keys))


def _nations() -> pa.Table:
    keys = np.arange(len(NATIONS), dtype=np.int64)
    return rows(
        n_nationkey=_int4(keys),
        n_name=[name for name, _ in NATIONS],
        n_regionkey=_int4(np.array([region for _, region in NATIONS])),
        n_comment=picked(COMMENTS, keys),
    )


def _suppliers(keys: Numbers) -> pa.Table:
    return rows(
        s_suppkey=_int4(keys),
        s_name=numbered("Supplier#", keys),
        s_address=numbered("", drawn(keys, 1), 10),
        s_nationkey=_int4(drawn(keys, 2) % 25),
        s_phone=numbered("10-", drawn(keys, 3), 10),
        s_acctbal=cents(drawn(keys, 4) % 1_100_000 - 99_999),
        s_comment=picked(COMMENTS, drawn(keys, 5)),
    )


def _retail_price(parts: Numbers) -> Numbers:
    return 90_000 + parts // 10 % 20_001 + 100 * (parts % 1_000)


def _parts(keys: Numbers) -> pa.Table:
    maker = drawn(keys, 6) % 5 + 1
    return rows(
        p_partkey=_int4(keys),
        p_name=picked(COLORS, drawn(keys, 7)),
        p_mfgr=numbered("Manufacturer#", maker, 1),
        p_brand=numbered("Brand#", maker * 10 + drawn(keys, 8) % 5 + 1, 2),
        p_type=picked(TYPES, drawn(keys, 9)),
        p_size=_int4(drawn(keys, 10) % 50 + 1),
        p_container=picked(CONTAINERS, drawn(keys, 11)),
        p_retailprice=cents(_retail_price(keys)),
        p_comment=picked(COMMENTS, drawn(keys, 12)),
    )


def _supplier_of(parts: Numbers, number: Numbers, suppliers: int) -> Numbers:
    """Return one of the four suppliers of a part, which are distinct if there are enough."""
    return (parts + number * (suppliers // 4 + (parts - 1) // suppliers)) % suppliers + 1


def _part_suppliers(parts: Numbers, suppliers: int) -> pa.Table:
    each = min(4, suppliers)
    keys, number = np.repeat(parts, each), np.tile(np.arange(each, dtype=np.int64), len(parts))
    seeds = keys * 4 + number
    return rows(
        ps_partkey=_int4(keys),
        ps_suppkey=_int4(_supplier_of(keys, number, suppliers)),
        ps_availqty=_int4(drawn(seeds, 13) % 9_999 + 1),
        ps_supplycost=cents(drawn(seeds, 14) % 99_901 + 100),
        ps_comment=picked(COMMENTS, drawn(seeds, 15)),
    )


def _customers(keys: Numbers) -> pa.Table:
    return rows(
        c_custkey=_int4(keys),
        c_name=numbered("Customer#", keys),
        c_address=numbered("", drawn(keys, 16), 10),
        c_nationkey=_int4(drawn(keys, 17) % 25),
        c_phone=numbered("10-", drawn(keys, 18), 10),
        c_acctbal=cents(drawn(keys, 19) % 1_100_000 - 99_999),
        c_mktsegment=picked(SEGMENTS, drawn(keys, 20)),
        c_comment=picked(COMMENTS, drawn(keys, 21)),
    )


def _orders_and_lines(
    keys: Numbers, versions: Numbers, diffs: Numbers, counts: Mapping[str, int]
) -> dict[str, pa.Table]:
    """Return orders by their keys and versions, with the lines of each."""
    seeds = keys * 1_000_003 + versions
    day = FIRST_DAY + drawn(seeds, 22) % DAYS
    lines = drawn(seeds, 23) % MOST_LINES + 1
    begins = np.concatenate([[0], np.cumsum(lines)])
    number = np.arange(begins[-1], dtype=np.int64) - np.repeat(begins[:-1], lines) + 1
    line_seeds = np.repeat(seeds, lines) * 8 + number
    part = drawn(line_seeds, 24) % counts["part"] + 1
    supplier = _supplier_of(
        part, drawn(line_seeds, 25) % min(4, counts["supplier"]), counts["supplier"]
    )
    quantity = drawn(line_seeds, 26) % 50 + 1
    price = quantity * _retail_price(part)
    discount, tax = drawn(line_seeds, 27) % 11, drawn(line_seeds, 28) % 9
    ordered = np.repeat(day, lines)
    shipped = ordered + drawn(line_seeds, 29) % 121 + 1
    received = shipped + drawn(line_seeds, 30) % 30 + 1
    is_open = shipped > SHIPPED_BY
    charged = price * (100 + tax) * (100 - discount) // 10_000
    totals = np.add.reduceat(charged, begins[:-1]) if len(keys) else charged
    still_open = np.add.reduceat(is_open.astype(np.int64), begins[:-1]) if len(keys) else charged
    status = np.where(still_open == 0, 0, np.where(still_open == lines, 1, 2))
    returned = np.where(received > SHIPPED_BY, 2, drawn(line_seeds, 31) % 2)
    return {
        "orders": rows(
            diffs,
            o_orderkey=_int4(keys),
            o_custkey=_int4(drawn(seeds, 32) % counts["customer"] + 1),
            o_orderstatus=picked(("F", "O", "P"), status),
            o_totalprice=cents(totals),
            o_orderdate=_days(day),
            o_orderpriority=picked(PRIORITIES, drawn(seeds, 33)),
            o_clerk=numbered("Clerk#", drawn(seeds, 34) % 1_000 + 1),
            o_shippriority=_int4(np.zeros(len(keys), np.int64)),
            o_comment=picked(COMMENTS, drawn(seeds, 35)),
        ),
        "lineitem": rows(
            np.repeat(diffs, lines),
            l_orderkey=_int4(np.repeat(keys, lines)),
            l_partkey=_int4(part),
            l_suppkey=_int4(supplier),
            l_linenumber=_int4(number),
            l_quantity=cents(quantity * 100),
            l_extendedprice=cents(price),
            l_discount=cents(discount),
            l_tax=cents(tax),
            l_returnflag=picked(("A", "R", "N"), returned),
            l_linestatus=picked(("F", "O"), is_open.astype(np.int64)),
            l_shipdate=_days(shipped),
            l_commitdate=_days(ordered + drawn(line_seeds, 36) % 61 + 30),
            l_receiptdate=_days(received),
            l_shipinstruct=picked(INSTRUCTIONS, drawn(line_seeds, 37)),
            l_shipmode=picked(MODES, drawn(line_seeds, 38)),
            l_comment=picked(COMMENTS, drawn(line_seeds, 39)),
        ),
    }
