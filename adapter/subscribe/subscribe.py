"""SUBSCRIBE: give the contents of a query as of one time, then every change at its own time.

This file plans: it chooses the time, what the subscription is of, and how its rows are made. A
table or a materialized view is read from its shard and an indexed view from its index; Map, Filter
and Project over these are done here, once for all equal statements. Any other query has a dataflow.
"""

import pyarrow as pa

from foreshore.adapter.plans.access_path import PeekPlan
from foreshore.adapter.read.bound.bind import bind_peek, timestamp_of
from foreshore.adapter.read.bound.cluster_choice import answering_cluster
from foreshore.adapter.read.bound.timestamp import choose, notify_of_waiting, younger_views
from foreshore.adapter.services.changelogs import Source
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, RowSource, Selected
from foreshore.adapter.subscribe.positions import start_from_position
from foreshore.adapter.subscribe.subscriber import Request, Subscriber
from foreshore.catalog.builtin.registry import refuse_system_inputs
from foreshore.catalog.item import Item
from foreshore.catalog.watch import Usage, Watch, policies_of
from foreshore.compute.envelope import Form, Rendering
from foreshore.compute.local.linear import can_evaluate_locally, evaluated
from foreshore.compute.subscription_states import end_of_constant
from foreshore.errors import FeatureNotSupported, InvalidParameterValue
from foreshore.expr.ir import Get, Literal, Relation, single_input
from foreshore.expr.recursion import may_fail
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.sql.plan import AsOf, Subscribe
from foreshore.storage.selection import ALL, pushed_down
from foreshore.types import MZ_TIMESTAMP
from foreshore.update import at_time


async def subscribe(context: StatementContext, plan: Subscribe) -> Selected:
    """Run a SUBSCRIBE."""
    if context.transaction.has_effects:
        raise FeatureNotSupported("SUBSCRIBE after writes in the same transaction is not supported")
    peek = _peek(context, plan)
    read = {peek.index.index} if peek.index is not None else peek.shards
    context.views.compute.maintained.check_not_corrupt(read)
    beginning, snapshot = plan.as_of, plan.snapshot
    if plan.subscription is not None:
        position = start_from_position(context, plan.subscription)
        beginning = AsOf(Literal(position.as_of, MZ_TIMESTAMP))
        snapshot = not position.confirmed if snapshot is None else snapshot
    assert snapshot is not None, plan
    as_of = choose(context, sorted(read), beginning, onwards=True).time
    notify_of_waiting(context, read, as_of)
    until = None if plan.up_to is None else timestamp_of(context, plan.up_to)
    if until is not None and until < as_of:
        raise InvalidParameterValue(
            f"UP TO {until} is before AS OF {as_of}", detail="Nothing could come of it."
        )
    relation = (await bind_peek(context, peek, as_of)).block.relation
    form = Form(plan.envelope, plan.progress, plan.query.desc.columns, plan.desc)
    # A durable subscription that goes on from its position begins there, not at AS OF.
    progress_from = as_of if snapshot or plan.subscription is None else as_of + 1
    rows: RowSource
    if as_of == until:
        rows = _batch_of([])
    elif not peek.shards and can_evaluate_locally(relation):
        end = end_of_constant(as_of, context.times.oracle.read_ts())
        rendering = Rendering(None, form)
        pieces = list(rendering.progress(progress_from))
        if snapshot:
            found = await evaluated(context.engines.executor, relation, {}, is_large=peek.is_large)
            pieces += rendering.rows(at_time(found, as_of))
        pieces += rendering.progress(end if until is None else min(end, until))
        rows = _batch_of(pieces)
    else:
        source, over = _source(context, peek, relation)
        selection, rest = pushed_down(relation) if source.is_shard else (ALL, None)
        constrained = _constrained(context, plan, peek)
        request = Request(
            source, over, form, as_of, until, snapshot,
            progress_from, constrained, context.pid, selection, rest, _watch(context),
        )  # fmt: skip
        rows = Subscriber(context.times, context.tables, context.views, request)
    return Selected(plan.desc, rows, "SUBSCRIBE")


def _watch(context: StatementContext) -> Watch:
    """Return the rights that the subscription needs as long as it runs."""
    state, role, needs = context.planner.state, context.role.id, context.prepared.made.needs
    cluster = state.cluster(context.cluster)
    return Watch(
        role,
        needs,
        () if cluster is None else (Usage(cluster.id),),
        policies_of(state, role, needs),
    )


def _batch_of(pieces: list[pa.RecordBatch]) -> BatchSource:
    empty = pa.RecordBatch.from_arrays([], names=[])
    return BatchSource(pa.concat_batches(pieces) if pieces else empty)


def _peek(context: StatementContext, plan: Subscribe) -> PeekPlan:
    """Return the plan of the query, without an index that it cannot subscribe to as of the time."""
    peek = context.prepared.made.peek
    assert peek is not None
    refuse_system_inputs(peek.path.relation, "SUBSCRIBE")
    if plan.as_of is not None and not plan.as_of.at_least:
        time = timestamp_of(context, plan.as_of.time)
        younger = younger_views(context.names, context.times, peek.shards, time)
        if younger:
            return context.planner.peek_without_indexes(context.prepared, younger)
    if peek.index is None:
        return peek
    usable = _infallible_input(peek.path.relation) is not None
    if usable and plan.as_of is not None and not plan.as_of.at_least:
        since = context.times.holds.since(peek.index.index)
        usable = timestamp_of(context, plan.as_of.time) >= since
    return peek if usable else context.planner.peek_without_indexes(context.prepared)


def _constrained(context: StatementContext, plan: Subscribe, peek: PeekPlan) -> frozenset[GlobalId]:
    """Return the tables whose constraints the plan may need, also those that it does not read.

    A subscription to a table itself needs none.
    """
    state = context.planner.state
    named = set(context.prepared.made.used)
    if plan.is_of_relation and not any(
        isinstance(item := state.get(id), Item) and item.type != "table" for id in named
    ):
        return frozenset()
    if plan.subscription is not None:
        named.update(state.item(plan.subscription).depends_on)
    return frozenset(state.tables_named([*named, *peek.sources]))


def _source(
    context: StatementContext, peek: PeekPlan, relation: Relation
) -> tuple[Source, Relation | None]:
    """Return what to subscribe to for `relation`, and what remains to be done over its updates."""
    below = _infallible_input(relation)
    if below is not None and below.id in context.tables.capabilities:
        return Source(Get(below.id, ()), frozenset({below.id})), relation
    cluster = answering_cluster(context).id
    if below is not None and peek.index is not None:
        index = peek.index.index
        return Source(below, frozenset({index}), cluster, index), relation
    memory = context.variables.settings.most_memory
    return Source(relation, sources_of(relation), cluster, memory=memory), None


def _infallible_input(relation: Relation) -> Get | None:
    """Return the collection if `relation` is Map, Filter and Project over one that cannot fail."""
    return None if may_fail(relation) else single_input(relation)
