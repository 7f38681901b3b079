"""Spans of what sources and sinks have moved, from the samples that are taken of their counters."""

from time import time_ns
from typing import TYPE_CHECKING

from foreshore import tracing

if TYPE_CHECKING:
    from foreshore.adapter.services.usage import FlowSample


def record_flow(kind: str, before: "FlowSample | None", now: "FlowSample") -> None:
    """Record a span of a source or sink that has moved rows or bytes since the sample before.

    It has the length of the time between both, so it says how much was moved, not exactly when.
    Without a sample before, and where counters begin anew, there is none.
    """
    if before is None or now.updates < before.updates:
        return
    rows, size = now.updates - before.updates, max(now.bytes - before.bytes, 0)
    if not rows and not size:
        return
    attributes: dict[str, tracing.Attribute] = {
        "foreshore.object": now.id,
        "foreshore.rows": rows,
        "foreshore.bytes": size,
    }
    if now.lag is not None:
        attributes["foreshore.lag" if kind == "source" else "foreshore.lag_ms"] = now.lag
    tracing.record(f"{kind} rows", time_ns() - (now.at - before.at) * 1_000_000, attributes)
