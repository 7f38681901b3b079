"""A callback that takes too long is found, whatever else is on the machine."""

import asyncio
from time import thread_time

from tests.loop_guard import LIMIT_S, SHARED_LIMIT_S, SLOW, measure_tasks


def work(seconds: float) -> None:
    """Use the processor for so long."""
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def test_step_of_a_task_over_the_limit_is_reported() -> None:
    found: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0)
        work(10 * LIMIT_S)

    async def quick() -> None:
        for _ in range(10):
            work(LIMIT_S / 5)
            await asyncio.sleep(0)

    async def main() -> None:
        measure_tasks(asyncio.get_running_loop(), lambda name, took: found.append(name))
        await asyncio.gather(asyncio.create_task(slow()), asyncio.create_task(quick()))

    asyncio.run(main())
    ((name, stack),) = (each.split(" at ") for each in found)
    assert name.endswith("slow")
    assert "test_loop_guard.py" in stack


def test_callback_over_the_limit_is_noted_while_its_loop_is_watched() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        SLOW.watch(loop)
        with SLOW.apart():
            work(2 * SHARED_LIMIT_S)
        await asyncio.sleep(0)
        assert not SLOW.unwatch(loop)
        SLOW.watch(loop)
        await asyncio.create_task(slow())
        return SLOW.unwatch(loop)

    async def slow() -> None:
        work(6 * SHARED_LIMIT_S)

    assert len(asyncio.run(main())) == 1
