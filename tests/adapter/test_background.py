"""A step of background work that fails ends neither the work nor the server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from foreshore.adapter import environment
from foreshore.adapter.coordinator import coordinator, idle_watermarks
from foreshore.adapter.ddl import temporary
from foreshore.adapter.introspection import audit_retention, lag_history, usage_history
from foreshore.compute.controller import bursts, input_holds
from foreshore.compute.replica import dataflow, memory, reports
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
    "status of a replica": (reports.Reports, "_send_details", reports, ("STATUS_SECONDS",)),
    "stages of Spark": (reports.Reports, "_look_at_stages", reports, ("STATUS_SECONDS",)),
    "memory of a replica": (memory.MemoryWatch, "_look", memory, ("LOOK_SECONDS",)),
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


@pytest.mark.parametrize("step", ["close", "maintain"])
async def test_dataflow_that_fails_to_end_or_to_merge_ends_no_other(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    failed = asyncio.Event()
    original = getattr(dataflow.DataflowState, step)
    loop = asyncio.get_running_loop()

    def fails(self: Any) -> Any:
        if failed.is_set():
            return original(self)
        loop.call_soon_threadsafe(failed.set)
        raise RuntimeError("a defect")

    await own_env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    await own_env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT k, count(*) FROM t GROUP BY k")
    await own_env.ran("a", "CREATE MATERIALIZED VIEW other AS SELECT sum(k) FROM t")
    assert await own_env.query("a", "SELECT * FROM v") == "1|1\nSELECT 1"
    monkeypatch.setattr(dataflow.DataflowState, step, fails)
    if step == "close":
        await own_env.ran("a", "DROP MATERIALIZED VIEW v")
    else:
        monkeypatch.setattr(dataflow.DataflowState, "maintenance_due", True)
        await own_env.ran("a", "INSERT INTO t VALUES (2)")
    async with asyncio.timeout(30):
        await failed.wait()
    await own_env.ran("a", "INSERT INTO t VALUES (3)")
    total = 4 if step == "close" else 6
    assert await own_env.query("a", "SELECT * FROM other") == f"{total}\nSELECT 1"
