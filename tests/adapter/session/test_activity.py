"""Interrupts of a session: cancel, time-outs and termination."""

import asyncio

import pytest

from foreshore.adapter.statement.interrupts import Interrupts, Sheltered
from foreshore.errors import QueryCanceled


def test_termination_wins_over_cancel() -> None:
    """Both are asked for before the task can hear of either."""

    async def main() -> None:
        interrupts = Interrupts()
        waiting = asyncio.Event()

        async def statement() -> None:
            interrupts.begin()
            with interrupts.running():
                waiting.set()
                await asyncio.sleep(60)

        for first in (True, False):
            task = asyncio.create_task(statement())
            await waiting.wait()
            waiting.clear()
            if first:
                interrupts.request(QueryCanceled())
                task.cancel()
            else:
                task.cancel()
                interrupts.request(QueryCanceled())
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_task_runs_next_statement_after_cancel() -> None:
    async def main() -> None:
        interrupts = Interrupts()
        interrupts.begin()
        asyncio.get_running_loop().call_soon(interrupts.request, QueryCanceled())
        with pytest.raises(QueryCanceled), interrupts.running():
            await asyncio.sleep(60)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_termination_lets_running_commit_finish() -> None:
    said: list[str] = []
    interrupts = Interrupts()
    interrupts.outside_of_shelter(lambda: said.append("at once"))
    with Sheltered(interrupts):
        with Sheltered(interrupts):
            interrupts.outside_of_shelter(lambda: said.append("later"))
        said.append("committed")
    said.append("answered")
    assert said == ["at once", "committed", "later", "answered"]
    with Sheltered(interrupts):
        pass
    assert len(said) == 4
