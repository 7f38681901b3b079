"""EXPLAIN of INSERT, UPDATE, DELETE and MERGE: the plan, and how the target's rows are found."""

from functools import partial

from foreshore.adapter.explain.explain import (
    described_path,
    described_steps,
    name_of,
    select_plan,
)
from foreshore.adapter.plans.access_path import KeyLookup, PeekPlan
from foreshore.adapter.read.pipeline import prepared_peek
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import Selected
from foreshore.adapter.write.source import changed_key
from foreshore.adapter.write.target import target_of
from foreshore.expr.plan_nodes import PlanNode
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import Delete, ExplainChange, Insert, Merge, Update


async def explain_change(context: StatementContext, plan: ExplainChange) -> Selected:
    """Run an EXPLAIN of a statement that changes rows; nothing is locked or changed."""
    change, peek = plan.change, prepared_peek(context.prepared)
    verb = "Insert into" if isinstance(change, Insert) else type(change).__name__
    node = PlanNode(verb, name_of(context, change.table), inputs=plan.nodes)
    if isinstance(change, Insert):
        after = _conflicts(context, change)
    else:
        after = ["", "Target rows:", *_target_rows(context, change, peek)]
    before = described_path(context, peek) if plan.stage == "physical" else ""
    return select_plan(before, (node,), "".join(f"\n{line}" for line in after), json=plan.json)


def _conflicts(context: StatementContext, change: Insert) -> list[str]:
    """Return the keys by which ON CONFLICT finds existing rows."""
    if change.on_conflict is None:
        return []
    names = sorted(change.on_conflict.arbiters)
    table = name_of(context, change.table)
    return [
        "",
        "Existing rows:",
        *(f"  look-up by {quote_identifier(e)} of {table}" for e in names),
    ]


def _target_rows(
    context: StatementContext, change: Update | Delete | Merge, peek: PeekPlan
) -> list[str]:
    """Return the key, or keys, by which the rows to change are found, or that all are read."""
    name = partial(name_of, context)
    constraint = changed_key(context, change.table, change.keys)
    if constraint is not None and change.keys is not None:
        names = target_of(context, change.table).desc.names
        key = ", ".join(names[i] for i in constraint.columns)
        read = sorted(map(str, map(name, _tables(change.keys.source))))
        source = f"rows of {', '.join(read)}" if read else "given rows"
        by = f"{quote_identifier(constraint.name)} of {name(change.table)}"
        return [f"  {by}", f"    look-up of ({key}) = {source}"]
    if isinstance(peek.path, KeyLookup):
        return described_steps(context, peek.path).splitlines()
    return [f"  {name(change.table)}", "    read whole"]


def _tables(relation: object) -> list[GlobalId]:
    return sorted(sources_of(relation))  # type: ignore[arg-type]
