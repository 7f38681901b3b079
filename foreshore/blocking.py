"""Blocking work: the one door through which it leaves the event loop.

Whatever waits for a disk, a bulk engine or a long computation is given to `run`, which awaits its
outcome on a thread. Work on durable state goes to executors of its own, so that a slow query
cannot hold up a commit.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def run(
    executor: Executor | None, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Await `work(*args, **kwargs)` on a thread of `executor` (None: the loop's default one)."""
    return await asyncio.get_running_loop().run_in_executor(
        executor, partial(work, *args, **kwargs)
    )
