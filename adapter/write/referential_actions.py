"""The rows that refer to keys which are gone, and what ON DELETE or ON UPDATE makes of them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.plans.row_sources import indexed_by
from foreshore.adapter.plans.target import Target
from foreshore.adapter.read.bound.timestamp import read_time
from foreshore.adapter.read.keys.key_lookup import locked_under
from foreshore.adapter.read.keys.locked_rows import rows_under_keys
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.staging import Staging
from foreshore.adapter.write.source import with_own_rows, with_row_outputs
from foreshore.adapter.write.stage import checked
from foreshore.adapter.write.target import committed_rows, planned_of
from foreshore.catalog.planned import Planned
from foreshore.compute.arrange.key import hash_columns, pairs_equal
from foreshore.compute.arrange.run import Ints
from foreshore.compute.keys.key_casts import cast_keys
from foreshore.compute.keys.layout import MANY
from foreshore.compute.keys.references import Columns, Reference, ReferredKeys, key_columns
from foreshore.errors import NumericValueOutOfRange
from foreshore.expr.ir import Column, Literal, Scalar
from foreshore.foreign_key import Action
from foreshore.rows import counted, split_diffs
from foreshore.table_rows import TableRows
from foreshore.types import SqlType


async def referring_rows(
    context: StatementContext, reference: Reference, keys: ReferredKeys
) -> TableRows:
    """Return the rows of the table of a foreign key that refer to `keys`.

    The commit checks that they are all.
    """
    child = planned_of(context, reference.child)
    if keys.tuples is not None:
        source = indexed_by(reference.child, child, reference.columns)
        few = None if source is None else await rows_under_keys(context, source, keys.tuples)
        if few is not None:
            return TableRows(child.desc, few)
    return TableRows.of_table(child.desc, await _referring_columns(context, reference, keys, child))


async def _referring_columns(
    context: StatementContext, reference: Reference, keys: ReferredKeys, child: Planned
) -> pa.Table:
    """Return the same with `__diff`."""
    sought, valid = cast_keys(keys.columns, reference.key_types, reference.types)
    if not valid.all():
        sought = [column.filter(pa.array(valid)) for column in sought]
    if not len(sought[0]):
        return TableRows(child.desc, ()).table
    rows = await locked_under(context, reference.child, reference.columns, sought)
    if rows is not None:
        return counted(rows)
    transaction = context.transaction
    if context.again and not transaction.block and reference.child in context.names.state.objects:
        await context.tables.locks.acquire((reference.child,), transaction, context.lock_timeout_ms)
    time = read_time(context, (reference.child,), None)
    committed = await committed_rows(context, reference.child, child.desc, time)
    own = [part.rows.table for part in transaction.rows(reference.child)]

    def scanned() -> pa.Table:
        rows = with_own_rows(committed, own, child.desc)
        columns, _ = split_diffs(rows)
        found = places_of(sought, [columns[i] for i in reference.columns], reference.types)
        return rows.filter(pa.array(found >= 0))

    if committed.num_rows <= MANY:
        return scanned()
    return await blocking.run(context.engines.executor, scanned)


def places_of(keys: Columns, columns: Columns, types: Sequence[SqlType]) -> Ints:
    """Return for each row of `columns` the place of its key among distinct `keys`, -1 if none."""
    hashes = hash_columns(keys, types, len(keys[0]))
    order = np.argsort(hashes, kind="stable")
    wanted = hash_columns(columns, types, len(columns[0]))
    at = np.minimum(hashes[order].searchsorted(wanted), len(order) - 1)
    places = order[at]
    equal = hashes[places] == wanted
    for key, column, type in zip(keys, columns, types, strict=True):
        equal &= pairs_equal(key.take(pa.array(places)), column, type)
        equal &= column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(equal, places, -1)


async def acted(
    context: StatementContext,
    target: Target,
    reference: Reference,
    action: Action,
    old: TableRows,
    updated: tuple[TableRows, TableRows] | None,
) -> Staging:
    """Return the change that an action makes of the rows that refer to gone keys.

    `updated` are the old and new rows of the referenced table, None if the keys were deleted.
    """
    if action == "cascade" and updated is None:
        return Staging(target, old, None)
    columns, diffs = split_diffs(old.table)
    if action == "cascade":
        assert updated is not None
        found = list(columns)
        values = _new_values(reference, columns, *updated)
        for place, column in zip(reference.columns, values, strict=True):
            found[place] = column
        new = TableRows.of_columns(target.desc, found, diffs)
    else:
        names = reference.key.delete_columns if updated is None else ()
        changed = {target.desc.names.index(name) for name in names or reference.key.columns}
        outputs: list[Scalar] = []
        for place, column in enumerate(target.desc.columns):
            value = Literal(None, column.type)
            if place not in changed:
                outputs.append(Column(place, column.type, column.nullable))
            elif action == "set default" and target.planned.defaults:
                outputs.append(target.planned.defaults[place])
            else:
                outputs.append(value)
        made = await with_row_outputs(context, old.table, outputs, target)
        new = TableRows.of_table(target.desc, made)
    new = checked(context, target, new)
    return Staging(target, old, new, (old, new))


def _new_values(
    reference: Reference, columns: Columns, before: TableRows, after: TableRows
) -> Columns:
    """Return the columns of a foreign key after the keys to which rows refer were updated."""
    old, new = key_columns(reference, before), key_columns(reference, after)
    cast, _ = cast_keys(old, reference.key_types, reference.types)
    here = [columns[i] for i in reference.columns]
    places = places_of(cast, here, reference.types)
    assert (places >= 0).all(), reference
    taken = [column.take(pa.array(places)) for column in new]
    nulls = [column.is_null() for column in taken]
    found, valid = cast_keys(taken, reference.key_types, reference.types)
    for null in nulls:
        valid |= null.to_numpy(zero_copy_only=False)
    if not valid.all():
        raise NumericValueOutOfRange(f"{reference.types[0]} out of range")
    return found
