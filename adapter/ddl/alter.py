"""ALTER TABLE: a table becomes what another definition says, if its rows agree with that.

The table is taken for writing until the transaction ends, so what its rows are seen to fulfil is
true when the change commits, and what others write from then on is checked by the new definition.
What a plan has relied on may not be lost: views that are maintained have to go first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_plan

from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.create import refuse_reserved, with_sequences
from foreshore.adapter.ddl.definitions import plan_created_table
from foreshore.adapter.ddl.drop import drop_objects, tell_cascaded
from foreshore.adapter.ddl.objects import describe
from foreshore.adapter.ddl.sequences import alter_sequence, define_table, remember_committed
from foreshore.adapter.ddl.table_rewrite import above, plan_above, remember, reshape
from foreshore.adapter.ddl.verify_constraints import Columns, gained, together, verify, was
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.subscribe.durable_statements import refuse_subscribed
from foreshore.adapter.write.stage import committed_index
from foreshore.adapter.write.target import committed_rows, lock_to_alter
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item, KnownColumn
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.constraint import same
from foreshore.errors import DependentObjectsStillExist
from foreshore.ids import GlobalId
from foreshore.sql.plan import AlterTable
from foreshore.sql.rewrite.column_names import index_with_column_renamed
from foreshore.types import RelationDesc


async def alter_table(context: StatementContext, plan: AlterTable) -> Completed:
    """Run ALTER TABLE."""
    for notice in plan.notices:
        context.notice(notice)
    if plan.table is None:
        return Completed(plan.tag)
    assert plan.definition is not None
    change = context.catalog_change()
    transaction = context.transaction
    coordinator = context.coordinator
    id = plan.table
    await lock_to_alter(context, (id,))
    table = change.state.item(id)
    old = context.planner.reader().planned[id]
    refuse_reserved([n for n in plan.definition.desc.names if n not in old.desc.names])
    is_moved = list(plan.columns) != list(range(len(old.desc.names)))
    time = coordinator.oracle.read_ts()
    if id in coordinator.state.objects:
        await coordinator.keys.ready(id)
        time = coordinator.oracle.read_ts()
        remember_committed(context, id)
    for sequence in plan.altered_sequences:
        alter_sequence(context, sequence)
    definition = plan.definition
    if definition.sequences:
        definition = with_sequences(context, id, definition)
    new = plan_created_table(definition, () if is_moved else old.desc.stored or old.desc.names)
    _refuse_loss(context, change.state, table, old, new, plan.columns)
    more = gained(old, new, plan.columns)
    if is_moved or more:
        refuse_subscribed(context, table)
    if is_moved:
        is_made_here = id not in coordinator.state.objects
        since = table.since if is_made_here else time
        await reshape(context, replace_plan(plan, definition=definition), table, since, time)
        _drop_sequences(context, plan.dropped_sequences)
        return Completed(plan.tag)
    if more:
        remember(context, id, old.desc)
    define_table(context, table, definition, new.desc.stored, adds_constraints=bool(more))
    if new.unique != old.unique:
        transaction.forget_keys(id)
    if more:
        committed = await committed_rows(context, id, old.desc, time)
        own = [part.rows.table for part in transaction.rows(id)]
        rows = await blocking.run(coordinator.executor, together, committed, own, old.desc)
        await verify(context, id, new, more, rows, committed, time)
        if id in coordinator.group:
            change.constrained_since[id] = min(time, coordinator.group.changed(id))
    if new.desc.names != old.desc.names:
        _rename_columns(change, id, old.desc, new.desc.names)
    await plan_above(context, id)
    _drop_sequences(context, plan.dropped_sequences)
    return Completed(plan.tag)


def _drop_sequences(context: StatementContext, ids: Sequence[GlobalId]) -> None:
    """Drop the sequences of columns that are no identity columns any longer."""
    state = context.catalog_change().state
    if ids:
        tell_cascaded(context, drop_objects(context, [*map(state.item, ids)], cascade=False))


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


def altered_indexes(context: StatementContext) -> Mapping[GlobalId, Mapping[str, KeyIndex]]:
    """Return the key indexes that the running transaction's new and altered tables will have."""
    change = context.catalog_change()
    found: dict[GlobalId, dict[str, KeyIndex]] = {}
    for id, planned in change.planned.items():
        item = change.state.get(id)
        if not isinstance(item, Item) or item.type != "table":
            continue
        found[id] = {}
        for constraint in planned.unique:
            index = committed_index(context, id, constraint, planned.desc)
            found[id][constraint.name] = index or KeyIndex(id, constraint, planned.desc, 0)
    return found


# --- what is lost --------------------------------------------------------------------------


def _refuse_loss(
    context: StatementContext,
    state: State,
    table: Item,
    old: Planned,
    new: Planned,
    columns: Columns,
) -> None:
    """Raise if something that is maintained rests on what the table promises no longer."""
    kept = new.unique
    lost = [
        f"constraint {each.name} on {describe(context, table)}"
        for each in old.unique
        if set(each.columns) <= set(columns)  # else it goes with its column
        and not any((now := was(other, columns)) and same(each, now) for other in kept)
    ]
    lost += [
        f"NOT NULL of column {old.desc.names[at]} of {describe(context, table)}"
        for at, after in zip(columns, new.desc.columns, strict=True)
        if at is not None and after.nullable and not old.desc.columns[at].nullable
    ]
    if not lost:
        return
    resting = [
        item
        for item in above(state, table.id)
        if item.type == "materialized view" or (item.on is not None and item.on != table.id)
    ]
    if resting:
        raise DependentObjectsStillExist(
            f"cannot drop {lost[0]} because other objects depend on it",
            detail="\n".join(f"{describe(context, item)} depends on {lost[0]}" for item in resting),
            hint="Drop what is maintained over the table first, and create it again.",
        )
