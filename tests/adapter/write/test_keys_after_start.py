"""The key indexes of tables after a start: they are built when views have resumed."""

import asyncio

import pytest

from foreshore.compute.controller.controller import ComputeController
from tests.adapter.harness import TestEnvironment


async def test_keys_are_read_where_the_table_is_readable_by_then(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History is given up while views resume: what was readable at the start no longer is."""
    env, has_resumed = own_env, asyncio.Event()

    async def resumed(_: ComputeController) -> None:
        await has_resumed.wait()

    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    await env.ran("a", "CREATE TABLE other (a int)")
    env.lag_ms = 0
    monkeypatch.setattr(ComputeController, "resumed", resumed)
    await env.reopen()
    coordinator = env.environment.coordinator
    (t,) = (item.id for item in coordinator.state.items() if item.name == "t")
    before, _ = coordinator.capabilities[t]
    for _ in range(3):
        await env.ran("a", "INSERT INTO other VALUES (1)")
        await coordinator.allow_compaction()
    assert coordinator.capabilities[t][0].frontier > before.frontier
    has_resumed.set()
    assert "23505" in await env.query("a", "INSERT INTO t VALUES (2)")
    assert env.environment.failed is None
