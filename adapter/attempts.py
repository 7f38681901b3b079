"""Statements that lose a race are planned and tried again, while nobody has heard of them."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from foreshore.errors import Conflict, TableAltered, TableDropped

if TYPE_CHECKING:
    from foreshore.adapter.session import Session
    from foreshore.adapter.statement import Prepared

ATTEMPTS = 10

R = TypeVar("R")


async def attempted(
    session: "Session", attempt: Callable[[], Awaitable[R]], prepared: "Prepared", *, alone: bool
) -> R:
    """Return what `attempt` gives, which runs `prepared` and tells nobody of it before.

    When it is `alone` in its transaction and meets a conflict, it is tried again, and also when it
    is the first of a transaction and meets ALTER or DROP TABLE. From then on no other can come in
    between, so that there is an end to it. Raises these errors where that does not help.
    """
    is_first = session.begin().is_untouched
    advisory = session.environment.advisory.mark(session)
    alone = alone and not session.begin().block
    conflicts = 0
    while True:
        transaction = session.begin()
        try:
            with session.interrupts.running():
                return await attempt()
        except (TableAltered, TableDropped):
            if not is_first:
                raise
            transaction.met_alter = True
        except Conflict:
            conflicts += 1
            if not alone or conflicts >= ATTEMPTS:
                raise
        session.begin_again(transaction, advisory)
        session.planner.prepare(prepared)
