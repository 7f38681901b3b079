"""What an environment is doing, for Prometheus: collected when somebody asks, from what is known.

Nothing is scanned and nobody is asked: replicas, sources and storage have reported what is shown.
The event loop has a turn after each `VIEWS_PER_TURN` views; the text is made on a thread.
"""

import asyncio
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from prometheus_client import Metric

from foreshore import latencies
from foreshore.adapter.introspection.failing_views import causes_of
from foreshore.adapter.introspection.source_rows import letters_of
from foreshore.adapter.metrics.families import Samples, Values, shown_family
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.services.feeds import Feeds
from foreshore.adapter.services.metrics import Family
from foreshore.adapter.statement.sessions import Peer
from foreshore.catalog.builtin.mz_rows import source_type
from foreshore.catalog.item import Cluster, Item
from foreshore.compute.controller.data_errors import Cause
from foreshore.compute.memory_limit import machine_bytes
from foreshore.compute.protocol import DataflowStatus
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.query_memory import QUERY_MEMORY
from foreshore.sinks.spec import kind_of as sink_type
from foreshore.sql.rewrite.full_names import dotted
from foreshore.update import EMPTY

VIEWS_PER_TURN = 100
MOST_WATERMARKS = 1_000
SESSION_STATES = ("active", "idle", "idle in transaction", "idle in transaction (aborted)")


class State(Collections, Feeds, Protocol):
    """The metrics of collections, sources and sinks."""


class Scraped(Protocol):
    """The metrics of an environment."""

    @property
    def coordinator(self) -> State:
        """Its collections, sources and sinks."""

    @property
    def sessions(self) -> Mapping[int, Peer]:
        """Its sessions."""

    @property
    def server_settings(self) -> Mapping[str, str]:
        """Its options."""


class EnvironmentMetrics:
    """The metrics of one environment, with series of their own for `most_views` views."""

    def __init__(self, environment: Scraped, most_views: int) -> None:
        self._environment = environment
        self._coordinator = environment.coordinator
        self._most_views = most_views

    async def metrics(self) -> list[Metric]:
        """Return all metrics; the loop's state is read in several turns."""
        samples = Samples.none()
        self._sessions(samples)
        self._statements(samples)
        self._sources(samples)
        self._watermarks(samples)
        self._sinks(samples)
        self._storage(samples)
        pids = self._replicas(samples)
        published = self._published(samples)
        await self._views(samples)

        data_dir = self._coordinator.storage.scratch.parent

        def rest() -> list[Metric]:
            for labels, pid in pids:
                if (resident := _resident_bytes(pid)) is not None:
                    samples.put("foreshore_replica_memory_bytes", resident, labels)
            _machine(samples, data_dir)
            return [*samples.families(), *map(shown_family, published)]

        return await asyncio.to_thread(rest)

    def not_hydrated(self) -> list[str]:
        """Return the names of the maintained views that cannot be read yet."""
        coordinator = self._coordinator
        return [
            dotted(coordinator.state.full_name(item))
            for id in coordinator.as_ofs
            if isinstance(item := coordinator.state.get(id), Item)
            and not coordinator.is_hydrated(id)
        ]

    # --- views ---------------------------------------------------------------------------------

    async def _views(self, samples: Samples) -> None:
        coordinator = self._coordinator
        reports: defaultdict[GlobalId, list[DataflowStatus]] = defaultdict(list)
        for _, report in coordinator.compute.clusters.dataflows():
            reports[report.id].append(report)
        memory: defaultdict[GlobalId, int] = defaultdict(int)
        for _, arrangement in coordinator.compute.clusters.arrangements():
            if arrangement.object is not None:
                memory[arrangement.object] += arrangement.bytes
        states: defaultdict[str, int] = defaultdict(int)
        greatest, number = 0.0, 0
        for number, id in enumerate(list(coordinator.as_ofs), start=1):
            if number % VIEWS_PER_TURN == 0:
                await asyncio.sleep(0)
            item = coordinator.state.get(id)
            if not isinstance(item, Item) or id not in coordinator.as_ofs:
                continue  # a subscription, or dropped meanwhile
            upper = coordinator.upper(id)
            lag = 0.0 if upper == EMPTY else max(coordinator.clock.now() - (upper - 1), 0) / 1000
            greatest = max(greatest, lag)
            own = reports.get(id, [])
            found = causes_of(coordinator, id, coordinator.oracle.read_ts())
            state = own[0].state if own else "pending"
            is_failing = any(not each.skipped for each in found)
            states["failing" if is_failing and state == "running" else state] += 1
            if number <= self._most_views:
                self._view(samples, item, lag, own, memory[id], found)
        for state in ("pending", "hydrating", "running", "failing", "failed", "stalled"):
            samples.put("foreshore_views", states[state], (state,))
        samples.put("foreshore_views_max_lag_seconds", greatest)
        samples.put("foreshore_views_without_series", max(number - self._most_views, 0))

    def _view(
        self,
        samples: Samples,
        item: Item,
        lag: float,
        reports: list[DataflowStatus],
        memory: int,
        causes: list[Cause],
    ) -> None:
        """Add the series of one view; a value that is not known is left out."""
        coordinator, id = self._coordinator, item.id
        name = dotted(coordinator.state.full_name(item))
        labels = (id, name, item.type, self._cluster_name(item.cluster))
        samples.put("foreshore_view_lag_seconds", lag, labels)
        samples.put("foreshore_view_hydrated", coordinator.is_hydrated(id), labels)
        failed = any(each.state in ("failed", "stalled") for each in reports)
        samples.put("foreshore_view_failed", failed, labels)
        is_failing = any(not each.skipped for each in causes)
        samples.put("foreshore_view_errors", is_failing or self._has_errors(id), labels)
        samples.put("foreshore_view_error_rows", sum(each.rows or 1 for each in causes), labels)
        if id in coordinator.capabilities:
            samples.put("foreshore_view_rows", coordinator.storage.count_updates(id), labels)
        elif reports:
            rows = max(sum(index.rows for index in each.indexes) for each in reports)
            samples.put("foreshore_view_rows", rows, labels)
        samples.put("foreshore_view_memory_bytes", memory, labels)
        if reports:
            steps = sum(each.steps for each in reports)
            cpu = sum(each.hydration_ns + each.step_ns + each.merge_ns for each in reports) / 1e9
            samples.put("foreshore_view_steps_total", steps, labels)
            samples.put("foreshore_view_cpu_seconds_total", cpu, labels)

    def _has_errors(self, id: GlobalId) -> bool:
        """Whether a read at the view's last known time fails for the view's data."""
        upper = self._coordinator.upper(id)
        try:
            self._coordinator.compute.maintained.check_no_errors((id,), upper - 1, upper)
        except DatabaseError:
            return True
        return False

    def _cluster_name(self, id: str | None) -> str:
        found = None if id is None else self._coordinator.state.objects.get(id)
        return found.name if isinstance(found, Cluster) else ""

    def _published(self, samples: Samples) -> Sequence[Family]:
        """Add the states of metrics of CREATE METRIC; return these."""
        published = self._coordinator.published
        for id, (status, series) in published.statuses().items():
            item = self._coordinator.state.get(id)
            if isinstance(item, Item):
                labels = (dotted(self._coordinator.state.full_name(item)),)
                samples.put("foreshore_metric_up", status.state == "running", labels)
                samples.put("foreshore_metric_series", series, labels)
        return published.families()

    # --- all else ------------------------------------------------------------------------------

    def _sessions(self, samples: Samples) -> None:
        counts = dict.fromkeys(SESSION_STATES, 0)
        for session in self._environment.sessions.values():
            if session.backend.kind != "client backend":
                continue
            state = session.activity.state(session.transaction_status)
            counts[state] = counts.get(state, 0) + 1
        for state, count in counts.items():
            samples.put("foreshore_sessions", count, (state,))
        most = self._environment.server_settings.get("max_connections")
        if most is not None:
            samples.put("foreshore_max_sessions", int(most))

    def _statements(self, samples: Samples) -> None:
        group = self._coordinator.group
        samples.put("foreshore_commits_total", group.writes)
        samples.put("foreshore_commit_groups_total", group.groups)
        commits = samples.histograms["foreshore_commit_latency_seconds"]
        commits.append(((), latencies.COMMITS))
        kinds = samples.histograms["foreshore_statement_latency_seconds"]
        kinds += [((kind,), each) for kind, each in latencies.STATEMENTS.items()]

    def _replicas(self, samples: Samples) -> list[tuple[Values, int]]:
        """Add the states of replicas; return their labels with the processes on this machine."""
        found: list[tuple[Values, int]] = []
        for cluster in self._coordinator.compute.clusters:
            for replica in cluster.replicas.values():
                named = self._coordinator.state.objects.get(replica.name)
                name = getattr(named, "name", replica.name)
                labels = (self._cluster_name(cluster.id), name, replica.instance.engine)
                up = replica.status is not None and replica.status.ready
                samples.put("foreshore_replica_up", up, labels)
                samples.put("foreshore_replica_starts_total", replica.link.starts, labels)
                if replica.link.pid is not None:
                    found.append((labels, replica.link.pid))
        return found

    def _sources(self, samples: Samples) -> None:
        coordinator = self._coordinator
        now = coordinator.clock.now()
        for id, status in coordinator.ingestion.controller.statuses().items():
            item = coordinator.state.get(id)
            if not isinstance(item, Item) or not item.feed:
                continue
            labels = (id, dotted(coordinator.state.full_name(item)), source_type(item.feed))
            samples.put("foreshore_source_state", 1, (*labels, status.state))
            lag = max(now - (status.committed_at or status.since), 0) / 1000
            samples.put("foreshore_source_lag_seconds", lag, labels)
            samples.put("foreshore_source_updates_total", status.updates, labels)
            samples.put("foreshore_source_bytes_total", status.bytes, labels)
            samples.put("foreshore_source_commits_total", status.batches, labels)
            letters = sum(
                coordinator.storage.count_updates(each.id) for each in letters_of(coordinator, id)
            )
            samples.put("foreshore_source_dead_letters", letters, labels)
            outputs = tuple(status.outputs.values())
            messages = sum(each.messages for each in outputs)
            samples.put("foreshore_source_messages_total", messages, labels)
            if status.offset_known is not None and status.offset_committed is not None:
                samples.put("foreshore_source_offset_known", status.offset_known, labels)
                samples.put("foreshore_source_offset_committed", status.offset_committed, labels)
            if (slot := status.slot) is not None:
                samples.put("foreshore_source_slot_behind_bytes", slot.behind, labels)
                samples.put("foreshore_source_slot_retained_bytes", slot.retained, labels)
                if slot.safe is not None:
                    samples.put("foreshore_source_slot_safe_bytes", slot.safe, labels)
            known = [each.counts.snapshot_known for each in outputs]
            staged = [each.counts.snapshot_staged for each in outputs]
            for name, counts in (("known", known), ("staged", staged)):
                if found := [each for each in counts if each is not None]:
                    samples.put(f"foreshore_source_snapshot_rows_{name}", sum(found), labels)

        for item, received in coordinator.webhooks.counted():
            labels = (item.id, dotted(coordinator.state.full_name(item)), "webhook")
            samples.put("foreshore_source_updates_total", received.rows, labels)
            samples.put("foreshore_source_bytes_total", received.bytes, labels)
            samples.put("foreshore_source_messages_total", received.requests, labels)
            samples.put("foreshore_source_refused_total", received.refused, labels)

    def _watermarks(self, samples: Samples) -> None:
        coordinator = self._coordinator
        now = coordinator.clock.now() * 1000
        for id, at in islice(coordinator.watermarks.all(), MOST_WATERMARKS):
            item = coordinator.state.get(id)
            if isinstance(item, Item) and not item.temporary:
                labels = (id, dotted(coordinator.state.full_name(item)))
                samples.put("foreshore_watermark_lag_seconds", (now - at) / 1e6, labels)

    def _sinks(self, samples: Samples) -> None:
        coordinator = self._coordinator
        exports, now = coordinator.exports, coordinator.clock.now()
        for id, status in exports.controller.statuses().items():
            item = coordinator.state.get(id)
            if not isinstance(item, Item) or not item.sink:
                continue
            labels = (id, dotted(coordinator.state.full_name(item)), sink_type(item.sink.target))
            samples.put("foreshore_sink_state", 1, (*labels, status.state))
            lag = max(now - (exports.frontier(id) or status.since), 0) / 1000
            samples.put("foreshore_sink_lag_seconds", lag, labels)
            samples.put("foreshore_sink_updates_total", status.committed_updates, labels)
            samples.put("foreshore_sink_bytes_total", status.committed_bytes, labels)
            samples.put("foreshore_sink_commits_total", status.commits, labels)
        samples.put("foreshore_leftovers", len(coordinator.leftovers.removals()))

    def _storage(self, samples: Samples) -> None:
        amounts = self._coordinator.storage.amounts()
        samples.put("foreshore_storage_shards", amounts.shards)
        samples.put("foreshore_storage_files", amounts.files)
        samples.put("foreshore_storage_bytes", amounts.bytes)
        samples.put("foreshore_storage_tail_bytes", amounts.tail_bytes)
        samples.put("foreshore_log_segments", amounts.segments)
        samples.put("foreshore_compaction_segments_behind", amounts.segments_behind)
        samples.put("foreshore_compaction_rounds_total", amounts.rounds)
        samples.put("foreshore_compaction_failing_shards", amounts.failing_shards)


def _machine(samples: Samples, data_dir: Path) -> None:
    """Add the size of the disk and of the memory, and what queries hold of it. Blocks."""
    samples.put("foreshore_query_memory_bytes", QUERY_MEMORY.used)
    samples.put("foreshore_query_memory_limit_bytes", QUERY_MEMORY.limit)
    samples.put("foreshore_query_memory_refused_total", QUERY_MEMORY.refused)
    samples.put("foreshore_query_spilled_bytes_total", QUERY_MEMORY.spilled_bytes)
    usage = shutil.disk_usage(data_dir)
    samples.put("foreshore_disk_bytes", usage.total)
    samples.put("foreshore_disk_free_bytes", usage.free)
    if (memory := machine_bytes()) is not None:
        samples.put("foreshore_machine_memory_bytes", memory)


def _resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process of this machine, None if it is not known."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None
