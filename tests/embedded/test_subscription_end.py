"""Ctrl-C while a subscription waits for a change, and the close that follows."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from foreshore.embedded.database import LoopThread, Subscription
from foreshore.embedded.subscription import Event


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


async def never() -> AsyncIterator[Event]:
    await asyncio.Event().wait()
    yield None  # type: ignore[misc]


def test_interrupt_and_close_leave_no_exception_behind(loop: LoopThread) -> None:
    told: list[dict[str, Any]] = []

    async def interrupted() -> None:
        """Do on the loop what an interrupt and `close` ask of it, one right after the other."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        subscription = Subscription(loop, never())
        future = loop.begun(subscription._next())
        while subscription._waiting is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        future.cancel()
        subscription.close()
        while subscription._waiting is not None or loop._ending:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def collected() -> None:
        gc.collect()

    loop.wait(interrupted())
    loop.wait(collected())
    assert told == []
