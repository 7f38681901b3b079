"""EXPLAIN: how a query would be answered, as text."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.peek_plan import PeekPlan
from foreshore.adapter.result import BatchSource, Selected
from foreshore.adapter.sequence.peek import choose, filled, index_of
from foreshore.catalog.item import Item
from foreshore.ids import GlobalId
from foreshore.sql.plan import EXPLAIN_DESC, Explain
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session import Session
    from foreshore.adapter.statement import Prepared


async def explain(
    session: "Session", prepared: "Prepared", plan: Explain, args: Sequence[Datum]
) -> Selected:
    """Run an EXPLAIN."""
    assert prepared.peek is not None
    match plan.stage:
        case "timestamp":
            text = _timestamp(session, prepared.peek, plan, args)
        case "physical":
            text = await _physical(session, prepared.peek, plan, args)
        case _:
            text = plan.text
    rows = pa.RecordBatch.from_arrays([pa.array(text.splitlines(), pa.string())], names=["c0"])
    return Selected(EXPLAIN_DESC, BatchSource(rows), "EXPLAIN")


def _name(session: "Session", id: GlobalId) -> str:
    found = session.coordinator.state.get(id)
    return (
        f"{'.'.join(session.coordinator.state.full_name(found))} ({id})"
        if isinstance(found, Item)
        else id
    )


def _timestamp(session: "Session", peek: PeekPlan, plan: Explain, args: Sequence[Datum]) -> str:
    ids = [peek.lookup.index] if peek.lookup is not None else sorted(peek.shards)
    ids = [index_of(session, id) for id in ids]
    chosen = choose(session, ids, plan.as_of, args)
    lines = [
        f"                query timestamp: {chosen.time:>13}",
        f"          oracle read timestamp: {chosen.read_ts:>13}",
        f"                      isolation: {chosen.isolation}",
        f"        can respond immediately: {str(not chosen.waits).lower()}",
    ]
    for id, interval in chosen.inputs.items():
        lines += [
            "",
            f"source {_name(session, id)}:",
            f"                  read frontier: [{interval.since}]",
            f"                 write frontier: [{interval.upper}]",
        ]
    return "\n".join(lines)


async def _physical(
    session: "Session", peek: PeekPlan, plan: Explain, args: Sequence[Datum]
) -> str:
    coordinator = session.coordinator
    match peek.way:
        case "constant":
            return f"Constant, computed at once\n{plan.text}"
        case "index":
            assert peek.lookup is not None
            how = "by literal keys" if peek.lookup.keys is not None else "whole"
            return f"Index {_name(session, peek.lookup.index)}, read {how}\n{plan.text}"
        case "local" | "bulk":
            cluster = coordinator.state.cluster(session.cluster)
            where = (
                f"on cluster {cluster.name} (size {cluster.size})"
                if cluster is not None and peek.way == "bulk"
                else "in this process"
            )
            relation, _, _ = filled(session, peek, args, coordinator.oracle.read_ts())
            described = await blocking.run(
                coordinator.executor, partial(coordinator.engine.describe, relation)
            )
            return f"Bulk query {where}\n{plan.text}\n\nIf maintained:\n{described}"
