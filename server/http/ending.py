"""The ending of a request: its task is cancelled for a reason, which is raised in its place.

    with ending:
        ...             a call of `ending.end(reason)` raises `reason` here

Reasons are that the client is gone, and that the session is to end.
"""

import asyncio
from types import TracebackType
from typing import Self


class Disconnected(Exception):
    """The client has closed the connection, or does not read."""


class Ending:
    """Ends the block in which a task uses it; the first reason counts."""

    def __init__(self) -> None:
        self.reason: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._is_over = False  # nothing of the block is to be interrupted any more

    def finish(self) -> None:
        """Let the rest of the block run to its end."""
        self._is_over = True

    def end(self, reason: Exception) -> None:
        """Raise `reason` in the block, now or when it is entered."""
        if self.reason is None:
            self.reason = reason
            if self._task is not None and not self._is_over:
                self._task.cancel()

    def __enter__(self) -> Self:
        if self.reason is not None:
            raise self.reason
        self._task = asyncio.current_task()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if not isinstance(error, asyncio.CancelledError) or self.reason is None:
            return
        if task is not None and not task.uncancel():  # else somebody else cancels it too
            raise self.reason from None
