"""The metrics of an environment: names, kinds, labels and meanings, as docs/metrics.md has them.

Names follow Prometheus: base units (seconds, bytes), `_total` at the end of counters. Labels have
bounded sets of values; those of single views are bounded by `--metrics-views`.
"""

from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from foreshore.adapter.services.metrics import Family
from foreshore.latencies import Latencies

_VIEW = ("id", "view", "type", "cluster")
_REPLICA = ("cluster", "replica", "size")
_RELATION = ("id", "relation")
_SOURCE = ("id", "source", "type")
_SINK = ("id", "sink", "type")


@dataclass(frozen=True, slots=True)
class Declared:
    """A metric."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


DECLARED = (
    Declared("foreshore_views", "gauge", "Maintained views and indexes, by state.", ("state",)),
    Declared("foreshore_views_without_series", "gauge", "Views beyond --metrics-views."),
    Declared("foreshore_views_max_lag_seconds", "gauge", "The greatest lag of a view."),
    Declared("foreshore_view_lag_seconds", "gauge", "How far a view is behind the clock.", _VIEW),
    Declared("foreshore_view_hydrated", "gauge", "1 if a view can be read.", _VIEW),
    Declared("foreshore_view_failed", "gauge", "1 if its last step failed, or it stalled.", _VIEW),
    Declared("foreshore_view_errors", "gauge", "1 if reading a view fails for its data.", _VIEW),
    Declared("foreshore_view_error_rows", "gauge", "Rows with an error, also below it.", _VIEW),
    Declared("foreshore_view_rows", "gauge", "Rows of an index, updates of a shard.", _VIEW),
    Declared("foreshore_view_memory_bytes", "gauge", "Memory of its state in all replicas.", _VIEW),
    Declared("foreshore_view_steps_total", "counter", "Steps made, in all replicas.", _VIEW),
    Declared("foreshore_view_cpu_seconds_total", "counter", "CPU of steps and merges.", _VIEW),
    Declared("foreshore_commits_total", "counter", "Writes that have become durable."),
    Declared("foreshore_commit_groups_total", "counter", "Groups of these, each with one fsync."),
    Declared("foreshore_commit_latency_seconds", "histogram", "From COMMIT until it is durable."),
    Declared(
        "foreshore_statement_latency_seconds", "histogram", "Statements that ended.", ("kind",)
    ),
    Declared("foreshore_query_memory_bytes", "gauge", "Held by queries in the server."),
    Declared("foreshore_query_memory_limit_bytes", "gauge", "What queries may hold there."),
    Declared("foreshore_query_memory_refused_total", "counter", "Requests of queries that failed."),
    Declared("foreshore_query_spilled_bytes_total", "counter", "Results written to disk."),
    Declared("foreshore_sessions", "gauge", "Sessions, by what they do.", ("state",)),
    Declared("foreshore_max_sessions", "gauge", "The limit on sessions."),
    Declared("foreshore_replica_up", "gauge", "1 if a replica is connected and ready.", _REPLICA),
    Declared("foreshore_replica_starts_total", "counter", "Starts of its process.", _REPLICA),
    Declared("foreshore_replica_memory_bytes", "gauge", "Resident memory of a replica.", _REPLICA),
    Declared("foreshore_source_state", "gauge", "1 for its state.", (*_SOURCE, "state")),
    Declared("foreshore_source_lag_seconds", "gauge", "Time since its last commit.", _SOURCE),
    Declared("foreshore_source_updates_total", "counter", "Updates committed.", _SOURCE),
    Declared("foreshore_source_bytes_total", "counter", "Bytes of these in memory.", _SOURCE),
    Declared("foreshore_source_messages_total", "counter", "Messages received.", _SOURCE),
    Declared("foreshore_source_offset_known", "gauge", "How far its system is.", _SOURCE),
    Declared("foreshore_source_offset_committed", "gauge", "How far it was read.", _SOURCE),
    Declared("foreshore_source_slot_behind_bytes", "gauge", "Log not durable here.", _SOURCE),
    Declared("foreshore_source_slot_retained_bytes", "gauge", "Log kept for its slot.", _SOURCE),
    Declared("foreshore_source_slot_safe_bytes", "gauge", "Log until its slot is lost.", _SOURCE),
    Declared("foreshore_source_snapshot_rows_known", "gauge", "Rows at its beginning.", _SOURCE),
    Declared("foreshore_source_snapshot_rows_staged", "gauge", "Of these, rows read.", _SOURCE),
    Declared("foreshore_source_commits_total", "counter", "Batches committed.", _SOURCE),
    Declared("foreshore_source_refused_total", "counter", "Requests refused.", _SOURCE),
    Declared("foreshore_source_dead_letters", "gauge", "Rows of SOURCE_errors, _late.", _SOURCE),
    Declared("foreshore_watermark_lag_seconds", "gauge", "How far it is behind.", _RELATION),
    Declared("foreshore_sink_state", "gauge", "1 for its state.", (*_SINK, "state")),
    Declared("foreshore_sink_lag_seconds", "gauge", "How far its target is behind.", _SINK),
    Declared("foreshore_sink_updates_total", "counter", "Updates that its target has.", _SINK),
    Declared("foreshore_sink_bytes_total", "counter", "Bytes of these in memory.", _SINK),
    Declared("foreshore_sink_commits_total", "counter", "Intervals that its target has.", _SINK),
    Declared("foreshore_leftovers", "gauge", "What dropped objects have left in other systems."),
    Declared("foreshore_metric_up", "gauge", "1 if a CREATE METRIC is shown.", ("metric",)),
    Declared("foreshore_metric_series", "gauge", "Its combinations of labels.", ("metric",)),
    Declared("foreshore_storage_shards", "gauge", "Durable collections."),
    Declared("foreshore_storage_files", "gauge", "Batch files of these."),
    Declared("foreshore_storage_bytes", "gauge", "Bytes in batch files."),
    Declared("foreshore_storage_tail_bytes", "gauge", "Memory of updates not yet in batch files."),
    Declared("foreshore_log_segments", "gauge", "Segments of the log."),
    Declared("foreshore_compaction_segments_behind", "gauge", "Segments not compacted."),
    Declared("foreshore_compaction_rounds_total", "counter", "Rounds of the compacter."),
    Declared("foreshore_compaction_failing_shards", "gauge", "Shards it tries again later."),
    Declared("foreshore_disk_bytes", "gauge", "Size of the disk of the data directory."),
    Declared("foreshore_disk_free_bytes", "gauge", "What is free of it for the server."),
    Declared("foreshore_machine_memory_bytes", "gauge", "Memory of the machine or the cgroup."),
)

Values = tuple[str, ...]


def shown_family(metric: Family) -> Metric:
    """Return a metric of CREATE METRIC as the library's object. Any thread may call it."""
    family: GaugeMetricFamily | CounterMetricFamily
    if metric.kind == "gauge":
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    else:
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.series:
        family.add_metric(labels, value)
    return family


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by metric and labels; `families` turns them into the library's objects."""

    numbers: dict[str, list[tuple[Values, float]]]
    histograms: dict[str, list[tuple[Values, Latencies]]]

    @classmethod
    def none(cls) -> "Samples":
        """Return no samples."""
        return cls({each.name: [] for each in DECLARED}, {each.name: [] for each in DECLARED})

    def put(self, name: str, value: float, labels: Values = ()) -> None:
        """Add a number."""
        self.numbers[name].append((labels, value))

    def families(self) -> list[Metric]:
        """Return all metrics, also those without samples. Any thread may call it."""
        found: list[Metric] = []
        for each in DECLARED:
            match each.kind:
                case "gauge":
                    gauge = GaugeMetricFamily(each.name, each.meaning, labels=each.labels)
                    for labels, value in self.numbers[each.name]:
                        gauge.add_metric(labels, value)
                    found.append(gauge)
                case "counter":
                    counter = CounterMetricFamily(each.name, each.meaning, labels=each.labels)
                    for labels, value in self.numbers[each.name]:
                        counter.add_metric(labels, value)
                    found.append(counter)
                case "histogram":
                    histogram = HistogramMetricFamily(each.name, each.meaning, labels=each.labels)
                    for labels, latencies in self.histograms[each.name]:
                        histogram.add_metric(labels, latencies.buckets(), latencies.total)
                    found.append(histogram)
        return found
