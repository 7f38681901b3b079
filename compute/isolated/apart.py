"""Queries whose memory is limited, each in a process of its own.

What one query takes cannot be told in a process that has others: DuckDB counts for all its cursors,
and nobody counts what kernels take. In a process of its own the system counts, whoever asks for
memory, and what fails or is killed there is one query.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from foreshore.compute.engine import (
    ALL_ROWS,
    Cancellation,
    Dataflow,
    Engine,
    Evaluator,
    Extent,
    Input,
)
from foreshore.compute.isolated.engine import IsolatedEngine
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId


class LimitedApart(OverEngine[Engine]):
    """An engine whose limited queries run in processes that read files below `directories`."""

    def __init__(self, engine: Engine, directories: Sequence[str]) -> None:
        super().__init__(engine)
        self._isolated = IsolatedEngine(directories, low_priority=False)

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow that is not hydrated yet."""
        return self._engine.create(description, schemas)

    @contextmanager
    def limited(self, memory: int) -> Iterator[Evaluator]:
        """Yield an engine for one query that takes `memory` bytes at most."""
        yield _Limited(self._engine, self._isolated, memory)

    def cancel(self) -> None:
        """Stop all running evaluations."""
        self._isolated.cancel()
        super().cancel()

    def close(self) -> None:
        """Free the engine's resources."""
        self._isolated.close()
        super().close()


class _Limited(OverEngine[Evaluator]):
    """Evaluates in a process of its own, with `memory` bytes."""

    def __init__(self, engine: Evaluator, isolated: IsolatedEngine, memory: int) -> None:
        super().__init__(engine)
        self._isolated = isolated
        self._memory = memory

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        with self._isolated.evaluations(
            cancellation or Cancellation(), self._memory
        ) as evaluations:
            return evaluations.rows(relation, inputs, as_of, max_bytes)

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
        with self._isolated.evaluations(cancellation, self._memory) as evaluations:
            yield from evaluations.parts(relation, inputs, as_of, max_bytes, extent)
