"""Engines: what evaluates plans and keeps dataflows up to date, behind one seam.

An engine is given plans and Arrow tables and gives Arrow tables back; it knows no shards, no SQL
text and no clock. A `Dataflow` is hydrated once, in bulk, as of one time, and from then on fed the
updates of its inputs window by window; what it puts out is exact at every time, and nothing in it
depends on where the windows were cut. DuckDB and Spark are the two engines; one of indexed
arrangements can stand beside them without a change to anything above.

Tables are addressed by position. Updates given are a collection's row columns, `__time`, `__diff`;
updates returned are named `c0`, `c1`, ... in the relation's physical types, `__time`, `__diff`,
consolidated and in no particular order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import pyarrow as pa

from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.replica.batch_sizing import BatchSizing
from foreshore.errors import OutOfMemory, QueryCanceled
from foreshore.expr.explain import NameOf
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.storage.batch import column_names
from foreshore.types import TEXT, ColumnType, arrow_type
from foreshore.update import DIFF_FIELD, TIME_FIELD, update_schema

ERRORS = (ColumnType(TEXT, False),)


def rows_schema(columns: tuple[ColumnType, ...]) -> pa.Schema:
    """Return the schema of rows without names: c0, c1, ..."""
    return pa.schema([pa.field(f"c{i}", arrow_type(c.type)) for i, c in enumerate(columns)])


def output_schema(columns: tuple[ColumnType, ...]) -> pa.Schema:
    """Return the schema of the updates that a dataflow of such `columns` puts out."""
    return pa.schema([*rows_schema(columns), TIME_FIELD, DIFF_FIELD])


def result_schema(columns: tuple[ColumnType, ...]) -> pa.Schema:
    """Return the schema of the rows of a result, each with its multiplicity."""
    return pa.schema([*rows_schema(columns), DIFF_FIELD])


@dataclass(frozen=True, slots=True)
class Input:
    """A collection up to some time: the updates in Parquet `files` and in the tables `tail`.

    All have the row columns of `schema`, in files under `file_names`, then `__time` and `__diff`.
    Only those at times at or before the time as of which an engine reads count.
    """

    schema: pa.Schema
    files: tuple[str, ...] = ()
    tail: tuple[pa.Table, ...] = ()

    @property
    def file_names(self) -> list[str]:
        """Return the names of the row's columns in files, where case does not tell names apart."""
        return column_names(update_schema(self.schema))[:-2]


@dataclass(frozen=True, slots=True)
class Output:
    """What has changed in a window: updates of the rows, and of the errors (one text column)."""

    rows: pa.Table
    errors: pa.Table


def check_size(size: int, max_bytes: int) -> None:
    """Raise OutOfMemory if a result of `size` bytes is too large."""
    if size > max_bytes:
        raise OutOfMemory(f"The result is larger than {max_bytes >> 20} MB.")


class Cancellation:
    """A way to stop work that runs on another thread, now or as soon as it starts."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stop: Callable[[], None] | None = None
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop the work; without effect on work that is done."""
        with self._lock:
            self._cancelled = True
            if self._stop is not None:
                self._stop()

    def check(self) -> None:
        """Raise QueryCanceled if `cancel` was called."""
        if self._cancelled:
            raise QueryCanceled

    def arm(self, stop: Callable[[], None]) -> None:
        """Say how the work that begins now is stopped; raises if that was asked for already."""
        with self._lock:
            if self._cancelled:
                raise QueryCanceled
            self._stop = stop

    def disarm(self) -> None:
        """Say that the work is done."""
        with self._lock:
            self._stop = None


class Dataflow(Protocol):
    """A maintained relation. Calls come one at a time, from any thread.

    `batch_sizing` says how many times a window should have; None: as many as there are.
    """

    batch_sizing: BatchSizing | None

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute everything as of the description's `as_of`; the output is all at that time."""
        ...

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time, and move on to `upper`.

        `deltas` are all updates of the inputs at times in the window; inputs that did not change
        may be left out. If it raises, nothing has happened, and it may be called again.
        """
        ...

    def allow_compaction(self, since: int) -> None:
        """Hear that nobody asks for times before `since` any more."""
        ...

    def close(self) -> None:
        """Free what the dataflow holds."""
        ...


class Evaluate(Protocol):
    """`Engine.evaluate` within one session of an engine."""

    def __call__(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
        /,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        ...


class Engine(Protocol):
    """Evaluates relations, and makes dataflows of them. Safe to use from several threads."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, not yet hydrated; `schemas` are those of the imports' rows."""
        ...

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time, by `result_schema`, consolidated.

        Raises the least DataError if evaluating it fails for a row, QueryCanceled if cancelled,
        OutOfMemory if it needs more memory than there is for it or its result is of more than
        `max_bytes`; of those no more than that is ever held.
        """
        ...

    def cancel(self) -> None:
        """Stop all evaluations that run now."""
        ...

    def check(self) -> None:
        """Raise Unavailable if the engine has lost what it works with, for good.

        It may wait for another process, so it is not for the loop.
        """
        ...

    def describe(self, relation: Relation, name_of: NameOf) -> str:
        """Return how the engine would maintain `relation`, step by step: EXPLAIN PHYSICAL PLAN."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...
