"""A replica forgets strings while it works, makes checkpoints, is read, and starts again."""

import logging
from collections import Counter
from pathlib import Path

import pytest

from foreshore.compute.checkpoint import state
from foreshore.compute.flow import spine
from foreshore.compute.flow.intern import Interner
from foreshore.compute.replica import strings
from tests.compute.in_process import InProcessLauncher
from tests.compute.runtime.harness import Environment, environment, run
from tests.compute.runtime.test_checkpoints import (
    HYDRATED,
    RESUMED,
    begun,
    joined,
    restart,
    saved,
    until,
)

TURNS = 25


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let strings be forgotten as often as possible; return how many each time.

    Their bytes are overwritten, and the last of their numbers go to the next strings.
    """
    found: list[int] = []
    forget = Interner.forget

    def noted(interner: Interner) -> int:
        found.append(forget(interner))
        end = int(interner._counts[1])
        for number in range(1, end):
            if interner.lengths[number] < 0:
                begin = interner.starts[number]
                interner.arena[begin : begin - 1 - interner.lengths[number]] = 255
        return found[-1]

    monkeypatch.setattr(Interner, "forget", noted)
    monkeypatch.setattr(Interner, "is_crowded", True)
    monkeypatch.setattr(strings, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(strings, "WAIT_SECONDS", 0.005)
    monkeypatch.setattr(spine, "TAIL_ROWS", 2)
    monkeypatch.setattr(state, "LARGE", 3)
    return found


def test_answers_are_right_while_strings_come_and_go(
    tmp_path: Path, gone: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def right(env: Environment, time: int, turn: int) -> None:
        expected = Counter({("x", 1): 1, (f"new {turn}", 1): 1})
        assert await env.index_rows("c", "u7", joined(), time) == expected
        assert await env.shard_rows("u9", time) == Counter({("a", 1): 1, (f"of {turn}", 1): 1})

    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            await begun(env)
            time = await env.write(
                {"u1": [((2, "b"), -1), ((2, "of 0"), 1)], "u2": [((2, "new 0"), 1)]}
            )
            for turn in range(1, TURNS):
                await right(env, time, turn - 1)
                if turn == TURNS // 2:
                    cycles = len(gone)
                    await until(lambda: len(gone) > cycles + 2)  # noqa: B023
                    await saved(env, time - 1)
                    await restart(env)
                time = await env.write(
                    {
                        "u1": [((2, f"of {turn - 1}"), -1), ((2, f"of {turn}"), 1)],
                        "u2": [((2, f"new {turn - 1}"), -1), ((2, f"new {turn}"), 1)],
                    }
                )
            await right(env, time, TURNS - 1)
            await until(lambda: len(gone) > 4)

    run(work)
    assert caplog.text.count(RESUMED) == 2
    assert HYDRATED not in caplog.text
