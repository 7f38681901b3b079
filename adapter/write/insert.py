"""INSERT: rows of VALUES, compiled to tuples, or of a query; they are checked, then staged."""

from collections.abc import Sequence
from concurrent.futures import Executor

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.calls.side_effects import values_of_calls
from foreshore.adapter.plans.target import Target
from foreshore.adapter.read.bound.bind import timestamp_of
from foreshore.adapter.read.bound.timestamp import FAR_AHEAD_MS
from foreshore.adapter.read.pipeline import wait_until_requested
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import require_single
from foreshore.adapter.statement.result import Outcome
from foreshore.adapter.write.on_conflict import stage_on_conflict
from foreshore.adapter.write.returning import outcome_of
from foreshore.adapter.write.row_checks import require_policies
from foreshore.adapter.write.source import rows_to_write, rows_with_diffs, with_row_outputs
from foreshore.adapter.write.stage import checked
from foreshore.adapter.write.stage_changes import stage
from foreshore.adapter.write.target import lock_before_nextval, lock_shared_against_ddl, target_of
from foreshore.compute.finish import expanded, places_in_order
from foreshore.compute.keys.layout import MANY
from foreshore.errors import InvalidParameterValue
from foreshore.expr.ir import OrderKey
from foreshore.rows import count, repeated, split_diffs
from foreshore.sql.plan import AsOf, Insert
from foreshore.sql.rewrite.values_template import MOST_IN_PASSING, Template, most_rows
from foreshore.table_rows import Row, TableRows


async def insert(context: StatementContext, plan: Insert) -> Outcome:
    """Run an INSERT."""
    as_of = None
    if plan.as_of is not None:
        if plan.constant:
            await _wait_to_write(context, plan.as_of)
        else:
            as_of = await wait_until_requested(context, plan.as_of)
        assert isinstance(context.prepared.made.plan, Insert), context.prepared.made.plan
        plan = context.prepared.made.plan
    target = target_of(context, plan.table, "INSERT")
    if context.tables.locks.altering or context.session.transactions.met_alter:
        await lock_shared_against_ddl(context, target)
    rows, counts = await _rows(context, plan, target, as_of)
    if plan.checks:
        await require_policies(context, target, plan.checks, rows)
    rows = checked(context, target, rows)
    if plan.on_conflict is None:
        await stage(context, target, inserted=rows)
    else:
        rows, counts = await stage_on_conflict(context, target, plan.on_conflict, rows, counts)
    return await outcome_of(context, "INSERT 0", plan.returning, rows, counts)


async def _wait_to_write(context: StatementContext, as_of: AsOf) -> None:
    """Wait for the time from which the rows are to be there; what follows commits later.

    Raises InvalidParameterValue if it has passed: what was read already stays as it was.
    """
    time, now = timestamp_of(context, as_of.time), context.times.oracle.read_ts()
    if time <= now:
        if as_of.at_least:
            return
        raise InvalidParameterValue(
            f"cannot write as of {time}, because the time has passed",
            detail=f"The present time is {now}.",
            hint="Give a time to come, or AS OF AT LEAST.",
        )
    if time - now > FAR_AHEAD_MS:
        context.notice(
            f"waiting for time {time}, which is {(time - now) / 1000:.0f} seconds ahead",
            hint="Times are milliseconds since 1970, or of type timestamptz.",
            now=True,
        )
    await context.tables.group.reached(time)
    await context.planner.ready(context.prepared)


async def _rows(
    context: StatementContext, plan: Insert, target: Target, as_of: AsOf | None
) -> tuple[TableRows, Sequence[int]]:
    """Return the rows in the columns of the target, in order, and how many each execution has."""
    peek, template = context.prepared.made.peek, context.prepared.made.programs.template
    if peek is not None and peek.reads_nothing and peek.calls_nextval:
        most = None if plan.on_conflict is None else most_rows(peek.query.relation)
        whole = plan.on_conflict is not None and (most is None or most > MANY)
        await lock_before_nextval(context, target, whole=whole)
    found = None if template is None else await _rows_of_template(context, template)
    if found is not None:
        return TableRows(target.desc, found[0]), found[1]
    rows = await rows_to_write(context, (target.id,), as_of=as_of)
    if not isinstance(rows, pa.Table):
        if not plan.order_by and not plan.row_outputs:
            return TableRows(target.desc, rows), (len(rows),)
        rows = rows_with_diffs(context, rows)
    if plan.order_by:
        rows = await _in_order(context.engines.executor, rows, plan.order_by)
    whole = plan.on_conflict is not None and count(rows) > MANY
    rows = await with_row_outputs(context, rows, plan.row_outputs, target, whole=whole)
    columns, diffs = split_diffs(rows)
    made = TableRows.of_columns(target.desc, columns[: target.width], diffs)
    return made, (made.num_rows,)


async def _rows_of_template(
    context: StatementContext, template: Template
) -> tuple[list[Row], list[int]] | None:
    """Return the rows of a template, and how many each execution has.

    None if they take too long to make on the event loop.
    """
    names = template.givens.names
    value = context.session_value(context.now) if names else None
    rows: list[Row] = []
    counts: list[int] = []
    for args in context.many:
        given = template.givens.values(args, value)
        if template.calls:
            given += await values_of_calls(context, template.calls)
        if len(rows) > MANY or (not template.is_bounded and template.is_large(given)):
            require_single(context, len(counts))
            return None
        if len(template.cells) <= MOST_IN_PASSING:
            rows += template.rows(given)
        else:
            rows += await blocking.run(None, template.rows, given)
        counts.append(len(template.cells))
    return rows, counts


async def _in_order(executor: Executor, rows: pa.Table, order_by: tuple[OrderKey, ...]) -> pa.Table:
    """Return each of `rows`, with `__diff`, as often as that says, in order."""

    def ordered() -> pa.Table:
        single = repeated(rows)
        return single.take(pa.array(places_in_order(expanded(single), order_by)))

    if rows.num_rows <= MOST_IN_PASSING:
        return ordered()
    return await blocking.run(executor, ordered)
