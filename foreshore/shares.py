"""Shares: at most so many of one owner at a time, so that none of them takes all there is."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext


class _Share:
    def __init__(self, most: int) -> None:
        self.places = asyncio.Semaphore(most)
        self.users = 0  # tasks that have a place or wait for one


class Shares:
    """Lets `most` tasks of each owner in at a time; others wait, first in, first out.

    If there is a `total`, it lets so many of all owners in, of one event loop.
    """

    def __init__(self, most: int, total: int | None = None) -> None:
        self.most = most
        self._total: AbstractAsyncContextManager[None] = (
            nullcontext() if total is None else asyncio.Semaphore(total)
        )
        self._shares: dict[tuple[Hashable, asyncio.AbstractEventLoop], _Share] = {}

    @property
    def is_unused(self) -> bool:
        """Whether nobody has a place or waits for one."""
        return not self._shares

    @asynccontextmanager
    async def share(self, owner: Hashable) -> AsyncIterator[None]:
        """Have one of the owner's places during the body; wait for it first."""
        key = owner, asyncio.get_running_loop()
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _Share(self.most)
        share.users += 1
        try:
            async with share.places, self._total:
                yield
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[key]
