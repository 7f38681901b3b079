"""Blocking work: the one door through which it leaves the event loop.

Whatever waits for a disk, a bulk engine or a long computation is given to `run`, which awaits its
outcome on a thread. Work on durable state goes to executors of its own, so that a slow query
cannot hold up a commit.
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

NICENESS = 5  # of what nobody waits for: a third of the processor beside one that is busy


def background(name: str) -> ThreadPoolExecutor:
    """Return an executor of one thread, whose work gives way to all other."""
    return ThreadPoolExecutor(1, name, initializer=_give_way)


def _give_way() -> None:
    if sys.platform == "linux":  # where priorities are a thread's, and of those that it starts
        _lower(threading.get_native_id())


def _lower(id: int) -> None:
    os.setpriority(os.PRIO_PROCESS, id, os.getpriority(os.PRIO_PROCESS, id) + NICENESS)


def let_give_way(pid: int) -> None:
    """Let a process that has just been started, in a session of its own, give way to all others."""
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
