"""The changes of a query by time, put together from the rows of SUBSCRIBE ... WITH (PROGRESS).

Rows of one time may arrive in several batches. They are complete when a progress row has a later
time; only then they are given, so each `Changes` is all that changed at its time, once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.embedded.result import rows_with

TIME, PROGRESSED, DIFF = "mz_timestamp", "mz_progressed", "mz_diff"


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes at one time, in milliseconds since 1970.

    `rows` has the query's columns and `mz_diff`: how many copies of the row are added, or taken
    away if it is negative. With `snapshot` it is the contents, from which the later changes go on.
    """

    time: int
    rows: pa.Table
    snapshot: bool = False

    @property
    def added(self) -> pa.Table:
        """The rows that are added; one that is there twice has `mz_diff` 2."""
        return self.rows.filter(pc.greater(self.rows.column(DIFF), 0))

    @property
    def removed(self) -> pa.Table:
        """The rows that are taken away."""
        return self.rows.filter(pc.less(self.rows.column(DIFF), 0))


@dataclass(frozen=True, slots=True)
class Progress:
    """All changes before `time` have been given."""

    time: int


Event: TypeAlias = Changes | Progress


class ByTime:
    """Puts the batches of one stream together.

    `snapshot` says whether the stream begins with the contents, which are given also of no rows.
    """

    def __init__(self, *, snapshot: bool) -> None:
        self._snapshot = snapshot
        self._begin: int | None = None  # the time of the contents
        self._progress = -1
        self._pending: list[pa.Table] = []

    def take(self, batch: pa.RecordBatch) -> Iterator[Event]:
        """Yield what a batch completes."""
        table = pa.Table.from_batches([batch])
        progressed = table.column(PROGRESSED)
        times = pc.max(table.filter(progressed).column(TIME)).as_py()
        if times is not None and self._begin is None:
            self._begin = int(pc.min(table.filter(progressed).column(TIME)).as_py())
        rows = table.filter(pc.invert(progressed)).drop_columns([PROGRESSED])
        if rows.num_rows:
            self._pending.append(rows)
        elif not self._pending and not self._snapshot and times is None:
            return
        if times is not None and times > self._progress:
            yield from self._complete(int(times), rows.schema)

    def end(self) -> Iterator[Event]:
        """Yield what is complete because the stream has ended without an error."""
        if self._pending:
            pending = pa.concat_tables(self._pending)
            yield from self._complete(int(pc.max(pending.column(TIME)).as_py()) + 1, pending.schema)

    def _complete(self, progress: int, schema: pa.Schema) -> Iterator[Event]:
        """Yield the changes before `progress`, in the order of time, then the progress."""
        pending = pa.concat_tables(self._pending) if self._pending else schema.empty_table()
        is_complete = pc.less(pending.column(TIME), progress)
        complete, rest = pending.filter(is_complete), pending.filter(pc.invert(is_complete))
        self._pending = [rest] if rest.num_rows else []
        times = sorted(pc.unique(complete.column(TIME)).to_pylist())
        if self._snapshot and self._begin is not None and progress > self._begin:
            times = sorted({*times, self._begin})
        for time in times:
            rows = rows_with(complete, TIME, time).drop_columns([TIME])
            yield Changes(time, rows, snapshot=self._snapshot and time == self._begin)
        if self._begin is not None and progress > self._begin:
            self._snapshot = False
        self._progress = progress
        yield Progress(progress)
