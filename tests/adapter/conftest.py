"""What the conversations of a file share: one loop, and one environment on it."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.adapter.harness import House


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def house(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"))
    runner.run(house.open())
    yield house
    runner.run(house.close())
