"""Blocking work: runs everything that would block the event loop on threads.

Disk access, bulk engines and long computations go through `run`, which awaits their result on a
thread. Work on durable state has executors of its own, so that a slow query cannot delay a commit.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NICENESS = 5  # for background work: a third of a processor beside a busy one


def background(name: str) -> ThreadPoolExecutor:
    """Return a single-thread executor for low-priority work."""
    return ThreadPoolExecutor(1, name, initializer=_give_way)


class Unwaited(ThreadPoolExecutor):
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


async def run(
    executor: Executor | None, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Await `work(*args, **kwargs)` on a thread of `executor` (None: the loop's default one)."""
    return await asyncio.get_running_loop().run_in_executor(
        executor, partial(work, *args, **kwargs)
    )
