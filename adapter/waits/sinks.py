"""WAIT FOR SINKS: whether what was written has arrived in other systems."""

import asyncio
from functools import partial

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.read.bound.bind import timestamp_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.waits.recency import wait_for_sources
from foreshore.adapter.waits.stalled import attended
from foreshore.catalog.item import Item
from foreshore.errors import (
    ActiveSqlTransaction,
    DataError,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.sql.plan import WaitForSinks
from foreshore.update import Timestamp


async def wait_for_sinks(context: StatementContext, plan: WaitForSinks) -> Completed:
    """Return when the targets have all changes of what was committed until a time.

    That is the given time, or else the present, which all acknowledged writes are before. With
    `real_time_recency`, what external systems have now is waited for first. A sink that stalls is
    told by a notice, and tried at once. Raises ObjectNotInPrerequisiteState if it does not get on
    before somebody acts, UndefinedObject if one that was named is dropped.
    """
    if context.transaction.block or context.transaction.has_effects:
        raise ActiveSqlTransaction(
            "WAIT cannot run inside a transaction block",
            hint="What the transaction has changed is in no sink before it commits.",
        )
    sinks = _sinks(context, plan)
    if context.variables.settings.waits_for_sources:
        await wait_for_sources(context, [id for sink in sinks for id in sink.depends_on])
    if plan.as_of is not None:
        time = timestamp_of(context, plan.as_of.time)
    else:
        time = context.times.oracle.read_ts()
    is_named, is_present = plan.sinks is not None, plan.as_of is None
    written = partial(_written, context, time, is_named=is_named, is_present=is_present)
    try:
        with context.interrupts.running():
            async with asyncio.TaskGroup() as tasks:
                for sink in sinks:
                    tasks.create_task(written(sink))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return Completed("WAIT")


async def _written(
    context: StatementContext, time: Timestamp, sink: Item, *, is_named: bool, is_present: bool
) -> None:
    """Wait until the target of a sink has all changes up to `time`, or the sink is dropped."""
    exports = context.feeds.exports
    try:
        if not exports.has_written(sink.id, time):
            async with attended(context, exports.controller, sink.id):
                await exports.wait_for(sink.id, time)
        if is_present:  # of an earlier time it may not be known any more
            await exports.check_relation(sink.id, time)
    except UndefinedObject:
        if is_named:
            raise UndefinedObject(f'sink "{sink.name}" was dropped') from None
    except DataError as error:  # without a change of the rows, which the sink would stall for
        raise ObjectNotInPrerequisiteState(
            f'sink "{sink.name}" cannot write its relation: {error.message}', hint=error.hint
        ) from None


def _sinks(context: StatementContext, plan: WaitForSinks) -> list[Item]:
    if plan.sinks is None:
        return [item for item in context.names.state.all(Item) if item.sink]
    found = []
    for name in plan.sinks:
        item = find_if_exists(
            context.planner, context.notice, "sink", name, if_exists=False, altered=True
        )
        assert isinstance(item, Item), item
        found.append(item)
    return found
