"""CPU of hydrating the demo's views and of keeping them up to date: `python -m tests.bench.ticks`.

All flights of 2013 as they were known in July; then flights are corrected, one in each step and
10,000 in each, and the medians shown. Arguments: `duckdb` or `spark`, then the views (all, if none).
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.describe import describe_maintenance
from foreshore.compute.engine import Engine, Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.server.demo.history import History
from foreshore.server.demo.schema import TABLES, VIEWS
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from foreshore.update import DIFF, TIME
from tests.sql.catalog import TestCatalog

START = 1
STEPS = {1: 40, 10_000: 6}


def make_engine(name: str, directory: Path) -> Engine:
    """Return the engine of that name."""
    if name == "spark":
        from foreshore.compute.bulk.spark import SparkEngine
        from foreshore.compute.spark.options import SparkOptions

        return SparkEngine(SparkOptions(directory / "spark", "local[2]"))
    from foreshore.compute.bulk.duckdb import DuckDbEngine

    return DuckDbEngine(directories=[str(directory)])


def at(rows: pa.Table, time: int, diff: int) -> pa.Table:
    """Return rows as updates."""
    for name, value in ((TIME, time), (DIFF, diff)):
        rows = rows.append_column(name, pa.array(np.full(rows.num_rows, value)))
    return rows


def corrected(flights: pa.Table, first: int, count: int) -> pa.Table:
    """Return some flights with other delays."""
    some = flights.slice(first, count)
    delays = pa.array(np.arange(first, first + count) % 120, pa.int32())
    index = some.schema.get_field_index("dep_delay")
    return some.set_column(index, some.schema.field(index), delays)


def measure(
    engine: Engine, name: str, relation: Relation, tables: dict[GlobalId, pa.Table], dir: Path
) -> None:
    """Print what one view takes."""
    inputs = {}
    schemas = {}
    for id in sources_of(relation):
        path = str(dir / f"{id}.parquet")
        pq.write_table(at(tables[id], START, 1), path)
        schemas[id] = tables[id].schema
        inputs[id] = Input(tables[id].schema, (path,))
    description = DataflowDescription(GlobalId("t1"), relation, tuple(inputs), (), START)
    dataflow = engine.create(description, schemas)
    began = time.perf_counter()
    rows = dataflow.hydrate(inputs).rows.num_rows
    print(f"{name:18} hydrate {time.perf_counter() - began:7.3f} s, {rows} rows", flush=True)
    flights = GlobalId("u5")
    now = START
    place = 0
    for count, steps in STEPS.items():
        taken = []
        for _ in range(steps):
            now += 1
            old = tables[flights].slice(place, count)
            new = corrected(tables[flights], place, count)
            place += count
            delta = pa.concat_tables([at(old, now, -1), at(new, now, 1)])
            began = time.perf_counter()
            dataflow.step(now, now + 1, {flights: delta})
            taken.append(time.perf_counter() - began)
        median, least = statistics.median(taken) * 1000, min(taken) * 1000
        print(
            f"{name:18} {count:6} changed: median {median:7.1f} ms, least {least:7.1f} ms",
            flush=True,
        )
    dataflow.close()


def main(arguments: Sequence[str]) -> None:
    """Measure the views named."""
    which, *views = arguments or ["duckdb"]
    history = History()
    catalog = TestCatalog(*(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
    tables = {}
    for name in TABLES:
        item = catalog.resolve_item((name,))
        if name == "flights":
            rows = history.known_at(datetime(2013, 12, 31))
        elif name == "demo_clock":
            continue
        else:
            rows = history.dimension(name)
        tables[item.id] = rows.select(list(item.desc.names)).cast(item.desc.arrow_schema())
    with tempfile.TemporaryDirectory() as directory:
        engine = make_engine(which, Path(directory))
        for name in views or VIEWS:
            (statement,) = parse(VIEWS[name])
            plan = plan_statement(statement, catalog)
            assert isinstance(plan, Select)
            relation = optimize(plan.query.relation)
            print(describe_maintenance(which, relation))
            measure(engine, name, relation, tables, Path(directory))
        engine.close()


if __name__ == "__main__":
    main(sys.argv[1:])
