"""Thread pools that know what is under way."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from foreshore.deep_trees import DeepThreads


class Pool(DeepThreads):
    """A pool whose work can be awaited; its methods belong to the event loop."""

    def __init__(self, threads: int, name: str, **options: Any) -> None:
        super().__init__(threads, name, **options)
        self._under_way: set[Future[Any]] = set()

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin some work."""
        future = super().submit(work, *args, **kwargs)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    async def settled(self) -> None:
        """Wait until all work that was under way at the call has ended, well or not."""
        waiting = [asyncio.wrap_future(each) for each in list(self._under_way)]
        if waiting:
            await asyncio.gather(*map(_ended, waiting))


async def _ended(future: "asyncio.Future[Any]") -> None:
    await asyncio.wait([future])
    if not future.cancelled():
        future.exception()  # which is its caller's
