"""Advisory locks: pg_advisory_lock and its kin, which mean what those who take them agree on.

A lock is named by a database and a bigint, or two integers, which are others. Sessions have locks
exclusively or share them, and as often as they have taken them; the same session never waits for
itself. What is taken for the session is kept until it gives it back or ends, what is taken for a
transaction ends with that, or as it goes back to a savepoint before.

Who wants what others have waits, behind those who wait already unless it has the lock in some way.
A circle of such waits is a deadlock, told to whoever closes it (40P01). One that leads over rows or
tables as well is not seen here: `lock_timeout` ends it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import NamedTuple

from foreshore.adapter.session.context import StatementContext
from foreshore.errors import Conflict, LockNotAvailable
from foreshore.types import Datum

Mode = OneOf["exclusive", "shared"]
Scope = OneOf["session", "transaction"]


LOCK_TYPES: Mapping[Mode, str] = {"exclusive": "ExclusiveLock", "shared": "ShareLock"}


class Key(NamedTuple):
    """What a lock is on, as pg_locks names it."""

    database: str
    classid: int
    objid: int
    objsubid: int  # 1: of a bigint, whose halves the two are; 2: of two integers


class Had(NamedTuple):
    """A way in which a session has a lock."""

    mode: Mode
    scope: Scope


@dataclass(eq=False, slots=True)
class _Request:
    pid: int  # of the session that asks
    key: Key
    had: Had
    granted: asyncio.Future[None] = field(default_factory=asyncio.Future)


class AdvisoryLocks:
    """All advisory locks of the environment; owned by the event loop."""

    def __init__(self) -> None:
        self._holders: dict[Key, dict[int, Counter[Had]]] = {}
        self._held: dict[int, set[Key]] = {}
        self.by_transactions: dict[int, list[tuple[Key, Had]]] = {}  # in the order of taking
        self._waiting: list[_Request] = []

    # --- taking

    def try_take(self, pid: int, key: Key, had: Had) -> bool:
        """Take a lock if nobody has to be waited for; else say so."""
        request = _Request(pid, key, had)
        if any(self._before(request, len(self._waiting))):
            return False
        self._grant(request)
        return True

    async def take(self, pid: int, key: Key, had: Had, timeout_ms: int) -> None:
        """Take a lock, as soon as those who have it and who wait before let that be.

        Raises Conflict 40P01 if that would be never, LockNotAvailable after `timeout_ms`, unless
        that is 0.
        """
        if self.try_take(pid, key, had):
            return
        request = _Request(pid, key, had)
        if self._closes_circle(request):
            raise Conflict("deadlock detected", sqlstate="40P01")
        self._waiting.append(request)
        try:
            async with asyncio.timeout(timeout_ms / 1000 or None):
                await request.granted
        except BaseException as error:
            if request in self._waiting:
                self._waiting.remove(request)
            elif had.scope == "session":  # a transaction gives up its own when it fails
                self._give(pid, key, had)
            self._wake()
            if isinstance(error, TimeoutError):
                raise LockNotAvailable from None
            raise

    # --- giving back

    def give_back(self, pid: int, key: Key, mode: Mode) -> bool:
        """Give back what was taken for the session once; False if it does not have that."""
        had = Had(mode, "session")
        if not self._holders.get(key, {}).get(pid, Counter())[had]:
            return False
        self._give(pid, key, had)
        self._wake()
        return True

    def mark(self, pid: int) -> int:
        """Return how often a session has taken something for its transaction."""
        return len(self.by_transactions.get(pid, ()))

    def release_transaction(self, pid: int, since: int = 0) -> None:
        """Give back what a session has taken for its transaction `since` that `mark`."""
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
        """Give back what a session has taken for itself."""
        for key in list(self._held.get(pid, ())):
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
        self._held[pid].discard(key)
        if not self._held[pid]:
            del self._held[pid]

    # --- what there is

    def rows(self) -> Iterator[tuple[Key, int, Mode, bool]]:
        """Yield who has, or waits for, which lock, how, and whether it has it."""
        for key, holders in self._holders.items():
            for pid, counts in holders.items():
                for mode in dict.fromkeys(had.mode for had in counts):
                    yield key, pid, mode, True
        for request in self._waiting:
            yield request.key, request.pid, request.had.mode, False

    # --- waiting

    def _before(self, request: _Request, place: int) -> Iterator[int]:
        """Yield those for whom `request`, at `place` of those who wait, has to wait."""
        holders = self._holders.get(request.key, {})
        for pid, counts in holders.items():
            if pid != request.pid and _conflict(request.had, counts):
                yield pid
        if request.pid not in holders:
            for other in self._waiting[:place]:
                if other.key == request.key and _conflict(request.had, (other.had,)):
                    yield other.pid

    def _closes_circle(self, request: _Request) -> bool:
        if request.pid not in self._held:
            return False  # nobody waits for who has nothing
        places = {each.pid: place for place, each in enumerate(self._waiting)}
        seen: set[int] = set()
        stack = list(self._before(request, len(self._waiting)))
        while stack:
            pid = stack.pop()
            if pid == request.pid:
                return True
            if pid not in seen and pid in places:
                seen.add(pid)
                stack += self._before(self._waiting[places[pid]], places[pid])
        return False

    def _grant(self, request: _Request) -> None:
        holders = self._holders.setdefault(request.key, {})
        holders.setdefault(request.pid, Counter())[request.had] += 1
        self._held.setdefault(request.pid, set()).add(request.key)
        if request.had.scope == "transaction":
            taken = self.by_transactions.setdefault(request.pid, [])
            taken.append((request.key, request.had))
        if not request.granted.done():
            request.granted.set_result(None)

    def _wake(self) -> None:
        """Grant what can be granted now, in the order of asking."""
        place = 0
        while place < len(self._waiting):
            if any(self._before(self._waiting[place], place)):
                place += 1
            else:
                self._grant(self._waiting.pop(place))
                place = 0


def _conflict(wanted: Had, others: "Counter[Had] | tuple[Had, ...]") -> bool:
    return wanted.mode == "exclusive" or any(each.mode == "exclusive" for each in others)


# --- calls ---------------------------------------------------------------------------------


async def value(
    context: StatementContext, function: str, args: Sequence[Datum]
) -> bool | str | None:
    """Return what a call of one of the functions gives."""
    if None in args:
        return None
    locks, pid = context.coordinator.advisory, context.pid
    key, had = _asked(context.database, function, args)
    mode = had.mode
    if "unlock" in function:
        given = locks.give_back(pid, key, mode)
        if not given:
            message = f"you don't own a lock of type {LOCK_TYPES[mode]}"
            context.notice(message, severity="WARNING", sqlstate="01000")
        return given
    if function.startswith("pg_try_"):
        return locks.try_take(pid, key, had)
    await locks.take(pid, key, had, context.lock_timeout_ms)
    return ""


def ends(function: str) -> bool:
    """Whether what a call takes ends with its transaction."""
    return "_xact_" in function


def _asked(database: str, function: str, args: Sequence[Datum]) -> tuple[Key, Had]:
    """Return which lock a call is about, and how it takes it."""
    mode: Mode = "shared" if "_shared(" in function else "exclusive"
    key = _key(database, [int(str(arg)) for arg in args])
    return key, Had(mode, "transaction" if ends(function) else "session")


def _key(database: str, numbers: Sequence[int]) -> Key:
    if len(numbers) == 1:
        (number,) = numbers
        return Key(database, (number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF, 1)
    first, second = numbers
    return Key(database, first & 0xFFFFFFFF, second & 0xFFFFFFFF, 2)
