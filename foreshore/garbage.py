"""Collections of garbage that stop a server for a few milliseconds only.

A collection stops all threads, for some 0.3 us for each object that it looks at. Parsing and
planning a long text make hundreds of thousands of objects, of which none is garbage: without cycles
they are freed with their last reference. So a server does not look at all of them in one go:

    young    what was made since the last young collection: up to 2,000 objects
    middle   what the last young collections have left: up to 14,000 objects
    full     all that was made since the start, only while no text is planned on a thread

What was there at the start is never looked at. docs/decisions/0015-bounded-collections.md says why.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

YOUNG: Final = 2_000  # objects made, and not freed, before a young collection
MIDDLE: Final = 5  # young collections before a middle one, which takes the place of the next
NEVER: Final = 2**31 - 1

LOOK_S: Final = 1.0  # between looks whether a full collection is due
DUE: Final = 4  # middle collections before a full one
SHARE: Final = 0.001  # of the time, at most, is for full collections
PATIENCE_S: Final = 600.0  # a full collection that is due waits no longer for plannings to end


class Schedule:
    """When full collections run; all times are of one monotonic clock."""

    def __init__(self) -> None:
        self._due_since: float | None = None
        self._not_before = 0.0

    def is_time(self, now: float, middle: int, *, is_planning: bool) -> bool:
        """Return whether to collect after so many middle collections since the last full one."""
        if middle < DUE:
            return False
        if self._due_since is None:
            self._due_since = now
        waits = is_planning and now - self._due_since < PATIENCE_S
        return not waits and now >= self._not_before

    def ran(self, now: float, seconds: float) -> None:
        """Note that a full collection has taken so long, and has ended now."""
        self._due_since = None
        self._not_before = now + seconds / SHARE


class BoundedCollections:
    """Bounds Python's collections, and runs full ones on the running loop until `close`."""

    def __init__(self, is_planning: Callable[[], bool]) -> None:
        self._is_planning = is_planning
        self._schedule = Schedule()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Have Python collect small portions only, and nothing that is there now."""
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._look_later()

    def close(self) -> None:
        """Run no more full collections."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        began, middle = monotonic(), gc.get_count()[2]
        if self._schedule.is_time(began, middle, is_planning=self._is_planning()):
            gc.collect()
            now = monotonic()
            self._schedule.ran(now, now - began)
        self._look_later()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage during the body; only for a process, or a test, with no other thread."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
