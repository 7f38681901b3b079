"""Advisory locks: pg_advisory_lock and its kin, whose meaning is up to the clients.

A lock is named by a database and either a bigint or two integers. It is exclusive or shared. A
session may take it several times, and never waits for itself. A session lock is held until the
session releases it or ends, a transaction lock until the transaction ends or returns to an earlier
savepoint.

A session that holds a lock already goes before those who wait for it. A deadlock that involves
rows or tables too is not found: `lock_timeout` ends it. A session may hold MOST_HELD, counted as
often as its transaction has taken them.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import NamedTuple

from foreshore.errors import Unavailable
from foreshore.lock_queue import LockQueue

MOST_HELD = 10_000
Mode = OneOf["exclusive", "shared"]
Scope = OneOf["session", "transaction"]


LOCK_TYPES: Mapping[Mode, str] = {"exclusive": "ExclusiveLock", "shared": "ShareLock"}


class Key(NamedTuple):
    """The name of a lock, as pg_locks shows it."""

    database: str
    classid: int
    objid: int
    objsubid: int  # 1: a bigint, whose halves the two are; 2: two integers


class Had(NamedTuple):
    """How a session holds a lock."""

    mode: Mode
    scope: Scope


@dataclass(eq=False, slots=True)
class _Request:
    owner: int  # the pid of the session that asks
    key: Key
    had: Had
    granted: asyncio.Future[None] = field(default_factory=asyncio.Future)


class AdvisoryLocks(LockQueue[_Request]):
    """All advisory locks of the environment; owned by the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._holders: dict[Key, dict[int, Counter[Had]]] = {}
        self.held: dict[int, set[Key]] = {}
        self.by_transactions: dict[int, list[tuple[Key, Had]]] = {}  # in the order of taking

    # --- taking

    def try_take(self, pid: int, key: Key, had: Had) -> bool:
        """Take a lock if that needs no waiting; return whether it was taken."""
        return self._try(_Request(pid, key, had))

    async def take(self, pid: int, key: Key, had: Had, timeout_ms: int) -> None:
        """Take a lock, after those who hold it and those who wait for it already.

        Raises Conflict 40P01 at a deadlock, LockNotAvailable after `timeout_ms` unless that is 0.
        """
        request = _Request(pid, key, had)
        if not self._try(request):
            await self._wait(request, timeout_ms)

    def _give_up(self, request: _Request) -> None:
        if request.had.scope == "session":  # a transaction releases its own when it fails
            self._give(request.owner, request.key, request.had)

    # --- giving back

    def check_number(self, pid: int) -> None:
        """Raise Unavailable 53200 if a session holds as many locks as it may."""
        number = len(self.held.get(pid, ())) + len(self.by_transactions.get(pid, ()))
        if number >= MOST_HELD:
            raise Unavailable(
                "out of shared memory",
                detail=f"A session may hold {MOST_HELD} advisory locks.",
                sqlstate="53200",
            )

    def give_back(self, pid: int, key: Key, mode: Mode) -> bool:
        """Release a session lock once; return whether the session held it."""
        had = Had(mode, "session")
        if not self._holders.get(key, {}).get(pid, Counter())[had]:
            return False
        self._give(pid, key, had)
        self._wake()
        return True

    def mark(self, pid: int) -> int:
        """Return the number of transaction locks of a session."""
        return len(self.by_transactions.get(pid, ()))

    def release_transaction(self, pid: int, since: int = 0) -> None:
        """Release the transaction locks of a session but for the first `since`."""
        taken = self.by_transactions.get(pid, [])
        if len(taken) <= since:
            return
        for key, had in taken[since:]:
            self._give(pid, key, had)
        del taken[since:]
        if not taken:
            del self.by_transactions[pid]
        self._wake()

    def release_session(self, pid: int) -> None:
        """Release the session locks of a session."""
        for key in list(self.held.get(pid, ())):
            counts = self._holders[key][pid]
            for had in [had for had in counts if had.scope == "session"]:
                del counts[had]
            self._forget_if_none(pid, key)
        self._wake()

    def _give(self, pid: int, key: Key, had: Had) -> None:
        counts = self._holders[key][pid]
        counts[had] -= 1
        if not counts[had]:
            del counts[had]
        self._forget_if_none(pid, key)

    def _forget_if_none(self, pid: int, key: Key) -> None:
        if self._holders[key][pid]:
            return
        del self._holders[key][pid]
        if not self._holders[key]:
            del self._holders[key]
        self.held[pid].discard(key)
        if not self.held[pid]:
            del self.held[pid]

    # --- what there is

    def rows(self) -> Iterator[tuple[Key, int, Mode, bool]]:
        """Yield the lock, the session, the mode, and whether it is granted, of each request."""
        for key, holders in self._holders.items():
            for pid, counts in holders.items():
                for mode in dict.fromkeys(had.mode for had in counts):
                    yield key, pid, mode, True
        for request in self._waiting:
            yield request.key, request.owner, request.had.mode, False

    # --- waiting

    def _before(self, request: _Request, place: int) -> Iterator[int]:
        """Yield the sessions for whom `request`, at `place` of the queue, has to wait."""
        holders = self._holders.get(request.key, {})
        for pid, counts in holders.items():
            if pid != request.owner and _conflict(request.had, counts):
                yield pid
        if request.owner not in holders:
            for other in self._waiting[:place]:
                if other.key == request.key and _conflict(request.had, (other.had,)):
                    yield other.owner

    def _grant(self, request: _Request) -> None:
        holders = self._holders.setdefault(request.key, {})
        holders.setdefault(request.owner, Counter())[request.had] += 1
        self.held.setdefault(request.owner, set()).add(request.key)
        if request.had.scope == "transaction":
            taken = self.by_transactions.setdefault(request.owner, [])
            taken.append((request.key, request.had))
        if not request.granted.done():
            request.granted.set_result(None)


def _conflict(wanted: Had, others: "Counter[Had] | tuple[Had, ...]") -> bool:
    return wanted.mode == "exclusive" or any(each.mode == "exclusive" for each in others)
