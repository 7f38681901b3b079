"""Parts of the hydration of operators that a bulk engine does, and the runs that it sorts.

This file loads no kernels: the environment and Spark's tasks, which run none, import it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from foreshore.compute.engine import Cancellation, Input
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId

BULK_ROWS = 50_000  # of inputs, from which on a bulk engine is faster than operators


@dataclass(frozen=True, slots=True)
class RunArrays:
    """The arrays of a sorted run; times and diffs may be of length 1."""

    hashes: Any
    words: Any
    times: Any
    diffs: Any


@runtime_checkable
class WritesRuns(Protocol):
    """An engine that may sort the rows of a plan into a run by many tasks."""

    def sorted_run(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        key: tuple[int, ...],
        seed: int,
        as_of: int,
        cancellation: Cancellation,
    ) -> RunArrays | None:
        """Return the rows as of a time as a run by the words at `key`, None if it does not."""
        ...
