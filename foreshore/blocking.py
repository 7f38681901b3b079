"""Blocking work: runs everything that would block the event loop on threads.

Disk access, bulk engines and long computations go through `run`, which awaits their result on a
thread. Work on durable state has executors of its own, so that a slow query cannot delay a commit.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

import uvloop

from foreshore.deep_trees import DeepThreads
from foreshore.scratch_share import NOBODY, SCRATCH, ScratchShare

P = ParamSpec("P")
R = TypeVar("R")

Ended: TypeAlias = Callable[[R | None, BaseException | None], None]  # with a result, or an error
_Handed: TypeAlias = tuple[asyncio.AbstractEventLoop, Callable[[], Any], Ended[Any]]

NICENESS = 5  # for background work: a third of a processor beside a busy one


def background(name: str) -> ThreadPoolExecutor:
    """Return a single-thread executor for low-priority work."""
    return ThreadPoolExecutor(1, name, initializer=_give_way)


class Unwaited(DeepThreads):
    """A loop's default executor that does not hold up the end of the loop.

    Whoever needs the result of work has awaited it by then. What is left is for nobody, such as the
    reading of a large table for a query that was cancelled.
    """

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more, and wait for nothing."""
        super().shutdown(wait=False, cancel_futures=True)


def _give_way() -> None:
    if sys.platform == "linux":  # where priorities belong to threads and the threads they start
        _lower(threading.get_native_id())


def _lower(id: int) -> None:
    os.setpriority(os.PRIO_PROCESS, id, os.getpriority(os.PRIO_PROCESS, id) + NICENESS)


def lower_priority(pid: int) -> None:
    """Give a newly started process, which leads its own session, a low priority."""
    with suppress(OSError):  # it may have ended, and not every system groups by session
        _lower(pid)
        Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS))


class OneThread(ThreadPoolExecutor):
    """An executor with one thread, to which a server's loop hands work over at a third of the cost.

    There are no futures of two kinds and no locks: work goes through one queue, and what it gives
    comes back as a callback of the loop. Work that is handed over so is done in its order.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1, name)
        self._name = name
        self._handed: SimpleQueue[_Handed | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def hand_over(
        self, loop: asyncio.AbstractEventLoop, work: Callable[[], R]
    ) -> asyncio.Future[R]:
        """Return the future of what `work` gives."""
        done = loop.create_future()
        self.call(loop, work, partial(_settle, done))
        return done

    def call(self, loop: asyncio.AbstractEventLoop, work: Callable[[], R], ended: Ended[R]) -> None:
        """Call `ended` on the loop with what `work` gives, or with its error."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._handed.put((loop, work, ended))

    def _work(self) -> None:
        while (each := self._handed.get()) is not None:
            loop, work, ended = each
            tell: Callable[[], None]
            try:
                tell = partial(ended, work(), None)
            except BaseException as error:
                tell = partial(ended, None, error)
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(tell)
            del each, loop, work, ended, tell

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread once it has done what was handed over."""
        if self._thread is not None:
            self._handed.put(None)
            if wait:
                self._thread.join()
        super().shutdown(wait, cancel_futures=cancel_futures)


def _settle(done: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if done.done():  # who waited was cancelled
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


async def run(
    executor: Executor | None, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Await `work(*args, **kwargs)` on a thread of `executor` (None: the loop's default one)."""
    loop = asyncio.get_running_loop()
    if isinstance(executor, OneThread) and isinstance(loop, uvloop.Loop):
        return await executor.hand_over(loop, partial(work, *args, **kwargs))
    if (share := SCRATCH.get()) is not NOBODY:
        work = partial(_for, share, work)
    return await loop.run_in_executor(executor, partial(work, *args, **kwargs))


def _for(share: ScratchShare, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what `work` gives, whose scratch files belong to a session."""
    token = SCRATCH.set(share)
    try:
        return work(*args, **kwargs)
    finally:
        SCRATCH.reset(token)


def let_go(held: list[Any]) -> None:
    """Free what only this list holds on a thread, as unmapping hundreds of megabytes takes long."""
    asyncio.get_running_loop().run_in_executor(None, held.clear)


async def each(iterator: Iterator[R]) -> AsyncIterator[R]:
    """Yield what an iterator gives, which takes each step on a thread."""
    while True:
        found = await run(None, _next, iterator)
        if not found:
            return
        yield found[0]


def _next(iterator: Iterator[R]) -> tuple[R, ...]:
    for found in iterator:
        return (found,)
    return ()


def call(executor: Executor, work: Callable[[], R], ended: Ended[R]) -> None:
    """Run `work` on a thread of `executor`, and call `ended` on the loop with what it gives.

    No task waits and no future wakes, so that what follows needs a single turn of the loop.
    """
    loop = asyncio.get_running_loop()
    if isinstance(executor, OneThread) and isinstance(loop, uvloop.Loop):
        executor.call(loop, work, ended)
        return

    def tell(done: asyncio.Future[R]) -> None:
        if not done.cancelled():
            error = done.exception()
            ended(done.result() if error is None else None, error)

    asyncio.ensure_future(loop.run_in_executor(executor, work)).add_done_callback(tell)
