"""A loop that ends leaves work on threads that nobody waits for."""

import asyncio
import threading

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
