"""Environments for tests, and the event loop on which tests that are coroutines run.

    async def test_commit_is_visible(env: TestEnvironment) -> None:
        await env.ran("a", "INSERT INTO t VALUES (1)")

`env` is shared by the tests of a file; `own_env` is opened for one test.
"""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreshore.processes.launch import Launcher
from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import catalog, place  # noqa: F401  # fixtures
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


@pytest.fixture
def own_env(
    runner: asyncio.Runner, launcher: Launcher, tmp_path: Path
) -> Iterator[TestEnvironment]:
    """Return an environment for one test; the test may close and reopen it."""
    env = TestEnvironment(tmp_path, launcher=launcher)
    runner.run(env.open())
    yield env
    runner.run(env.close())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on the loop of its file's environment."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    runner: asyncio.Runner = pyfuncitem._request.getfixturevalue("runner")
    names = pyfuncitem._fixtureinfo.argnames
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
