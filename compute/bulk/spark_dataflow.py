"""A dataflow on Spark: reads the buckets that changes touch, is consolidated and saved.

A job takes a tenth of a second at least. So the changes of linear traces are computed by the
functions' kernels in this process, unless they are many, and statements that read little by DuckDB
(`spark_local.py`).
"""

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.bulk.spark_contents import Clustering, clustering_of
from foreshore.compute.bulk.spark_hydration import LocalHydration
from foreshore.compute.bulk.spark_local import LocalSteps
from foreshore.compute.bulk.spark_store import AllOrSome, SparkStore
from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.delta import anew
from foreshore.compute.delta.changes import change_table, state_table
from foreshore.compute.delta.differentiate import TickPlan, Trace
from foreshore.compute.delta.linear import changes_of, linear_traces
from foreshore.compute.delta.tables import Layout
from foreshore.compute.delta.tick import Hydrating, Language, TickDataflow, layout_of
from foreshore.compute.delta.touched import keys_of, touched
from foreshore.compute.engine import ArrangementSize, Input
from foreshore.compute.output import Output
from foreshore.compute.protocol import StepStatus
from foreshore.compute.spark.buckets import is_hashable
from foreshore.errors import OutOfDisk, OutOfMemory
from foreshore.expr.ir import Get, LocalGet, Relation
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.update import TIME

logger = logging.getLogger(__name__)

# More changes than this are computed by a job, also of linear traces.
MOST_ROWS_HERE = 100_000
# Sums are of fewer groups than there are rows, usually.
ROWS_OF_A_GROUP = 8


# A statement: of a trace or an output, its number, and the tables that have changed.
Case = tuple[str, int, frozenset[str]]


class SparkDataflow(TickDataflow):
    """A dataflow over a Spark store; it is a checkpoint's `State`."""

    def __init__(self, plan: TickPlan, store: SparkStore, as_of: int, local: LocalSteps) -> None:
        super().__init__(plan, store, as_of)
        self._spark_store = store
        self._local = local
        self._hydration: LocalHydration | None = None  # under way
        self._chosen: dict[tuple[Case, bool, bool], str | None] = {}  # whether anew, and here
        self._keys = keys_of(plan, is_hashable)
        self._linear = linear_traces(plan)
        self._bytes: dict[int, int] = {}  # of the inputs from which a trace comes
        self._reads: dict[tuple[Case, bool], AllOrSome] = {}
        self._has_one_time = False  # the window under way, if it has many changes

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
            try:
                return self._hydrated_here(inputs)
            except (OutOfMemory, OutOfDisk) as error:
                extra = {"bytes": total, "why": error.message}
                logger.warning("jobs hydrate a dataflow that does not fit in memory", extra=extra)
        self._spark_store.tune_for(total)
        return self._spark_store.lasting(lambda: super(SparkDataflow, self).hydrate(inputs))

    def _hydrated_here(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Hydrate by DuckDB; raises OutOfMemory."""
        self._spark_store.local = self._local
        self._hydration = LocalHydration(self._spark_store, self._local)
        try:
            return super().hydrate(inputs)
        except BaseException:
            self._spark_store.local = None
            self._local.release()
            raise
        finally:
            self._hydration = None

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper) and advance to `upper`."""
        changed = [delta for delta in deltas.values() if delta.num_rows]
        self._has_one_time = (
            sum(delta.num_rows for delta in changed) >= anew.LEAST_CHANGES
            and len({bound for delta in changed for bound in _bounds(delta)}) == 1
        )
        return self._spark_store.lasting(
            lambda: super(SparkDataflow, self).step(lower, upper, deltas)
        )

    def cancel(self) -> None:
        """End the statement that runs, here or on Spark; later ones raise QueryCanceled."""
        self._spark_store.cancellation.cancel()
        self._local.cancellation.cancel()

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
        began = time.monotonic()
        updates = changes_of(trace, self._plan.traces, found)
        work = self._spark_store.log.of("kernels")
        work.add(0, 0, 0, updates.num_rows, time.monotonic() - began, "changes by themselves")
        if updates.num_rows:
            self._spark_store.load(change_table(trace), updates)
        return bool(updates.num_rows)

    def _statement(
        self, kind: str, number: int, needs: frozenset[str], changed: Iterable[str]
    ) -> str | None:
        case = (kind, number, needs.intersection(changed))
        if not case[2]:
            return None
        plan = self._plan
        relation = plan.traces[number].body if kind == "trace" else plan.outputs[number]
        is_anew = self._has_one_time and self._is_cheaper_anew(relation)
        if (case, is_anew) not in self._reads:
            self._reads[case, is_anew] = (
                {state_table(trace): None for trace in anew.contents_read(relation, plan.traces)}
                if is_anew
                else {
                    state_table(plan.traces[n]): touches
                    for n, touches in touched(relation, plan.traces, self._keys, case[2]).items()
                }
            )
        is_here = self._spark_store.narrow(self._reads[case, is_anew], anew=is_anew)
        by = self._local.session if is_here else self._spark_store
        chosen = (case, is_anew, is_here)
        if chosen not in self._chosen:
            self._chosen[chosen] = self._text(by, case, is_anew=is_anew)
        return self._chosen[chosen]

    def _text(self, by: Language, case: Case, *, is_anew: bool) -> str | None:
        """Return the statement of a case in the language of an engine."""
        if not is_anew:
            return self._rendered(by, *case)
        kind, number, changed = case
        renderer = anew.AnewRenderer(by.dialect, by.idioms, self._plan.traces, changed)
        if kind == "trace":
            return renderer.trace_changes(self._plan.traces[number])
        return renderer.changes(self._plan.outputs[number])

    def _is_cheaper_anew(self, relation: Relation) -> bool:
        read = anew.contents_read(relation, self._plan.traces)
        rows = {state_table(trace): self._spark_store.rows(state_table(trace)) for trace in read}
        changes = {change_table(t): self._spark_store.changes(change_table(t)) for t in read}
        return bool(read) and anew.is_cheaper(relation, self._plan.traces, rows, changes)

    def _run(self, loaded: Mapping[GlobalId, pa.Table]) -> tuple[Output, list[str]]:
        for delta in loaded.values():
            self._spark_store.log.received(delta.num_rows)
        return super()._run(loaded)

    @property
    def last_steps(self) -> tuple[StepStatus, ...]:
        """Return what each engine did in the last steps, the oldest first."""
        return self._spark_store.log.last

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


def _bounds(delta: pa.Table) -> tuple[int, int]:
    """Return the least and the greatest time of updates."""
    bounds = pc.min_max(delta[TIME])
    return bounds["min"].as_py(), bounds["max"].as_py()
