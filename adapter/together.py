"""Executions of one statement in a row, staged as one change: `executemany` of a driver.

A change of many rows costs a tenth of as many changes of one row. Executions may be staged together
if none can see what another one does:

    INSERT ... VALUES            each adds rows of its own; a key that is there twice is an error
    ... ON CONFLICT              no key is proposed twice, and rows that are updated keep their keys
    UPDATE, DELETE by a key      each reads and changes the row under a key of its own, which stays

    tables of foreign keys       none refers to the table, so nothing follows from a change

So the first executions that fulfil this run together. If anything fails, all is undone, and they
run one by one: then the right one gets the error. Between them the transaction stays at one time.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.read.keys.locked_rows import rows_under_keys
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.staging import Target
from foreshore.adapter.write.insert import rows_of_template
from foreshore.adapter.write.on_conflict import stage_on_conflict
from foreshore.adapter.write.stage import checked, key_index
from foreshore.adapter.write.stage_changes import stage
from foreshore.adapter.write.target import lock_before_nextval, lock_shared_against_ddl, target_of
from foreshore.compute.finish import expanded
from foreshore.compute.keys.layout import KeyLayout
from foreshore.expr.functions.system import RANDOM, RANDOM_UUID
from foreshore.expr.ir import Arguments, Parameter
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.sql.plan import Delete, Insert, OnConflict, Update
from foreshore.table_rows import Row, TableRows
from foreshore.types import Datum

FEWEST_TOGETHER = 24  # executions of a statement from which on they are cheaper together
_REPEATABLE = frozenset(("nextval", RANDOM, RANDOM_UUID))  # calls that may be made again in vain


class RanTogether(NamedTuple):
    """The tags of the executions that ran together, the first ones.

    The next `singly` ones have to run one by one.
    """

    tags: Sequence[str]
    singly: int


Many = Sequence[Sequence[Datum]]  # the arguments of each execution


def may_run_together(prepared: Prepared) -> bool:
    """Whether executions of a planned statement may be staged as one change."""
    match prepared.made.plan:
        case Insert(checks=checks) | Update(checks=checks) if checks:
            return False  # of row-level security
        case Insert(returning=None, as_of=None, on_conflict=conflict):
            template = prepared.made.programs.template
            if template is None or any(e.function not in _REPEATABLE for e in template.calls):
                return False
            return conflict is None or not _has_parameters(conflict)
        case Update(returning=None) | Delete(returning=None):
            locked = prepared.made.programs.locked_read
            return locked is not None and locked.is_by_whole_key
        case _:
            return False


def _has_parameters(conflict: OnConflict) -> bool:
    """Whether the new values of existing rows depend on the arguments."""
    if conflict.update is None:
        return False
    scalars = chain.from_iterable(map(scalars_of, walk_relations(conflict.update)))
    parts = chain.from_iterable(map(walk_scalars, scalars))
    return any(isinstance(each, Parameter | Arguments) for each in parts)


async def run_together(context: StatementContext, many: Many) -> RanTogether:
    """Run executions of a statement together, as far as they do not see each other.

    After an error nothing is staged.
    """
    plan = context.prepared.made.plan
    assert isinstance(plan, Insert | Update | Delete), plan
    if context.planner.state.references_to(plan.table):
        return RanTogether((), len(many))
    if isinstance(plan, Insert):
        return await _insert(context, plan, many)
    return await _change(context, plan, many)


# --- INSERT --------------------------------------------------------------------------------


async def _insert(context: StatementContext, plan: Insert, many: Many) -> RanTogether:
    peek, template = context.prepared.made.peek, context.prepared.made.programs.template
    assert peek is not None
    assert template is not None
    target = target_of(context, plan.table, "INSERT")
    await lock_shared_against_ddl(context, target)
    if peek.calls_nextval:
        await lock_before_nextval(context, target)
    parts: list[Sequence[Row]] = []
    for args in many:
        rows = await rows_of_template(replace(context, args=args), template)
        if rows is None:
            return RanTogether((), len(many))
        parts.append(rows)
    if plan.on_conflict is not None:
        arbiters = plan.on_conflict.arbiters
        kept = _without_repeated(_proposed(context, target, arbiters, parts))
        if plan.on_conflict.update is not None and kept < len(parts):
            if kept < FEWEST_TOGETHER:
                return RanTogether((), kept + 1)
            parts = parts[:kept]
    whole = TableRows.inserted(target.desc, [row for part in parts for row in part])
    whole = checked(context, target, whole)
    if plan.on_conflict is None:
        await stage(context, target, inserted=whole)
        counts = [len(part) for part in parts]
    else:
        done = await stage_on_conflict(context, target, plan.on_conflict, whole)
        unique = target.planned.unique
        layouts = [key_index(context, target, each).layout for each in unique]
        if done.updated is not None and _change_keys(layouts, *done.updated):
            return RanTogether((), len(many))
        ends = np.cumsum([len(part) for part in parts])
        at = np.searchsorted(ends, done.places, side="right")
        counts = np.bincount(at, minlength=len(parts)).tolist()
    return RanTogether([f"INSERT 0 {count}" for count in counts], 0)


def _proposed(
    context: StatementContext,
    target: Target,
    arbiters: Sequence[str],
    parts: Sequence[Sequence[Row]],
) -> Iterator[Sequence[object]]:
    """Yield the keys that each execution proposes, with the name of their constraint."""
    unique = [each for each in target.planned.unique if each.name in arbiters]
    layouts = [key_index(context, target, each).layout for each in unique]
    for part in parts:
        yield [
            (layout.constraint.name, key)
            for layout in layouts
            if layout.takes_tuples
            for row in part
            if (key := layout.key(row)) is not None
        ]


def _without_repeated(keys: Iterator[Sequence[object]]) -> int:
    """Return how many executions come before the first that repeats a key of an earlier one."""
    seen: set[object] = set()
    count = 0
    for each in keys:
        if not seen.isdisjoint(each):
            break
        seen.update(each)
        count += 1
    return count


def _change_keys(layouts: Sequence[KeyLayout], old: TableRows, new: TableRows) -> bool:
    """Whether a row has another key than before; `old` and `new` are in one order."""
    before, after = expanded(old.table), expanded(new.table)
    return any(
        not np.array_equal(each.hashes_of_rows(before), each.hashes_of_rows(after))
        for each in layouts
    )


# --- UPDATE and DELETE ---------------------------------------------------------------------


async def _change(context: StatementContext, plan: Update | Delete, many: Many) -> RanTogether:
    locked = context.prepared.made.programs.locked_read
    assert locked is not None
    verb = "UPDATE" if isinstance(plan, Update) else "DELETE"
    target, read = target_of(context, plan.table, verb), locked.read
    now = context.session_value(context.times.oracle.read_ts())
    keys = []
    for args in many:
        own = read.keys(args, now)
        if own is None:
            return RanTogether((), len(many))
        keys.append(own)
    kept = _without_repeated(iter(keys))
    if kept < len(many):
        if kept < FEWEST_TOGETHER:
            return RanTogether((), kept + 1)
        many, keys = many[:kept], keys[:kept]
    there = await rows_under_keys(context, locked, [*chain.from_iterable(keys)])
    indexes = context.tables.keys.of(plan.table)
    index = indexes.get(locked.source.constraint.name)
    if there is None or index is None:
        return RanTogether((), len(many))
    by_key = {index.layout.key(row): row for row in there}
    time = context.transaction.time
    assert time is not None
    value = context.session_value(time)
    selected: list[Row] = []
    tags = []
    for own, args in zip(keys, many, strict=True):
        rows = [by_key[key] for key in own if key in by_key]
        found = read.over(plan.table, rows, args, value)
        if found is None:
            return RanTogether((), len(many))
        selected += found
        tags.append(f"{verb} {len(found)}")
    deleted = TableRows.inserted(target.desc, [row[: target.width] for row in selected])
    if isinstance(plan, Delete):
        await stage(context, target, deleted=deleted)
        return RanTogether(tags, 0)
    new = [row[target.width : 2 * target.width] for row in selected]
    inserted = checked(context, target, TableRows.inserted(target.desc, new))
    pairs = (deleted, inserted)
    if _change_keys([each.layout for each in indexes.values()], *pairs):
        return RanTogether((), len(many))
    await stage(context, target, deleted=deleted, inserted=inserted, updated=pairs)
    return RanTogether(tags, 0)
