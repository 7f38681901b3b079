"""The arrangement engine beside a bulk engine, which has what it has not."""

import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from foreshore.compute.engine import ArrangementSize, Dataflow, Engine
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.replica.linear import is_linear
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)


class FlowEngine(OverEngine):
    """An engine whose dataflows are operators over arrangements."""

    def __init__(self, bulk: Engine) -> None:
        super().__init__(bulk)
        self._collections = _new_collections()

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, of the bulk engine if it is linear, or a part has no operator."""
        if is_linear(description.relation):
            return self._engine.create(description, schemas)
        try:
            return FlowDataflow(description, self._engine, self._collections)
        except Unsupported as error:
            logger.info("a dataflow is left to the bulk engine", extra={"cause": str(error)})
            return self._engine.create(description, schemas)

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of what dataflows share."""
        interner = self._collections.interner
        yield ArrangementSize("strings", len(interner), 1, interner.nbytes)
        for id, spines in self._collections.sizes().items():
            for spine in spines:
                yield replace(spine.size("rows"), object=id)
        yield from super().sizes()

    def forget(self) -> None:
        """Share nothing of the present dataflows with later ones."""
        self._collections = _new_collections()
        super().forget()


def _new_collections() -> Collections:
    return Collections(Interner(), secrets.randbits(64))
