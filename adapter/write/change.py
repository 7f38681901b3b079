"""UPDATE, DELETE and MERGE: rows are locked and read, checked, then staged as one change.

Few rows under keys are tuples (`adapter/read/keys/locked_rows.py`); all others are columns
(`source.py`). They are read at the newest time, and the change is valid only if they are the same
when the transaction commits.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import Completed
from foreshore.adapter.read.keys.locked_rows import locked_rows
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import parts_of
from foreshore.adapter.statement.result import Outcome
from foreshore.adapter.statement.staging import Target
from foreshore.adapter.write.executions import require_apart
from foreshore.adapter.write.returning import outcome_of, returned_of
from foreshore.adapter.write.row_checks import require_policies
from foreshore.adapter.write.source import (
    queried_rows,
    rows_with_diffs,
    selected_rows,
    with_row_outputs,
)
from foreshore.adapter.write.stage import checked
from foreshore.adapter.write.stage_changes import stage
from foreshore.adapter.write.target import target_of
from foreshore.compute.arrange.key import hash_columns
from foreshore.errors import CardinalityViolation
from foreshore.rows import split_diffs, table_of
from foreshore.sql.plan import Delete, Merge, MergeChecks, Update
from foreshore.table_rows import Row, TableRows


class _Found(NamedTuple):
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
    return await _outcome(context, "UPDATE", plan, found, new)


async def delete(context: StatementContext, plan: Delete) -> Outcome:
    """Run a DELETE."""
    target = target_of(context, plan.table, "DELETE")
    found = await _found(context, plan, target, 1)
    if len(context.many) > 1:
        _require_apart(context, target, found, ())
    await stage(context, target, deleted=found.old)
    return await _outcome(context, "DELETE", plan, found, found.old)


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


async def _outcome(
    context: StatementContext, verb: str, plan: Update | Delete, found: _Found, new: TableRows
) -> Outcome:
    beside, beside_rows, counts = found.beside, found.beside_rows, found.counts
    return await outcome_of(context, verb, plan.returning, new, counts, beside, beside_rows)


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
    counts = [len(rows) for rows in by_execution]
    rows = [*chain.from_iterable(by_execution)]
    old = made = TableRows.inserted(target.desc, [row[:width] for row in rows])
    if parts > 1:
        made = TableRows.inserted(target.desc, [row[new] for row in rows])
    return _Found(old, made, (), [row[rest:] for row in rows], counts, keys)


async def changing_rows(context: StatementContext, plan: Merge) -> pa.Table:
    """Return what a MERGE selects, of rows that are locked."""
    read = context.prepared.made.programs.locked_read
    found = None if read is None else await locked_rows(context, read)
    if found is not None:
        return rows_with_diffs(context, found[1][0])
    return await queried_rows(context, (plan.table,), locking=True, keys=plan.keys)


async def merge(context: StatementContext, plan: Merge) -> Outcome:
    """Run a MERGE."""
    target = target_of(context, plan.table, "MERGE")
    selected = await changing_rows(context, plan)
    selected = await with_row_outputs(context, selected, plan.row_outputs, target)
    (action, count, *columns), diffs = split_diffs(selected)
    width = target.width
    old, new, source = columns[:width], columns[width : 2 * width], columns[2 * width :]
    acts = np.array([*plan.actions, ""])[action.to_numpy()]
    changes = np.flatnonzero(acts != "insert")
    hashes = hash_columns([column.take(pa.array(changes)) for column in old], None, len(changes))
    if len(np.unique(hashes)) < len(changes) or (diffs.to_numpy()[changes] > 1).any():
        raise CardinalityViolation(
            "MERGE command cannot affect row a second time",
            hint="Ensure that not more than one source row matches any one target row.",
        )
    times = pc.if_else(pa.array(acts == "insert"), diffs, count)
    new_rows = table_of(new, times).filter(pa.array(acts != "delete"))
    old_rows = table_of(old, times).filter(pa.array(acts != "insert"))
    inserted = TableRows.of_table(target.desc, new_rows)
    deleted = TableRows.of_table(target.desc, old_rows)
    if plan.checks is not None:
        await _require_policies(context, target, plan.checks, acts, deleted, inserted)
    inserted = checked(context, target, inserted)
    pairs = _updated_pairs(target, acts, deleted, inserted)
    await stage(context, target, deleted=deleted, inserted=inserted, updated=pairs)
    if plan.returning is None:
        return Completed(f"MERGE {pc.sum(times).as_py() or 0}")
    old_rows = deleted.table.filter(pa.array(acts[acts != "insert"] == "delete"))
    order = np.concatenate([np.flatnonzero(acts != "delete"), np.flatnonzero(acts == "delete")])
    written, times = split_diffs(pa.concat_tables([inserted.table, old_rows]))
    beside = [column.take(pa.array(order)) for column in source]
    done = pa.array(np.char.upper(acts[order]))
    return await returned_of(
        context, "MERGE", plan.returning, table_of([*beside, *written, done], times)
    )


async def _require_policies(
    context: StatementContext,
    target: Target,
    checks: MergeChecks,
    acts: npt.NDArray[np.str_],
    deleted: TableRows,
    inserted: TableRows,
) -> None:
    """Raise if an old or a new row of a MERGE, whose actions are `acts`, breaks a policy."""
    parts = (
        (deleted, acts[acts != "insert"] == "update", checks.to_update),
        (deleted, acts[acts != "insert"] == "delete", checks.to_delete),
        (inserted, acts[acts != "delete"] == "insert", checks.inserted),
        (inserted, acts[acts != "delete"] == "update", checks.updated),
    )
    for rows, chosen, found in parts:
        part = TableRows.of_table(target.desc, rows.table.filter(pa.array(chosen)))
        await require_policies(context, target, found, part)


def _updated_pairs(
    target: Target, acts: npt.NDArray[np.str_], deleted: TableRows, inserted: TableRows
) -> tuple[TableRows, TableRows]:
    """Return the old and the new rows of the updates among a MERGE's actions `acts`."""
    old = deleted.table.filter(pa.array(acts[acts != "insert"] == "update"))
    new = inserted.table.filter(pa.array(acts[acts != "delete"] == "update"))
    return TableRows.of_table(target.desc, old), TableRows.of_table(target.desc, new)
