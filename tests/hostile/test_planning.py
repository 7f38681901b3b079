"""Texts that are deep, wide or slow to plan disturb nobody and end when their time is over."""

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.hostile.bystander import bystanders, undisturbed
from tests.hostile.kinds.planning import PATIENCE_MS, TEXTS, ask
from tests.hostile.kinds.registry import Target

FEW, MANY = 500, 20_000
EXPECTED = (None, "54001", "54011", "54023", "57014", "53200", "2201B", "42601")
SESSIONS = 4
# The loop may be the thread for which malloc joins all small blocks that others have freed.
JOINING_S = 0.25


@pytest.mark.full
def test_nobody_is_disturbed_and_the_server_lives(tmp_path: Path) -> None:
    """Four sessions plan every kind of text at once."""
    with bystanders(tmp_path / "data") as server:
        target = Target(server.port, server.http_port)

        async def session(number: int, sizes: Sequence[int]) -> list[tuple[str, int, str | None]]:
            found = []
            names = [*TEXTS]
            for name in names[number:] + names[:number]:
                for size in sizes:
                    found.append((name, size, await ask(target, TEXTS[name](size))))
            return found

        async def attack() -> list[list[tuple[str, int, str | None]]]:
            return await asyncio.gather(*(session(4 * i, (FEW, MANY)) for i in range(SESSIONS)))

        asyncio.run(session(0, (3,)))  # loads what planning needs, which stays
        with undisturbed(server):
            found = asyncio.run(attack())
        assert server.process is not None
        assert server.process.poll() is None
        assert [each for all in found for each in all if each[2] not in EXPECTED] == []
        slow = [float(s) for s in re.findall(r"of ([0-9.]+) s", "\n".join(server.slow_callbacks()))]
        assert max(slow, default=0.0) < JOINING_S, slow


@pytest.mark.full
@pytest.mark.parametrize("name", ["expressions of VALUES", "expressions of IN", "chained WITH"])
def test_planning_ends_with_its_time(tmp_path: Path, name: str) -> None:
    """What is planned for much longer than its time ends soon after that, and leaves the server idle."""
    with bystanders(tmp_path / "data") as server:
        target = Target(server.port, server.http_port)
        began = time.monotonic()
        assert asyncio.run(ask(target, TEXTS[name](100_000), 300)) == "57014"
        took = time.monotonic() - began
        assert took < PATIENCE_MS / 1000 + 10  # it took minutes
