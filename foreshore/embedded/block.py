"""A transaction block of a connection, or a savepoint of one.

A cancellation at any await leaves nothing half done: a block that has not begun is not open, and
one that was to end is over. What cannot be rolled back is ended with its connection.
"""

import itertools

import asyncpg

from foreshore.embedded.errors import NotReceived, translated
from foreshore.errors import DatabaseError, InvalidParameterValue

_LEVELS = ("serializable", "repeatable_read", "read_committed", "read_uncommitted")
_NUMBERS = itertools.count(1)


class Block:
    """A block that `begin` begins and `end` ends, once each, while nobody uses the connection."""

    def __init__(self, connection: asyncpg.Connection, *, is_savepoint: bool) -> None:
        self._connection = connection
        self._savepoint = f"foreshore_{next(_NUMBERS)}" if is_savepoint else None

    async def begin(self, isolation: str | None) -> None:
        """Begin the block. Raises DatabaseError."""
        if self._savepoint is not None:  # one that is cancelled is of no matter, open or not
            await self._run(f"SAVEPOINT {self._savepoint}")
            return
        if self._connection.is_in_transaction():
            raise DatabaseError(
                "there is a transaction in progress that BEGIN has begun", sqlstate="25001"
            )
        try:
            await self._run(f"BEGIN{_level(isolation)}")
        except BaseException:
            await self.undo()
            raise

    async def end(self, *, commit: bool) -> None:
        """Commit the block or roll it back; after an error or a cancellation call `undo`.

        Raises DatabaseError, also if a statement has failed: the server rolls back at COMMIT then.
        """
        if not commit:
            return await self._roll_back()
        released = self._savepoint and f"RELEASE SAVEPOINT {self._savepoint}"
        if await self._run(released or "COMMIT") == "ROLLBACK":
            raise DatabaseError(
                "the transaction was rolled back, as a statement in it failed",
                sqlstate="25P02",
                hint="Run what may fail in a transaction() within this one, which is a savepoint.",
            )

    async def undo(self) -> None:
        """Roll back what may be open, after an error that the caller raises.

        A savepoint that has been released fails the block around it, so that this is rolled back.
        The connection is ended if the server has not answered: rows of a savepoint would else be
        the outer transaction's.
        """
        is_done = False
        try:
            await self._roll_back()
            is_done = True
        except DatabaseError as error:
            is_done = self._savepoint is not None and not isinstance(error, NotReceived)
        finally:
            if not is_done:
                self.abandon()

    def abandon(self) -> None:
        """End the connection, and with it the block."""
        self._connection.terminate()

    async def _roll_back(self) -> None:
        if not self._connection.is_closed():
            to = "" if self._savepoint is None else f" TO SAVEPOINT {self._savepoint}"
            await self._run(f"ROLLBACK{to}")

    async def _run(self, statement: str) -> str:
        """Run a statement; return its tag. Raises DatabaseError."""
        with translated():
            tag: str = await self._connection.execute(statement)
        return tag


def _level(isolation: str | None) -> str:
    """Return the end of BEGIN for a level of isolation. Raises DatabaseError."""
    if isolation is None:
        return ""
    if isolation not in _LEVELS:
        raise InvalidParameterValue(f"isolation is {', '.join(_LEVELS)} or None, not {isolation!r}")
    return f" ISOLATION LEVEL {isolation.replace('_', ' ').upper()}"
