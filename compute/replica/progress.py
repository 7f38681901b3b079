"""Progress: how it stands with a dataflow, which tells why its output is not further.

    no replica         the cluster has none
    replica starting   none of them is ready; or its engine does not start
    replica silent     none has given an account of itself for a while, as all do every few seconds
    waiting            its inputs are not known yet at the time as of which it begins
    pending            other dataflows are hydrated before it
    hydrating          its output as of the beginning is being computed
    running            a step follows upon news of its inputs
    failed             it is tried again, later each time
    not written        what it puts out cannot be appended to its shard
    damaged            its shard is, or one that it would have to read to begin

Of several replicas that one counts which has come the farthest, as its output does.
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
    "failed",
    "not written",
    "damaged",
]

_FARTHEST: tuple[ProgressState, ...] = (
    "running",
    "hydrating",
    "pending",
    "failed",
    "replica silent",
    "replica starting",
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How it stands with a dataflow, on the replica that has come the farthest.

    `failure` is the error that it, or its replica's engine, met last. `busy_ms` is for how long
    that which is being done has been, `step_ms` how long the last step took.
    """

    state: ProgressState
    replica: str | None = None
    failure: str | None = None
    starts: int = 0  # of the replica's process
    busy_ms: int = 0
    step_ms: float = 0.0
    tick_ms: int = 0  # from one step to the next, at least


def progress_of(id: GlobalId, cluster: Cluster, now: float) -> Progress:
    """Return how it stands with dataflow `id` of the cluster, `now` by the loop's clock."""
    if not cluster.replicas:
        return Progress("no replica")
    if id not in cluster.ready:
        return Progress("waiting")
    tick_ms = round(1000 * cluster.instance.tick_seconds)
    return min(
        (_on(replica, id, now, tick_ms) for replica in cluster.replicas.values()),
        key=lambda each: _FARTHEST.index(each.state),
    )


def _on(replica: Replica, id: GlobalId, now: float, tick_ms: int) -> Progress:
    name, starts, status = replica.name, replica.link.starts, replica.status
    if replica.connection is None or status is None or not status.ready:
        failure = None if status is None else status.failure
        return Progress("replica starting", name, failure, starts)
    silent_ms = round(1000 * (now - replica.heard_at))
    if silent_ms > 1000 * SILENT_SECONDS:
        return Progress("replica silent", name, busy_ms=silent_ms)
    found = next((each for each in status.dataflows if each.id == id), None)
    if found is None:  # it has been told of it, and has not said so yet
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
    if status.failure is not None:  # it has not gone well since
        return "failed"
    return "pending" if status.state == "pending" else "running"
