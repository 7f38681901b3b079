"""The progress of a dataflow, from the last status of each replica of its cluster."""

import pytest

from foreshore.compute.controller.cluster import Cluster, Replica
from foreshore.compute.controller.progress import SILENT_SECONDS, Progress, progress_of
from foreshore.compute.protocol import CreateInstance, DataflowStatus, Response, Status
from foreshore.processes.child_process import ProcessLauncher
from foreshore.processes.link import Link
from foreshore.processes.transport import Connection
from tests.compute.runtime.harness import id_

U1 = id_("u1")
NOW = 1_000.0


def cluster(*replicas: Replica) -> Cluster:
    made = Cluster("c", CreateInstance("embedded", {}), lambda _: pytest.fail("not asked for"))
    made.replicas = {replica.name: replica for replica in replicas}
    made.ready.add(U1)
    return made


def replica(
    name: str,
    status: Status | None,
    *,
    status_at: float = NOW,
    starts: int = 1,
    engine: str = "embedded",
) -> Replica:
    link: Link[Response] = Link(
        name, ProcessLauncher(), Response, lambda _: None, lambda *_: None, lambda: None
    )
    link.starts = starts
    connection = Connection[Response](Response, lambda *_: None, lambda _: None)
    return Replica(
        name, link, CreateInstance(engine, {}), connection, status=status, status_at=status_at
    )


def says(state: str, failure: str | None = None, *, busy_ms: int = 0) -> Status:
    return Status(True, (DataflowStatus(U1, state, 40, 7, 12.5, busy_ms, failure, ()),))


def progress(*replicas: Replica) -> Progress:
    return progress_of(U1, cluster(*replicas), NOW)


def test_progress_is_of_most_advanced_replica() -> None:
    starting = replica("r1", None, starts=3)
    failed = replica("r2", says("failed", "no more threads"))
    hydrating = replica("r3", says("hydrating", busy_ms=900))
    running = replica("r4", says("running"))
    assert progress() == Progress("no replica")
    assert progress(starting) == Progress("replica starting", "r1", starts=3)
    assert progress(starting, failed).state == "failed"
    assert progress(starting, failed).failure == "no more threads"
    assert progress(failed, hydrating, starting).replica == "r3"
    assert progress(failed, hydrating, running) == Progress("running", "r4", step_ms=12.5)


def test_failed_engine_start_reports_reason() -> None:
    found = progress(replica("r1", Status(False, (), "no Java"), starts=1))
    assert (found.state, found.failure) == ("replica starting", "no Java")


def test_silent_replica_is_reported_as_silent() -> None:
    silent = replica("r1", says("running"), status_at=NOW - SILENT_SECONDS - 1)
    found = progress(silent)
    assert (found.state, found.busy_ms) == ("replica silent", 16_000)
    assert progress(silent, replica("r2", says("running"))).replica == "r2"


def test_busy_time_includes_time_since_status() -> None:
    for state in ("hydrating", "running"):
        busy = replica("r1", says(state, busy_ms=700), status_at=NOW - 3)
        assert progress(busy).busy_ms == 3_700
    assert progress(replica("r1", says("running"), status_at=NOW - 3)).busy_ms == 0


def test_retried_dataflow_is_failed_until_success() -> None:
    for state in ("failed", "running", "pending"):
        assert progress(replica("r1", says(state, "no more threads"))).state == "failed"
    again = progress(replica("r1", says("hydrating", "no more threads")))
    assert (again.state, again.failure) == ("hydrating", "no more threads")


def test_dataflow_without_report_is_pending() -> None:
    owner = cluster(replica("r1", Status(True, ())))
    assert progress_of(U1, owner, NOW) == Progress("pending", "r1")
    owner.ready.clear()
    assert progress_of(U1, owner, NOW) == Progress("waiting")


def test_tick_interval_is_set_by_engine_option() -> None:
    assert progress(replica("r1", says("running"), engine="spark")).tick_ms == 1_000
    assert CreateInstance("spark", {"tick_interval_ms": "250"}).tick_seconds == 0.25
