"""A step of background work that fails ends neither the work nor the server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from foreshore.adapter import coordinator, environment
from foreshore.adapter.introspection import audit_retention, lag_history, usage_history
from foreshore.adapter.session import temporary
from foreshore.adapter.transaction import idle_watermarks
from foreshore.compute.controller import bursts, input_holds
from foreshore.storage import garbage
from tests.adapter.harness import TestEnvironment

# What fails, and the constants that say when it is done.
STEPS: dict[str, tuple[Any, str, Any, tuple[str, ...]]] = {
    "history": (
        coordinator.Coordinator, "allow_compaction", coordinator, ("HOLDS_INTERVAL_S",)
    ),
    "idle sessions": (environment.Environment, "forget_retired", environment, ("EXPIRY_SECONDS",)),
    "temporary objects": (temporary, "sweep", temporary, ("SWEEP_INTERVAL_S",)),
    "lags": (lag_history.LagHistory, "look", lag_history, ("LOOK_SECONDS",)),
    "usage": (usage_history.UsageHistory, "sample", usage_history, ("SAMPLE_SECONDS",)),
    "audit": (
        audit_retention.AuditRetention, "trim", audit_retention,
        ("FIRST_LOOK_SECONDS", "LOOK_SECONDS"),
    ),
    "watermarks": (
        idle_watermarks.IdleWatermarks, "_relations", idle_watermarks, ("LOOK_SECONDS",)
    ),
    "holds of inputs": (input_holds, "compact_sinks", input_holds, ("HOLDS_SECONDS",)),
    "bursts": (bursts.Bursts, "look", bursts, ("LOOK_SECONDS",)),
    "files": (garbage.Garbage, "collect", garbage, ("LOOK_SECONDS",)),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
async def test_step_that_fails_is_done_again(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner, step, module, intervals = STEPS[name]
    again, calls = asyncio.Event(), 0

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        def fails(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise RuntimeError("a defect")
            again.set()
            return original(*args, **options)

        return fails

    for interval in intervals:
        monkeypatch.setattr(module, interval, 0.01)
    await own_env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT 1")  # some work is for views
    await own_env.reopen()
    monkeypatch.setattr(owner, step, failing(getattr(owner, step)))
    if name == "files":
        own_env.storage._garbage._waiting.add("blob/none")
        own_env.storage._garbage._held.set()
    async with asyncio.timeout(30):
        await again.wait()
    assert own_env.environment.failed is None
