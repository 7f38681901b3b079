"""A dataflow on Spark: reads the buckets that changes touch, is consolidated and saved.

A job takes a tenth of a second at least. So the changes of linear traces are computed by the
functions' kernels in this process, unless they are many, and statements that read little by DuckDB
(`spark_local.py`).
"""

import os
from collections.abc import Iterable, Mapping, Sequence

from foreshore.compute.bulk.spark_contents import Clustering, clustering_of
from foreshore.compute.bulk.spark_hydration import LocalHydration
from foreshore.compute.bulk.spark_local import LocalSteps
from foreshore.compute.bulk.spark_store import AllOrSome, SparkStore
from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.delta.changes import change_table, state_table
from foreshore.compute.delta.differentiate import TickPlan, Trace
from foreshore.compute.delta.linear import changes_of, linear_traces
from foreshore.compute.delta.tables import Layout
from foreshore.compute.delta.tick import Hydrating, TickDataflow, layout_of
from foreshore.compute.delta.touched import keys_of, touched
from foreshore.compute.engine import ArrangementSize, Input
from foreshore.compute.output import Output
from foreshore.compute.spark.buckets import is_hashable
from foreshore.expr.ir import Get, LocalGet
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId

# More changes than this are computed by a job, also of linear traces.
MOST_ROWS_HERE = 100_000
# Sums are of fewer groups than there are rows, usually.
ROWS_OF_A_GROUP = 8


class SparkDataflow(TickDataflow):
    """A dataflow over a Spark store; it is a checkpoint's `State`."""

    def __init__(self, plan: TickPlan, store: SparkStore, as_of: int, local: LocalSteps) -> None:
        super().__init__(plan, store, as_of)
        self._spark_store = store
        self._local = local
        self._hydration: LocalHydration | None = None  # under way
        self._local_statements: dict[tuple[str, int, frozenset[str]], str | None] = {}
        self._keys = keys_of(plan, is_hashable)
        self._linear = linear_traces(plan)
        self._bytes: dict[int, int] = {}  # of the inputs from which a trace comes
        self._reads: dict[tuple[str, int, frozenset[str]], AllOrSome] = {}

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the dataflow's as_of."""
        sizes = {id: sum(map(os.path.getsize, inputs[id].files)) for id in self._plan.inputs}
        for trace in self._plan.traces:
            nodes = list(walk_relations(trace.body))
            found = sum(sizes[node.id] for node in nodes if isinstance(node, Get))
            found += sum(self._bytes[n.number] for n in nodes if isinstance(n, LocalGet))
            self._bytes[trace.number] = found
        tails = sum(table.nbytes for id in sizes for table in inputs[id].tail)
        total = sum(sizes.values()) + tails
        self._local.prepare(self._plan)
        files = [file for id in sizes for file in inputs[id].files]
        if self._local.hydrates(files, total):
            self._spark_store.local = self._local
            self._hydration = LocalHydration(self._spark_store, self._local)
        else:
            self._spark_store.tune_for(total)
        try:
            return super().hydrate(inputs)
        finally:
            self._hydration = None

    @property
    def _hydrating(self) -> Hydrating:
        return self._hydration or self._spark_store

    def _hold(self, trace: Trace, layout: Layout, select: str) -> None:
        if self._hydration is not None:
            layout = layout_of(trace, self._spark_store, timed=False)
            self._hydration.hold(state_table(trace), layout, select)
            return
        clustering = None
        if trace.kept:
            size = self._bytes[trace.number]
            size = size if trace.sums is None else size // ROWS_OF_A_GROUP
            clustering = clustering_of(self._keys[trace.number], trace.columns, size)
        self._spark_store.hold(state_table(trace), layout, select, clustering)

    def _fill(self, trace: Trace, changed: Sequence[str]) -> bool:
        if trace.number not in self._linear:
            return super()._fill(trace, changed)
        found = {table: self._spark_store.updates(table) for table in self._needs[trace.number]}
        rows = sum(updates.num_rows for updates in found.values() if updates is not None)
        if rows > MOST_ROWS_HERE:
            return super()._fill(trace, changed)
        if not rows:
            return False
        updates = changes_of(trace, self._plan.traces, found)
        if updates.num_rows:
            self._spark_store.load(change_table(trace), updates)
        return bool(updates.num_rows)

    def _statement(
        self, kind: str, number: int, needs: frozenset[str], changed: Iterable[str]
    ) -> str | None:
        case = (kind, number, needs.intersection(changed))
        if not case[2]:
            return None
        if case not in self._reads:
            plan = self._plan
            relation = plan.traces[number].body if kind == "trace" else plan.outputs[number]
            of_traces = touched(relation, plan.traces, self._keys, case[2])
            self._reads[case] = {f"s{n}": touches for n, touches in of_traces.items()}
        if not self._spark_store.narrow(self._reads[case]):
            return super()._statement(kind, number, needs, list(case[2]))
        if case not in self._local_statements:
            found = self._rendered(self._local.session, *case)
            self._local_statements[case] = found
        return self._local_statements[case]

    def _prepare(self) -> None:
        super()._prepare()
        self._local.prepare(self._plan)
        self._spark_store.local = self._local

    @property
    def jobs(self) -> int:
        """Return how many statements of the last step were jobs of Spark."""
        return self._spark_store.jobs

    # --- between steps

    @property
    def maintenance_due(self) -> bool:
        """Whether some contents are to be consolidated."""
        return self._spark_store.maintenance_due

    def maintain(self) -> bool:
        """Consolidate some contents; return whether there are more."""
        return self._spark_store.maintain()

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of the contents."""
        return self._spark_store.sizes()

    # --- checkpoints

    def save(self, to: Writer) -> None:
        """Write the contents."""
        for trace in self._kept:
            clustering = self._spark_store.clustering(state_table(trace))
            to.numbers(f"{state_table(trace)}.buckets", clustering.count if clustering else 1)
        self._spark_store.save(to)

    def load(self, saved: Reader) -> None:
        """Take the contents over that `save` has written; raises Mismatch."""
        for trace in self._kept:
            name = state_table(trace)
            (count,) = saved.numbers(f"{name}.buckets")
            key = self._keys[trace.number]
            types = tuple(trace.columns[i] for i in key)
            clustering = Clustering(key, types, count) if count > 1 else None
            layout = layout_of(trace, self._store, timed=False)
            self._spark_store.load_contents(saved, name, layout, clustering)
        self._prepare()

    @property
    def _kept(self) -> list[Trace]:
        return [trace for trace in self._plan.traces if trace.kept]
