"""Reading: the rows of a statement's query, in three steps.

  plan        an access path that knows the rows at the time of the read   here
  timestamp   that time, chosen and held                                   bound/timestamp.py
  execute     the rows at that time, by the access path                    bound/bind.py, execute.py

A time in the future is waited for before, and so are row locks (row_locks.py).
"""

from collections.abc import Awaitable, Callable, Collection
from time import perf_counter
from typing import TypeVar

import pyarrow as pa

from foreshore import tracing
from foreshore.adapter.plans.access_path import IndexLookups, IndexRead, PeekPlan
from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.read.bound.bind import (
    NOTHING_GIVEN,
    BoundPeek,
    Given,
    bind_peek,
    call_side_effects,
)
from foreshore.adapter.read.bound.cluster_choice import collections_read, index_of
from foreshore.adapter.read.bound.timestamp import (
    fixed_time,
    read_timestamp,
    requested_time,
    tables_below,
    wait_for_time,
    younger_views,
)
from foreshore.adapter.read.execute import changes, execute, execute_unfinished, open_source
from foreshore.adapter.read.keys.key_lookup import can_look_up
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import RowSource, all_rows
from foreshore.adapter.statement.trace import Trace
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.compute.result import Result
from foreshore.errors import FeatureNotSupported
from foreshore.ids import GlobalId
from foreshore.sql.plan import AsOf
from foreshore.update import Timestamp

R = TypeVar("R")


async def read_result(
    context: StatementContext, as_of: AsOf | None = None, given: Given = NOTHING_GIVEN
) -> Result:
    """Return the finished rows of a statement's query; `given` are collections only it knows."""
    return await _read(context, as_of, given, execute)


async def read_source(
    context: StatementContext, as_of: AsOf | None = None, given: Given = NOTHING_GIVEN
) -> RowSource:
    """Return the finished rows as `read_result` does, perhaps computed as they are taken."""
    return await _read(context, as_of, given, open_source)


async def read_rows(
    context: StatementContext, as_of: AsOf | None = None, given: Given = NOTHING_GIVEN
) -> pa.Table:
    """Return the rows of a query without ORDER BY and LIMIT, in any order and with `__diff`."""
    return await _read(context, as_of, given, execute_unfinished)


async def _read(
    context: StatementContext,
    as_of: AsOf | None,
    given: Given,
    run: Callable[[StatementContext, BoundPeek], Awaitable[R | None]],
) -> R:
    """Return the result of the bound query; if a look-up finds too many rows, without it."""
    found = await run(context, await _bound(context, as_of, given))
    if found is None:
        found = await run(context, await _bound(context, as_of, given, by_key=False))
    assert found is not None
    return found


async def read_batch(context: StatementContext) -> pa.RecordBatch:
    """Return the finished rows of a statement's query as one batch."""
    return await all_rows(await read_result(context))


async def _bound(
    context: StatementContext, as_of: AsOf | None, given: Given, *, by_key: bool = True
) -> BoundPeek:
    """Return the query planned, with its timestamp, and bound: all but executed."""
    as_of = await wait_until_requested(context, as_of)
    plan = await plan_read(context, as_of, by_key=by_key)
    time = read_timestamp(context, plan, as_of)
    found = {each.id: await changes(context, each, time) for each in plan.query.changes}
    bound = await bind_peek(context, plan, time, {**given, **found}, own=as_of is None)
    bound = await call_side_effects(context, bound)
    if context.trace is not None:
        await _wait_for_inputs(context, context.trace, bound)
    elif tracing.is_on:
        with tracing.phase("wait for inputs"):
            await _wait_for_inputs(context, Trace(), bound)
    return bound


async def _wait_for_inputs(context: StatementContext, trace: Trace, bound: BoundPeek) -> None:
    """Wait until the inputs are known at the time of the read, to tell how long that takes."""
    began = perf_counter()
    if bound.plan.shards:
        trace.time = bound.time
    path = bound.path
    read: Collection[GlobalId] = bound.plan.shards
    if isinstance(path, IndexRead):
        read = [path.index]
    elif isinstance(path, IndexLookups):
        read = path.collections
    for id in sorted(read):
        if id in context.times.holds.collections:  # others are new in this transaction
            await context.times.wait_readable(id, bound.time)
    trace.waited += perf_counter() - began


# --- plan ----------------------------------------------------------------------------------


def prepared_peek(prepared: Prepared) -> PeekPlan:
    """Return the plan that was prepared for a statement's query."""
    peek = prepared.made.peek
    assert peek is not None
    return peek


async def wait_until_requested(context: StatementContext, as_of: AsOf | None) -> AsOf | None:
    """Return AS OF with its time as a literal; a time in the future is waited for.

    The statement is then prepared again, as the catalog may have changed meanwhile.
    """
    peek = prepared_peek(context.prepared)
    refuse_past_of_system(peek, as_of)
    requested = requested_time(context, as_of, peek.query.changes)
    if requested is not None and await wait_for_time(
        context, collections_read(context, peek), requested
    ):
        await context.planner.ready(context.prepared)
    return None if as_of is None else requested


def refuse_past_of_system(peek: PeekPlan, as_of: AsOf | None) -> None:
    """Raise FeatureNotSupported if a query AS OF a time reads a system relation."""
    if as_of is not None and (system := BUILTINS.keys() & peek.sources):
        relation = BUILTINS[min(system)]
        raise FeatureNotSupported(
            f'system relation "{relation.schema}.{relation.name}" cannot be read AS OF a time',
            detail="System relations have no history.",
        )


async def plan_read(
    context: StatementContext, as_of: AsOf | None, *, by_key: bool = True
) -> PeekPlan:
    """Return the plan of the query by an access path that knows the rows at its time."""
    plan = prepared_peek(context.prepared)
    if not by_key:
        plan = plan.without_lookups()
    time = fixed_time(context, as_of)
    if by_key and plan.key is not None and await can_look_up(context, plan.key, time):
        return plan
    plan = plan_for_time(context, plan, time, past=as_of is not None)
    transaction = context.transaction
    if as_of is None and transaction.reads_own_writes(tables_below(context, plan.sources)):
        if plan.query.changes:
            raise FeatureNotSupported(
                "CHANGES after writes in the same transaction is not supported"
            )
        return plan.in_process()
    return plan


def plan_for_time(
    context: StatementContext, plan: PeekPlan, time: Timestamp | None, *, past: bool = False
) -> PeekPlan:
    """Return `plan` without key lookup; without indexes if one does not know the rows at `time`.

    None is a time yet to be chosen. The choice considers the indexes. If the time is in the `past`,
    materialized views that do not know it are computed from what does.
    """
    if time is not None:
        if past and (younger := younger_views(context.names, context.times, plan.shards, time)):
            return context.planner.peek_without_indexes(context.prepared, younger)
        used = {index_of(context, id) for id in plan.shards} - plan.shards
        if plan.index is not None:
            used.add(plan.index.index)
        if isinstance(plan.path, IndexLookups):
            used = set(plan.path.collections)
        since = context.times.holds.since
        if any(since(index) > time for index in used):
            return context.planner.peek_without_indexes(context.prepared)
    return plan.without_key()
