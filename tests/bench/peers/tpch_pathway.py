"""Views of TPC-H in Pathway: `PYTHON -m tests.bench.peers.tpch_pathway VIEW FOLDER ROWS`.

Reads CSV files of rows (`run.py`), those that are appended as a stream with a commit every 100 ms.
Numerics are floats and dates are texts, which is in Pathway's favour.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pathway as pw  # type: ignore[import-not-found]

from tests.bench.peers.pathway_run import run


class Region(pw.Schema):  # type: ignore[misc]
    """A row of region."""

    r_regionkey: int
    r_name: str


class Nation(pw.Schema):  # type: ignore[misc]
    """A row of nation."""

    n_nationkey: int
    n_name: str
    n_regionkey: int


class Supplier(pw.Schema):  # type: ignore[misc]
    """A row of supplier."""

    s_suppkey: int
    s_nationkey: int


class Customer(pw.Schema):  # type: ignore[misc]
    """A row of customer."""

    c_custkey: int
    c_name: str
    c_nationkey: int
    c_mktsegment: str


class Orders(pw.Schema):  # type: ignore[misc]
    """A row of orders."""

    o_orderkey: int
    o_custkey: int
    o_totalprice: float
    o_orderdate: str
    o_shippriority: int


class Lineitem(pw.Schema):  # type: ignore[misc]
    """A row of lineitem."""

    l_orderkey: int
    l_suppkey: int
    l_quantity: float
    l_extendedprice: float
    l_discount: float
    l_tax: float
    l_returnflag: str
    l_linestatus: str
    l_shipdate: str


SCHEMAS = {
    "region": Region, "nation": Nation, "supplier": Supplier, "customer": Customer,
    "orders": Orders, "lineitem": Lineitem,
}  # fmt: skip
APPENDED = ("orders", "lineitem")


def read(folder: Path, name: str) -> pw.Table:
    """Return a table of a folder of CSV files."""
    mode = "streaming" if name in APPENDED else "static"
    return pw.io.csv.read(
        str(folder / name), schema=SCHEMAS[name], mode=mode, autocommit_duration_ms=100
    )


def q1(lineitem: pw.Table) -> pw.Table:
    """Return sums of lines by their flags."""
    lines = lineitem.filter(lineitem.l_shipdate <= "1998-09-02")
    price = lines.l_extendedprice * (1 - lines.l_discount)
    lines = lines.with_columns(price=price, charge=price * (1 + lines.l_tax))
    sums = lines.groupby(lines.l_returnflag, lines.l_linestatus).reduce(
        lines.l_returnflag, lines.l_linestatus,
        quantity=pw.reducers.sum(lines.l_quantity), base=pw.reducers.sum(lines.l_extendedprice),
        price=pw.reducers.sum(lines.price), charge=pw.reducers.sum(lines.charge),
        discount=pw.reducers.sum(lines.l_discount), count=pw.reducers.count(),
    )  # fmt: skip
    return sums.select(
        sums.l_returnflag, sums.l_linestatus, sums.quantity, sums.base, sums.price, sums.charge,
        avg_quantity=sums.quantity / sums.count, avg_price=sums.base / sums.count,
        avg_discount=sums.discount / sums.count, count_order=sums.count,
    )  # fmt: skip


def q3(customer: pw.Table, orders: pw.Table, lineitem: pw.Table) -> pw.Table:
    """Return the revenue of orders of one segment that were not shipped at a date."""
    building = customer.filter(customer.c_mktsegment == "BUILDING")
    earlier = orders.filter(orders.o_orderdate < "1995-03-15")
    later = lineitem.filter(lineitem.l_shipdate > "1995-03-15")
    theirs = building.join(earlier, building.c_custkey == earlier.o_custkey).select(
        earlier.o_orderkey, earlier.o_orderdate, earlier.o_shippriority
    )
    lines = theirs.join(later, theirs.o_orderkey == later.l_orderkey).select(
        later.l_orderkey, theirs.o_orderdate, theirs.o_shippriority,
        price=later.l_extendedprice * (1 - later.l_discount),
    )  # fmt: skip
    return lines.groupby(lines.l_orderkey, lines.o_orderdate, lines.o_shippriority).reduce(
        lines.l_orderkey, revenue=pw.reducers.sum(lines.price),
        o_orderdate=lines.o_orderdate, o_shippriority=lines.o_shippriority,
    )  # fmt: skip


def q5(
    region: pw.Table,
    nation: pw.Table,
    supplier: pw.Table,
    customer: pw.Table,
    orders: pw.Table,
    lineitem: pw.Table,
) -> pw.Table:
    """Return the revenue by nation of a region within a year."""
    asia = region.filter(region.r_name == "ASIA")
    nations = asia.join(nation, asia.r_regionkey == nation.n_regionkey).select(
        nation.n_nationkey, nation.n_name
    )
    who = nations.join(customer, nations.n_nationkey == customer.c_nationkey).select(
        nations.n_name, customer.c_custkey, customer.c_nationkey
    )
    year = orders.filter((orders.o_orderdate >= "1994-01-01") & (orders.o_orderdate < "1995-01-01"))
    theirs = who.join(year, who.c_custkey == year.o_custkey).select(
        who.n_name, who.c_nationkey, year.o_orderkey
    )
    lines = theirs.join(lineitem, theirs.o_orderkey == lineitem.l_orderkey).select(
        theirs.n_name, theirs.c_nationkey, lineitem.l_suppkey,
        price=lineitem.l_extendedprice * (1 - lineitem.l_discount),
    )  # fmt: skip
    local = lines.join(
        supplier,
        lines.l_suppkey == supplier.s_suppkey,
        lines.c_nationkey == supplier.s_nationkey,
    ).select(lines.n_name, lines.price)
    return local.groupby(local.n_name).reduce(local.n_name, revenue=pw.reducers.sum(local.price))


def q18(customer: pw.Table, orders: pw.Table, lineitem: pw.Table) -> pw.Table:
    """Return orders of more than 300 pieces, with their customers."""
    sums = lineitem.groupby(lineitem.l_orderkey).reduce(
        lineitem.l_orderkey, quantity=pw.reducers.sum(lineitem.l_quantity)
    )
    large = sums.filter(sums.quantity > 300)
    theirs = large.join(orders, large.l_orderkey == orders.o_orderkey).select(
        orders.o_orderkey, orders.o_custkey, orders.o_orderdate, orders.o_totalprice, large.quantity
    )
    return theirs.join(customer, theirs.o_custkey == customer.c_custkey).select(
        customer.c_name, customer.c_custkey, theirs.o_orderkey, theirs.o_orderdate,
        theirs.o_totalprice, theirs.quantity,
    )  # fmt: skip


VIEWS: dict[str, tuple[Callable[..., pw.Table], tuple[str, ...]]] = {
    "q1": (q1, ("lineitem",)),
    "q3": (q3, ("customer", "orders", "lineitem")),
    "q5": (q5, ("region", "nation", "supplier", "customer", "orders", "lineitem")),
    "q18": (q18, ("customer", "orders", "lineitem")),
}


def main() -> None:
    """Run a view."""
    view, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    make, names = VIEWS[view]
    tables = {name: read(folder, name) for name in names}
    run([tables[name] for name in names if name in APPENDED], make(*tables.values()), rows)


if __name__ == "__main__":
    main()
