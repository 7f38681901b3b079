"""Progress of a dataflow, as EXPLAIN FRESHNESS reports it.

    no replica         the cluster has none
    replica starting   no replica is ready, or its engine does not start
    replica silent     no replica has sent a status report for a while
    waiting            the inputs are not known yet at the dataflow's as_of
    pending            other dataflows are hydrated before it
    hydrating          the initial output is being computed
    running            a step follows each change of the inputs
    stalled            it took more memory than its limit, or its replica's, and has freed it
    failed             the last step failed and is retried, with growing pauses
    not written        the output cannot be appended to its shard
    damaged            its shard, or an input that it has to read to start, is corrupt

Of several replicas the most advanced one is reported.
"""

from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.compute.controller.cluster import Cluster, Replica
from foreshore.compute.protocol import STATUS_SECONDS, DataflowStatus
from foreshore.ids import GlobalId

SILENT_SECONDS = 3 * STATUS_SECONDS

ProgressState = OneOf[
    "no replica",
    "replica starting",
    "replica silent",
    "waiting",
    "pending",
    "hydrating",
    "running",
    "stalled",
    "failed",
    "not written",
    "damaged",
]

_FARTHEST: tuple[ProgressState, ...] = (
    "running",
    "hydrating",
    "pending",
    "failed",
    "stalled",
    "replica silent",
    "replica starting",
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a dataflow on its most advanced replica.

    `failure` is the last error of it, or of its replica's engine. `busy_ms` is the duration of the
    current work, `step_ms` that of the last step.
    """

    state: ProgressState
    replica: str | None = None
    failure: str | None = None
    starts: int = 0  # of the replica's process
    busy_ms: int = 0
    step_ms: float = 0.0
    tick_ms: int = 0  # the minimum time between steps


def progress_of(id: GlobalId, cluster: Cluster, now: float) -> Progress:
    """Return the progress of dataflow `id` of the cluster; `now` is by the loop's clock."""
    if not cluster.replicas:
        return Progress("no replica")
    if id not in cluster.ready:
        return Progress("waiting")
    return min(
        (_on(replica, id, now) for replica in cluster.replicas.values()),
        key=lambda each: _FARTHEST.index(each.state),
    )


def _on(replica: Replica, id: GlobalId, now: float) -> Progress:
    tick_ms = round(1000 * replica.instance.tick_seconds)
    name, starts, status = replica.name, replica.link.starts, replica.status
    if replica.connection is None or status is None or not status.ready:
        failure = None if status is None else status.failure
        return Progress("replica starting", name, failure, starts)
    silent_ms = round(1000 * (now - replica.status_at))
    if silent_ms > 1000 * SILENT_SECONDS:
        return Progress("replica silent", name, busy_ms=silent_ms)
    found = next((each for each in status.dataflows if each.id == id), None)
    if found is None:  # it was sent, but not reported yet
        return Progress("pending", name)
    return Progress(
        _state(found),
        name,
        found.failure,
        busy_ms=found.busy_ms + silent_ms if found.busy_ms else 0,
        step_ms=found.step_ms,
        tick_ms=tick_ms,
    )


def _state(status: DataflowStatus) -> ProgressState:
    if status.state == "hydrating":
        return "hydrating"
    if status.state == "stalled":
        return "stalled"
    if status.failure is not None:  # it has not succeeded since
        return "failed"
    return "pending" if status.state == "pending" else "running"
