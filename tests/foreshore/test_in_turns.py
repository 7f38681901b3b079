"""Loops over long lists let others run in between, and end when their task is cancelled."""

import asyncio

import pytest

from foreshore import in_turns as module
from foreshore.in_turns import in_turns


def test_others_run_between_elements_that_take_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_S", -1.0)  # each element takes one
    seen: list[str] = []

    async def follow(name: str) -> None:
        async for each in in_turns(range(3)):
            seen.append(f"{name}{each}")

    async def both() -> None:
        await asyncio.gather(follow("a"), follow("b"))

    asyncio.run(both())
    assert seen == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_short_list_costs_no_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_S", 3600.0)
    work = in_turns("ab").__aiter__()
    for expected in "ab":
        with pytest.raises(StopIteration) as ended:  # it never waits
            work.__anext__().__await__().__next__()
        assert ended.value.value == expected


def test_cancelled_loop_ends_after_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_S", -1.0)
    seen: list[int] = []

    async def follow() -> None:
        async for each in in_turns(range(1_000)):
            seen.append(each)
            if each == 5:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    async def run() -> None:
        task = asyncio.ensure_future(follow())
        await asyncio.wait((task,))
        assert task.cancelled()

    asyncio.run(run())
    assert seen == [0, 1, 2, 3, 4, 5]
