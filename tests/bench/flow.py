"""The engine beside recomputation, without a server: `python -m tests.bench.flow [scale] [views]`.

For each view of the harness (`cases.py`): the CPU to hydrate it, and of a step in which 1, 100, ...
rows change, with the merges of runs that follow, beside those of DuckDB computing the view anew
over the same tables, in turns. The last table has all views, milliseconds of CPU.

`together` hydrates the six views of TPC-H in one replica from Arrow tables, `files` from the
Parquet files in which tables are stored, beside DuckDB computing all of them from its own tables.
"""

import os
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
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateView
from foreshore.sql.planner import plan_statement
from foreshore.storage.batch import ROW_GROUP_ROWS, column_names
from tests.bench import cases, tpch
from tests.bench.cases import Case, at
from tests.sql.catalog import TestCatalog

START = 1
TOGETHER = "together"  # all of `tpch.VIEWS` in one replica
FILES = "files"  # the same, over tables in Parquet files
BATCHES = {1: 60, 100: 30, 1_000: 12, 10_000: 6, 100_000: 3}
APART = 1_000  # milliseconds from one change to the next
ANEW = 3  # times that a view is computed anew for each size of a batch


def planned(catalog: TestCatalog, sql: str) -> Relation:
    """Return the optimized plan of a query."""
    (statement,) = parse(f"CREATE VIEW measured AS {sql}")
    plan = plan_statement(statement, catalog)
    assert isinstance(plan, CreateView)
    return plan.query.relation


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of CPU and of wall time that `work` takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    """Print the figures of each view."""
    warm()  # as a replica does before it is ready
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    lines = []
    data: Data | None = None
    for name in sys.argv[2:] or [*cases.NAMES, TOGETHER]:
        together = name in (TOGETHER, FILES)
        case = cases.case("q1" if together else name, scale)
        if data is None or data.case.tables is not case.tables:
            data = Data(case)
        if together:
            run_together(data, in_files=name == FILES)
        else:
            lines.append(run_view(case, data))
    print("\n| view | anew | " + " | ".join(f"{count:,}" for count in BATCHES) + " |")
    print("|---|---|" + "---|" * len(BATCHES))
    print("\n".join(lines))


def hydrated(
    relation: Relation,
    tables: Mapping[GlobalId, Input],
    bulk: DuckDbEngine,
    collections: Collections,
) -> tuple[FlowDataflow, tuple[float, float]]:
    """Return a hydrated dataflow, and the seconds of CPU and of wall time that it took."""
    sources = tuple(sorted(sources_of(relation)))
    description = DataflowDescription(GlobalId("t1"), relation, sources, (), START)
    dataflow = FlowDataflow(description, bulk, collections)
    inputs = {s: tables[s] for s in sources}
    return dataflow, cost(lambda: dataflow.hydrate(inputs))


def in_memory(tables: Mapping[GlobalId, pa.Table]) -> dict[GlobalId, Input]:
    """Return tables as inputs that are in memory."""
    return {id: Input(rows.schema, (), (at(rows, START, 1),)) for id, rows in tables.items()}


def stored(tables: Mapping[GlobalId, pa.Table], folder: Path) -> dict[GlobalId, Input]:
    """Return tables as inputs in files as the storage writes them."""
    found = {}
    for id, rows in tables.items():
        updates, path = at(rows, START, 1), folder / f"{id}.parquet"
        updates = updates.rename_columns(column_names(updates.schema))
        pq.write_table(updates, path, ROW_GROUP_ROWS, compression="zstd")
        found[id] = Input(rows.schema, (str(path),), ())
    return found


def run_together(data: "Data", *, in_files: bool) -> None:
    """Print the figures of views that share their collections, hydrated one after the other."""
    views = tpch.VIEWS.values()
    spent = [
        cost(lambda: [data.peer.execute(sql).to_arrow_table() for sql in views]) for _ in range(5)
    ]
    anew = statistics.median(cpu for cpu, _ in spent)
    relations = [planned(data.catalog, sql) for sql in views]
    collections = Collections(Interner(), 1)
    expected: defaultdict[GlobalId, set[int]] = defaultdict(set)  # as a replica does
    for relation in relations:
        for id, picked in columns_imported(relation).items():
            expected[id] |= picked
    collections.expect({id: frozenset(picked) for id, picked in expected.items()})
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        bulk = DuckDbEngine(memory_limit="8GB", directories=(folder,))
        tables = stored(data.tables, Path(folder)) if in_files else in_memory(data.tables)
        found = [hydrated(relation, tables, bulk, collections) for relation in relations]
        bulk.close()
    cpu, wall = (sum(each) for each in zip(*(spent for _, spent in found), strict=True))
    shared = sum(s.nbytes for spines in collections.sizes().values() for s in spines)
    own = sum(size.bytes for dataflow, _ in found for size in dataflow.sizes())
    print(
        f"all six in one replica: hydration {cpu:.2f} s CPU, {wall:.2f} wall,"
        f" {cpu / anew:.1f} of anew ({anew:.2f} s);"
        f" state {shared / 1e6:.0f} MB shared, {own / 1e6:.0f} MB of their own"
    )


class Data:
    """The tables of a case, for Foreshore and in DuckDB."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.catalog = TestCatalog(*case.ddl)
        self.ids = {name: self.catalog.resolve_item((name,)).id for name in case.tables}
        self.tables = typed(case, self.catalog)
        self.peer = duckdb.connect()
        self.peer.execute("SET threads = 2")
        for name, rows in case.tables.items():
            self.peer.register("loaded", rows)
            self.peer.execute(f"CREATE TABLE {name} AS FROM loaded")
            self.peer.unregister("loaded")


def run_view(case: Case, data: Data) -> str:
    """Print the figures of one view; return its line of the table."""
    bulk = DuckDbEngine(memory_limit="8GB")
    relation = planned(data.catalog, case.sql)
    dataflow, (cpu, _) = hydrated(
        relation, in_memory(data.tables), bulk, Collections(Interner(), 1)
    )
    print(f"{case.name}: hydration {cpu:.2f} s CPU, at a load of {os.getloadavg()[0]:.0f}")
    measurement = Measurement(case, data, dataflow)
    shown = [measurement.batch(*each) for each in BATCHES.items()]
    dataflow.close()
    bulk.close()
    anew = statistics.median(measurement.anew) * 1e3
    return f"| {case.name} | {anew:.0f} | {' | '.join(shown)} |"


class Measurement:
    """The steps of a dataflow and the recomputations of its view, in turns."""

    def __init__(self, case: Case, data: Data, dataflow: FlowDataflow) -> None:
        self.anew: list[float] = []
        self._case = case
        self._data = data
        self._dataflow = dataflow
        self._random = np.random.default_rng(1)
        self._now = START + 1

    def _compute_anew(self) -> None:
        self._data.peer.execute(self._case.peer_sql).to_arrow_table()

    def batch(self, count: int, times: int) -> str:
        """Measure changes of `count` rows; return the CPU of one, and its share of anew."""
        if count > self._case.most:
            return "-"
        anew: list[float] = []
        steps: list[float] = []
        merges: list[float] = []
        for number in range(times):
            if number * ANEW // times >= len(anew):
                anew.append(cost(self._compute_anew)[0])
            change = self._case.change(count, self._random)
            for is_back in (False, True):
                spent = self._step(change, is_back=is_back)
                if not is_back or self._case.is_timed_back:
                    steps.append(spent[0])
                    merges.append(spent[1])
        self.anew += anew
        found = statistics.median(steps) + statistics.mean(merges)
        print(
            f"  {count:7} rows: {found * 1e3:8.3f} ms CPU, of which merges"
            f" {statistics.mean(merges) * 1e3:.3f}; {found / statistics.median(anew):.4f} of anew,"
            f" {statistics.median(anew) * 1e3:.0f} ms",
            flush=True,
        )
        return f"{found * 1e3:.3g} ({found / statistics.median(anew):.2g})"

    def _step(self, change: cases.Change, *, is_back: bool) -> tuple[float, float]:
        """Make a change or take it back; return the seconds of the step, and of merges."""
        now = self._now
        self._now += APART
        deltas = {}
        for table, (old, new) in change.items():
            rows = [cases.cast(each, self._data.catalog, table) for each in (old, new)]
            signs = (1, -1) if is_back else (-1, 1)
            parts = [at(each, now, sign) for each, sign in zip(rows, signs, strict=True)]
            deltas[self._data.ids[table]] = pa.concat_tables(parts).combine_chunks()
        step = cost(lambda: self._dataflow.step(now, now + 1, deltas))
        merge = cost(self._merge)
        return step[0], merge[0]

    def _merge(self) -> None:
        while self._dataflow.maintenance_due:
            self._dataflow.maintain()


def typed(case: Case, catalog: TestCatalog) -> dict[GlobalId, pa.Table]:
    """Return the tables of a case with the types that they have in Foreshore."""
    return {
        catalog.resolve_item((name,)).id: cases.cast(rows, catalog, name)
        for name, rows in case.tables.items()
    }


if __name__ == "__main__":
    main()
