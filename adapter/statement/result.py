"""Results on their way to the client: rows in memory, in a scratch file, or from a stream.

A `RowSource` returns batches of at most the requested number of rows until it has no more. It
belongs to one portal or cursor, which may request a few rows at a time.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar, Protocol, TypeAlias

import pyarrow as pa
from msgspec import Struct, field

from foreshore import blocking
from foreshore.adapter.client import Completed, CopyIn, CopyOut, Rows
from foreshore.adapter.plans.row_read import are_simple
from foreshore.adapter.statement.interrupts import Interrupts
from foreshore.compute.finish import batch_of_rows, expanded, finish, finished_parts
from foreshore.compute.result import BATCH_ROWS, KEPT_BYTES, SMALL, Result, collected
from foreshore.expr.ir import Finishing
from foreshore.query_memory import Reservation
from foreshore.result_limits import NO_LIMITS, ResultLimits
from foreshore.rows import count
from foreshore.table_rows import Row
from foreshore.types import ColumnType, RelationDesc

FEW_ROWS = 4_096  # finished on the event loop
ALL = 2**62


async def all_rows(result: Result) -> pa.RecordBatch:
    """Return all rows of a result as one batch."""
    if not result.spilled_bytes:
        return result.whole()
    with closing(result):
        return await blocking.run(None, result.whole)


async def finished(rows: pa.Table, finishing: Finishing | None) -> Result:
    """Return finished rows, given with `__diff`; many are finished on a thread."""
    copies = count(rows)
    if finishing is not None and rows.nbytes * copies <= KEPT_BYTES:
        return Result.of(finish(expanded(rows, finishing), finishing))
    parts = partial(finished_parts, (rows,), finishing)
    if rows.num_rows <= FEW_ROWS and copies <= FEW_ROWS and rows.nbytes <= KEPT_BYTES:
        return collected(parts())
    return await blocking.run(None, lambda: collected(parts()))


class RowSource(Protocol):
    """Rows, batch by batch."""

    @property
    def streaming(self) -> bool:
        """Whether each batch is to be sent at once."""
        ...

    @property
    def has_ready(self) -> bool:
        """Whether `next` need not wait."""
        ...

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows, at most `limit`; None when there are no more."""
        ...

    async def park(self) -> None:
        """Hold little until `next` is called again, which may be never."""
        ...

    def close(self) -> None:
        """Release the source's resources."""
        ...


class BatchSource:
    """The rows of a batch, or of a result, whose scratch file is read on a thread."""

    streaming = False
    has_ready = True

    def __init__(self, rows: pa.RecordBatch | Result) -> None:
        self._parked = Reservation()  # for the rows of a batch that are left
        in_memory = isinstance(rows, pa.RecordBatch)
        self._rows: pa.RecordBatch | None = rows if in_memory else None
        self._result: Result | None = None if in_memory else rows
        self._later: list[Result] = []  # what comes after that, the last one first

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows."""
        while self._rows is None or not self._rows.num_rows:
            result = self._result
            if result is None:
                return None
            at_hand = result.is_at_hand()
            self._rows = result.take() if at_hand else await blocking.run(None, result.take)
            if self._rows is None:
                if not self._later:
                    return None
                result.close()
                self._result = self._later.pop()
        rows, limit = self._rows, min(limit, BATCH_ROWS)
        self._rows = rows.slice(limit) if limit < rows.num_rows else None
        if self._rows is None:
            self._parked.close()
        return rows if self._rows is None else rows.slice(0, limit)

    async def park(self) -> None:
        """Reserve memory for what is left of a batch, or write it to disk."""
        left, after = self._rows, self._result
        if left is None or self._parked.held:
            return
        size = left.get_total_buffer_size()
        if size <= SMALL or self._parked.try_reserve(size):
            return
        spilled = Result(left.schema)
        await blocking.run(None, spilled.spill, left)
        self._rows, self._result = None, spilled
        if after is None:
            return
        if after.parts():
            self._later.append(after)
        else:
            after.close()

    def check(self, limits: ResultLimits) -> None:
        """Raise ResultTooLarge if all rows, of which none was taken, are more than `limits`."""
        rows = self._result if self._rows is None else self._rows
        if rows is not None:
            size = rows.nbytes if isinstance(rows, pa.RecordBatch) else rows.size_bytes
            if (error := limits.check(size, rows.num_rows)) is not None:
                raise error

    def left(self) -> Result | None:
        """Return all rows that are left as a result, which the source forgets; None: some went."""
        rows, result = self._rows, self._result
        if (rows is not None and result is not None) or self._later:
            return None
        self._rows = self._result = None
        return Result.of(rows) if rows is not None else result

    def close(self) -> None:
        """Release memory and file."""
        self._rows = None
        self._parked.close()
        for each in (self._result, *self._later):
            if each is not None:
                each.close()


class TupleSource(Struct):
    """Few rows of these columns, as tuples."""

    streaming: ClassVar[bool] = False
    has_ready: ClassVar[bool] = True

    rows: Sequence[Row]
    columns: Sequence[ColumnType]
    is_taken: bool = False

    def take(self, limit: int) -> Sequence[Row]:
        """Return the next rows, at most `limit`."""
        rows = self.rows
        if len(rows) <= limit:
            self.rows, self.is_taken = (), True
            return rows
        self.rows = rows[limit:]
        return rows[:limit]

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows."""
        return None if self.is_taken else batch_of_rows(self.take(limit), self.columns)

    def check(self, limits: ResultLimits) -> None:
        """Raise ResultTooLarge if all rows, of which none was taken, are more than `limits`."""
        if limits != NO_LIMITS:
            size = batch_of_rows(self.rows, self.columns).nbytes
            if (error := limits.check(size, len(self.rows))) is not None:
                raise error

    async def park(self) -> None:
        """Keep the rows, which are few."""

    def close(self) -> None:
        """Let go of the rows."""
        self.is_taken, self.rows = True, ()


def source_of_rows(
    rows: Sequence[Row], columns: Sequence[ColumnType], *, exact: bool
) -> "TupleSource | BatchSource":
    """Return rows, whose data may have to be brought into the columns' types, if not `exact`."""
    if exact or are_simple(columns):
        return TupleSource(rows, columns)
    return BatchSource(batch_of_rows(rows, columns))


class Sent(Struct):
    """How much of a result was sent: of a stream, of the rows of its last time."""

    bytes: int = 0
    rows: int = 0
    time: object = None

    def add(self, batch: pa.RecordBatch, *, streaming: bool) -> None:
        """Count a batch; the first column of a stream is the time."""
        if streaming and batch.num_rows:
            last = batch.column(0)[-1].as_py()
            if last != self.time:
                self.bytes = self.rows = 0
            self.time = last
        self.bytes += batch.nbytes
        self.rows += batch.num_rows


class Selected(Struct, frozen=True):
    """Rows of a statement, and the verb of its tag: SELECT, FETCH, INSERT 0 ..."""

    desc: RelationDesc
    source: RowSource
    verb: str
    binary: bool = False  # of a binary cursor: the simple protocol sends binary values
    sent: Sent = field(default_factory=Sent)  # by all executions of its portal


class Several(Struct, frozen=True):
    """The outcomes of executions of a statement that have run as one, in their order."""

    outcomes: Sequence[Completed | Selected]


Outcome: TypeAlias = Completed | Selected | CopyIn | CopyOut | Several


def check_returned(outcome: Outcome, limits: ResultLimits) -> None:
    """Raise ResultTooLarge if a change returns too many rows, so that it is not committed."""
    if isinstance(outcome, Several):
        for each in outcome.outcomes:
            check_returned(each, limits)
    elif isinstance(outcome, Selected) and isinstance(outcome.source, BatchSource | TupleSource):
        outcome.source.check(limits)


def taken(
    selected: Selected,
    limit: int,
    interrupts: Interrupts,
    done: Callable[[int], None] = lambda rows: None,
    *,
    limits: ResultLimits = NO_LIMITS,
) -> Rows:
    """Return up to `limit` rows as the client takes them; 0 is all of them.

    `done` is called after the last one, with their number. If there are more than `limits`
    allow, of a SUBSCRIBE at one time, the rest of them is an error.
    """
    source, limit = selected.source, limit or ALL
    if isinstance(source, TupleSource) and limits is NO_LIMITS:  # sizes are those of batches
        tuples = source.take(limit)
        done(len(tuples))
        has_more = len(tuples) >= limit
        desc, verb, binary = selected.desc, selected.verb, selected.binary
        return Rows(desc, verb, _batch_of_tuples, has_more, tuples=tuples, binary=binary)

    async def batches(taken: Rows) -> AsyncIterator[pa.RecordBatch]:
        count, is_limited = 0, limits is not NO_LIMITS
        while count < limit:
            with interrupts.running():
                batch = await source.next(limit - count)
            if batch is None:
                break
            count += batch.num_rows
            if is_limited:
                selected.sent.add(batch, streaming=source.streaming)
                error = limits.check(selected.sent.bytes, selected.sent.rows)
                if error is not None:
                    raise error
            held = [batch]
            del batch  # a long one is let go of by whoever takes it
            yield held.pop()
        else:
            await source.park()
        taken.has_more = count >= limit
        done(count)

    desc, verb, binary = selected.desc, selected.verb, selected.binary
    return Rows(desc, verb, batches, streaming=source.streaming, binary=binary)


async def _batch_of_tuples(rows: Rows) -> AsyncIterator[pa.RecordBatch]:
    if rows.tuples:
        yield batch_of_rows(rows.tuples, rows.desc.columns)
