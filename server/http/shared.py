"""Work that many ask for at once: it is done once for all who wait, and rests in between.

Nobody gets what was found before he asked. Who asks while it runs waits for the next time, together
with all who ask until then. That begins `RESTS` times as long after the end as it has lasted, so
such work has a bounded part of the processor, however many ask; who asks seldom never waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

R = TypeVar("R")

RESTS: Final = 4
LONGEST_REST_S: Final = 5.0


class Shared(Generic[R]):
    """The results of `work`."""

    def __init__(self, work: Callable[[], Awaitable[R]]) -> None:
        self._work = work
        self._running = asyncio.Lock()
        self._next: asyncio.Task[R] | None = None  # has not begun to work
        self._rest_until = 0.0

    async def get(self) -> R:
        """Return what the work gives that begins now or later; raises its errors."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._do())
        return await asyncio.shield(self._next)

    async def _do(self) -> R:
        loop = asyncio.get_running_loop()
        async with self._running:
            if (rest := self._rest_until - loop.time()) > 0:
                await asyncio.sleep(rest)
            self._next = None
            began = loop.time()
            try:
                return await self._work()
            finally:
                ended = loop.time()
                self._rest_until = ended + min(RESTS * (ended - began), LONGEST_REST_S)
