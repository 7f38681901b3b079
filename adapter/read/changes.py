"""CHANGES(...): the updates of a shard between two times, as rows of a query."""

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.read.scalar_values import timestamp_of
from foreshore.adapter.session.context import StatementContext
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.engine import output_schema, rows_schema
from foreshore.compute.replica.inputs import conform
from foreshore.errors import InvalidParameterValue, UndefinedObject
from foreshore.sql.plan import Changes
from foreshore.types import ColumnType
from foreshore.update import Timestamp


async def changes(context: StatementContext, plan: Changes, time: Timestamp) -> pa.Table:
    """Return the changes for a query that reads at `time`: consolidated, in the plan's columns.

    Raises InvalidParameterValue for bounds outside of the readable times.
    """
    coordinator = context.coordinator
    await coordinator.wait_readable(plan.of, time)
    through = time if plan.through is None else timestamp_of(context, plan.through, time)
    await coordinator.compute.maintained.errors_known([plan.of], min(through, time))
    if plan.of not in coordinator.holds.collections:
        raise UndefinedObject(f'"{plan.name}" was dropped')
    since, altered = coordinator.since(plan.of), coordinator.altered(plan.of)
    change = context.transaction.catalog
    if change is not None and plan.of in change.constrained_since:
        since = altered = max(since, change.constrained_since[plan.of])
    after = since if plan.after is None else timestamp_of(context, plan.after, time)
    ends = f'"{plan.name}" was altered at {since}: its history before is not kept.'
    if after < since or through > time:
        raise InvalidParameterValue(
            f'the changes of "{plan.name}" after {after} through {through} cannot be read',
            detail=f"They can be read after {since} through {time}."
            + (f" {ends}" if after < since == altered else ""),
        )
    if plan.after is None and since == altered:
        context.notice(ends, hint="CHANGES tells what came after that.")
    if after > through:
        raise InvalidParameterValue(f"CHANGES after {after} cannot end at {through}")
    await coordinator.compute.maintained.check_errors([plan.of], after, through)
    read, _ = coordinator.capabilities_of(plan.of)
    found = await coordinator.storage.changes(read, after, through)
    return await blocking.run(None, _rows, found, plan.columns)


def _rows(updates: pa.Table, columns: tuple[ColumnType, ...]) -> pa.Table:
    own = columns[2:]
    updates = conform(updates, output_schema(own))
    if updates.num_rows > 1 and own:
        updates = consolidate(updates, rows_schema(own), 0)
    *body, times, diffs = updates.columns
    return pa.Table.from_arrays([times, diffs, *body], schema=rows_schema(columns))
