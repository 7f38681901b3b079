"""The engine beside recomputation, without a server: `python -m tests.bench.flow [scale] [views]`.

For each view of the harness (`cases.py`): the CPU to hydrate it, and of a step in which 1, 100, ...
rows change, with the merges of runs that follow, beside those of DuckDB computing the view anew
over the same tables, in turns. The last table has all views, milliseconds of CPU.
"""

import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

import duckdb
import numpy as np
import pyarrow as pa

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
from tests.bench import cases, tpch
from tests.bench.cases import Case, at
from tests.sql.catalog import TestCatalog

START = 1
TOGETHER = "together"  # all of `tpch.VIEWS` in one replica
BATCHES = {1: 100, 100: 40, 1_000: 20, 10_000: 8, 100_000: 4}
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
    for name in sys.argv[2:] or [*cases.NAMES, TOGETHER]:
        if name == TOGETHER:
            run_together(scale)
        else:
            lines.append(run_view(cases.case(name, scale)))
    print("\n| view | anew | " + " | ".join(f"{count:,}" for count in BATCHES) + " |")
    print("|---|---|" + "---|" * len(BATCHES))
    print("\n".join(lines))


def hydrated(
    relation: Relation,
    typed: Mapping[GlobalId, pa.Table],
    bulk: DuckDbEngine,
    collections: Collections,
) -> tuple[FlowDataflow, tuple[float, float]]:
    """Return a hydrated dataflow, and the seconds of CPU and of wall time that it took."""
    sources = tuple(sorted(sources_of(relation)))
    description = DataflowDescription(GlobalId("t1"), relation, sources, (), START)
    dataflow = FlowDataflow(description, bulk, collections)
    inputs = {s: Input(typed[s].schema, (), (at(typed[s], START, 1),)) for s in sources}
    return dataflow, cost(lambda: dataflow.hydrate(inputs))


def run_together(scale: float) -> None:
    """Print the figures of views that share their collections, hydrated one after the other."""
    case = cases.case("q1", scale)
    catalog = TestCatalog(*case.ddl)
    typed = _typed(case, catalog)
    relations = [planned(catalog, sql) for sql in tpch.VIEWS.values()]
    collections = Collections(Interner(), 1)
    expected: defaultdict[GlobalId, set[int]] = defaultdict(set)  # as a replica does
    for relation in relations:
        for id, picked in columns_imported(relation).items():
            expected[id] |= picked
    collections.expect({id: frozenset(picked) for id, picked in expected.items()})
    bulk = DuckDbEngine(memory_limit="8GB")
    found = [hydrated(relation, typed, bulk, collections) for relation in relations]
    cpu, wall = (sum(each) for each in zip(*(spent for _, spent in found), strict=True))
    shared = sum(s.nbytes for spines in collections.sizes().values() for s in spines)
    own = sum(size.bytes for dataflow, _ in found for size in dataflow.sizes())
    print(
        f"all six in one replica: hydration {cpu:.2f} s CPU, {wall:.2f} wall;"
        f" state {shared / 1e6:.0f} MB shared, {own / 1e6:.0f} MB of their own"
    )


def run_view(case: Case) -> str:
    """Print the figures of one view; return its line of the table."""
    catalog = TestCatalog(*case.ddl)
    ids = {name: catalog.resolve_item((name,)).id for name in case.tables}
    bulk = DuckDbEngine(memory_limit="8GB")
    relation = planned(catalog, case.sql)
    dataflow, (cpu, _) = hydrated(relation, _typed(case, catalog), bulk, Collections(Interner(), 1))
    print(f"{case.name}: hydration {cpu:.2f} s CPU, at a load of {os.getloadavg()[0]:.0f}")
    with duckdb.connect() as peer:
        peer.execute("SET threads = 2")
        for name, rows in case.tables.items():
            peer.register("loaded", rows)
            peer.execute(f"CREATE TABLE {name} AS FROM loaded")
            peer.unregister("loaded")
        measurement = Measurement(case, catalog, ids, dataflow, peer)
        shown = [measurement.batch(*each) for each in BATCHES.items()]
    dataflow.close()
    bulk.close()
    anew = statistics.median(measurement.anew) * 1e3
    return f"| {case.name} | {anew:.0f} | {' | '.join(shown)} |"


class Measurement:
    """The steps of a dataflow and the recomputations of its view, in turns."""

    def __init__(
        self,
        case: Case,
        catalog: TestCatalog,
        ids: Mapping[str, GlobalId],
        dataflow: FlowDataflow,
        peer: duckdb.DuckDBPyConnection,
    ) -> None:
        self.anew: list[float] = []
        self._case = case
        self._catalog = catalog
        self._ids = ids
        self._dataflow = dataflow
        self._peer = peer
        self._random = np.random.default_rng(1)
        self._now = START + 1

    def batch(self, count: int, times: int) -> str:
        """Measure changes of `count` rows; return the CPU of one, and its share of anew."""
        if count > self._case.most:
            return "-"
        anew: list[float] = []
        steps: list[float] = []
        merges: list[float] = []
        for number in range(times):
            if number * ANEW // times >= len(anew):
                anew.append(
                    cost(lambda: self._peer.execute(self._case.peer_sql).to_arrow_table())[0]
                )
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
            rows = [cases.cast(each, self._catalog, table) for each in (old, new)]
            signs = (1, -1) if is_back else (-1, 1)
            parts = [at(each, now, sign) for each, sign in zip(rows, signs, strict=True)]
            deltas[self._ids[table]] = pa.concat_tables(parts).combine_chunks()
        step = cost(lambda: self._dataflow.step(now, now + 1, deltas))
        merge = cost(self._merge)
        return step[0], merge[0]

    def _merge(self) -> None:
        while self._dataflow.maintenance_due:
            self._dataflow.maintain()


def _typed(case: Case, catalog: TestCatalog) -> dict[GlobalId, pa.Table]:
    return {
        catalog.resolve_item((name,)).id: cases.cast(rows, catalog, name)
        for name, rows in case.tables.items()
    }


if __name__ == "__main__":
    main()
