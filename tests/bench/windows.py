"""Costs of changes in views with window functions, by how far they reach.

    python -m tests.bench.windows [rows] [partitions]

CPU of a step of the arrangement engine for a row added at the end of a partition, for one in its
middle, and for a thousand rows all over as many partitions, with the number of updates of the view,
beside that of DuckDB computing the view anew, and of hydration.
"""

import statistics
import sys
import time

import duckdb
import numpy as np
import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.warm import warm
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Column, Get, Literal, OrderKey, Window, WindowFunction
from foreshore.expr.windows import WHOLE
from foreshore.ids import GlobalId
from foreshore.types import INT4, INT8, ColumnType, numeric_of_scale
from foreshore.update import update_schema

TABLE = Get(GlobalId("u1"), tuple(ColumnType(type, False) for type in (INT4, INT8, INT8)))
SCHEMA = pa.schema({"partition": pa.int32(), "number": pa.int64(), "value": pa.int64()})
NUMBER, VALUE = Column(1, INT8, False), Column(2, INT8, False)
ONE = Literal(1, INT8)
TOTAL = numeric_of_scale(0)
MANY = 1_000  # rows of a large change
VIEWS = {
    "lag, lead": (
        WindowFunction("lag", (VALUE, ONE, VALUE), INT8),
        WindowFunction("lead", (VALUE, ONE, VALUE), INT8),
    ),
    "row_number": (WindowFunction("row_number", (), INT8),),
    "running sum": (WindowFunction("sum", (VALUE,), TOTAL),),
    "dense_rank": (WindowFunction("dense_rank", (), INT8),),
    "sum of the partition": (WindowFunction("sum", (VALUE,), TOTAL, WHOLE),),
}


OVER = "(PARTITION BY partition ORDER BY number)"
SQL = {
    "lag, lead": f"lag(value, 1, value) OVER {OVER}, lead(value, 1, value) OVER {OVER}",
    "row_number": f"row_number() OVER {OVER}",
    "running sum": f"sum(value) OVER {OVER}",
    "dense_rank": f"dense_rank() OVER {OVER}",
    "sum of the partition": "sum(value) OVER (PARTITION BY partition)",
}


def anew(name: str, rows: int, partitions: int) -> float:
    """Return the seconds of CPU that DuckDB takes to compute a view."""
    numbers = np.arange(rows)
    table = updates(numbers % partitions, 2 * numbers, numbers, 1).tail[0]
    peer = duckdb.connect()
    peer.execute("SET threads = 2")
    peer.register("loaded", table)
    peer.execute("CREATE TABLE t AS SELECT partition, number, value FROM loaded")
    costs = []
    for _ in range(3):
        start = time.process_time()
        peer.execute(f"SELECT *, {SQL[name]} FROM t").to_arrow_table()
        costs.append(time.process_time() - start)
    peer.close()
    return statistics.median(costs)


def updates(partitions: object, numbers: object, values: object, time: int) -> Input:
    """Return added rows."""
    columns = [pa.array(partitions, pa.int32())]
    columns += [pa.array(each, pa.int64()) for each in (numbers, values)]
    along = [pa.array([each] * len(columns[0]), pa.int64()) for each in (time, 1)]
    table = pa.Table.from_arrays([*columns, *along], schema=update_schema(SCHEMA))
    return Input(SCHEMA, (), (table,))


def measure(name: str, rows: int, partitions: int) -> str:
    """Return a line of the table for a view."""
    window = Window(TABLE, (0,), (OrderKey(NUMBER),), VIEWS[name])
    description = DataflowDescription(GlobalId("t1"), window, (TABLE.id,), (), 1)
    bulk = DuckDbEngine(threads=1)
    dataflow = FlowDataflow(description, bulk, Collections(Interner(), 1))
    numbers = np.arange(rows)
    start = time.process_time()
    dataflow.hydrate({TABLE.id: updates(numbers % partitions, 2 * numbers, numbers, 1)})
    hydration = time.process_time() - start
    shown = []
    now = 2
    random = np.random.default_rng(1)

    def one_row(n: int, first: int, now: int) -> Input:
        return updates([n % partitions], [first + 2 * n + 1], [n], now)

    def many_rows(n: int, first: int, now: int) -> Input:
        some = random.permutation(max(partitions, MANY))[:MANY] % partitions
        return updates(some, 2 * random.integers(0, first, MANY) + 1, some, now)

    for change, first in ((one_row, 2 * rows), (one_row, rows), (many_rows, rows)):
        costs, count = [], 0
        for n in range(7):
            while dataflow.maintain():
                continue
            added = change(n, first, now).tail[0]
            start = time.process_time()
            output = dataflow.step(now, now + 1, {TABLE.id: added})
            count = output.rows.num_rows
            costs.append(time.process_time() - start)
            now += 1
        shown.append(f"{1000 * statistics.median(costs):8.2f} ms ({count:,})")
    dataflow.close()
    bulk.close()
    shown.append(f"{1000 * anew(name, rows, partitions):8.0f} ms")
    return f"{name:22} {'  '.join(shown)}  {hydration:6.1f} s"


def main() -> None:
    """Print the table."""
    rows, partitions = (*map(int, sys.argv[1:]), *(1_000_000, 10)[len(sys.argv) - 1 :])
    warm()
    print(
        f"{rows:,} rows in {partitions:,} partitions: at the end, in the middle, many, anew, hydration"
    )
    for name in VIEWS:
        print(measure(name, rows, partitions), flush=True)


if __name__ == "__main__":
    main()
