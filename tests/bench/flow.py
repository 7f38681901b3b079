"""The engines beside recomputation, without a server: `python -m tests.bench.flow [scale] [views]`.

For each view: the CPU and wall time to hydrate it, and of a step in which 1, 100, ... rows of
`lineitem` are replaced, beside those of DuckDB computing the view anew over the same tables.
`together` hydrates all views in one replica from Arrow tables, `files` from the Parquet files in
which tables are stored, beside DuckDB computing all of them from its own tables.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow.build import columns_imported
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.warm import warm
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Select
from foreshore.sql.planner import plan_statement
from foreshore.storage.batch import ROW_GROUP_ROWS, column_names
from foreshore.types import arrow_type
from foreshore.update import DIFF, TIME
from tests.bench.tpch import MORE_VIEWS, SCHEMA, VIEWS, tables
from tests.sql.catalog import TestCatalog

START = 1
TOGETHER = "together"  # all of `VIEWS` in one replica
FILES = "files"  # the same, over tables in Parquet files
BATCHES = {1: 200, 100: 50, 1_000: 20, 10_000: 8, 100_000: 3}


def planned(catalog: TestCatalog, sql: str) -> Relation:
    """Return the optimized plan of a query."""
    (statement,) = parse(sql)
    plan = plan_statement(statement, catalog)
    assert isinstance(plan, Select)
    return optimize(plan.query.relation)


def at(rows: pa.Table, time: int, diff: int) -> pa.Table:
    """Return rows as updates."""
    for name, value in ((TIME, time), (DIFF, diff)):
        rows = rows.append_column(name, pa.array(np.full(rows.num_rows, value)))
    return rows


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of CPU and of wall time that `work` takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    """Print the figures of each view."""
    warm()  # as a replica does before it is ready
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    catalog = TestCatalog(*SCHEMA.values())
    data = tables(scale)
    ids = {name: catalog.resolve_item((name,)).id for name in SCHEMA}
    typed = {}
    for name, rows in data.items():
        desc = catalog.resolve_item((name,)).desc
        arrays = [
            column.cast(arrow_type(each.type))
            for column, each in zip(rows.columns, desc.columns, strict=True)
        ]
        typed[ids[name]] = pa.table(arrays, names=list(desc.names))
    folder = tempfile.TemporaryDirectory(prefix="foreshore-bench-")
    bulk = DuckDbEngine(memory_limit="8GB", directories=(folder.name,))
    lines = typed[ids["lineitem"]]
    peer = duckdb.connect()
    peer.execute("SET threads = 2")
    for name, rows in data.items():
        peer.register("loaded", rows)
        peer.execute(f"CREATE TABLE {name} AS FROM loaded")
    views = sys.argv[2:] or [*VIEWS, TOGETHER]
    for view in views:
        if view in (TOGETHER, FILES):
            spent = [computed_anew(peer) for _ in range(5)]
            anew = statistics.median(cpu for cpu, _ in spent)
            inputs = in_memory(typed) if view == TOGETHER else in_files(typed, Path(folder.name))
            run_together([planned(catalog, sql) for sql in VIEWS.values()], inputs, bulk, anew)
            continue
        sql = {**VIEWS, **MORE_VIEWS}[view]
        run_view(view, sql, planned(catalog, sql), typed, lines, ids["lineitem"], bulk, peer)


def computed_anew(peer: duckdb.DuckDBPyConnection) -> tuple[float, float]:
    """Return the seconds of CPU and of wall time that DuckDB takes to compute all views."""
    return cost(lambda: [peer.execute(sql).to_arrow_table() for sql in VIEWS.values()])


def in_memory(typed: Mapping[GlobalId, pa.Table]) -> dict[GlobalId, Input]:
    """Return tables as inputs that are in memory."""
    return {id: Input(rows.schema, (), (at(rows, START, 1),)) for id, rows in typed.items()}


def in_files(typed: Mapping[GlobalId, pa.Table], folder: Path) -> dict[GlobalId, Input]:
    """Return tables as inputs in files as the storage writes them."""
    found = {}
    for id, rows in typed.items():
        updates, path = at(rows, START, 1), folder / f"{id}.parquet"
        updates = updates.rename_columns(column_names(updates.schema))
        pq.write_table(updates, path, ROW_GROUP_ROWS, compression="zstd")
        found[id] = Input(rows.schema, (str(path),), ())
    return found


def hydrated(
    relation: Relation,
    typed: Mapping[GlobalId, Input],
    bulk: DuckDbEngine,
    collections: Collections,
) -> tuple[FlowDataflow, tuple[float, float]]:
    """Return a hydrated dataflow, and the seconds of CPU and of wall time that it took."""
    sources = tuple(sorted(sources_of(relation)))
    description = DataflowDescription(GlobalId("t1"), relation, sources, (), START)
    dataflow = FlowDataflow(description, bulk, collections)
    inputs = {s: typed[s] for s in sources}
    return dataflow, cost(lambda: dataflow.hydrate(inputs))


def run_together(
    relations: list[Relation], typed: Mapping[GlobalId, Input], bulk: DuckDbEngine, anew: float
) -> None:
    """Print the figures of views that share their collections, hydrated one after the other."""
    collections = Collections(Interner(), 1)
    expected: defaultdict[GlobalId, set[int]] = defaultdict(set)  # as a replica does
    for relation in relations:
        for id, picked in columns_imported(relation).items():
            expected[id] |= picked
    collections.expect({id: frozenset(picked) for id, picked in expected.items()})
    found = [hydrated(relation, typed, bulk, collections) for relation in relations]
    cpu, wall = (sum(each) for each in zip(*(spent for _, spent in found), strict=True))
    shared = sum(s.nbytes for spines in collections.sizes().values() for s in spines)
    own = sum(size.bytes for dataflow, _ in found for size in dataflow.sizes())
    print(
        f"all six in one replica: hydration {cpu:.2f} s CPU, {wall:.2f} wall,"
        f" {cpu / anew:.1f} of anew ({anew:.2f} s);"
        f" state {shared / 1e6:.0f} MB shared, {own / 1e6:.0f} MB of their own"
    )


def run_view(
    view: str,
    sql: str,
    relation: Relation,
    typed: dict[GlobalId, pa.Table],
    lines: pa.Table,
    id: GlobalId,
    bulk: DuckDbEngine,
    peer: duckdb.DuckDBPyConnection,
) -> None:
    """Print the figures of one view."""
    anew = [cost(lambda: peer.execute(sql).to_arrow_table()) for _ in range(5)]
    anew_cpu, anew_wall = (statistics.median(each) for each in zip(*anew, strict=True))
    dataflow, (cpu, wall) = hydrated(relation, in_memory(typed), bulk, Collections(Interner(), 1))
    print(
        f"{view}: anew {anew_cpu * 1e3:.0f} ms CPU, {anew_wall * 1e3:.0f} wall;"
        f" hydration {cpu:.2f} s CPU, {wall:.2f} wall"
    )
    random = np.random.default_rng(1)
    now = START + 1
    for count, times in BATCHES.items():
        if count > lines.num_rows // 4:
            continue
        spent = []
        for _ in range(times):
            picked = lines.take(pa.array(random.integers(0, lines.num_rows, count)))
            quantity = pa.array(random.integers(1, 51, count)).cast(pa.decimal128(38, 2))
            place = picked.schema.get_field_index("l_quantity")
            changed = picked.set_column(place, picked.schema.field(place), quantity)
            for old, new in ((picked, changed), (changed, picked)):
                delta = pa.concat_tables([at(old, now, -1), at(new, now, 1)]).combine_chunks()
                spent.append(cost(lambda d=delta, n=now: dataflow.step(n, n + 1, {id: d})))  # type: ignore[misc]
                now += 1
        cpu, wall = (statistics.median(each) for each in zip(*spent, strict=True))
        print(
            f"  {count:7} rows: {cpu * 1e3:8.3f} ms CPU  {wall * 1e3:8.3f} wall"
            f"  {cpu / anew_cpu:.4f} of anew",
            flush=True,
        )


if __name__ == "__main__":
    main()
