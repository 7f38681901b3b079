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
from typing import TYPE_CHECKING, NamedTuple
from typing import Literal as OneOf

from foreshore.adapter.session.variables import milliseconds
from foreshore.errors import Conflict, LockNotAvailable
from foreshore.expr.functions.system import ADVISORY
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

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
    session: "Session"
    key: Key
    had: Had
    granted: asyncio.Future[None] = field(default_factory=asyncio.Future)


class AdvisoryLocks:
    """All advisory locks of the environment; owned by the event loop."""

    def __init__(self) -> None:
        self._holders: dict[Key, dict[Session, Counter[Had]]] = {}
        self._held: dict[Session, set[Key]] = {}
        self._by_transactions: dict[Session, list[tuple[Key, Had]]] = {}  # in the order of taking
        self._waiting: list[_Request] = []

    # --- taking

    def try_take(self, session: "Session", key: Key, had: Had) -> bool:
        """Take a lock if nobody has to be waited for; else say so."""
        request = _Request(session, key, had)
        if any(self._before(request, len(self._waiting))):
            return False
        self._grant(request)
        return True

    async def take(self, session: "Session", key: Key, had: Had) -> None:
        """Take a lock, as soon as those who have it and who wait before let that be.

        Raises Conflict 40P01 if that would be never, LockNotAvailable after `lock_timeout`.
        """
        if self.try_take(session, key, had):
            return
        request = _Request(session, key, had)
        if self._closes_circle(request):
            raise Conflict("deadlock detected", sqlstate="40P01")
        self._waiting.append(request)
        timeout_ms = milliseconds(session.variables["lock_timeout"]) or 0
        try:
            async with asyncio.timeout(timeout_ms / 1000 or None):
                await request.granted
        except BaseException as error:
            if request in self._waiting:
                self._waiting.remove(request)
            elif had.scope == "session":  # a transaction gives up its own when it fails
                self._give(session, key, had)
            self._wake()
            if isinstance(error, TimeoutError):
                raise LockNotAvailable from None
            raise

    # --- giving back

    def give_back(self, session: "Session", key: Key, mode: Mode) -> bool:
        """Give back what was taken for the session once; False if it does not have that."""
        had = Had(mode, "session")
        if not self._holders.get(key, {}).get(session, Counter())[had]:
            return False
        self._give(session, key, had)
        self._wake()
        return True

    def mark(self, session: "Session") -> int:
        """Return how often a session has taken something for its transaction."""
        return len(self._by_transactions.get(session, ()))

    def release_transaction(self, session: "Session", since: int = 0) -> None:
        """Give back what a session has taken for its transaction `since` that `mark`."""
        taken = self._by_transactions.get(session, [])
        if len(taken) <= since:
            return
        for key, had in taken[since:]:
            self._give(session, key, had)
        del taken[since:]
        if not taken:
            del self._by_transactions[session]
        self._wake()

    def release_session(self, session: "Session") -> None:
        """Give back what a session has taken for itself."""
        for key in list(self._held.get(session, ())):
            counts = self._holders[key][session]
            for had in [had for had in counts if had.scope == "session"]:
                del counts[had]
            self._forget_if_none(session, key)
        self._wake()

    def _give(self, session: "Session", key: Key, had: Had) -> None:
        counts = self._holders[key][session]
        counts[had] -= 1
        if not counts[had]:
            del counts[had]
        self._forget_if_none(session, key)

    def _forget_if_none(self, session: "Session", key: Key) -> None:
        if self._holders[key][session]:
            return
        del self._holders[key][session]
        if not self._holders[key]:
            del self._holders[key]
        self._held[session].discard(key)
        if not self._held[session]:
            del self._held[session]

    # --- what there is

    def rows(self) -> Iterator[tuple[Key, "Session", Mode, bool]]:
        """Yield who has, or waits for, which lock, how, and whether it has it."""
        for key, holders in self._holders.items():
            for session, counts in holders.items():
                for mode in dict.fromkeys(had.mode for had in counts):
                    yield key, session, mode, True
        for request in self._waiting:
            yield request.key, request.session, request.had.mode, False

    # --- waiting

    def _before(self, request: _Request, place: int) -> Iterator["Session"]:
        """Yield those for whom `request`, at `place` of those who wait, has to wait."""
        holders = self._holders.get(request.key, {})
        for session, counts in holders.items():
            if session is not request.session and _conflict(request.had, counts):
                yield session
        if request.session not in holders:
            for other in self._waiting[:place]:
                if other.key == request.key and _conflict(request.had, (other.had,)):
                    yield other.session

    def _closes_circle(self, request: _Request) -> bool:
        if request.session not in self._held:
            return False  # nobody waits for who has nothing
        places = {each.session: place for place, each in enumerate(self._waiting)}
        seen: set[Session] = set()
        stack = list(self._before(request, len(self._waiting)))
        while stack:
            session = stack.pop()
            if session is request.session:
                return True
            if session not in seen and session in places:
                seen.add(session)
                stack += self._before(self._waiting[places[session]], places[session])
        return False

    def _grant(self, request: _Request) -> None:
        holders = self._holders.setdefault(request.key, {})
        holders.setdefault(request.session, Counter())[request.had] += 1
        self._held.setdefault(request.session, set()).add(request.key)
        if request.had.scope == "transaction":
            taken = self._by_transactions.setdefault(request.session, [])
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


async def value(session: "Session", function: str, args: Sequence[Datum]) -> bool | str | None:
    """Return what a call of one of the functions gives."""
    if None in args:
        return None
    locks = session.environment.advisory
    key, had = _asked(session, function, args)
    mode = had.mode
    if "unlock" in function:
        given = locks.give_back(session, key, mode)
        if not given:
            message = f"you don't own a lock of type {LOCK_TYPES[mode]}"
            session.notice(message, severity="WARNING", sqlstate="01000")
        return given
    if function.startswith("pg_try_"):
        return locks.try_take(session, key, had)
    await locks.take(session, key, had)
    return ""


def ends(function: str) -> bool:
    """Whether what a call takes ends with its transaction."""
    return "_xact_" in function


def undo(session: "Session", function: str, args: Sequence[Datum]) -> None:
    """Give back what a call has taken for the session; nothing to do for any other function."""
    if function in ADVISORY and "unlock" not in function:
        key, had = _asked(session, function, args)
        session.environment.advisory.give_back(session, key, had.mode)


def _asked(session: "Session", function: str, args: Sequence[Datum]) -> tuple[Key, Had]:
    """Return which lock a call is about, and how it takes it."""
    mode: Mode = "shared" if "_shared(" in function else "exclusive"
    key = _key(session.database, [int(str(arg)) for arg in args])
    return key, Had(mode, "transaction" if ends(function) else "session")


def _key(database: str, numbers: Sequence[int]) -> Key:
    if len(numbers) == 1:
        (number,) = numbers
        return Key(database, (number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF, 1)
    first, second = numbers
    return Key(database, first & 0xFFFFFFFF, second & 0xFFFFFFFF, 2)
