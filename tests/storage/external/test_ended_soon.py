"""Work with a PostgreSQL server ends before who waits for it, however often that is cancelled."""

import asyncio

import pytest

from foreshore.storage.external import libpq
from foreshore.storage.external.libpq import ended_soon


@pytest.mark.parametrize("cancels", [1, 2, 5])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_cancelled_work_has_ended(
    cancels: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DROP SINK and the end of the server may come one after the other."""
    monkeypatch.setattr(libpq, "END_SECONDS", 0.01)

    async def scenario() -> None:
        ended = False

        async def work() -> None:
            nonlocal ended
            left = steps  # each of which waits for the server, until it is interrupted
            while left:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    left -= 1
            ended = True

        waiting = asyncio.ensure_future(ended_soon(work()))
        for _ in range(cancels):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert ended
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_result_and_error_are_those_of_the_work() -> None:
    async def fail() -> None:
        raise ValueError

    assert asyncio.run(ended_soon(asyncio.sleep(0, "done"))) == "done"
    with pytest.raises(ValueError):  # noqa: PT011
        asyncio.run(ended_soon(fail()))
