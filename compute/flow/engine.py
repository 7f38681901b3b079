"""The arrangement engine beside a bulk engine, which has what it has not."""

import logging
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from foreshore.compute.checkpoint.engine import Shared
from foreshore.compute.checkpoint.state import Mismatch, Reader
from foreshore.compute.engine import ArrangementSize, Dataflow, Engine, Evaluator
from foreshore.compute.flow.build import columns_imported
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.compilation import Compilation
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.errors import may_be_negative
from foreshore.compute.flow.forgetting import Forgetting
from foreshore.compute.flow.index import index_key
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.linear_dataflow import is_linear, linear_dataflow
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import (
    BulkChoice,
    DataflowDescription,
    HydrationStatus,
    IndexExport,
    StageStatus,
)
from foreshore.expr.columns import columns_of
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)


class EngineChoice(Protocol):
    """Chooses among bulk engines for hydration and queries."""

    def for_hydration(self, id: GlobalId, mode: HydrateMode | None) -> Evaluator:
        """Return the engine that hydrates a dataflow; its own `mode` goes first."""
        ...

    def for_query(self, choice: BulkChoice) -> Evaluator:
        """Return the engine that evaluates a query for which the session has chosen so."""
        ...

    def hydrations(self, id: GlobalId) -> tuple[HydrationStatus, ...]:
        """Return what each engine has done to hydrate a dataflow. Any thread may call it."""
        ...

    def forget_hydrations(self, id: GlobalId) -> None:
        """Forget that of a dataflow that was dropped. Any thread may call it."""
        ...

    def stages(self) -> tuple[StageStatus, ...]:
        """Return what runs on Spark at this moment. It may wait for the JVM."""
        ...

    def forget(self) -> None:
        """Forget all dataflows, which were those of another database."""
        ...

    def close(self) -> None:
        """End the engines that were started."""
        ...


class FlowEngine(OverEngine[Engine]):
    """An engine whose dataflows are operators over arrangements."""

    def __init__(
        self,
        bulk: Engine,
        choice: EngineChoice | None = None,
        compilation: Compilation | None = None,
    ) -> None:
        """Make an engine that leaves to `bulk` what it does not have.

        Hydration and queries are left to what `choice` chooses, without it to `bulk`, too. Without
        a `compilation`, kernels are compiled or loaded when they are called.
        """
        super().__init__(bulk)
        self._compilation = compilation
        self._choice = choice
        self._collections = _new_collections()
        self._expected: dict[GlobalId, Mapping[GlobalId, frozenset[int]]] = {}

    def expect(self, descriptions: Iterable[DataflowDescription]) -> None:
        """Note the dataflows that are created soon; one thread at a time calls it."""
        known = self._expected
        self._expected = {
            each.id: known.get(each.id) or columns_imported(each.relation) for each in descriptions
        }
        columns: defaultdict[GlobalId, set[int]] = defaultdict(set)
        for reads in self._expected.values():
            for id, picked in reads.items():
                columns[id] |= picked
        self._collections.expect({id: frozenset(picked) for id, picked in columns.items()})

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, of the bulk engine if it is linear, or a part has no operator.

        Indexes of linear plans are owned by this engine, which keeps them at a third of the cost.
        """
        engine = self._hydrator(description)
        if is_linear(description.relation) and not _has_own_indexes(description):
            linear = None
            if self._choice is not None and not may_be_negative(description.relation, {}):
                linear = linear_dataflow(description, engine)
            return linear or self._engine.create(description, schemas)
        self._load_kernels()
        try:
            return FlowDataflow(description, engine, self._collections)
        except Unsupported as error:
            logger.info("a dataflow is left to the bulk engine", extra={"cause": str(error)})
            return self._engine.create(description, schemas)

    def _load_kernels(self) -> None:
        if self._compilation is not None:
            self._compilation.load()

    def _hydrator(self, description: DataflowDescription) -> Evaluator:
        """Return the engine of a dataflow's hydration."""
        if self._choice is None:
            return self._engine
        return self._choice.for_hydration(description.id, description.hydrate)

    def hydrations(self, id: GlobalId) -> tuple[HydrationStatus, ...]:
        """Return what each bulk engine has done to hydrate a dataflow. Any thread may call it."""
        return () if self._choice is None else self._choice.hydrations(id)

    def forget_hydrations(self, id: GlobalId) -> None:
        """Forget that of a dataflow that was dropped. Any thread may call it."""
        if self._choice is not None:
            self._choice.forget_hydrations(id)

    def for_query(self, choice: BulkChoice) -> Evaluator:
        """Return the engine for a query for which the session has chosen so."""
        return self._engine if self._choice is None else self._choice.for_query(choice)

    def stages(self) -> tuple[StageStatus, ...]:
        """Return what runs on Spark at this moment. It may wait for the JVM."""
        return () if self._choice is None else self._choice.stages()

    def close(self) -> None:
        """Free the engine's resources."""
        if self._compilation is not None:
            self._compilation.close()
        if self._choice is not None:
            self._choice.close()
        super().close()

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of what dataflows share."""
        interner = self._collections.interner
        yield ArrangementSize("strings", len(interner), 1, interner.nbytes)
        for id, spines in self._collections.sizes().items():
            for spine in spines:
                yield replace(spine.size("rows"), object=id)
        yield from super().sizes()

    # --- strings

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many strings that it is worth while to forget some."""
        return self._collections.interner.is_crowded

    def forgetting(self) -> Forgetting:
        """Begin a cycle in which strings are forgotten."""
        return Forgetting(self._collections)

    # --- checkpoints

    def hold(self) -> None:
        """Keep all times readable that dataflows still read, until `release`."""
        self._collections.hold()

    def release(self) -> None:
        """End a round of saving."""
        self._collections.release()

    def save_shared(self, strings: int) -> Shared:
        """Return what dataflows share, of the strings only those from the number `strings` on."""
        return self._collections.save(strings)

    def load_shared(self, shared: Shared) -> None:
        """Begin with what was saved; there are no dataflows yet. Raises Mismatch."""
        self._load_kernels()
        self._collections = Collections.loaded(shared)

    def load(self, description: DataflowDescription, saved: Reader) -> FlowDataflow:
        """Return a dataflow in the saved state, that at its `as_of`; raises Mismatch."""
        self._load_kernels()
        try:
            dataflow = FlowDataflow(description, self._engine, self._collections)
        except Unsupported as error:
            raise Mismatch(str(error)) from error
        try:
            dataflow.load(saved)
        except BaseException:
            dataflow.close()
            raise
        return dataflow

    def forget_unread(self) -> None:
        """Forget collections that were loaded and are read by no dataflow."""
        self._collections.forget_unread()

    def forget(self) -> None:
        """Share nothing of the present dataflows with later ones."""
        self._collections, self._expected = _new_collections(), {}
        if self._choice is not None:
            self._choice.forget()
        super().forget()


def _has_own_indexes(description: DataflowDescription) -> bool:
    """Whether there are indexes, all of which a dataflow of operators owns."""
    layout = layout_of(columns_of(description.relation))
    exports = [each for each in description.exports if isinstance(each, IndexExport)]
    return bool(exports) and None not in [index_key(each.key, layout) for each in exports]


def _new_collections() -> Collections:
    return Collections(Interner(), secrets.randbits(64))
