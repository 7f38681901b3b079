"""Samples of the last hours, in memory: what replicas take, and what sources and sinks have moved.

Every few seconds each replica, source and sink gives a sample, and each replica a change of state
if it has started, failed or ended since. The newest are kept, so many of each kind altogether.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Protocol

import msgspec

from foreshore import blocking, tracing
from foreshore.adapter.introspection.flow_spans import record_flow
from foreshore.adapter.services.collections import Maintained
from foreshore.adapter.services.feeds import Feeds
from foreshore.adapter.services.usage import FlowSample, ReplicaChange, ReplicaSample
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.item import Replica
from foreshore.catalog.state import State
from foreshore.memory import physical_bytes
from foreshore.processes.usage import Usage, usage_of
from foreshore.upkeep import goes_on

SAMPLE_SECONDS = 5.0
MOST_SAMPLES = 20_000  # of each kind
MOST_CHANGES = 1_000


class Observed(Maintained, Feeds, Protocol):
    """The collections that are sampled."""


class _Seen(msgspec.Struct, frozen=True):
    """The state in which a replica was at the last sample."""

    status: str
    starts: int
    reason: str | None


class UsageHistory:
    """The samples of one environment, which its event loop owns."""

    def __init__(self, coordinator: Observed) -> None:
        self._coordinator = coordinator
        self.replicas: deque[ReplicaSample] = deque(maxlen=MOST_SAMPLES)
        self.changes: deque[ReplicaChange] = deque(maxlen=MOST_CHANGES)
        self.sources: deque[FlowSample] = deque(maxlen=MOST_SAMPLES)
        self.sinks: deque[FlowSample] = deque(maxlen=MOST_SAMPLES)
        self._seen: dict[str, _Seen] = {}
        self._used: dict[str, tuple[int, int, Usage]] = {}  # process, time and usage, by replica
        self._traced: dict[str, FlowSample] = {}  # the samples of which spans were made

    async def run(self) -> None:
        """Take samples until cancelled."""
        while await goes_on(self._step, "a sample of what replicas take is lost"):
            pass

    async def _step(self) -> None:
        await asyncio.sleep(SAMPLE_SECONDS)
        await self.sample()

    async def sample(self) -> None:
        """Take one sample of everything."""
        coordinator = self._coordinator
        now = coordinator.clock.now()
        self._look_at_flows(now)
        statuses = list(coordinator.compute.clusters.status())
        for each in statuses:
            self._note(now, each["replica"], each["ready"], each["starts"], each["failure"])
        pids = {each["replica"]: each["pid"] for each in statuses if each["pid"] is not None}
        found = await blocking.run(
            None, lambda: {replica: usage_of(pid) for replica, pid in pids.items()}
        )
        for replica, usage in found.items():
            if usage is not None:
                self._add(now, replica, pids[replica], usage)
        known = {each["replica"] for each in statuses}
        for replica in [*self._seen.keys() - known]:
            del self._seen[replica]
        for replica in [*self._used.keys() - known]:
            del self._used[replica]

    def _note(self, now: int, replica: str, ready: bool, starts: int, failure: str | None) -> None:
        """Keep a change of a replica's state; one that came and went since is a change, too."""
        before = self._seen.get(replica)
        status = "online" if ready else "offline"
        self._seen[replica] = _Seen(status, starts, failure)
        if before is not None and before.starts != starts and before.status == "online":
            reason = "its process has ended, and another one was started"
            self.changes.append(ReplicaChange(now - 1, replica, "offline", reason))
            before = _Seen("offline", starts, reason)
        is_starting = status == "offline" and not failure
        if is_starting and (before is None or before.status == "offline"):
            return
        if before is None or (before.status, before.reason) != (status, failure):
            self.changes.append(ReplicaChange(now, replica, status, failure))

    def _add(self, now: int, replica: str, pid: int, usage: Usage) -> None:
        before = self._used.get(replica)
        self._used[replica] = (pid, now, usage)
        cpu = None
        if before is not None and before[0] == pid and now > before[1]:
            spent = max(usage.cpu_ns - before[2].cpu_ns, 0)  # a child of it may have ended
            cpu = spent * 1000 // (now - before[1])
        self.replicas.append(ReplicaSample(now, replica, cpu, usage.memory_bytes))

    def _look_at_flows(self, now: int) -> None:
        self._take_flows(now)
        if not tracing.is_on:
            return
        traced: dict[str, FlowSample] = {}
        for kind, samples in (("source", self.sources), ("sink", self.sinks)):
            for each in takewhile(lambda each: each.at == now, reversed(samples)):
                record_flow(kind, self._traced.get(each.id), each)
                traced[each.id] = each
        self._traced = traced

    def _take_flows(self, now: int) -> None:
        coordinator = self._coordinator
        for id, source in coordinator.ingestion.controller.statuses().items():
            known, read = source.offset_known, source.offset_committed
            lag = None if known is None or read is None else max(known - read, 0)
            messages = sum(each.messages for each in source.outputs.values())
            self.sources.append(FlowSample(now, id, source.updates, source.bytes, messages, lag))
        for item, hook in coordinator.webhooks.counted():
            sample = FlowSample(now, item.id, hook.rows, hook.bytes, hook.requests, None)
            self.sources.append(sample)
        for id, sink in coordinator.exports.controller.statuses().items():
            frontier = coordinator.exports.frontier(id)
            lag = None if frontier is None else max(now - frontier, 0)
            moved = sink.committed_updates, sink.committed_bytes
            self.sinks.append(FlowSample(now, id, *moved, None, lag))


def replica_metrics(context: StatementContext) -> Iterator[Row]:
    """Yield the newest sample of each replica that is there."""
    for each in _newest(context.process.usage.replicas, context.names.state).values():
        yield _metrics(each)


def replica_utilization(context: StatementContext) -> Iterator[Row]:
    """Yield the same in percent of what the machine has."""
    cores, memory = os.cpu_count() or 1, physical_bytes()
    for each in _newest(context.process.usage.replicas, context.names.state).values():
        yield {
            "replica_id": each.replica,
            "process_id": 0,
            "cpu_percent": None if each.cpu is None else each.cpu / 1e7 / cores,
            "memory_percent": 100 * each.memory / memory,
        }


def replica_metrics_history(context: StatementContext) -> Iterator[Row]:
    """Yield all samples of replicas that are kept."""
    for each in tuple(context.process.usage.replicas):
        yield {**_metrics(each), "occurred_at": each.at * 1000}


def replica_status_history(context: StatementContext) -> Iterator[Row]:
    """Yield the last states of replicas since the server started."""
    for each in tuple(context.process.usage.changes):
        yield {
            "replica_id": each.replica,
            "process_id": 0,
            "status": each.status,
            "reason": each.reason,
            "occurred_at": each.at * 1000,
        }


def source_statistics_history(context: StatementContext) -> Iterator[Row]:
    """Yield the samples of sources: amounts since the server started, offsets behind."""
    for each in tuple(context.process.usage.sources):
        yield {
            **_flow(each),
            "messages_received": each.messages,
            "offset_lag": each.lag,
        }


def sink_statistics_history(context: StatementContext) -> Iterator[Row]:
    """Yield the samples of sinks: amounts since the server started, milliseconds behind."""
    for each in tuple(context.process.usage.sinks):
        yield {**_flow(each), "lag_ms": each.lag}


def _newest(samples: Sequence[ReplicaSample], state: State) -> dict[str, ReplicaSample]:
    there = {each.id for each in state.all(Replica)}
    found: dict[str, ReplicaSample] = {}
    for each in reversed(samples):
        if each.replica in there:
            found.setdefault(each.replica, each)
            if len(found) == len(there):
                break
    return found


def _metrics(sample: ReplicaSample) -> Row:
    return {
        "replica_id": sample.replica,
        "process_id": 0,
        "cpu_nano_cores": sample.cpu,
        "memory_bytes": sample.memory,
    }


def _flow(sample: FlowSample) -> Row:
    return {
        "occurred_at": sample.at * 1000,
        "id": sample.id,
        "updates_committed": sample.updates,
        "bytes_committed": sample.bytes,
    }
