"""Listening: every update of a shard from a time on, as it is made durable.

Events are delivered on the event loop, in order, each beginning where the last one ended; an event
without updates says that there are none in its interval. What is before the shard's upper when the
listening begins comes first; where some of it lies in batches these are read on a thread, and what
happens meanwhile waits its turn. With a selection only what is wanted is read and delivered.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.ids import GlobalId
from foreshore.storage.selection import ALL, Reading, Selection
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class ListenEvent:
    """All updates with `lower <= time < upper`; None: there are none."""

    id: GlobalId
    lower: Timestamp
    upper: Timestamp
    updates: pa.Table | None


class Listen:
    """A listening that is under way; hears no more once cancelled."""

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
        self.reading = Reading()  # what has been delivered, and what it took to read it
        self.heard = asyncio.Event()  # something has been published since it was cleared
        self.frontier = frontier  # all before has been delivered
        self.task: asyncio.Task[None] | None = None  # reads what lies in batches
        self._deliver = deliver
        self._dropped = dropped
        self._waiting: list[tuple[Timestamp, pa.Table | None]] | None = None
        self.cancelled = False

    def end(self) -> None:
        """Hear nothing more."""
        self.cancelled = True
        self._waiting = None

    def cancel(self) -> None:
        """Deliver nothing more, nor read what is to be."""
        self.end()
        if self.task is not None:
            self.task.cancel()

    def drop(self) -> None:
        """Hear that the shard has been dropped, and nothing more."""
        heard = not self.cancelled
        self.cancel()
        if heard and self._dropped is not None:
            self._dropped()

    def hold(self) -> None:
        """Let what is published wait until `resume`."""
        self._waiting = []

    def resume(self) -> None:
        """Deliver what has waited."""
        waiting, self._waiting = self._waiting or [], None
        for upper, updates in waiting:
            self.publish(upper, updates)

    def publish(self, upper: Timestamp, updates: pa.Table | None) -> None:
        """Hear that these are all the updates from the last upper to `upper`."""
        if self._waiting is not None:
            self._waiting.append((upper, updates))
            self.heard.set()
        elif not self.cancelled and upper > self.frontier:
            self.deliver(upper, updates)

    def deliver(self, upper: Timestamp, updates: pa.Table | None) -> None:
        """Deliver the updates from the frontier to `upper`; they may include earlier ones."""
        if updates is not None:
            updates = self._selected(at_or_beyond(updates, self.frontier))
        self.hand_over(upper, updates)

    def hand_over(self, upper: Timestamp, updates: pa.Table | None) -> None:
        """Deliver exactly these updates, and move the frontier to `upper`."""
        if updates is not None:
            self.reading.rows += updates.num_rows
            self.reading.bytes += updates.nbytes
        event = ListenEvent(
            self.id, self.frontier, upper, updates if updates is not None and len(updates) else None
        )
        self.frontier = upper
        try:
            self._deliver(event)
        except Exception as error:
            # A fault of whoever listens; the log and those who hear of it after go on.
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
