"""A loop that ends leaves work on threads that nobody waits for."""

import asyncio
import threading
import time
from functools import partial

import uvloop

from foreshore import blocking


def test_end_of_loop_does_not_wait_for_unwaited_work() -> None:
    may_end = threading.Event()
    begun = threading.Event()
    ended = []

    def work() -> None:
        begun.set()
        may_end.wait(60)
        ended.append(True)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(blocking.Unwaited())
        loop.run_in_executor(None, work)
        await blocking.run(None, begun.wait)

    try:
        asyncio.run(main())
        assert not ended
    finally:
        may_end.set()


def test_one_thread_does_what_is_handed_over_in_order_and_gives_back_errors() -> None:
    done: list[object] = []

    def work(i: int) -> int:
        done.append((i, threading.current_thread().name))
        if i == 3:
            raise ValueError(i)
        return i

    async def main() -> None:
        thread = blocking.OneThread("the one")
        cancelled = asyncio.ensure_future(blocking.run(thread, time.sleep, 0.05))
        await asyncio.sleep(0)
        cancelled.cancel()
        calls = [blocking.run(thread, work, i) for i in range(5)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [found[i] for i in (0, 1, 2, 4)] == [0, 1, 2, 4]
        assert isinstance(found[3], ValueError)
        left = thread.hand_over(asyncio.get_running_loop(), partial(work, 5))
        thread.shutdown()
        assert await left == 5

    uvloop.run(main())
    assert done == [(i, "the one") for i in range(6)]
