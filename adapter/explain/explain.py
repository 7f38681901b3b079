"""EXPLAIN: the plan of a query, its timestamp and its access path, as text."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import assert_never

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.explain.cost import explain_cost
from foreshore.adapter.explain.filter_pushdown import explain_pushdown
from foreshore.adapter.explain.hydration import hydration
from foreshore.adapter.explain.nested_plans import plan_as_json
from foreshore.adapter.plans.access_path import (
    Bulk,
    Constant,
    IndexLookups,
    IndexRead,
    InProcess,
    KeyLookup,
    PeekPlan,
)
from foreshore.adapter.read.bound.cluster_choice import collections_read
from foreshore.adapter.read.bound.timestamp import choose, fixed_time, requested_time
from foreshore.adapter.read.keys.key_lookup import PREFIX_ROWS
from foreshore.adapter.read.pipeline import plan_for_time, prepared_peek, refuse_past_of_system
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.adapter.transaction.timestamp_selection import Selection
from foreshore.catalog.catalog import relation_of
from foreshore.catalog.item import Cluster
from foreshore.catalog.state import State
from foreshore.compute.controller.cluster import engine_of, workers_of
from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.controller.step_report import last_steps
from foreshore.compute.describe import describe_maintenance
from foreshore.compute.keys.bound_keys import is_large, literal_keys
from foreshore.errors import FeatureNotSupported
from foreshore.expr.block import Block
from foreshore.expr.explain import explain_nodes, explain_scalar
from foreshore.expr.ir import Column
from foreshore.expr.keys import Key, KeyRange
from foreshore.expr.plan_nodes import PlanNode, text_of
from foreshore.expr.recursion import single_relation
from foreshore.expr.temporal import temporal_filters
from foreshore.expr.traversal import sources_of
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId
from foreshore.refresh import Refresh
from foreshore.sql.explain import index_node
from foreshore.sql.explained_names import columns_of, full_name
from foreshore.sql.optimize.key_steps import RangeStep, Step, WholeStep
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import EXPLAIN_DESC, Explain, ExplainMaintained
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.sql.rewrite.object_options import view_options, with_clause


async def explain(context: StatementContext, plan: Explain) -> Selected:
    """Run an EXPLAIN."""
    peek = prepared_peek(context.prepared)
    refuse_past_of_system(peek, plan.as_of)
    match plan.stage:
        case "timestamp":
            time, past = fixed_time(context, plan.as_of), plan.as_of is not None
            peek = plan_for_time(context, peek, time, past=past)
            return select_plan(_timestamp(context, peek, plan), json=plan.json)
        case "cost":
            return select_plan(await explain_cost(context, plan), json=plan.json)
        case "pushdown":
            return await explain_pushdown(context, plan.query.relation, partial(name_of, context))
        case "physical":
            return await _physical(context, peek, plan)
        case "optimized":
            return select_plan(nodes=plan.nodes, after=_used(context, peek), json=plan.json)
        case _:
            return select_plan(nodes=plan.nodes, json=plan.json)


async def explain_maintained(context: StatementContext, plan: ExplainMaintained) -> Selected:
    """Run EXPLAIN ... FOR MATERIALIZED VIEW or INDEX."""
    reader = context.planner.reader()
    item = reader.state.item(plan.object)
    if plan.nodes:
        return select_plan(nodes=plan.nodes, json=plan.json)
    relation = relation_of(reader.state, reader.planned, item)
    if plan.stage == "pushdown":
        return await explain_pushdown(context, relation, partial(name_of, context))
    assert item.cluster is not None, item
    cluster = reader.state.objects[item.cluster]
    assert isinstance(cluster, Cluster), cluster
    name = partial(name_of, context)
    columns = columns_of(context.planner.reader())
    nodes: tuple[PlanNode, ...] = (explain_nodes(relation, name, columns=columns),)
    if item.type == "index":
        assert item.on, item
        names = tuple(map(quote_identifier, reader.planned[item.on].desc.names))
        nodes = (index_node(reader.planned[item.id].key, names, nodes),)
    if plan.stage == "definition":
        return select_plan(nodes=nodes, json=plan.json)
    described = await _maintenance(context, Block(relation), cluster, item.hydrate or None)
    where = _where(context.names.state, item.cluster)
    refreshed = (
        f", {_refreshed(context.views.compute, item.id, item.refresh)}" if item.refresh else ""
    )
    kind = item.type.capitalize()
    steps = last_steps(context.views.compute.clusters.dataflows(), item.id)
    after = f"\n\nMaintained:\n{described}{steps}"
    return select_plan(f"{kind}, {where}{refreshed}", nodes, after, json=plan.json)


def _refreshed(compute: ComputeController, id: GlobalId, refresh: Refresh) -> str:
    """Return when and how a view is refreshed."""
    changes, anew = "by the changes since the last refresh", "computed anew"
    how = anew if refresh.policy == "full" else changes
    if refresh.policy == "auto":
        cost = compute.refresh_cost(id)
        known = [
            f"{what} took {ns / 1e6:.1f} ms"
            for what, ns in (("changes", cost.changes_ns), ("all of it", cost.anew_ns))
            if ns is not None
        ]
        how = f"{anew if cost.is_anew else changes}, as that costs less CPU"
        how += f" ({', '.join(known)})" if known else ""
    return f"refreshed{with_clause(view_options(None, None, refresh))}, {how}"


def select_plan(
    before: str = "", nodes: Sequence[PlanNode] = (), after: str = "", *, json: bool = False
) -> Selected:
    """Return a plan, with how it is run before it and sections after it, as lines or a document."""
    if json:
        lines = [plan_as_json(before, nodes, after)]
    else:
        parts = (before, text_of(nodes))
        lines = ("\n".join(part for part in parts if part) + after).splitlines()
    rows = pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["c0"])
    return Selected(EXPLAIN_DESC, BatchSource(rows), "EXPLAIN")


def _used(context: StatementContext, peek: PeekPlan) -> str:
    """Return the key or index that is used, if any."""
    match peek.path:
        case KeyLookup() as path:
            return f"\n\nUsed key:\n{described_steps(context, path)}"
        case IndexLookups() as path:
            return f"\n\nUsed indexes:\n{described_steps(context, path)}"
        case IndexRead() as path:
            return f"\n\nUsed index:\n{_index_read(context, path)}"
        case _:
            return ""


def name_of(context: StatementContext, id: GlobalId) -> str:
    """Return the full name of a relation, or the id of an intermediate one that has no name."""
    return full_name(context.planner.reader(), id)


def _index_read(context: StatementContext, lookup: IndexRead) -> str:
    """Return the index that is read, its cluster, and the values looked up in it."""
    reader = context.planner.reader()
    item = reader.state.item(lookup.index)
    assert item.cluster is not None, item
    lines = [
        f"  {name_of(context, lookup.index)} on {name_of(context, lookup.on)}",
        f"    {_where(context.names.state, item.cluster)}",
    ]
    if lookup.keys is None and lookup.range is None:
        return "\n".join([*lines, "    read whole"])
    names = reader.planned[lookup.on].desc.names
    key = [
        names[scalar.index] if isinstance(scalar, Column) else explain_scalar(scalar)
        for scalar in reader.planned[lookup.index].key
    ]
    if lookup.range is not None:
        return "\n".join([*lines, _range(key, lookup.range)])
    assert lookup.keys is not None, lookup
    return "\n".join([*lines, _values(context, key, lookup.keys)])


def _range(key: Sequence[str], range: KeyRange) -> str:
    """Return the ends of a range, and whether it is read in order."""
    ends = [
        f"    {_row(key[: len(end.values)])} {sign}{'=' * end.inclusive}"
        f" {_row(list(map(explain_scalar, end.values)))}"
        for end, sign in ((range.low, ">"), (range.high, "<"))
        if end.values
    ]
    if range.is_ordered:
        names = [name + " DESC" * range.descending for name in key]
        ends.append(f"    in the order of {', '.join(names)}, until there are enough rows")
    return "\n".join(ends)


def _row(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def described_steps(context: StatementContext, lookup: KeyLookup | IndexLookups) -> str:
    """Return the steps of a key look-up as lines."""
    tables: dict[GlobalId, GlobalId] = {each.rows: each.table for each in lookup.steps}
    return "\n".join(_step(context, each, tables) for each in lookup.steps)


def _step(context: StatementContext, step: Step, tables: Mapping[GlobalId, GlobalId]) -> str:
    """Return the constraint or index that is used, and the values looked up by it.

    `tables` are those of the names of their rows.
    """
    if isinstance(step, WholeStep):
        return f"  {name_of(context, step.table)}\n    read whole"
    names = context.planner.reader().planned[step.table].desc.names
    key = [names[i] for i in step.columns]
    by = step.by
    name = quote_identifier(by.name) if by.index is None else name_of(context, by.index)
    lines = [f"  {name} of {name_of(context, step.table)}"]
    if isinstance(step, RangeStep):
        return "\n".join([*lines, _range(key, step.range)])
    if step.keys or not step.sources:
        lines.append(_values(context, key, step.keys))
    for source in step.sources:
        read = sorted({name_of(context, tables.get(id, id)) for id in sources_of(source)})
        rows = f"rows of {', '.join(read)}" if read else "given rows"
        lines.append(f"    look-up of ({', '.join(key)}) = {rows}")
    if step.range is not None:
        columns = [names[i] for i in step.range.columns]
        lines += [f"    if these are over {PREFIX_ROWS:,} rows:", _range(columns, step.range.range)]
    return "\n".join(lines)


def _values(context: StatementContext, key: Sequence[str], keys: Sequence[Key]) -> str:
    bindings = context.bindings(context.times.oracle.read_ts())
    if is_large(keys, bindings):
        return f"    look-up of ({', '.join(key)}) = many values"
    values = [f"({', '.join(map(explain_scalar, each))})" for each in literal_keys(keys, bindings)]
    return f"    look-up of ({', '.join(key)}) = {' or '.join(values) or 'nothing'}"


def _where(state: State, id: str) -> str:
    """Return the name of a cluster and its engine."""
    cluster = state.objects[id]
    assert isinstance(cluster, Cluster), cluster
    engine, _ = engine_of(cluster.size)
    return f"cluster {quote_identifier(cluster.name)}, engine {engine}"


def _timestamp(context: StatementContext, peek: PeekPlan, plan: Explain) -> str:
    times, transaction = context.times, context.transaction
    ids = sorted(collections_read(context, peek) & times.holds.collections.keys())
    if plan.as_of is None and transaction.time is not None:
        intervals = {id: times.interval(id) for id in ids}
        read_ts = times.oracle.read_ts()
        chosen = Selection(transaction.time, read_ts, context.isolation, intervals)
    else:
        wanted = requested_time(context, plan.as_of, peek.query.changes)
        chosen = choose(context, ids, wanted)
    lines = [
        f"                query timestamp: {chosen.time:>13}",
        f"          oracle read timestamp: {chosen.read_ts:>13}",
        f"                      isolation: {chosen.isolation}",
        f"        can respond immediately: {str(not chosen.waits).lower()}",
    ]
    for id, interval in chosen.inputs.items():
        lines += [
            "",
            f"source {name_of(context, id)}:",
            f"                  read frontier: [{interval.since}]",
            f"                 write frontier: [{interval.upper}]",
        ]
    return "\n".join(lines)


async def _physical(context: StatementContext, peek: PeekPlan, plan: Explain) -> Selected:
    heading, after = described_path(context, peek), ""
    match peek.path:
        case KeyLookup() | IndexLookups() as path:
            heading += f"\n{described_steps(context, path)}"
        case Constant():
            pass
        case IndexRead() as path:
            heading += f"\n{_index_read(context, path)}"
        case InProcess() | Bulk():
            cluster = _cluster_of(context.cluster, context.names.state, peek)
            block = Block(peek.path.relation, peek.query.recursions)
            described = await _maintenance(context, block, cluster)
            after = f"\n\nIf maintained:\n{described}"
        case path:
            assert_never(path)
    return select_plan(heading, plan.nodes, after, json=plan.json)


def described_path(context: StatementContext, peek: PeekPlan) -> str:
    """Return the kind of access path of a query, and where it runs."""
    match peek.path:
        case KeyLookup():
            return "Key look-up, in this process"
        case IndexLookups():
            return "Look-ups in indexes, the rest in this process"
        case Constant():
            return "Constant, computed at once"
        case IndexRead():
            return "Index"
        case InProcess() | Bulk():
            cluster = _cluster_of(context.cluster, context.names.state, peek)
            where = (
                "in this process" if cluster is None else _where(context.names.state, cluster.id)
            )
            return f"Bulk query, {where}"
        case path:
            assert_never(path)


def _cluster_of(cluster: str, state: State, peek: PeekPlan) -> Cluster | None:
    """Return the cluster that a query asks, if it asks one."""
    return state.cluster(cluster) if peek.asks_cluster else None


async def _maintenance(
    context: StatementContext,
    block: Block,
    cluster: Cluster | None,
    hydrate: HydrateMode | None = None,
) -> str:
    """Return how a cluster, by default an embedded one, maintains a block, or why it could not."""
    try:
        relation = temporal_filters(single_relation(block))
    except FeatureNotSupported as error:
        return error.message
    relation = bind_relation(relation, context.bindings(context.times.oracle.read_ts()))
    engine, workers = "embedded", 1
    if cluster is not None:
        engine, workers = engine_of(cluster.size)[0], workers_of(cluster.options)
    name = partial(name_of, context)
    columns = columns_of(context.planner.reader())
    describe = partial(describe_maintenance, engine, relation, name, workers, columns)
    described = await blocking.run(context.engines.executor, describe)
    if engine != "embedded" or workers > 1:
        return described
    own = cluster.options if cluster is not None else {}
    options = {**context.views.compute.clusters.options, **own}
    return f"{described}{hydration(context, relation, options, hydrate)}"
