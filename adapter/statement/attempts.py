"""Attempts: a statement runs again after a conflict, while nobody has seen anything of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.statement.context import ONCE, StatementContext
from foreshore.adapter.statement.sessions import Transactions
from foreshore.types import Datum

R = TypeVar("R")


class Attempts(Protocol):
    """Runs a statement again after a conflict."""

    @property
    def transactions(self) -> Transactions:
        """The transactions that it runs in."""

    async def attempt(
        self,
        run: Callable[[StatementContext], Awaitable[R]],
        prepared: Prepared,
        many: Sequence[Sequence[Datum]] = ONCE,
        *,
        alone: bool,
    ) -> R:
        """Return the result of `run`, which runs a statement in the context that it is given."""
