"""Samples of what replicas take and of what sources move, and changes of replicas' states."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from foreshore import tracing
from foreshore.adapter.introspection.usage_history import UsageHistory
from foreshore.adapter.services.usage import FlowSample, ReplicaChange, ReplicaSample
from foreshore.processes.usage import usage_of
from tests.adapter.harness import TestEnvironment, in_environment


class _Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now(self) -> int:
        return self.ms


class _Coordinator:
    """Replicas whose states a test sets, and neither sources nor sinks."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self.replicas: list[dict[str, Any]] = []
        self.compute = self.clusters = self.ingestion = self.exports = self.controller = self
        self.webhooks = self

    def status(self) -> list[dict[str, Any]]:
        return self.replicas

    def statuses(self) -> dict[str, Any]:
        return {}

    def counted(self) -> list[Any]:
        return []


def _replica(**changes: Any) -> dict[str, Any]:
    alive = {"replica": "r1", "ready": True, "starts": 1, "failure": None, "pid": os.getpid()}
    return {**alive, **changes}


async def _changes(*looks: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Return the changes of state that samples of these replicas note."""
    coordinator = _Coordinator()
    history = UsageHistory(cast("Any", coordinator))
    for look in looks:
        coordinator.replicas = look
        coordinator.clock.ms += 5_000
        await history.sample()
    return [(each.status, each.reason) for each in history.changes]


def test_replica_that_starts_is_no_change_until_it_is_online() -> None:
    assert asyncio.run(_changes([_replica(ready=False)], [_replica()], [_replica()])) == [
        ("online", None)
    ]


def test_replica_restarted_between_samples_was_offline() -> None:
    found = asyncio.run(_changes([_replica()], [_replica(starts=2)]))
    reason = "its process has ended, and another one was started"
    assert found == [("online", None), ("offline", reason), ("online", None)]


def test_replica_that_fails_has_its_reason() -> None:
    found = asyncio.run(_changes([_replica()], [_replica(ready=False, failure="out of memory")]))
    assert found == [("online", None), ("offline", "out of memory")]


def test_cpu_is_known_from_the_second_sample_of_a_process() -> None:
    async def samples() -> list[tuple[bool, bool]]:
        coordinator = _Coordinator()
        history = UsageHistory(cast("Any", coordinator))
        coordinator.replicas = [_replica()]
        for _ in range(2):
            coordinator.clock.ms += 5_000
            await history.sample()
        return [(each.cpu is None, each.memory > 1_000_000) for each in history.replicas]

    assert asyncio.run(samples()) == [(True, True), (False, True)]


def test_process_that_has_ended_has_no_usage() -> None:
    assert usage_of(2**22 + 1) is None
    assert usage_of(os.getpid()) is not None


def test_samples_are_shown_in_relations(tmp_path: Path) -> None:
    async def main(env: TestEnvironment) -> None:
        usage = env.environment.coordinator.usage
        usage.sources.append(FlowSample(1_000, "u1", 5, 60, 7, None))
        usage.sinks.append(FlowSample(1_000, "u2", 3, 40, None, 25))
        usage.changes.append(ReplicaChange(2_000, "r1", "offline", "killed"))
        usage.replicas.append(ReplicaSample(3_000, "r1", 500_000_000, 1 << 20))
        for relation, row in {
            "source_statistics_history": "1970-01-01 00:00:01+00|u1|5|60|7|",
            "sink_statistics_history": "1970-01-01 00:00:01+00|u2|3|40|25",
            "cluster_replica_status_history": "r1|0|offline|killed|1970-01-01 00:00:02+00",
            "cluster_replica_metrics_history": "r1|0|500000000|1048576||||1970-01-01 00:00:03+00",
            "cluster_replica_metrics": "r1|0|500000000|1048576|||",
        }.items():
            found = await env.query("s", f"SELECT * FROM mz_internal.mz_{relation}")
            assert row in found.replace("NULL", "").replace(" | ", "|"), found

    in_environment(tmp_path, main)


class _Recorder:
    """Keeps the spans that it gets."""

    def __init__(self) -> None:
        self.spans: list[tracing.Span] = []

    def record(self, span: tracing.Span, traceparent: str | None) -> None:
        self.spans.append(span)


async def test_source_that_has_moved_rows_has_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _Recorder()
    monkeypatch.setattr(tracing, "_recorder", recorder)
    monkeypatch.setattr(tracing, "is_on", True)
    coordinator = _Coordinator()
    hook = SimpleNamespace(rows=3, bytes=30, requests=2)
    monkeypatch.setattr(coordinator, "counted", lambda: [(SimpleNamespace(id="u7"), hook)])
    history = UsageHistory(cast("Any", coordinator))
    for rows in (3, 3, 10, 4):  # the first sample, nothing, seven rows, a counter that began anew
        hook.rows = rows
        coordinator.clock.ms += 5_000
        await history.sample()
    (span,) = recorder.spans
    assert (span.name, span.attributes["foreshore.object"]) == ("source rows", "u7")
    assert span.attributes["foreshore.rows"] == 7
    assert 4_900_000_000 < span.ended - span.began < 60_000_000_000
