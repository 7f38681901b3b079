"""Turns at a data directory: one server after the other, also after one that stood still."""

import asyncio
from pathlib import Path

import pytest

from foreshore.server import turn
from foreshore.server.turn import Turn


def test_who_has_not_waited_for_the_one_before_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        with Turn(tmp_path) as third:
            with Turn(tmp_path) as second:
                with Turn(tmp_path) as first:
                    await first.wait(stop)
                    with monkeypatch.context() as patched:
                        patched.setattr(turn, "PATIENCE_SECONDS", 0.0)
                        await second.wait(stop)
                    assert first.begun
                    assert second.begun
                    waiting = asyncio.create_task(third.wait(stop))
                    await asyncio.wait([waiting], timeout=5 * turn.LOOK_SECONDS)
                    assert not third.begun
                await asyncio.wait([waiting], timeout=5 * turn.LOOK_SECONDS)
                assert not third.begun
            await waiting
            assert third.begun

    asyncio.run(main())


def test_who_is_asked_to_stop_waits_no_longer(tmp_path: Path) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        with Turn(tmp_path) as second, Turn(tmp_path) as first:
            await first.wait(stop)
            waiting = asyncio.create_task(second.wait(stop))
            await asyncio.wait([waiting], timeout=5 * turn.LOOK_SECONDS)
            assert not waiting.done()
            stop.set()
            async with asyncio.timeout(turn.PATIENCE_SECONDS / 2):
                await waiting
            assert not second.begun

    asyncio.run(main())
