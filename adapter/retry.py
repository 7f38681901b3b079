"""Statements that lose a race are planned and tried again, while nobody has heard of them.

What their functions have done that no transaction undoes, as setval and pg_advisory_lock do, is
done once: a call that comes up again gives what it gave (`SideEffectLog`).
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.advisory_locks import undo
from foreshore.errors import Conflict, TableAltered, TableDropped
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.prepared import Prepared
    from foreshore.adapter.session.session import Session

ATTEMPTS = 10

R = TypeVar("R")


class SideEffectLog:
    """What the calls of one statement have given that did something, in order for each call.

    A call is what it is of and its arguments: those of another attempt are planned anew.
    """

    def __init__(self) -> None:
        """Begin with a first attempt."""
        self._given: dict[tuple[str, tuple[Datum, ...]], deque[Datum]] = {}
        self._again: dict[tuple[str, tuple[Datum, ...]], deque[Datum]] = {}  # not yet come up

    def note(self, function: str, args: Sequence[Datum], value: Datum) -> None:
        """Take note of a call that has done something."""
        self._given.setdefault((function, tuple(args)), deque()).append(value)

    def take(self, function: str, args: Sequence[Datum]) -> Datum:
        """Return what a call gave in an attempt before, once for each time; None: nothing."""
        if not self._again:
            return None
        key = (function, tuple(args))
        values = self._again.get(key)
        if not values:
            return None
        value = values.popleft()
        self.note(function, args, value)
        return value

    def begin_again(self) -> None:
        """Let all that was done be there for another attempt."""
        for key, values in self._again.items():
            self._given.setdefault(key, deque()).extend(values)
        self._again, self._given = self._given, {}

    def drain_unrepeated(self) -> list[tuple[str, Sequence[Datum]]]:
        """Return the calls that only failed attempts have made, once."""
        unrepeated, self._again = self._again, {}
        return [call for call, values in unrepeated.items() for _ in values]


async def attempted(
    session: "Session",
    attempt: Callable[[StatementContext], Awaitable[R]],
    prepared: "Prepared",
    args: Sequence[Datum],
    *,
    alone: bool,
) -> R:
    """Return what `attempt` gives; it runs a statement, in a new context each time.

    When it is `alone` in its transaction and meets a conflict, it is tried again, and also when it
    is the first of a transaction and meets ALTER or DROP TABLE. From then on no other can come in
    between, so that there is an end to it. Raises these errors where that does not help.
    """
    transaction = session.begin()
    locks, advisory_locks = session.coordinator.locks, session.coordinator.advisory
    is_first = transaction.is_untouched and not locks.holds_any(transaction)
    staged, held = transaction.staged, advisory_locks.mark(session.pid)
    side_effects = SideEffectLog()
    may_retry = alone and not transaction.block
    conflicts = 0
    while True:
        context = session.context(prepared, args, side_effects, alone=alone)
        try:
            with session.interrupts.running():
                outcome = await attempt(context)
                for function, values in side_effects.drain_unrepeated():
                    undo(advisory_locks, session.pid, context.database, function, values)
                return outcome
        except (TableAltered, TableDropped):
            if not is_first:
                raise
            session.met_alter = True
        except Conflict:
            conflicts += 1
            if not may_retry or conflicts >= ATTEMPTS:
                raise
        session.begin_again(context.transaction, staged, held)
        side_effects.begin_again()
        await session.planner.ready(prepared)
