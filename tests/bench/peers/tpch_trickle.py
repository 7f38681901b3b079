"""Views of TPC-H in Trickle: `PYTHON -m tests.bench.peers.tpch_trickle VIEW FOLDER ROWS`.

Appends the rows of each batch (`run.py`) to tables in a DuckDB file, runs the view, and reads it.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import trickle  # type: ignore[import-not-found]
from trickle import agg

KEYS = {"orders": ["o_orderkey"], "lineitem": ["l_orderkey", "l_linenumber"]}
NUMERIC = {
    "orders": "{'o_totalprice': 'DECIMAL(15, 2)'}",
    "lineitem": "{'l_quantity': 'DECIMAL(15, 2)', 'l_extendedprice': 'DECIMAL(15, 2)',"
    " 'l_discount': 'DECIMAL(15, 2)', 'l_tax': 'DECIMAL(15, 2)'}",
}
PRICE = "l_extendedprice * (1 - l_discount)"


TABLES = {
    "l": "lineitem", "o": "orders", "c": "customer", "s": "supplier", "n": "nation", "r": "region",
}  # fmt: skip


def qualified(sql: str) -> str:
    """Return SQL with the table before each column, as Trickle needs it above joins."""
    return re.sub(r"\b([locsnr])_([a-z]+)", lambda m: f"{TABLES[m[1]]}.{m[0]}", sql)


def named(columns: Sequence[str]) -> str:
    """Return the items of a SELECT that keep the columns' names."""
    return ", ".join(f"{qualified(column)} AS {column}" for column in columns)


def q1(run: Any) -> None:
    """Maintain sums of lines by their flags."""
    key = ("l_returnflag", "l_linestatus")
    columns = named((*key, "l_quantity", "l_extendedprice", "l_discount"))
    run.source("lineitem").alias("lineitem").filter(
        qualified("l_shipdate <= DATE '1998-09-02'")
    ).select(
        f"{columns}, {qualified(PRICE)} AS price, {qualified(PRICE + ' * (1 + l_tax)')} AS charge"
    ).aggregate(
        by=key, quantity=agg.sum("l_quantity"),
        base=agg.sum("l_extendedprice"), price=agg.sum("price"), charge=agg.sum("charge"),
        avg_quantity=agg.mean("l_quantity"), avg_price=agg.mean("l_extendedprice"),
        avg_discount=agg.mean("l_discount"), n=agg.count(),
    ).merge("result")  # fmt: skip


def q3(run: Any) -> None:
    """Maintain the revenue of orders of one segment that were not shipped at a date."""
    key = ("l_orderkey", "o_orderdate", "o_shippriority")
    lines(run).filter(
        qualified(
            "c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15'"
            " AND l_shipdate > DATE '1995-03-15'"
        )
    ).select(f"{named(key)}, {qualified(PRICE)} AS price").aggregate(
        by=key, revenue=agg.sum("price")
    ).merge("result")


def q5(run: Any) -> None:
    """Maintain the revenue by nation of a region within a year."""
    joined = lines(run)
    for name, on in (
        ("supplier", {"lineitem.l_suppkey": "s_suppkey", "customer.c_nationkey": "s_nationkey"}),
        ("nation", {"customer.c_nationkey": "n_nationkey"}),
        ("region", {"nation.n_regionkey": "r_regionkey"}),
    ):
        joined = joined.join(run.source(name).alias(name), on=on)
    joined.filter(
        qualified(
            "r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'"
            " AND o_orderdate < DATE '1995-01-01'"
        )
    ).select(f"{named(('n_name',))}, {qualified(PRICE)} AS price").aggregate(
        by="n_name", revenue=agg.sum("price")
    ).merge("result")


def q18(run: Any) -> None:
    """Maintain the pieces of orders; those of more than 300 are found when it is read."""
    key = ("c_name", "c_custkey", "l_orderkey", "o_orderdate", "o_totalprice")
    lines(run).select(named((*key, "l_quantity"))).aggregate(
        by=key, quantity=agg.sum("l_quantity")
    ).merge("result")


def lines(run: Any) -> Any:
    """Return lines with their orders and customers."""
    return (
        run.source("lineitem")
        .alias("lineitem")
        .join(run.source("orders").alias("orders"), on={"lineitem.l_orderkey": "o_orderkey"})
        .join(run.source("customer").alias("customer"), on={"orders.o_custkey": "c_custkey"})
    )


READ = {
    "q1": "SELECT l_returnflag, l_linestatus, quantity, base, price, charge, avg_quantity,"
    " avg_price, avg_discount, n FROM result",
    "q3": "SELECT l_orderkey, revenue, o_orderdate, o_shippriority FROM result",
    "q5": "SELECT n_name, revenue FROM result",
    "q18": "SELECT c_name, c_custkey, l_orderkey, o_orderdate, o_totalprice, quantity FROM result"
    " WHERE quantity > 300",
}
VIEWS: dict[str, Callable[[Any], None]] = {"q1": q1, "q3": q3, "q5": q5, "q18": q18}


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return float(value) if hasattr(value, "__float__") and not isinstance(value, int) else value


def main() -> None:
    """Append all batches; print seconds and the rows of the view."""
    view, folder = sys.argv[1], Path(sys.argv[2])
    connection = duckdb.connect(str(folder / "db.duckdb"))
    connection.execute("SET threads = 2")
    tables = sorted(path.name for path in folder.iterdir() if path.is_dir())
    appended = {name: sorted((folder / name).glob("0*.csv")) for name in tables}
    for name in tables:
        if not appended[name]:
            path = folder / name / "fixed.csv"
            with trickle.run(connection, pipeline="fixed") as run:
                key = connection.sql(f"FROM read_csv('{path}')").columns[0]
                run.merge_table(name, connection.sql(f"FROM read_csv('{path}')"), pk=key)
    streamed = [name for name in tables if appended[name]]
    seconds = []
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(len(appended[streamed[0]])):
        started = time.perf_counter()
        with trickle.run(connection) as run:
            for name in streamed:
                source = f"FROM read_csv('{appended[name][number]}', types={NUMERIC[name]})"
                run.append_table(name, connection.sql(source), pk=KEYS[name])
            VIEWS[view](run)
        connection.sql(f"SELECT count(*) FROM ({READ[view]})").fetchall()
        seconds.append(time.perf_counter() - started)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    rows = connection.sql(READ[view]).fetchall()
    answer = [[plain(value) for value in row] for row in rows]
    found = {"wall": wall, "cpu": used, "batch": statistics.median(seconds), "answer": answer}
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
