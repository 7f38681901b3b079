"""A thread for one sink, on which all of its synchronous calls are made.

So objects that belong to a thread, such as connections of SQLite, can be used. A call that takes
too long cannot be ended from outside: until it ends, the sink makes no other one.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from foreshore.errors import ConnectionFailure, DatabaseError, InvalidParameterValue

logger = logging.getLogger(__name__)

ERROR_CHARACTERS = 2000


class CallThread:
    """Calls functions of one sink, one after the other; asynchronous ones on the event loop."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._thread = ThreadPoolExecutor(1, "sink")

    async def call(self, function: Callable[..., Any], *given: Any, **arguments: Any) -> Any:
        """Return what a function returns; raises DatabaseError if it fails or takes too long."""
        try:
            async with asyncio.timeout(self._seconds):
                if inspect.iscoroutinefunction(function):
                    return await function(*given, **arguments)
                found = await self._on_thread(lambda: function(*given, **arguments))
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            raise ConnectionFailure(f"a call takes longer than {self._seconds:g} seconds") from None
        except DatabaseError:
            raise
        except Exception as error:
            raise InvalidParameterValue(
                f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
            ) from error

    async def _on_thread(self, work: Callable[[], Any]) -> Any:
        if (before := _UNDER_WAY.get(self._name)) is not None and not before.done():
            raise ConnectionFailure("a call that has taken too long has not ended yet")

        def run() -> Any:
            try:
                return work()
            except (SystemExit, KeyboardInterrupt, StopIteration) as error:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        _UNDER_WAY[self._name] = future = self._thread.submit(run)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        finally:
            if future.done():
                _UNDER_WAY.pop(self._name, None)

    def end(self, last: Callable[[], Any] | None) -> None:
        """Make a last call when the others have ended, and wait for none."""
        if last is not None:
            self._thread.submit(last).add_done_callback(self._note_end)
        self._thread.shutdown(wait=False)

    def _note_end(self, last: Future[Any]) -> None:
        """Log why a last call has failed, as nobody waits for it."""
        if (error := last.exception()) is not None:
            logger.warning("a sink was not closed: %r", error, extra={"sink": self._name})


_UNDER_WAY: dict[str, Future[Any]] = {}  # calls by their sinks, also of exporters before
