"""Floods of messages, of each type and of pairs of them, disturb no other client."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from tests.harness import Server
from tests.hostile.bystander import bystanders, undisturbed
from tests.hostile.kinds.messages import MESSAGES, flood, pairs
from tests.hostile.kinds.registry import Target

FLOOD = 4 << 20
AT_ONCE = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with bystanders(tmp_path_factory.mktemp("messages") / "data") as running:
        yield running


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_flood_of_messages_disturbs_nobody(server: Server, name: str) -> None:
    target = Target(server.port, server.http_port)
    with undisturbed(server):
        asyncio.run(flood(target, MESSAGES[name](FLOOD)))


@pytest.mark.full
def test_floods_of_pairs_disturb_nobody(server: Server) -> None:
    target, chance = Target(server.port, server.http_port), Random(0)

    async def attack() -> None:
        await asyncio.gather(*(pairs(target, chance) for _ in range(AT_ONCE)))

    with undisturbed(server):
        for _ in range(5):
            asyncio.run(attack())
