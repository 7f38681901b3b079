"""The rows of an INSERT: of VALUES as compiled tuples, or of a query."""

from collections.abc import Sequence

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.read.pipeline import prepared_peek
from foreshore.adapter.read.select import rows_of_init_plans
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.side_effects import call_nextval, results_of
from foreshore.adapter.write.source import selection, with_row_outputs
from foreshore.adapter.write.target import Target, lock_before_nextval
from foreshore.adapter.write.template import MOST_IN_PASSING, Template, most_rows
from foreshore.compute.finish import expanded, places_in_order
from foreshore.compute.keys.layout import MANY
from foreshore.errors import DataError
from foreshore.expr.cost import LIGHT, cost_of_call, size_of
from foreshore.expr.ir import OrderKey, columns_of
from foreshore.rows import count, counted, repeated, split_diffs
from foreshore.sql.plan import AsOf, Insert
from foreshore.table_rows import Row, TableRows, columns_of_rows
from foreshore.types import Datum


async def inserted_rows(
    context: StatementContext, plan: Insert, target: Target, as_of: AsOf | None
) -> TableRows:
    """Return the rows of an INSERT in the columns of its target, in their order."""
    template = context.prepared.template
    if _draws(context):
        whole = plan.on_conflict is not None and not _is_few(context)
        await lock_before_nextval(context, target, whole=whole)
    tuples = None if template is None else await _template_rows(context, template)
    if tuples is not None and not plan.row_outputs and not plan.order_by:
        return TableRows.inserted(target.desc, tuples)
    if tuples is not None:
        columns = columns_of_rows(tuples, columns_of(plan.source))
        rows = counted(pa.table(columns, names=[f"c{i}" for i in range(len(columns))]))
    else:
        found = await rows_of_init_plans(context)
        rows = await selection(context, (target.id,), found, as_of=as_of)
    if plan.order_by:
        rows = await _in_order(context, rows, plan.order_by)
    whole = plan.on_conflict is not None and count(rows) > MANY
    rows = await with_row_outputs(context, rows, plan.row_outputs, target, whole=whole)
    columns, diffs = split_diffs(rows)
    return TableRows.of_columns(target.desc, columns[: target.width], diffs)


def _draws(context: StatementContext) -> bool:
    """Whether the rows read nothing but call nextval, once for each place in the text."""
    template, peek = context.prepared.template, context.prepared.peek
    if template is not None:
        return bool(template.calls) and call_nextval(template.calls)
    return peek is not None and peek.reads_nothing and peek.calls_nextval


def _is_few(context: StatementContext) -> bool:
    """Whether the rows are known to be few enough to lock their keys one by one."""
    template = context.prepared.template
    if template is not None:
        return len(template.cells) <= MANY
    most = most_rows(prepared_peek(context).query.relation)
    return most is not None and most <= MANY


async def _template_rows(context: StatementContext, template: Template) -> list[Row] | None:
    """Return the rows of a template; None if they take too long to make on the event loop."""
    given = template.givens.values(context.args, context.environment_values(context.now))
    if template.calls:
        found = await results_of(context, template.calls)
        given += [found[call].value for call in template.calls]
    if _is_large(template, given):
        return None
    if len(template.cells) <= MOST_IN_PASSING:
        return rows_of_template(template, given)
    with context.interrupts.running():
        return await blocking.run(None, rows_of_template, template, given)


def rows_of_template(template: Template, given: Sequence[Datum]) -> list[Row]:
    """Return the rows of a template over the values of its givens and calls; raises DataError."""
    return [tuple([cell(given) for cell in row]) for row in template.cells]


def _is_large(template: Template, given: Sequence[Datum]) -> bool:
    """Whether a value in the rows may take too long to make on the event loop."""
    if template.computes and sum(map(size_of, given)) > LIGHT:
        return True
    try:  # the arguments of other functions come first, so they are known to be short
        for key, args in template.demanding:
            values = [arg(given) for arg in args]
            if sum(cost_of_call(key, values, [*map(size_of, values)])) > LIGHT:
                return True
    except DataError:  # in a value that the rows may not need
        return True
    return False


async def _in_order(
    context: StatementContext, rows: pa.Table, order_by: tuple[OrderKey, ...]
) -> pa.Table:
    """Return each of `rows`, with `__diff`, as often as that says, in order."""

    def ordered() -> pa.Table:
        single = repeated(rows)
        return single.take(pa.array(places_in_order(expanded(single), order_by)))

    if rows.num_rows <= MOST_IN_PASSING:
        return ordered()
    with context.interrupts.running():
        return await blocking.run(context.coordinator.executor, ordered)
