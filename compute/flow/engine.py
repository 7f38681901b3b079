"""The arrangement engine beside a bulk engine, which has what it has not."""

import logging
import secrets
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from foreshore.compute.engine import ArrangementSize, Cancellation, Dataflow, Engine, Input
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.replica.linear import is_linear
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)


class FlowEngine:
    """An engine whose dataflows are operators over arrangements."""

    def __init__(self, bulk: Engine) -> None:
        self._bulk = bulk
        self.forget()

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, of the bulk engine if it is linear, or a part has no operator."""
        if is_linear(description.relation):
            return self._bulk.create(description, schemas)
        try:
            return FlowDataflow(description, self._bulk, self._collections)
        except Unsupported as error:
            logger.info("a dataflow is left to the bulk engine", extra={"cause": str(error)})
            return self._bulk.create(description, schemas)

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        return self._bulk.evaluate(relation, inputs, as_of, cancellation, max_bytes)

    def evaluate_parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation,
        max_bytes: int | None = None,
    ) -> Generator[pa.Table, None, None]:
        """Yield the rows of `relation` as of a time, part by part."""
        yield from self._bulk.evaluate_parts(relation, inputs, as_of, cancellation, max_bytes)

    def cancel(self) -> None:
        """Stop all running evaluations."""
        self._bulk.cancel()

    def check(self) -> None:
        """Raise Unavailable if the bulk engine has permanently lost its backend."""
        self._bulk.check()

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of what dataflows share."""
        interner = self._collections.interner
        yield ArrangementSize("strings", len(interner), 1, interner.nbytes)
        for id, spines in self._collections.sizes().items():
            for spine in spines:
                yield replace(spine.size("rows"), object=id)
        yield from self._bulk.sizes()

    def forget(self) -> None:
        """Share nothing of the present dataflows with later ones."""
        self._collections = Collections(Interner(), secrets.randbits(64))
        self._bulk.forget()

    def close(self) -> None:
        """Free the engine's resources."""
        self._bulk.close()
