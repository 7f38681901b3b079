"""The lease: how long a server may answer without checking that the data is still its own.

A server that takes the data over raises the fence (storage/epoch.py). It answers nobody before the
other server has ended or `PATIENCE_SECONDS` have passed (server_lock.py). So a server answers only
within `LEASE_SECONDS`, which are fewer, of the start of a check that found the fence unchanged.

A check each second renews the lease. If the process stood still and the lease has run out, answers
wait for the next check. They are never sent if that finds the fence raised by another server.

The clock goes on while the process stands still and while the machine sleeps.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from foreshore import blocking
from foreshore.server.server_lock import PATIENCE_SECONDS

LEASE_SECONDS = PATIENCE_SECONDS - 2
CHECK_SECONDS = 1.0

if sys.platform == "linux":

    def _elapsed() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    _elapsed = time.monotonic


class Lease:
    """The right to answer, renewed for the length of the `async with` block.

    `check_owned` raises if another server owns the data, or if that is unknown. It is called on a
    thread.
    """

    def __init__(
        self, check_owned: Callable[[], None], elapsed: Callable[[], float] = _elapsed
    ) -> None:
        self.failure: Exception | None = None  # why the lease has ended for good
        self._check_owned = check_owned
        self._elapsed = elapsed
        self._from = self._until = 0.0
        self._executor = ThreadPoolExecutor(1, "lease")
        self._wanted = asyncio.Event()
        self._renewal: asyncio.Future[None] | None = None  # done at the next renewal
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.renew()
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
        self._executor.shutdown(wait=False)

    def is_valid(self) -> bool:
        """Whether the server may send answers now."""
        return self._from <= self._elapsed() < self._until

    def next_renewal(self) -> asyncio.Future[None]:
        """Start a check now and return a future that is done when it has renewed the lease.

        The future is never done if the lease has ended. When it is done, call `is_valid` again.
        """
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_future()
            self._wanted.set()
        return self._renewal

    async def renew(self) -> None:
        """Check now; if `check_owned` raises, raise that and end the lease."""
        began = self._elapsed()
        try:
            await blocking.run(self._executor, self._check_owned)
        except Exception as failure:
            self._from = self._until = 0.0
            self.failure = failure
            raise
        self._from, self._until = began, began + LEASE_SECONDS
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.set_result(None)

    async def _run(self) -> None:
        try:
            while True:
                self._wanted.clear()
                await self.renew()
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
        except Exception:
            assert self.failure is not None  # the main task sees it and ends the server
