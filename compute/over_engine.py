"""An engine over another one, which evaluates for it."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import pyarrow as pa

from foreshore.compute.engine import (
    ALL_ROWS,
    ArrangementSize,
    Cancellation,
    Evaluator,
    Extent,
    Input,
)
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId

E = TypeVar("E", bound=Evaluator)


class OverEngine(Generic[E]):
    """A `foreshore.compute.engine.Evaluator` over another one."""

    def __init__(self, engine: E) -> None:
        self._engine = engine

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        return self._engine.evaluate(relation, inputs, as_of, cancellation, max_bytes)

    def evaluate_parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation,
        max_bytes: int | None = None,
        *,
        may_fail: bool = True,
        extent: Extent = ALL_ROWS,
    ) -> Generator[pa.Table, None, None]:
        """Yield the rows of `relation` as of a time, part by part."""
        return self._engine.evaluate_parts(
            relation, inputs, as_of, cancellation, max_bytes, may_fail=may_fail, extent=extent
        )

    def limited(self, memory: int) -> AbstractContextManager[Evaluator]:
        """Yield an engine for one query that takes `memory` bytes at most."""
        return self._engine.limited(memory)

    def cancel(self) -> None:
        """Stop all running evaluations."""
        self._engine.cancel()

    def check(self) -> None:
        """Raise Unavailable if the engine has permanently lost its backend."""
        self._engine.check()

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of what dataflows share."""
        return self._engine.sizes()

    def forget(self) -> None:
        """Share nothing of the present dataflows with later ones."""
        self._engine.forget()

    def close(self) -> None:
        """Free the engine's resources."""
        self._engine.close()
