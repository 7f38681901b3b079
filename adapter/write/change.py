"""UPDATE, DELETE and MERGE: rows are locked and read, checked, then staged as one change.

Few rows under keys are tuples (`adapter/read/keys/locked_rows.py`); all others are columns
(`source.py`). They are read at the newest time, and the change is valid only if they are the same
when the transaction commits.
"""

from collections.abc import Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from foreshore.adapter.client import Completed
from foreshore.adapter.plans.target import Target
from foreshore.adapter.read.keys.locked_rows import locked_rows
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import parts_of
from foreshore.adapter.statement.result import Outcome
from foreshore.adapter.write.executions import require_apart
from foreshore.adapter.write.returning import outcome_of, returned_of, returned_rows
from foreshore.adapter.write.row_checks import require_policies
from foreshore.adapter.write.source import (
    rows_to_write,
    rows_with_diffs,
    selected_rows,
    with_row_outputs,
)
from foreshore.adapter.write.stage import checked
from foreshore.adapter.write.stage_changes import stage
from foreshore.adapter.write.target import target_of
from foreshore.compute.arrange.key import hash_columns
from foreshore.errors import CardinalityViolation
from foreshore.expr.columns import columns_of
from foreshore.rows import split_diffs, table_of
from foreshore.sql.plan import Delete, Merge, Update
from foreshore.table_rows import Row, TableRows, columns_of_rows


class _Found(Struct, frozen=True):
    """What a statement selects: the rows to change, what they become, what is joined to them."""

    old: TableRows
    new: TableRows  # of a DELETE the old ones
    beside: Sequence[pa.Array] = ()
    beside_rows: Sequence[Row] = ()  # the same as tuples, if the rows are
    counts: Sequence[int] = ()  # of the rows of each execution
    keys: Sequence[Sequence[Row]] = ()  # under which each looks for rows


async def update(context: StatementContext, plan: Update) -> Outcome:
    """Run an UPDATE."""
    target = target_of(context, plan.table, "UPDATE")
    found = await _found(context, plan, target, 2)
    old, new = found.old, found.new
    if plan.checks:
        await require_policies(context, target, plan.checks, new)
    new = checked(context, target, new)
    if len(context.many) > 1:
        _require_apart(context, target, found, new.tuples)
    await stage(context, target, deleted=old, inserted=new, updated=(old, new))
    return await outcome_of(
        context, "UPDATE", plan.returning, new, found.counts, found.beside, found.beside_rows
    )


async def delete(context: StatementContext, plan: Delete) -> Outcome:
    """Run a DELETE."""
    target = target_of(context, plan.table, "DELETE")
    found = await _found(context, plan, target, 1)
    if len(context.many) > 1:
        _require_apart(context, target, found, ())
    await stage(context, target, deleted=found.old)
    return await outcome_of(
        context, "DELETE", plan.returning, found.old, found.counts, found.beside, found.beside_rows
    )


def _require_apart(
    context: StatementContext, target: Target, found: _Found, new: Sequence[Row]
) -> None:
    """Raise Apart if an execution has a key that an earlier one has, before or after."""
    read, counts = context.prepared.made.programs.locked_read, found.counts
    assert read is not None
    name = read.source.constraint.name
    named = [[(name, key) for key in keys] for keys in found.keys]
    old = parts_of(found.old.tuples, counts)
    require_apart(context, target, zip(named, old, parts_of(new, counts), strict=True))


async def _found(
    context: StatementContext, plan: Update | Delete, target: Target, parts: int
) -> _Found:
    """Return the rows to change; the selection has their columns, or those and the new ones."""
    width = target.width
    new, rest = slice((parts - 1) * width, parts * width), parts * width
    read = context.prepared.made.programs.locked_read
    found = None if read is None else await locked_rows(context, read)
    if found is None:
        selected = await selected_rows(context, (plan.table,), locking=True, keys=plan.keys)
        if isinstance(plan, Update) and plan.row_outputs:
            if not isinstance(selected, pa.Table):
                selected = rows_with_diffs(context, selected)
            selected = await with_row_outputs(context, selected, plan.row_outputs, target)
        if isinstance(selected, pa.Table):
            columns, diffs = split_diffs(selected)
            old = made = TableRows.of_columns(target.desc, columns[:width], diffs)
            if parts > 1:
                made = TableRows.of_columns(target.desc, columns[new], diffs)
            return _Found(old, made, columns[rest:])
        found = [], [selected]
    keys, by_execution = found
    counts = list(map(len, by_execution))
    rows = [*chain.from_iterable(by_execution)]
    old = made = TableRows(target.desc, [*map(itemgetter(slice(0, width)), rows)])
    if parts > 1:
        made = TableRows(target.desc, [*map(itemgetter(new), rows)])
    beside = () if plan.returning is None else [row[rest:] for row in rows]
    return _Found(old, made, (), beside, counts, keys)


# --- MERGE ---------------------------------------------------------------------------------


class _Merging(NamedTuple):
    """The rows that a MERGE selects: each one's action, old row, new row and source row."""

    acts: npt.NDArray[np.str_]
    old: TableRows  # of an insert NULLs
    new: TableRows  # of a delete NULLs
    beside: Sequence[pa.Array] = ()
    beside_rows: Sequence[Row] = ()  # the same as tuples, if the rows are


async def merge(context: StatementContext, plan: Merge) -> Outcome:
    """Run a MERGE."""
    target = target_of(context, plan.table, "MERGE")
    merging = await _merging(context, plan, target)
    acts = merging.acts
    is_new, is_gone = acts == "insert", acts == "delete"
    deleted, inserted = _chosen(merging.old, ~is_new), _chosen(merging.new, ~is_gone)
    if _has_repeated(deleted):
        raise _twice()
    updated = _chosen(deleted, acts[~is_new] == "update")
    gone = _chosen(deleted, acts[~is_new] == "delete")
    if plan.checks is not None:
        come = _chosen(inserted, acts[~is_gone] == "insert")
        made = _chosen(inserted, acts[~is_gone] == "update")
        await require_policies(context, target, plan.checks.to_update, updated)
        await require_policies(context, target, plan.checks.to_delete, gone)
        await require_policies(context, target, plan.checks.inserted, come)
        await require_policies(context, target, plan.checks.updated, made)
    inserted = checked(context, target, inserted)
    pairs = updated, _chosen(inserted, acts[~is_gone] == "update")
    await stage(context, target, deleted=deleted, inserted=inserted, updated=pairs)
    if plan.returning is None:
        return Completed(f"MERGE {inserted.count + gone.count}")
    order = np.concatenate([np.flatnonzero(~is_gone), np.flatnonzero(is_gone)])
    done = np.char.upper(acts[order]) if len(order) else acts
    if inserted.are_tuples and gone.are_tuples:
        whole = [
            (*merging.beside_rows[place], *row, act)
            for place, row, act in zip(
                order.tolist(), (*inserted.tuples, *gone.tuples), done.tolist(), strict=True
            )
        ]
        return await returned_rows(context, "MERGE", plan.returning, whole)
    beside = merging.beside
    if merging.beside_rows:
        types = columns_of(plan.selection)[2 + 2 * target.width :]
        beside = columns_of_rows(merging.beside_rows, types)
    written, times = split_diffs(pa.concat_tables([inserted.table, gone.table]))
    columns = [*(column.take(pa.array(order)) for column in beside), *written, pa.array(done)]
    return await returned_of(context, "MERGE", plan.returning, table_of(columns, times))


async def _merging(context: StatementContext, plan: Merge, target: Target) -> _Merging:
    """Return what a MERGE selects; the rows to change are locked."""
    width = target.width
    selected = await rows_to_write(context, (plan.table,), locking=True, keys=plan.keys)
    if not isinstance(selected, pa.Table):
        are_single = all(row[1] is None or row[1] == 1 for row in selected)  # of old rows
        if plan.row_outputs or not are_single:
            selected = rows_with_diffs(context, selected)
    if not isinstance(selected, pa.Table):
        acts = np.array([plan.actions[int(str(row[0]))] for row in selected], np.str_)
        old = TableRows(target.desc, [row[2 : 2 + width] for row in selected])
        new = TableRows(target.desc, [row[2 + width : 2 + 2 * width] for row in selected])
        return _Merging(acts, old, new, (), [row[2 + 2 * width :] for row in selected])
    selected = await with_row_outputs(context, selected, plan.row_outputs, target)
    (action, count, *columns), diffs = split_diffs(selected)
    acts = np.array([*plan.actions, ""])[action.to_numpy()]
    if (diffs.to_numpy()[acts != "insert"] > 1).any():
        raise _twice()
    times = pc.if_else(pa.array(acts == "insert"), diffs, count)
    old = TableRows.of_columns(target.desc, columns[:width], times)
    new = TableRows.of_columns(target.desc, columns[width : 2 * width], times)
    return _Merging(acts, old, new, columns[2 * width :])


def _chosen(rows: TableRows, mask: npt.NDArray[np.bool_]) -> TableRows:
    """Return the rows for which the mask is true."""
    if rows.are_tuples:
        return TableRows(rows.desc, [*compress(rows.tuples, mask)], [*compress(rows.diffs, mask)])
    return TableRows.of_table(rows.desc, rows.table.filter(pa.array(mask)))


def _has_repeated(rows: TableRows) -> bool:
    """Whether two rows are identical."""
    if rows.are_tuples and len({*rows.tuples}) == rows.num_rows:
        return False
    columns, _ = split_diffs(rows.table)
    return len(np.unique(hash_columns(columns, None, rows.num_rows))) < rows.num_rows


def _twice() -> CardinalityViolation:
    return CardinalityViolation(
        "MERGE command cannot affect row a second time",
        hint="Ensure that not more than one source row matches any one target row.",
    )
