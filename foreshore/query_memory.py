"""The memory that queries of all sessions hold in this process: one budget for all of them.

Who holds rows has a `Reservation` and says how many bytes it needs, before it takes them:

    try_reserve(n)   for rows that can be written to disk: at most half of the budget, for all of
                     these together, so that queries go on while clients do not read
    reserve(n)       for what must be in memory: as much as remains free for the others

So one query alone gets half of the budget, the second a third, the n-th one of n + 1 parts: there
is always something left. Nobody waits for memory, so nobody waits for each other. Who gets none
writes to disk, makes smaller pieces, or fails with OutOfMemory (53200).

Kernels that make values longer than their arguments call `require_room` with the size of what they
are about to make. The query that runs on the thread has said by `room` what it may make at once.

All of it takes a lock for less than a microsecond, and never waits for anything else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, local

from foreshore.errors import OutOfMemory
from foreshore.memory_shares import QUERIES

HINT = "Ask for less, or raise --query-memory of the server or max_query_memory of the role."


def no_room(size: int) -> OutOfMemory:
    """Return the error of a query that may not take `size` bytes more."""
    return OutOfMemory(f"Failed on request of size {size}.", hint=HINT)


class QueryMemory:
    """A budget of `limit` bytes. Thread-safe."""

    def __init__(self, limit: int = QUERIES) -> None:
        self._lock = RLock()  # a collector may close reservations at any time
        self._limit = limit
        self._used = 0
        self._spillable = 0
        self.refused = 0  # requests that failed
        self.spilled_bytes = 0  # written to disk instead

    @property
    def limit(self) -> int:
        """The bytes that all queries may hold."""
        return self._limit

    def configure(self, limit: int) -> None:
        """Set the budget; what is held stays."""
        with self._lock:
            self._limit = limit

    @property
    def used(self) -> int:
        """The bytes that queries hold."""
        return self._used

    @property
    def share(self) -> int:
        """The most that a query gets now that holds nothing yet."""
        return max(self._limit - self._used, 0) // 2

    def count_spilled(self, size: int) -> None:
        """Count bytes that were written to disk."""
        with self._lock:
            self.spilled_bytes += size

    def take(self, size: int, held: int, most: int | None, *, spillable: bool) -> bool:
        """Give `size` bytes to a holder that has `held` and may have `most`, or refuse them."""
        with self._lock:
            if most is not None and held + size > most:
                return False
            free = self._limit - self._used - size
            if free < 0 if spillable else free < held + size:
                return False
            if spillable:
                if self._spillable + size > self._limit // 2:
                    return False
                self._spillable += size
            self._used += size
            return True

    def give(self, size: int, *, spillable: bool) -> None:
        """Take back what was given."""
        with self._lock:
            self._used -= size
            if spillable:
                self._spillable -= size
            assert self._used >= 0 <= self._spillable, (self._used, self._spillable)

    def refuse(self, size: int) -> OutOfMemory:
        """Count a refusal, and return its error."""
        with self._lock:
            self.refused += 1
        return no_room(size)


class Reservation:
    """What one query, or one result, holds of a budget; `most` is its own limit.

    One thread at a time uses it. What is left is given back by `close`, or when it is collected.
    """

    __slots__ = ("_budget", "_needed", "_spillable", "most")

    def __init__(self, budget: "QueryMemory | None" = None, most: int | None = None) -> None:
        self._budget = budget or QUERY_MEMORY
        self.most = most
        self._needed = 0
        self._spillable = 0

    @property
    def held(self) -> int:
        """The bytes that it holds."""
        return self._needed + self._spillable

    def try_reserve(self, size: int) -> bool:
        """Reserve memory for rows that can be written to disk; return whether there is any."""
        if not self._budget.take(size, self.held, self.most, spillable=True):
            return False
        self._spillable += size
        return True

    def reserve(self, size: int) -> None:
        """Reserve memory for what must be in memory; raises OutOfMemory."""
        if not self._budget.take(size, self.held, self.most, spillable=False):
            raise self._budget.refuse(size)
        self._needed += size

    def release(self, size: int) -> None:
        """Give back some of what `try_reserve` has reserved."""
        size = min(size, self._spillable)
        if size:
            self._spillable -= size
            self._budget.give(size, spillable=True)

    def close(self) -> None:
        """Give everything back."""
        needed, spillable, self._needed, self._spillable = self._needed, self._spillable, 0, 0
        if needed:
            self._budget.give(needed, spillable=False)
        if spillable:
            self._budget.give(spillable, spillable=True)

    def __del__(self) -> None:
        """Give back what was forgotten."""
        self.close()


QUERY_MEMORY = QueryMemory()  # of this process


# --- what a kernel may make at once ----------------------------------------------------------


class _Room(local):
    size: int | None = None  # of the query on this thread


class _Default:
    is_share = False


_ROOM = _Room()


def limit_all_room() -> None:
    """Hold everything that this process evaluates to its share of the budget.

    This is for processes that maintain no views: a view has the same rows however much memory there
    is.
    """
    _Default.is_share = True


@contextmanager
def room(size: int | None) -> Iterator[None]:
    """Let kernels on this thread make at most `size` bytes at once; None is the default."""
    before, _ROOM.size = _ROOM.size, size
    try:
        yield
    finally:
        _ROOM.size = before


def has_limited_room() -> bool:
    """Whether kernels on this thread may not make just anything."""
    return _ROOM.size is not None or _Default.is_share


def may_make(size: int) -> bool:
    """Whether kernels on this thread may make `size` bytes at once."""
    most = _ROOM.size
    if most is None:
        most = QUERY_MEMORY.share if _Default.is_share else size
    return size <= most


def require_room(size: int) -> None:
    """Raise OutOfMemory if the query on this thread may not make `size` bytes at once."""
    if not may_make(size):
        raise QUERY_MEMORY.refuse(size)
