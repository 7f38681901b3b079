"""The rows of the query of a statement that writes: those to be changed are locked.

The rows under a few keys are locked by these. Any other query reads at the newest time: outside of
a block it locks the tables that it reads until it has committed, inside of one the commit checks
that they have not changed.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from foreshore.adapter.calls.side_effects import results_by_row
from foreshore.adapter.plans.access_path import PeekPlan
from foreshore.adapter.plans.calls import call_nextval, calls_of
from foreshore.adapter.plans.target import Target
from foreshore.adapter.read.bound.bind import (
    BoundPeek,
    Given,
    bind_peek,
    call_side_effects,
    counted_each,
)
from foreshore.adapter.read.bound.in_process import grows_long_values
from foreshore.adapter.read.bound.timestamp import tables_below
from foreshore.adapter.read.execute import computed
from foreshore.adapter.read.keys.key_lookup import locked_by_key, locked_rows, rows_over
from foreshore.adapter.read.keys.locked_rows import locked_rows as locked_tuples
from foreshore.adapter.read.keys.read_rows import rows_by_keys
from foreshore.adapter.read.pipeline import prepared_peek, read_rows
from foreshore.adapter.read.select import rows_of_init_plans
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.write.target import lock_before_nextval, target_of
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.keys.layout import MANY
from foreshore.compute.local.linear import can_evaluate_locally, evaluate_linear
from foreshore.constraint import Unique
from foreshore.expr.block import Block
from foreshore.expr.cost import is_long
from foreshore.expr.ir import Scalar
from foreshore.ids import GlobalId, is_builtin
from foreshore.rows import counted, split_diffs, table_of
from foreshore.sql.plan import AsOf, ChangedKeys
from foreshore.sql.rewrite.bind_parameters import bind_block, bind_relation
from foreshore.table_rows import Row, columns_of_rows
from foreshore.types import RelationDesc
from foreshore.update import TIME, at_time


async def queried_rows(
    context: StatementContext,
    targets: Sequence[GlobalId],
    *,
    locking: bool = False,
    keys: ChangedKeys | None = None,
    as_of: AsOf | None = None,
) -> pa.Table:
    """Return what `selected_rows` does as columns, with `__diff`."""
    rows = await selected_rows(context, targets, locking=locking, keys=keys, as_of=as_of)
    return rows if isinstance(rows, pa.Table) else rows_with_diffs(context, rows)


def rows_with_diffs(context: StatementContext, rows: Sequence[Row]) -> pa.Table:
    """Return rows of a statement's query as columns, with `__diff`."""
    columns = columns_of_rows(rows, prepared_peek(context.prepared).query.desc.columns)
    return table_of(columns, pa.array(np.ones(len(rows), np.int64)))


async def rows_to_write(
    context: StatementContext,
    targets: Sequence[GlobalId],
    *,
    locking: bool = False,
    keys: ChangedKeys | None = None,
    as_of: AsOf | None = None,
) -> pa.Table | list[Row]:
    """Return what `selected_rows` does, if it can be by a program over rows that are locked."""
    read = context.prepared.made.programs.locked_read if as_of is None else None
    found = None if read is None else await locked_tuples(context, read)
    if found is None:
        return await selected_rows(context, targets, locking=locking, keys=keys, as_of=as_of)
    (rows,) = found[1]
    return rows


async def selected_rows(
    context: StatementContext,
    targets: Sequence[GlobalId],
    *,
    locking: bool = False,
    keys: ChangedKeys | None = None,
    as_of: AsOf | None = None,
) -> pa.Table | list[Row]:
    """Return the rows of the query of a statement that writes them to `targets`.

    They are tuples, or columns with `__diff`. With `locking` they are rows of the target to be
    changed. Where `keys` determine these, only those are locked and read. What is read `as_of` a
    time in the past does not change any more, and nothing is locked for it.
    """
    programs = context.prepared.made.programs
    given = await rows_of_init_plans(context)
    if as_of is not None:
        return await read_rows(context, as_of, given)
    transaction, peek = context.transaction, prepared_peek(context.prepared)
    if peek.reads_nothing:
        bound = await bind_peek(context, peek, context.now, given)
        return await computed(context, await call_side_effects(context, bound))
    if transaction.time is None:  # writes follow from the newest rows, at any isolation level
        context = context.reading_newest()
    if keys is not None:
        under = await _rows_by_keys(context, peek, targets[0], keys, given)
        if under is not None:
            return under
    if peek.key is not None:
        found = await locked_by_key(context, peek, given)
        if found is not None:
            return found[0]
    tables = {id for id in tables_below(context, peek.sources) if not is_builtin(id)}
    # A transaction that has locked something must not wait for tables: that would be a deadlock.
    if not transaction.block and transaction.time is None:
        tables |= set(targets) if locking else set()
        committed = tables & context.names.state.objects.keys()
        await context.tables.locks.acquire(committed, transaction, context.lock_timeout_ms)
    if programs.row_read is not None:
        rows = await rows_by_keys(context, programs.row_read)
        if rows is not None:
            return rows
    return await read_rows(context, None, given)


def changed_key(
    context: StatementContext, table: GlobalId, changed: ChangedKeys | None
) -> Unique | None:
    """Return the unique constraint by which the rows of a change are found and locked, if any."""
    if changed is None or table not in context.names.state.objects:
        return None
    unique = target_of(context, table).planned.unique
    return next((each for each in unique if set(each.columns) <= set(changed.columns)), None)


async def _rows_by_keys(
    context: StatementContext,
    peek: PeekPlan,
    table: GlobalId,
    changed: ChangedKeys,
    given: Given,
) -> pa.Table | None:
    """Return the rows of a query over the rows under some keys of a table, which are locked.

    None, if no unique constraint has only columns that are known, or there are too many keys to
    lock them one by one.
    """
    transaction = context.transaction
    constraint = changed_key(context, table, changed)
    if constraint is None:
        return None
    source = await _source_rows(context, peek, changed, given)
    if source is None:
        return None
    columns, _ = split_diffs(source)
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
        if can_evaluate_locally(under) and not grows_long_values([under], {table: rows}):
            return evaluate_linear(under, {table: counted(rows)})
    bound = await bind_peek(context, peek.in_process(), time, {**given, table: rows})
    if bound.block.sources() <= bound.given.keys():
        return await rows_over(context, bound)
    return await computed(context, bound)


async def _source_rows(
    context: StatementContext, peek: PeekPlan, changed: ChangedKeys, given: Given
) -> pa.Table | None:
    """Return the rows, with `__diff`, of the source of keys: it reads nothing, or what is given.

    None if there may be many.
    """
    now = context.times.oracle.read_ts()
    bindings = context.bindings(now)
    block = bind_block(Block(changed.source), bindings)
    if can_evaluate_locally(block.relation):
        return evaluate_linear(block.relation, counted_each(given))
    if any(map(is_long, context.args)):
        return None
    bound = BoundPeek(
        peek, now, block, peek.query.finishing, bindings, given, False, False, changed.source
    )
    return await rows_over(context, bound)


async def with_row_outputs(
    context: StatementContext,
    rows: pa.Table,
    outputs: Sequence[Scalar],
    target: Target | None = None,
    *,
    whole: bool = False,
) -> pa.Table:
    """Return `outputs`, scalars that call functions such as nextval, of each row with `__diff`.

    Without outputs the rows are returned. `target` is locked before numbers are drawn for it.
    """
    if not outputs:
        return rows
    if target is not None and call_nextval(calls_of(outputs)):
        await lock_before_nextval(context, target, whole=whole)
    bindings = context.bindings(context.times.oracle.read_ts())
    return await results_by_row(context, rows, outputs, bindings)


def with_own_rows(committed: pa.Table, own: list[pa.Table], desc: RelationDesc) -> pa.Table:
    """Return committed rows with a transaction's own, consolidated; all have `__diff`."""
    if not own:
        return committed
    schema = committed.schema
    parts = [pa.Table.from_arrays(part.columns, schema=schema) for part in own]
    updates = at_time(pa.concat_tables([committed, *parts]), 0)
    return consolidate(updates, desc.stored_schema(), 0).drop_columns([TIME])
