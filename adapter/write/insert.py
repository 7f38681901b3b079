"""INSERT, UPDATE, DELETE: what is written is read first, and goes into the transaction.

An INSERT of values reads nothing. The others read at the newest time and are valid only if what
they read has not changed by the time of the write: outside of a block they take the tables they
read until they have committed, inside one the commit checks.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.read.access_path import PeekPlan
from foreshore.adapter.read.bind import NOTHING_GIVEN, Given, bind_peek, call_side_effects
from foreshore.adapter.read.execute import counted_each, execute_unfinished
from foreshore.adapter.read.key_lookup import locked_by_key, locked_rows
from foreshore.adapter.read.pipeline import read_rows, wait_until_requested
from foreshore.adapter.read.result import BatchSource, Outcome, Selected
from foreshore.adapter.read.select import rows_of_init_plans
from foreshore.adapter.read.timestamp import tables_below
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.side_effects import (
    calls_of,
    carried_out,
    carried_out_by_row,
    draws,
)
from foreshore.adapter.write.conflict import insert_on_conflict
from foreshore.adapter.write.key_index import MANY
from foreshore.adapter.write.point import changed_by_key, insert_rows
from foreshore.adapter.write.tables import (
    as_stored,
    checked,
    lock_before_nextval,
    lock_shared_against_ddl,
    plan_of_table,
    require_writable,
    table_desc,
    unique_constraints,
    write_rows,
)
from foreshore.adapter.write.values import (
    MOST_IN_PASSING,
    Row,
    Template,
    Values,
    most_rows,
    table_of_rows,
)
from foreshore.catalog.catalog import Planned
from foreshore.compute.finish import expanded, finish, places_in_order
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear
from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import (
    Get,
    LocalGet,
    OrderKey,
    Relation,
    Scalar,
    columns_of,
    inputs_of,
    with_inputs,
)
from foreshore.ids import GlobalId, is_builtin
from foreshore.rows import count, counted, negated, repeated, split_diffs, table_of
from foreshore.sql.plan import AsOf, ChangedKeys, Delete, Insert, Merge, Query, Update
from foreshore.sql.rewrite.bind_parameters import bind_relation, parameter_bindings
from foreshore.types import ColumnType
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.session.prepared import Prepared

_CHANGED = GlobalId("t0")  # stands for the rows that a RETURNING list is over


async def insert(context: StatementContext, plan: Insert) -> Outcome:
    """Run an INSERT."""
    as_of = None
    if plan.as_of is not None:
        as_of = await wait_until_requested(context, plan.as_of)
        assert isinstance(context.prepared.plan, Insert), context.prepared.plan
        plan = context.prepared.plan
    require_writable(context, "INSERT", plan.table)
    planned = plan_of_table(context, plan.table)
    await lock_shared_against_ddl(context, plan.table)
    peek = context.prepared.peek
    if peek is not None and peek.reads_nothing and peek.draws:
        whole = plan.on_conflict is not None and not _is_few(context.prepared, peek)
        await lock_before_nextval(context, plan.table, planned, whole=whole)
    few = (
        None
        if context.prepared.template is None
        else await _rows_of(context, context.prepared.template)
    )
    if few is None or plan.row_outputs or plan.order_by:
        rows = await _new_rows(context, plan, planned, few, as_of)
    else:
        rules = context.prepared.rules
        desc = table_desc(context, plan.table) if rules is None else rules.planned.desc
        values = Values.coming(desc, few)
        if (
            rules is not None
            and plan.on_conflict is None
            and len(few) <= MOST_IN_PASSING
            and await insert_rows(context, plan.table, rules, values)
        ):
            return await _written(context, "INSERT 0", plan.returning, values)
        rows = values.table()
    if plan.on_conflict is not None:
        rows = await insert_on_conflict(context, plan, plan.on_conflict, planned, rows)
        return await returned_rows(context, "INSERT 0", plan.returning, rows)
    rows = checked(context, plan.table, rows)
    await write_rows(context, plan.table, planned, rows)
    return await returned_rows(context, "INSERT 0", plan.returning, rows)


async def _new_rows(
    context: StatementContext,
    plan: Insert,
    planned: Planned,
    few: list[Row] | None,
    as_of: AsOf | None,
) -> pa.Table:
    """Return the rows, with `__diff`, that are to go into the table, numbered in their order.

    The table is what was `planned`. `few` are the rows of the source, if they have been made.
    """
    if few is None:
        found = await rows_of_init_plans(context)
        rows = await written_rows(context, (plan.table,), found, as_of=as_of)
    else:
        rows = table_of_rows(few, columns_of(plan.source))
    if plan.order_by:
        rows = await _in_order(context, rows, plan.order_by)
    if draws(calls_of(plan.row_outputs)):
        whole = plan.on_conflict is not None and count(rows) > MANY
        await lock_before_nextval(context, plan.table, planned, whole=whole)
    if plan.row_outputs:
        return await with_numbers(context, rows, plan.row_outputs)
    columns, diffs = split_diffs(rows)
    width = len(planned.desc.names)
    return rows if len(columns) == width else table_of(columns[:width], diffs)


async def _in_order(
    context: StatementContext, rows: pa.Table, order_by: tuple[OrderKey, ...]
) -> pa.Table:
    """Return each of `rows`, with `__diff`, as often as that says, in order."""

    def ordered() -> pa.Table:
        single = repeated(rows)
        batch = expanded(single)
        return single.take(pa.array(places_in_order(batch, order_by)))

    if rows.num_rows <= MOST_IN_PASSING:
        return ordered()
    with context.interrupts.running():
        return await blocking.run(context.coordinator.executor, ordered)


def _is_few(prepared: "Prepared", peek: PeekPlan) -> bool:
    """Whether the plan says that it makes no more rows than have locks of their own."""
    template = prepared.template
    most = most_rows(peek.query.relation) if template is None else len(template.cells)
    return most is not None and most <= MANY


async def _rows_of(context: StatementContext, template: Template) -> list[Row] | None:
    """Return the rows of a template; None if that is too much to be done in passing."""
    given = template.givens.values(context.args, context.environment_values(_now(context)))
    if template.calls:
        found = await carried_out(context, template.calls)
        given += [found[call].value for call in template.calls]
    if template.is_large(given):
        return None
    if len(template.cells) <= MOST_IN_PASSING:
        return template.rows(given)
    with context.interrupts.running():
        return await blocking.run(None, template.rows, given)


def _now(context: StatementContext) -> Timestamp:
    """Return what mz_now() is where nothing is read that would decide it."""
    time = context.transaction.time
    return context.coordinator.oracle.read_ts() if time is None else time


async def update(context: StatementContext, plan: Update) -> Outcome:
    """Run an UPDATE."""
    require_writable(context, "UPDATE", plan.table)
    planned = plan_of_table(context, plan.table)
    if context.prepared.point is not None:
        changed = await changed_by_key(context, context.prepared.point)
        if changed is not None:
            return await _written(context, "UPDATE", plan.returning, changed[1])
    both = await changing_rows(context, plan)
    if draws(calls_of(plan.row_outputs)):
        await lock_before_nextval(context, plan.table, planned)
    if plan.row_outputs:
        both = await with_numbers(context, both, plan.row_outputs)
    columns, diffs = split_diffs(both)
    width = len(table_desc(context, plan.table).names)
    old = as_stored(context, plan.table, table_of(columns[:width], diffs))
    new = checked(context, plan.table, table_of(columns[width : 2 * width], diffs))
    await write_rows(context, plan.table, planned, negated(old), new)
    new = _beside(new, columns[2 * width :])
    return await returned_rows(context, "UPDATE", plan.returning, new)


async def delete(context: StatementContext, plan: Delete) -> Outcome:
    """Run a DELETE."""
    require_writable(context, "DELETE", plan.table)
    planned = plan_of_table(context, plan.table)
    if context.prepared.point is not None:
        changed = await changed_by_key(context, context.prepared.point, deleting=True)
        if changed is not None:
            gone = Values.coming(changed[0].desc, changed[0].rows)
            return await _written(context, "DELETE", plan.returning, gone)
    rows = await changing_rows(context, plan)
    columns, diffs = split_diffs(rows)
    width = len(table_desc(context, plan.table).names)
    gone = as_stored(context, plan.table, table_of(columns[:width], diffs))
    await write_rows(context, plan.table, planned, negated(gone))
    gone = _beside(gone, columns[width:])
    return await returned_rows(context, "DELETE", plan.returning, gone)


async def _written(
    context: StatementContext,
    verb: str,
    returning: Query | None,
    values: Values,
) -> Outcome:
    if returning is None:
        return Completed(f"{verb} {values.num_rows}")
    return await returned_rows(context, verb, returning, values.table())


def _beside(rows: pa.Table, others: Sequence[pa.Array]) -> pa.Table:
    """Return rows with `__diff`, and before that the columns `others` of the same rows."""
    if not others:
        return rows
    columns, diffs = split_diffs(rows)
    return table_of([*columns, *others], diffs)


async def written_rows(
    context: StatementContext,
    targets: Sequence[GlobalId],
    given: Given = NOTHING_GIVEN,
    *,
    locking: bool = False,
    keys: ChangedKeys | None = None,
    as_of: AsOf | None = None,
) -> pa.Table:
    """Return the rows, with `__diff`, that a statement is about to write; it knows those `given`.

    Where `keys` say which rows of the one of `targets` these come from, only those are locked and
    read. What is read `as_of` a time that has come does not change any more, and nothing is locked
    for it.
    """
    if as_of is not None:
        return await read_rows(context, as_of)
    transaction = context.transaction
    coordinator = context.coordinator
    peek = context.prepared.peek
    assert peek is not None
    if peek.reads_nothing:
        bound = await bind_peek(context, peek, _now(context), given)
        return await execute_unfinished(context, await call_side_effects(context, bound))
    if transaction.time is None:  # what is written follows from the newest, at any isolation
        transaction.isolation = "strict serializable"
    if peek.key is not None:
        found = await locked_by_key(context, peek)
        if found is not None:
            return found[0]
    if keys is not None:
        rows = await _rows_by_key(context, peek, targets[0], keys, given)
        if rows is not None:
            return rows
    tables = {id for id in tables_below(context, peek.sources) if not is_builtin(id)}
    # Who has locked something already does not wait for tables: those who do would wait for it.
    if not transaction.block and transaction.time is None:
        tables |= set(targets) if locking else set()
        await coordinator.locks.acquire(tables & coordinator.state.objects.keys(), transaction)
    return await read_rows(context, None, given)


async def changing_rows(context: StatementContext, plan: Update | Delete | Merge) -> pa.Table:
    """Return the rows of the selection of a statement that changes rows, which are locked."""
    found = await rows_of_init_plans(context)
    return await written_rows(context, (plan.table,), found, locking=True, keys=plan.keys)


async def _rows_by_key(
    context: StatementContext,
    peek: PeekPlan,
    table: GlobalId,
    changed: ChangedKeys,
    given: Given,
) -> pa.Table | None:
    """Return what a query over the rows under some keys of a table gives; they are locked.

    None, if they do not have all columns of a key, or are more than are locked one by one.
    """
    coordinator, transaction = context.coordinator, context.transaction
    if table not in coordinator.state.objects or not can_evaluate_locally(changed.source):
        return None
    constraint = next(
        (
            each
            for each in unique_constraints(plan_of_table(context, table))
            if set(each.columns) <= set(changed.columns)
        ),
        None,
    )
    if constraint is None:
        return None
    source = bind_relation(changed.source, context.bindings(coordinator.oracle.read_ts()))
    columns, _ = split_diffs(evaluate_linear(source, counted_each(given)))
    columns = [columns[changed.columns.index(i)] for i in constraint.columns]
    named = pa.table(columns, names=[str(i) for i in constraint.columns])
    present = named.drop_null()
    if present.num_rows > MANY:
        return None
    keys = [column.combine_chunks() for column in present.columns]
    rows = await locked_rows(context, table, constraint, keys)
    if rows is None:
        return None
    time = transaction.time
    assert time is not None
    is_whole = set(changed.columns) == set(constraint.columns)
    if changed.under is not None and is_whole and not (changed.single and named.num_rows > 1):
        under = bind_relation(changed.under, context.bindings(time))
        if can_evaluate_locally(under):
            return evaluate_linear(under, {table: counted(rows)})
    bound = await bind_peek(context, peek.in_process(), time, {**given, table: rows})
    return await execute_unfinished(context, bound)


async def with_numbers(
    context: StatementContext, rows: pa.Table, over: Sequence[Scalar]
) -> pa.Table:
    """Return what `over`, if there is any, makes of rows that are about to be written."""
    if not over:
        return rows
    now = context.coordinator.oracle.read_ts()
    return await carried_out_by_row(
        context, rows, over, parameter_bindings(context.args, context.environment_values(now))
    )


async def returned_rows(
    context: StatementContext,
    verb: str,
    returning: Query | None,
    rows: pa.Table,
) -> Outcome:
    """Return how many `rows` have been changed, or what RETURNING gives of them."""
    if returning is None:
        return Completed(f"{verb} {count(rows)}")
    columns = tuple(ColumnType(each.type) for each in returning_columns(returning.relation))
    relation = over_rows(returning.relation, columns)
    replace = parameter_bindings(
        context.args, context.environment_values(context.coordinator.oracle.read_ts())
    )
    relation = bind_relation(relation, replace)
    if not can_evaluate_locally(relation):
        raise FeatureNotSupported("subqueries in RETURNING are not supported")
    result = expanded(evaluate_linear(relation, {_CHANGED: rows}), returning.finishing)
    return Selected(returning.desc, BatchSource(finish(result, returning.finishing)), verb)


def returning_columns(relation: Relation) -> tuple[ColumnType, ...]:
    """Return the columns of the rows that a RETURNING list is over."""
    stack = [relation]
    while stack:
        node = stack.pop()
        if isinstance(node, LocalGet) and node.number == 0:
            return node.columns
        stack.extend(inputs_of(node))
    return ()


def over_rows(relation: Relation, columns: tuple[ColumnType, ...]) -> Relation:
    """Return `relation` with the changed rows' LocalGet made a Get."""
    if isinstance(relation, LocalGet) and relation.number == 0:
        return Get(_CHANGED, columns)
    return with_inputs(relation, tuple(over_rows(each, columns) for each in inputs_of(relation)))
