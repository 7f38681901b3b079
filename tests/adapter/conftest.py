"""What the conversations of a file share: one loop, and one environment on it."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.adapter.harness import TestEnvironment


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def env(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestEnvironment]:
    env = TestEnvironment(tmp_path_factory.mktemp("env"))
    runner.run(env.open())
    yield env
    runner.run(env.close())
