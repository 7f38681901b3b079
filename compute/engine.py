"""Engines: the interface to what evaluates plans and maintains dataflows.

An engine takes plans and Arrow tables and returns Arrow tables. It knows nothing of shards, SQL
text or clocks. A `Dataflow` is hydrated once, in bulk, as of one time. Then it gets the updates of
its inputs window by window. Its output is exact at every time and does not depend on how the
windows are cut. DuckDB and Spark are the two engines.

Columns are addressed by position. Input updates have a collection's row columns, `__time`,
`__diff`. Output updates have columns `c0`, `c1`, ... in the relation's physical types, `__time`,
`__diff`; they are consolidated and unordered.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock
from typing import Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.memory_limit import MemoryBudget
from foreshore.compute.merged_times import MergedTimes
from foreshore.compute.output import IndexRows, Output
from foreshore.compute.protocol import (
    BulkChoice,
    DataflowDescription,
    HydrationStatus,
    IndexExport,
    OperatorWork,
    StageStatus,
    StepStatus,
)
from foreshore.errors import OutOfMemory, QueryCanceled
from foreshore.expr.ir import OrderKey, Relation
from foreshore.ids import GlobalId
from foreshore.sizes import shown
from foreshore.storage.batch import column_names
from foreshore.types import TEXT, ColumnType, arrow_type
from foreshore.update import DIFF_FIELD, TIME_FIELD, Timestamp, update_schema

T = TypeVar("T")

ERRORS = (ColumnType(TEXT, False),)


def rows_schema(columns: tuple[ColumnType, ...]) -> pa.Schema:
    """Return the schema of rows with generated names: c0, c1, ..."""
    return pa.schema([pa.field(f"c{i}", arrow_type(c.type)) for i, c in enumerate(columns)])


@lru_cache(4096)
def output_schema(columns: tuple[ColumnType, ...]) -> pa.Schema:
    """Return the schema of the output updates of a dataflow with these columns."""
    return pa.schema([*rows_schema(columns), TIME_FIELD, DIFF_FIELD])


@lru_cache(4096)
def empty_output(columns: tuple[ColumnType, ...]) -> pa.Table:
    """Return no updates with these columns."""
    return output_schema(columns).empty_table()


def result_schema(columns: tuple[ColumnType, ...]) -> pa.Schema:
    """Return the schema of a result's rows, each with its multiplicity."""
    return pa.schema([*rows_schema(columns), DIFF_FIELD])


@dataclass(frozen=True, slots=True)
class Input:
    """A collection up to some time: the updates in Parquet `files` and in the tables `tail`.

    All have the row columns of `schema`, in files under `file_names`, then `__time` and `__diff`.
    Engines ignore updates later than the time they read at. Of the files only the share with number
    `part` of `parts` is meant.
    """

    schema: pa.Schema
    files: tuple[str, ...] = ()
    tail: tuple[pa.Table, ...] = ()
    part: int = 0
    parts: int = 1

    @property
    def file_names(self) -> list[str]:
        """Return the names of the row's columns in files, which are unique regardless of case."""
        return column_names(update_schema(self.schema))[:-2]


def check_size(size: int, max_bytes: int) -> None:
    """Raise OutOfMemory if a result of `size` bytes is too large."""
    if size > max_bytes:
        raise OutOfMemory(f"The result is larger than {max_bytes >> 20} MB.")


def check_memory(size: int, memory: int | None) -> None:
    """Raise OutOfMemory if what a query keeps takes more than the `memory` that it may."""
    if memory is not None and size > memory:
        raise OutOfMemory(
            f"The query may take {shown(memory)}.", hint="Raise max_query_memory of the role."
        )


class Cancellation:
    """A handle to stop work on another thread, now or as soon as it starts."""

    def __init__(self) -> None:
        self._lock = RLock()  # an abandoned evaluation may be collected while it is held
        self._stop: Callable[[], None] | None = None
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop the work; no effect if it is done."""
        with self._lock:
            self._cancelled = True
            if self._stop is not None:
                self._stop()

    def check(self) -> None:
        """Raise QueryCanceled if `cancel` was called."""
        if self._cancelled:
            raise QueryCanceled

    def checked(self, parts: Iterator[T]) -> Iterator[T]:
        """Yield what `parts` yield, as long as `cancel` was not called; then it raises."""
        for part in parts:
            self.check()
            yield part

    def arm(self, stop: Callable[[], None]) -> None:
        """Register how to stop the work that starts now; raise if it is cancelled already."""
        with self._lock:
            if self._cancelled:
                raise QueryCanceled
            self._stop = stop

    def disarm(self) -> None:
        """Mark the work as done."""
        with self._lock:
            self._stop = None


@dataclass(frozen=True, slots=True)
class ArrangementSize:
    """The size of an arrangement: its name, records (updates or groups), batches and bytes.

    `operator` is its operator's number, None if it belongs to none; `object` is the collection
    whose rows it has, if dataflows share it.
    """

    name: str
    records: int
    batches: int
    bytes: int
    operator: int | None = None
    object: GlobalId | None = None
    merges: int = 0  # of batches, since it is there
    worker: int | None = None  # that has it, if the replica has several


class Dataflow(Protocol):
    """A maintained relation. Calls are serialized but may come from any thread.

    `batch_sizing` chooses the number of times in a window; None: no limit.
    """

    batch_sizing: BatchSizing | None

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the description's `as_of`; all updates are at that time."""
        ...

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time, and advance to `upper`.

        `deltas` are all updates of the inputs in the window; unchanged inputs may be omitted. If it
        raises, the state is unchanged and the call may be repeated.
        """
        ...

    def small_window(self, changed: Sequence[GlobalId]) -> int:
        """Return how many updates of the inputs `changed` take a few milliseconds at most."""
        ...

    def limit_memory(self, budget: MemoryBudget) -> None:
        """Check a budget during hydration and large steps, if their memory is known."""
        ...

    def cancel(self) -> None:
        """Make a call that is under way raise soon, if it can: the dataflow was dropped.

        Any thread may call it.
        """
        ...

    def due(self, upper: int) -> int:
        """Return the number of updates scheduled before `upper`, whether or not inputs change.

        If there are any, a step is needed to advance to `upper`.
        """
        ...

    def advanced(self, upper: int) -> None:
        """Note that no input changed from the end of the last window until `upper`."""
        ...

    def allow_compaction(self, since: int) -> None:
        """Allow times before `since` to be forgotten."""
        ...

    def merge_times(self, merged: MergedTimes) -> None:
        """Allow later steps to merge times, until the next call; they need not do it."""
        ...

    def index(self, export: IndexExport, since: Timestamp) -> IndexRows | None:
        """Return an empty index for the output, None if the engine has none of its own."""
        ...

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        ...

    def maintain(self) -> bool:
        """Do some maintenance between steps; return whether there is more to do."""
        ...

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of its arrangements. Any thread may call it, also during a step."""
        ...

    def work(self) -> Iterable[OperatorWork]:
        """Return what each operator has done, nothing if there are none. Any thread may call it."""
        ...

    def close(self) -> None:
        """Free the dataflow's resources."""
        ...


@dataclass(frozen=True, slots=True)
class Extent:
    """The rows of a result that are wanted: all, or the `most` that are the first in `order`.

    The keys are columns.
    """

    order: tuple[OrderKey, ...] = ()
    most: int | None = None


ALL_ROWS = Extent()


class Evaluations(Protocol):
    """Evaluations in one session of an engine, each as by `Engine.evaluate`; of one thread."""

    def rows(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        ...

    def parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
        extent: Extent = ALL_ROWS,
    ) -> Iterator[pa.Table]:
        """Yield the rows of `relation` as of a time, part by part: at least one.

        They come in the order of `extent`, and those beyond it may be left out.
        """
        ...


class Evaluator(Protocol):
    """Evaluates relations. Thread-safe."""

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time, by `result_schema`, consolidated.

        Raises the least DataError if evaluation fails for a row, QueryCanceled if cancelled, and
        OutOfMemory if memory is exhausted or the result exceeds `max_bytes`. No more than that is
        held in memory.
        """
        ...

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
        """Yield what `evaluate` returns, part by part: at least one, which may be empty.

        They are computed as they are asked for where the engine can. One thread asks for all.
        Rows that are equal may come apart. Errors are not looked for unless the plan `may_fail`.
        Rows beyond `extent` may be left out.
        """
        ...

    def limited(self, memory: int) -> AbstractContextManager["Evaluator"]:
        """Yield an engine for one query that takes `memory` bytes at most, or raises OutOfMemory.

        Where an engine cannot tell how much a query takes, the query has its usual share.
        """
        ...

    def cancel(self) -> None:
        """Stop all running evaluations."""
        ...

    def check(self) -> None:
        """Raise Unavailable if the engine has permanently lost its backend.

        It may wait for another process, so it must not run on the event loop.
        """
        ...

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of what dataflows share. Any thread may call it."""
        ...

    def forget(self) -> None:
        """Share nothing of the present dataflows with later ones: they read another database."""
        ...

    def close(self) -> None:
        """Free the engine's resources."""
        ...


class Engine(Evaluator, Protocol):
    """Evaluates relations and creates dataflows. Thread-safe."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow that is not hydrated yet; `schemas` are those of the imports' rows."""
        ...


@runtime_checkable
class SharingEngine(Protocol):
    """An engine whose dataflows share what they read."""

    def expect(self, descriptions: Iterable[DataflowDescription]) -> None:
        """Note the dataflows that are created soon; one thread at a time calls it."""
        ...


@runtime_checkable
class HydratingEngine(Protocol):
    """An engine that knows how its dataflows were hydrated."""

    def hydrations(self, id: GlobalId) -> tuple[HydrationStatus, ...]:
        """Return what each bulk engine has done to hydrate a dataflow. Any thread may call it."""
        ...

    def forget_hydrations(self, id: GlobalId) -> None:
        """Forget that of a dataflow that was dropped. Any thread may call it."""
        ...


@runtime_checkable
class ChoosingSteps(Protocol):
    """A dataflow whose steps are computed by one of several engines."""

    @property
    def last_steps(self) -> tuple[StepStatus, ...]:
        """The work of each engine in the last steps, the oldest first. Any thread may ask."""
        ...


def steps_told(dataflow: Dataflow | None) -> tuple[StepStatus, ...]:
    """Return what the engines of a dataflow's last steps did, nothing if there is but one."""
    return dataflow.last_steps if isinstance(dataflow, ChoosingSteps) else ()


@runtime_checkable
class ChoosingQueries(Protocol):
    """An engine that has several ones for queries."""

    def for_query(self, choice: BulkChoice) -> Engine:
        """Return the engine for a query for which the session has chosen so."""
        ...


@runtime_checkable
class StagedEngine(Protocol):
    """An engine whose work has stages on Spark."""

    def stages(self) -> tuple[StageStatus, ...]:
        """Return what runs on Spark at this moment. It may wait for another process."""
        ...


@runtime_checkable
class SpreadEngine(Protocol):
    """An engine that spreads its dataflows over several processes."""

    @property
    def processes(self) -> Sequence[int]:
        """The ids of these processes."""
        ...
