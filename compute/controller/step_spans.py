"""Spans of the steps of dataflows, from what replicas report of them."""

from time import time_ns

from foreshore import tracing
from foreshore.compute.protocol import Status


def record_steps(replica: str, before: Status | None, now: Status) -> None:
    """Record a span for each dataflow that has made steps since the last report.

    It ends with the report and has the length of their CPU time, so it says how much work there
    was, not exactly when.
    """
    known = {} if before is None else {each.id: each for each in before.dataflows}
    for each in now.dataflows:
        last = known.get(each.id)
        if last is None or each.steps <= last.steps:
            continue
        spent = max(0, each.step_ns - last.step_ns)
        attributes: dict[str, tracing.Attribute] = {
            "foreshore.object": str(each.id),
            "foreshore.replica": replica,
            "foreshore.steps": each.steps - last.steps,
            "foreshore.state": each.state,
        }
        tracing.record("dataflow steps", time_ns() - spent, attributes)
