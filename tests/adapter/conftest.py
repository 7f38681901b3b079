"""What the conversations of a file share: one loop, and one environment on it."""

import asyncio
from collections.abc import Iterator

import pytest

from foreshore.compute.controller.launch import Launcher
from tests.adapter.harness import TestEnvironment
from tests.compute.in_process import InProcessLauncher


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def launcher() -> Launcher:
    """What starts the replicas; a file that is about processes defines its own."""
    return InProcessLauncher()


@pytest.fixture(scope="module")
def env(
    runner: asyncio.Runner, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestEnvironment]:
    env = TestEnvironment(tmp_path_factory.mktemp("env"), launcher=launcher)
    runner.run(env.open())
    yield env
    runner.run(env.close())
