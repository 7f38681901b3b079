"""Work that many ask for at once is done once for all who wait, and rests in between."""

import asyncio

import pytest

from foreshore.server.http.shared import RESTS, Shared


class Work:
    """Work that lasts as long as a test says."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        return number


async def steps() -> None:
    """Let all that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_all_who_wait_share_what_begins_after_they_asked() -> None:
    async def main() -> None:
        work = Work()
        shared = Shared(work)
        first = asyncio.create_task(shared.get())
        await steps()
        others = [asyncio.create_task(shared.get()) for _ in range(500)]
        await steps()
        assert work.begun == 1
        others[0].cancel()  # which ends it for nobody else
        work.may_end.set()
        assert await first == 1
        assert await asyncio.gather(*others[1:]) == [2] * 499
        assert await shared.get() == 3

    asyncio.run(main())


def test_rest_is_in_proportion_to_the_work() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        now = 100.0
        spent: list[float] = []

        async def work() -> None:
            nonlocal now
            spent.append(now)
            now += 1.0

        async def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

        shared = Shared(work)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: now, raising=False)
            patch.setattr(asyncio, "sleep", sleep)
            for _ in range(3):
                await shared.get()
        assert spent == [100.0, 101.0 + RESTS, 102.0 + 2 * RESTS]

    asyncio.run(main())


def test_error_reaches_all_and_is_not_kept() -> None:
    async def main() -> None:
        fails = True

        async def work() -> str:
            if fails:
                raise AssertionError("wrong")
            return "right"

        shared = Shared(work)
        found = await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True)
        assert [str(each) for each in found] == ["wrong"] * 3
        fails = False
        assert await shared.get() == "right"

    asyncio.run(main())
