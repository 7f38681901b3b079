"""A transaction of a program without an event loop: `with db.transaction():`.

Ctrl-C raises KeyboardInterrupt at any step of the main thread. At the edges of a transaction, that
is within `__enter__` and `__exit__`, it could be left open by that, or its lock held. So the signal
only cancels what the loop does there, and the edge raises KeyboardInterrupt when it is complete:
the transaction is then over, committed as a whole or rolled back. Only Python's own handler is
replaced, by one that asks whether the thread is at an edge, and only while a transaction is open.
"""

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Token
from types import CodeType, FrameType, TracebackType
from typing import Any, Generic, Literal, Protocol, TypeVar

from foreshore.embedded.database_async import AsyncDatabase, Opened, inside

T = TypeVar("T")
# Where the thread is: an interrupt waits for the end of an edge, and ends the body at once.
At = Literal["edge", "body", "over"]


class Loop(Protocol):
    """The thread of an event loop."""

    def begun(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Begin a coroutine on the loop."""

    def result(self, future: Future[Any]) -> Any:
        """Wait for what was begun."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Have a function called on the loop; a handler of signals may ask for it."""


class Transaction(Generic[T]):
    """A transaction, or a savepoint within one; `with` gives `given`."""

    def __init__(
        self, loop: Loop, database: AsyncDatabase, given: T, isolation: str | None
    ) -> None:
        self._loop = loop
        self._database = database
        self._given = given
        self._isolation = isolation
        self._opened: Opened | None = None
        self._before: Token[object | None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._installed = False
        self._is_interrupted = False
        self._at: At = "edge"

    def __enter__(self) -> T:
        if self._at == "over":
            raise RuntimeError("a transaction is used once: call transaction() again")
        try:
            self._install()
            self._run(self._begin)
            if (opened := self._opened) is None:
                raise KeyboardInterrupt
            self._before = inside.set(opened.token)
            self._at = "body"
            if self._is_interrupted:
                raise KeyboardInterrupt
            return self._given
        except BaseException:
            self._at = "edge"
            self._finish(commit=False)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._at = "edge"
        self._finish(commit=kind is None)

    def takes_interrupt(self, method: CodeType) -> bool:
        """Take an interrupt at an edge, in `__enter__` or `__exit__`: cancel what the loop does."""
        if self._at == "over" or (self._at == "body" and method is _ENTER):
            return False
        self._is_interrupted = True
        self._loop.call_soon(self._cancel)
        return True

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _begin(self) -> None:
        if not self._is_interrupted:
            self._opened = await self._database.begin(self._isolation)

    def _finish(self, *, commit: bool) -> None:
        """End what is open; raise KeyboardInterrupt if there was one."""
        try:
            if (opened := self._opened) is not None:
                commit = commit and not self._is_interrupted
                self._run(lambda: self._database.end(opened, commit=commit))
        finally:
            if self._before is not None:
                inside.reset(self._before)
                self._before = None
            if self._installed and signal.getsignal(signal.SIGINT) is _handle:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            self._at = "over"
            if self._is_interrupted:
                raise KeyboardInterrupt

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine on the loop to its end, which is near when it is cancelled."""

        async def running() -> None:
            self._task = asyncio.current_task()
            try:
                await work()
            finally:
                self._task = None

        future = self._loop.begun(running())
        try:
            self._loop.result(future)
        except BaseException:
            if not future.done():  # an exception that the handler of another signal has raised
                self._loop.call_soon(self._cancel)
                concurrent.futures.wait([future])
            raise

    def _install(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _handle)
            self._installed = True


_ENTER, _EXIT = Transaction.__enter__.__code__, Transaction.__exit__.__code__


def _handle(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT: raise KeyboardInterrupt, or leave it to the edge that the thread is at."""
    at = frame
    while at is not None and at.f_code not in (_ENTER, _EXIT):
        at = at.f_back
    if at is None or not at.f_locals["self"].takes_interrupt(at.f_code):
        signal.default_int_handler(number, frame)
