"""ALTER TABLE: a table becomes what another definition says, if its rows agree with that.

The table is taken for writing until the transaction ends, so what its rows are seen to fulfil is
true when the change commits, and what others write from then on is checked by the new definition.
What a plan has relied on may not be lost: views that are maintained have to go first.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.definitions import plan_item, planned_table
from foreshore.adapter.group_commit import timed
from foreshore.adapter.key_index import KeyIndex
from foreshore.adapter.local import split_diffs
from foreshore.adapter.sequence.create import named_constraints
from foreshore.adapter.sequence.drop import describe
from foreshore.adapter.sequence.tables import (
    committed_rows,
    first_failing,
    unique_constraints,
)
from foreshore.adapter.violations import check_is_violated, key_is_there_twice, nulls_there
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item, KnownColumn
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.constraint import Check, Unique
from foreshore.errors import DependentObjectsStillExist
from foreshore.ids import GlobalId
from foreshore.sql.column_names import index_with_column_renamed
from foreshore.sql.plan import AlterTable
from foreshore.types import RelationDesc
from foreshore.update import TIME, Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.session import Session


async def alter_table(session: "Session", plan: AlterTable) -> Completed:
    """Run ALTER TABLE."""
    for notice in plan.notices:
        session.notice(notice)
    if plan.table is None:
        return Completed("ALTER TABLE")
    assert plan.definition is not None
    change = session.catalog_change()
    transaction = session.begin()
    coordinator = session.coordinator
    id = plan.table
    table = change.state.item(id)
    old = session.planner.reader().planned[id]
    new = planned_table(plan.definition, old.desc.stored or old.desc.names)
    time = coordinator.oracle.read_ts()
    if id in coordinator.state.objects:
        transaction.locked = True
        await coordinator.locks.acquire((id,), transaction)
        await coordinator.keys.ready(id)
        time = coordinator.oracle.read_ts()
        transaction.described.setdefault(id, coordinator.catalog.planned[id])
    _refuse_loss(session, change.state, table, old, new)
    gains = await _verify(session, table, old, new, time)
    since = time if gains and id in coordinator.state.objects else table.since
    change.alter_table(
        table,
        plan.definition.sql,
        named_constraints(plan.definition),
        since,
        plan.definition.depends_on,
        new.desc.stored,
    )
    transaction.planned[id] = new
    if new.desc.names != old.desc.names:
        _rename_columns(change, id, old.desc, new.desc.names)
    for item in _above(change.state, id):
        planned = session.planner.reader().planned
        transaction.planned[item.id] = plan_item(change.state, planned, item)
    return Completed("ALTER TABLE")


def _rename_columns(
    change: CatalogTransaction, table: GlobalId, old: RelationDesc, names: Sequence[str]
) -> None:
    """Let what uses the columns of a table know them by their new names.

    Views keep their own names for them, in their text and in what they show.
    """
    renamed = {then: now for then, now in zip(old.names, names, strict=True) if then != now}
    for id in change.state.dependents.get(table, ()):
        item = change.state.item(id)
        if item.type == "index":
            sql = item.create_sql
            for then, now in renamed.items():
                sql = index_with_column_renamed(sql, then, now)
            change.alter_index(item, sql)
        else:
            known = (item.known or {}).get(table) or [KnownColumn(n, n) for n in old.names]
            change.remember(
                item,
                table,
                [replace(c, now=renamed.get(c.now, c.now)) if c.now else c for c in known],
            )
    for sequence in change.state.sequences_of(table):
        owner = sequence.owned_by
        assert owner, sequence
        column = renamed.get(owner.column, owner.column)
        change.own_sequence(sequence, replace(owner, column=column))


def altered_indexes(session: "Session") -> Mapping[GlobalId, Mapping[str, KeyIndex]]:
    """Return the key indexes that the running transaction's new and altered tables will have."""
    transaction = session.begin()
    state = session.planner.reader().state
    found: dict[GlobalId, dict[str, KeyIndex]] = {}
    for id, planned in transaction.planned.items():
        item = state.get(id)
        if not isinstance(item, Item) or item.type != "table":
            continue
        present = session.coordinator.keys.of(id)
        found[id] = {}
        for constraint in unique_constraints(planned):
            index = transaction.built.get((id, constraint.name)) or next(
                (each for each in present.values() if _same(each.constraint, constraint)), None
            )
            if index is None:
                index = KeyIndex(id, constraint, planned.desc, 0)
            found[id][constraint.name] = index.called(constraint)
    return found


def _same(one: Unique, other: Unique) -> bool:
    """Whether two unique constraints say the same, whatever they are called."""
    return one.columns == other.columns and one.nulls_distinct == other.nulls_distinct


# --- what is lost --------------------------------------------------------------------------


def _above(state: State, id: GlobalId) -> Iterator[Item]:
    """Yield the items that depend on `id`, those first on which others depend."""
    below = {id}
    for item in state.items():
        if not below.isdisjoint(item.depends_on):
            below.add(item.id)
            yield item


def _refuse_loss(session: "Session", state: State, table: Item, old: Planned, new: Planned) -> None:
    """Raise if something that is maintained rests on what the table promises no longer."""
    lost = [
        f"constraint {each.name} on {describe(session, table)}"
        for each in unique_constraints(old)
        if not any(_same(each, other) for other in unique_constraints(new))
    ]
    columns = zip(old.desc.names, old.desc.columns, new.desc.columns, strict=True)
    lost += [
        f"NOT NULL of column {name} of {describe(session, table)}"
        for name, before, after in columns
        if after.nullable and not before.nullable
    ]
    if not lost:
        return
    resting = [
        item
        for item in _above(state, table.id)
        if item.type == "materialized view" or (item.on is not None and item.on != table.id)
    ]
    if resting:
        raise DependentObjectsStillExist(
            f"cannot drop {lost[0]} because other objects depend on it",
            detail="\n".join(f"{describe(session, item)} depends on {lost[0]}" for item in resting),
            hint="Drop what is maintained over the table first, and create it again.",
        )


# --- what is gained ------------------------------------------------------------------------


async def _verify(
    session: "Session", table: Item, old: Planned, new: Planned, time: Timestamp
) -> bool:
    """Return whether the table promises more than before; raises if some row does not fulfil it.

    Indexes of new keys are made of what was committed at `time`.
    """
    keys = [
        each
        for each in unique_constraints(new)
        if not any(_same(each, other) for other in unique_constraints(old))
    ]
    known = {each.text for each in old.constraints if isinstance(each, Check)}
    checks = [
        each for each in new.constraints if isinstance(each, Check) and each.text not in known
    ]
    required = [
        i
        for i, (before, after) in enumerate(zip(old.desc.columns, new.desc.columns, strict=True))
        if before.nullable and not after.nullable
    ]
    if not (keys or checks or required):
        return False
    coordinator, transaction = session.coordinator, session.begin()
    committed = await committed_rows(session, table.id, old.desc, time)
    own = [part.rows for part in transaction.writes.get(table.id, ())]

    def verify() -> list[KeyIndex]:
        rows = _together(committed, own, old.desc)
        columns, _ = split_diffs(rows)
        state = session.planner.reader().state
        for i in required:
            if columns[i].null_count:
                raise nulls_there(state, table, new.desc.names[i])
        for check in checks:
            if first_failing(session, check.condition, columns, rows.num_rows) is not None:
                raise check_is_violated(state, table, check)
        built = []
        for key in keys:
            index = KeyIndex(table.id, key, new.desc, time)
            duplicate = index.duplicate([index.prepare(rows)])
            if duplicate is not None:
                raise key_is_there_twice(state, new.desc, duplicate, session.time_zone)
            index.arrangement.insert_prepared([index.prepare(committed)], time, time + 1)
            built.append(index)
        return built

    for index in await blocking.run(coordinator.executor, verify):
        transaction.built[table.id, index.constraint.name] = index
    return True


def _together(committed: pa.Table, own: list[pa.Table], desc: RelationDesc) -> pa.Table:
    if not own:
        return committed
    schema = committed.schema
    parts = [pa.Table.from_arrays(part.columns, schema=schema) for part in own]
    updates = timed(pa.concat_tables([committed, *parts]), 0)
    return consolidate(updates, desc.stored_schema(), 0).drop_columns([TIME])
