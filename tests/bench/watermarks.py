"""Measure a view that emits on window close over an hour of a stream.

    python -m tests.bench.watermarks [rows a second] [seconds]

The stream has a time of its own and is read as fast as it goes. For each minute of it this prints
what the operators keep, and the time of a step, of a second each. Beside it is the same query
without EMIT ON WINDOW CLOSE, whose state grows.
"""

import sys
from time import perf_counter

import numpy as np
import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Dataflow, Input
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Aggregate, Call, Column, Get, Literal, Map, Reduce, count_all
from foreshore.expr.watermarks import final_rows
from foreshore.ids import GlobalId
from foreshore.types import INT4, INT8, INTERVAL, TIMESTAMP, ColumnType, Watermark
from foreshore.update import update_schema

COLUMNS = (ColumnType(TIMESTAMP, False), ColumnType(INT4, False), ColumnType(INT8, False))
STREAM = Get(GlobalId("u1"), COLUMNS, (), True, Watermark(0, 5_000_000))
SCHEMA = pa.schema({"at": pa.timestamp("us"), "k": pa.int32(), "v": pa.int64()})
WINDOW = 10_000_000  # microseconds
KEYS = 1000


def query() -> Reduce:
    """Return counts, sums, maxima and distinct values by windows of ten seconds and keys."""
    stride = Literal((0, 0, WINDOW), INTERVAL)
    args = (stride, Column(0, TIMESTAMP, False), Literal(0, TIMESTAMP))
    begin = Call("date_bin(interval,timestamp,timestamp)", args, TIMESTAMP)
    end = Call("add(timestamp,interval)", (begin, stride), TIMESTAMP)
    value = (Column(2, INT8, False),)
    key = (Column(3, TIMESTAMP), Column(1, INT4, False))
    distinct = Aggregate("count", value, INT8, distinct=True)
    return Reduce(Map(STREAM, (end,)), key, (count_all(), Aggregate("max", value, INT8), distinct))


def second(number: int, rows: int, random: np.random.Generator) -> pa.Table:
    """Return the rows of a second, up to four seconds late."""
    at = number * 1_000_000 + random.integers(0, 1_000_000, rows)
    at -= np.where(random.random(rows) < 0.1, random.integers(0, 3_000_000, rows), 0)
    columns = [
        pa.array(np.maximum(at, 0), pa.timestamp("us")),
        pa.array(random.integers(0, KEYS, rows, np.int32)),
        pa.array(random.integers(0, 1 << 20, rows)),
        pa.array(np.full(rows, number + 1)),
        pa.array(np.ones(rows, np.int64)),
    ]
    return pa.Table.from_arrays(columns, schema=update_schema(SCHEMA))


def held(dataflow: Dataflow) -> tuple[int, int]:
    """Return the bytes and records that a dataflow keeps."""
    assert isinstance(dataflow, FlowDataflow)
    sizes = list(dataflow.sizes())
    return sum(each.bytes for each in sizes), sum(each.records for each in sizes)


def main() -> None:
    """Run the stream."""
    rows, seconds = (int(each) for each in (*sys.argv[1:], "10000", "3600")[:2])
    bulk = DuckDbEngine(threads=1)
    final = final_rows(query())
    assert final is not None
    dataflows, spent, emitted = {}, {}, {}
    for name, plan in (("final", final), ("corrected", query())):
        description = DataflowDescription(GlobalId("t1"), plan, (STREAM.id,), (), 0)
        dataflows[name] = FlowEngine(bulk).create(description, {STREAM.id: SCHEMA})
        empty = pa.Table.from_batches([], update_schema(SCHEMA))
        dataflows[name].hydrate({STREAM.id: Input(SCHEMA, (), (empty,))})
        spent[name], emitted[name] = 0.0, 0
    random = np.random.default_rng(1)
    for number in range(seconds):
        updates = second(number, rows, random)
        for name, dataflow in dataflows.items():
            began = perf_counter()
            output = dataflow.step(number + 1, number + 2, {STREAM.id: updates})
            while dataflow.maintain():
                pass
            spent[name] += perf_counter() - began
            emitted[name] += output.rows.num_rows
        if (number + 1) % 300 == 0:
            for name, dataflow in dataflows.items():
                size, records = held(dataflow)
                print(
                    f"{(number + 1) // 60:3} min {name:9} {size / 1e6:8.1f} MB {records:9,} records"
                    f" {1000 * spent[name] / 300:6.1f} ms a step {emitted[name]:9,} updates out",
                    flush=True,
                )
                spent[name] = 0.0
                emitted[name] = 0


if __name__ == "__main__":
    main()
