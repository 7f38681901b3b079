"""Listening: every update of a shard from a time on, as it becomes durable.

Events are delivered on the event loop, in order; each starts where the previous one ended. An event
without updates says that its interval has none. Updates before the shard's upper come first. If
some of them are in batches, a thread reads these and updates published meanwhile are queued. Only
the rows and columns of the selection are read and delivered.
"""

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from foreshore.few_updates import FewUpdates
from foreshore.ids import GlobalId
from foreshore.storage.selection import ALL, Reading, Selection
from foreshore.update import Timestamp


class ListenEvent(Struct, frozen=True, eq=False):
    """All updates with `lower <= time < upper`, as they were written. None: there are none."""

    id: GlobalId
    lower: Timestamp
    upper: Timestamp
    written: pa.Table | FewUpdates | None

    @property
    def updates(self) -> pa.Table | None:
        """The updates in columns, which are made anew where they were written as tuples."""
        return self.written.table if isinstance(self.written, FewUpdates) else self.written


class Listen:
    """An active listen. Delivers nothing after it is cancelled."""

    def __init__(
        self,
        id: GlobalId,
        frontier: Timestamp,
        deliver: Callable[[ListenEvent], None],
        selection: Selection = ALL,
        dropped: Callable[[], None] | None = None,
    ) -> None:
        self.id = id
        self.selection = selection
        self.reading = Reading()  # counts what has been read and delivered
        self.published = asyncio.Event()  # set at each publication
        self.frontier = frontier  # all updates before it have been delivered
        self.task: asyncio.Task[None] | None = None  # reads the updates that are in batches
        self._deliver = deliver
        self._dropped = dropped
        self._waiting: list[tuple[Timestamp, pa.Table | FewUpdates | None]] | None = None
        self.cancelled = False

    def end(self) -> None:
        """Stop delivering."""
        self.cancelled = True
        self._waiting = None

    def cancel(self) -> None:
        """Stop delivering and reading."""
        self.end()
        if self.task is not None:
            self.task.cancel()

    def drop(self) -> None:
        """Stop because the shard was dropped, and call the `dropped` callback."""
        heard = not self.cancelled
        self.cancel()
        if heard and self._dropped is not None:
            self._dropped()

    def hold(self) -> None:
        """Queue publications until `resume`."""
        self._waiting = []

    def resume(self) -> None:
        """Deliver the queued publications."""
        waiting, self._waiting = self._waiting or [], None
        for upper, updates in waiting:
            self.publish(upper, updates)

    def publish(self, upper: Timestamp, updates: pa.Table | FewUpdates | None) -> None:
        """Accept all updates from the last upper to `upper`."""
        if self._waiting is not None:
            self._waiting.append((upper, updates))
            self.published.set()
        elif not self.cancelled and upper > self.frontier:
            if updates is None:
                self.deliver_exactly(upper, None)
            else:
                self.deliver(upper, updates)

    def deliver(self, upper: Timestamp, updates: pa.Table | FewUpdates | None) -> None:
        """Deliver the updates from the frontier to `upper`. `updates` may include earlier ones."""
        if isinstance(updates, FewUpdates) and self.selection.is_all:
            updates = updates if updates.time >= self.frontier else None
        elif updates is not None:
            table = updates.table if isinstance(updates, FewUpdates) else updates
            updates = self._selected(at_or_beyond(table, self.frontier))
        self.deliver_exactly(upper, updates)

    def deliver_exactly(self, upper: Timestamp, updates: pa.Table | FewUpdates | None) -> None:
        """Deliver exactly these updates and advance the frontier to `upper`."""
        if updates is not None:
            self.reading.rows += updates.num_rows
            self.reading.bytes += updates.nbytes
            updates = updates if updates.num_rows else None
        event = ListenEvent(self.id, self.frontier, upper, updates)
        self.frontier = upper
        try:
            self._deliver(event)
        except Exception as error:
            # This is a fault of the listener. The log and other listeners continue.
            self.cancel()
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"a listener to {self.id} failed", "exception": error}
            )

    def _selected(self, updates: pa.Table) -> pa.Table:
        if self.selection.is_all:
            return updates
        pieces = [self.selection.of(piece) for piece in updates.to_batches()]
        return pa.Table.from_batches(pieces, self.selection.schema(updates.schema))


def at_or_beyond(updates: pa.Table, time: Timestamp) -> pa.Table:
    """Return the updates at or beyond `time`."""
    times = updates.column(updates.num_columns - 2)
    least = pc.min(times).as_py()
    if least is None or least >= time:
        return updates
    return updates.filter(pc.greater_equal(times, time))
