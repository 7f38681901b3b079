"""Rows of the system relations about dataflows: what replicas report about them.

Rows are dicts with the columns that have a value.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.protocol import ArrangementStatus, OperatorStatus
from foreshore.ids import GlobalId

Row = Mapping[str, object]

_AS_REPORTED = ("hydration_ms", "steps", "step_ms", "busy_ms")


@dataclass(frozen=True, slots=True)
class Failing:
    """Reads of an object fail for its data; `error` is None if the session may not see why."""

    error: str | None


@dataclass(frozen=True, slots=True)
class Reports:
    """What replicas report to a controller: all of them, or the `pinned` one.

    `name_of` returns the name of an object, `failing_of` whether reads of it fail for its data.
    """

    controller: ComputeController
    pinned: str | None
    name_of: Callable[[GlobalId], str]
    failing_of: Callable[[GlobalId], Failing | None]

    def includes(self, replica: str) -> bool:
        """Whether the reports of a replica are shown."""
        return self.pinned is None or replica == self.pinned


def _reports(reports: Reports) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the reports about all dataflows, each with that of its replica."""
    for status in reports.controller.clusters.status():
        if reports.includes(status["replica"]):
            for each in status["dataflows"]:
                yield status, each


def _dataflow_statuses(reports: Reports) -> Iterator[Row]:
    for status, each in _reports(reports):
        indexes, state, failure = each["indexes"], each["state"], each["failure"]
        failing = reports.failing_of(each["id"]) if state == "running" else None
        if failing is not None:
            state, failure = "failing", failing.error
        yield {
            "replica_id": status["replica"],
            "object_id": each["id"],
            "write_frontier": status["uppers"].get(each["id"]),
            "arranged_rows": sum(index["rows"] for index in indexes) if indexes else None,
            "arranged_bytes": sum(index["bytes"] for index in indexes) if indexes else None,
            "state": state,
            "failure": failure,
            **{name: each[name] for name in _AS_REPORTED},
        }


def arrangements(reports: Reports) -> Iterator[tuple[str, ArrangementStatus]]:
    """Yield the arrangements with the replicas that reported them."""
    for replica, each in reports.controller.clusters.arrangements():
        if reports.includes(replica):
            yield replica, each


def operators(reports: Reports) -> Iterator[tuple[str, OperatorStatus]]:
    """Yield the operators with the replicas that reported them."""
    for replica, each in reports.controller.clusters.operators():
        if reports.includes(replica):
            yield replica, each


def _checkpoints(reports: Reports) -> Iterator[Row]:
    """Yield what each replica, or the one that the session chose, has in its newest checkpoint."""
    for replica, each in reports.controller.clusters.checkpoints():
        if reports.includes(replica):
            yield {
                "replica_id": replica,
                "object_id": each.id,
                "write_frontier": each.upper,
                "saved_at": each.saved_at * 1000,
                "size": each.bytes,
            }


def _arrangement_sizes(reports: Reports) -> Iterator[Row]:
    """Yield the arrangements of replicas, and the mirrors of indexes, which are in this process."""
    if reports.pinned is None:
        for mirror in reports.controller.mirrors.sizes():
            yield {
                "replica_id": None,
                "object_id": mirror.index,
                "operator_id": None,
                "name": "mirror",
                "records": mirror.records,
                "batches": mirror.batches,
                "size": mirror.bytes,
                "merges": 0,
                "worker_id": None,
            }
    for replica, each in arrangements(reports):
        yield {
            "replica_id": replica,
            "object_id": each.object,
            "operator_id": each.operator,
            "name": each.name,
            "records": each.records,
            "batches": each.batches,
            "size": each.bytes,
            "merges": each.merges,
            "worker_id": each.worker,
        }


def _records_per_dataflow(reports: Reports) -> Iterator[Row]:
    """Yield the sums of the arrangements of each object; shared rows count for their collection."""
    totals: defaultdict[tuple[str, GlobalId], list[int]] = defaultdict(lambda: [0, 0, 0])
    for replica, each in arrangements(reports):
        if each.object is not None:
            total = totals[replica, each.object]
            for place, count in enumerate((each.records, each.batches, each.bytes)):
                total[place] += count
    for (replica, id), (records, batches, size) in totals.items():
        yield {
            "replica_id": replica,
            "object_id": id,
            "name": reports.name_of(id),
            "records": records,
            "batches": batches,
            "size": size,
        }


def _dataflow_operators(reports: Reports) -> Iterator[Row]:
    users: dict[tuple[str, GlobalId, int], int] = {}  # the first operator that uses another
    reported = list(operators(reports))
    for replica, each in reported:
        for input in each.inputs:
            users.setdefault((replica, each.dataflow, input), each.operator)
    for replica, each in reported:
        yield {
            "replica_id": replica,
            "object_id": each.dataflow,
            "operator_id": each.operator,
            "name": each.name,
            "parent_id": users.get((replica, each.dataflow, each.operator)),
            "input_ids": list(each.inputs),
        }


def _elapsed(reports: Reports) -> Iterator[Row]:
    """Yield the times of operators, and of all else that a dataflow does."""
    known: defaultdict[tuple[str, GlobalId], list[int]] = defaultdict(lambda: [0, 0, 0])
    for replica, each in operators(reports):
        times = (each.hydration_ns, each.step_ns, each.merge_ns)
        known[replica, each.dataflow] = [
            a + b for a, b in zip(known[replica, each.dataflow], times, strict=True)
        ]
        yield {
            "replica_id": replica,
            "object_id": each.dataflow,
            "operator_id": each.operator,
            "rows_in": each.rows_in,
            "rows_out": each.rows_out,
            **_times(each.steps, *times),
        }
    for status, report in _reports(reports):
        whole = report["hydration_ns"], report["step_ns"], report["merge_ns"]
        of_operators = known[status["replica"], report["id"]]
        # Both are of different moments, so the difference may be a little too small.
        rest = [max(a - b, 0) for a, b in zip(whole, of_operators, strict=True)]
        yield {
            "replica_id": status["replica"],
            "object_id": report["id"],
            **_times(report["steps"], *rest),
        }


def _times(steps: int, hydration_ns: int, step_ns: int, merge_ns: int) -> dict[str, int]:
    return {
        "steps": steps,
        "elapsed_ns": hydration_ns + step_ns + merge_ns,
        "hydration_ns": hydration_ns,
        "merge_ns": merge_ns,
    }


def _hydration_times(reports: Reports) -> Iterator[Row]:
    for status, each in _reports(reports):
        yield {
            "replica_id": status["replica"],
            "export_id": each["id"],
            "time_ns": each["hydration_ms"] * 1_000_000 if _is_hydrated(each) else None,
        }


def _hydration_statuses(reports: Reports) -> Iterator[Row]:
    for status, each in _reports(reports):
        hydrated, ms = _is_hydrated(each), each["hydration_ms"]
        yield {
            "replica_id": status["replica"],
            "object_id": each["id"],
            "hydrated": hydrated,
            "hydration_time": {"months": 0, "days": 0, "micros": ms * 1000} if hydrated else None,
        }


def _hydrations(reports: Reports) -> Iterator[Row]:
    """Yield what each engine did to hydrate each dataflow; its operators did all else."""
    for status, each in _reports(reports):
        of_dataflow = {"replica_id": status["replica"], "object_id": each["id"]}
        if _is_hydrated(each):
            yield {**of_dataflow, "engine": "operators", "time_ms": each["hydration_ms"]}
        for done in each["hydrations"]:
            yield {
                **of_dataflow,
                "engine": done["engine"],
                "statements": done["statements"],
                "updates_read": done["updates"],
                "bytes_read": done["bytes"],
                "rows": done["rows"],
                "time_ms": done["ms"],
                "note": done["note"],
            }


def _last_steps(reports: Reports) -> Iterator[Row]:
    """Yield what each engine did in the last steps of dataflows that choose between engines."""
    for status, each in _reports(reports):
        for done in each["last_steps"]:
            yield {
                "replica_id": status["replica"],
                "object_id": each["id"],
                "step": done["step"],
                "engine": done["engine"],
                "updates": done["updates"],
                "statements": done["statements"],
                "recomputed": done["anew"],
                "jobs": done["statements"] if done["engine"] == "spark" else 0,
                "files_read": done["files"],
                "files": done["files_there"],
                "bytes_read": done["bytes"],
                "rows": done["rows"],
                "time_ms": done["ms"],
                "note": done["note"],
            }


def _spark_stages(reports: Reports) -> Iterator[Row]:
    for replica, each in reports.controller.clusters.stages():
        if reports.includes(replica):
            yield {
                "replica_id": replica,
                "work": each.work,
                "job_id": each.job,
                "stage_id": each.stage,
                "name": each.name,
                "tasks": each.tasks,
                "active_tasks": each.active,
                "completed_tasks": each.completed,
                "failed_tasks": each.failed,
            }


def _is_hydrated_rows(reports: Reports) -> Iterator[Row]:
    for row in _hydration_statuses(reports):
        yield {name: value for name, value in row.items() if name != "hydration_time"}


def _is_hydrated(report: Mapping[str, Any]) -> bool:
    """Whether the first step of a dataflow is done; a later one may have failed."""
    return bool(report["hydration_ns"])


def _frontiers(reports: Reports) -> Iterator[Row]:
    for status in reports.controller.clusters.status():
        if reports.includes(status["replica"]):
            for id, upper in status["uppers"].items():
                yield {"replica_id": status["replica"], "export_id": id, "time": upper}


DATAFLOWS: Mapping[str, Callable[[Reports], Iterable[Row]]] = {
    "mz_dataflow_statuses": _dataflow_statuses,
    "mz_checkpoints": _checkpoints,
    "mz_arrangement_sizes": _arrangement_sizes,
    "mz_records_per_dataflow": _records_per_dataflow,
    "mz_dataflow_operators": _dataflow_operators,
    "mz_scheduling_elapsed": _elapsed,
    "mz_compute_hydration_times": _hydration_times,
    "mz_hydrations": _hydrations,
    "mz_last_steps": _last_steps,
    "mz_spark_stages": _spark_stages,
    "mz_hydration_statuses": _is_hydrated_rows,
    "mz_compute_hydration_statuses": _hydration_statuses,
    "mz_compute_frontiers": _frontiers,
}
