"""ALTER TABLE: plan the edited definition, and check the table's rows against it.

The table is locked until the transaction ends. So constraints that its rows satisfy hold when the
change commits, and later writes are checked against the new definition. Constraints that plans of
maintained views may rely on cannot be dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_plan

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.create import refuse_reserved
from foreshore.adapter.ddl.dependents import plan_dependents
from foreshore.adapter.ddl.drop import drop_objects
from foreshore.adapter.ddl.durable_subscriptions import refuse_subscribed
from foreshore.adapter.ddl.policy_names import follow_names
from foreshore.adapter.ddl.sequences import alter_sequence, define_table, remember_committed
from foreshore.adapter.ddl.tables import foreign_keys
from foreshore.adapter.ddl.tables.create import with_sequences
from foreshore.adapter.ddl.tables.foreign_keys import (
    add_foreign_keys,
    change_foreign_keys,
    drop_needing,
    verify_converted,
)
from foreshore.adapter.ddl.tables.rewrite import Contents, requires_rewrite, rewrite_table
from foreshore.adapter.ddl.tables.verify_constraints import verify
from foreshore.adapter.definitions.plan_items import plan_created_table
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.write.source import with_own_rows
from foreshore.adapter.write.stage import committed_index
from foreshore.adapter.write.target import committed_rows, lock_to_alter
from foreshore.catalog.item import Item
from foreshore.catalog.known_columns import remember_columns, rename_columns
from foreshore.catalog.planned import Planned
from foreshore.catalog.table_changes import (
    AddedConstraints,
    added_constraints,
    check_dropped_constraints,
)
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.ids import GlobalId
from foreshore.sql.plan import AlterTable, CreateTable
from foreshore.sql.rewrite.column_names import index_with_column_renamed
from foreshore.update import Timestamp


async def alter_table(
    context: StatementContext, plan: AlterTable, contents: Contents | None = None
) -> Completed:
    """Run ALTER TABLE; `contents` may give other rows to a table that gets other columns."""
    for notice in plan.notices:
        context.notice(notice)
    if plan.table is None:
        return Completed(plan.tag)
    assert plan.definition is not None
    id = plan.table
    await lock_to_alter(context, (id,))
    table, old = context.catalog_change().state.item(id), context.planner.reader().planned[id]
    refuse_reserved([n for n in plan.definition.desc.names if n not in old.desc.names])
    time = await _time_to_alter(context, id)
    for sequence in plan.altered_sequences:
        alter_sequence(context, sequence)
    definition = plan.definition
    if definition.sequences:
        definition = with_sequences(context, id, definition)
    is_rewritten = requires_rewrite(old, plan)
    new = plan_created_table(definition, () if is_rewritten else old.desc.stored or old.desc.names)
    check_dropped_constraints(context.planner.reader(), table, old, new, plan.columns)
    drop_needing(context, id, old, new, cascade=plan.foreign.cascade)
    table = context.catalog_change().state.item(id)
    added = added_constraints(
        old, new, plan.columns, rewritten=is_rewritten, converted=bool(plan.converted)
    )
    if is_rewritten or added:
        refuse_subscribed(context.planner, table)
    await change_foreign_keys(context, id, plan.foreign)
    table = context.catalog_change().state.item(id)
    if is_rewritten:
        altered = replace_plan(plan, definition=definition)
        await rewrite_table(context, altered, table, added, time, contents)
    else:
        await _redefine(context, definition, table, (old, new), added, time)
    now = context.catalog_change().state.item_with(table.oid)
    assert now is not None, table
    if plan.converted:
        names = [plan.definition.desc.names[place] for place, _ in plan.converted]
        await verify_converted(context, now.id, names)
    if plan.foreign.added:
        await add_foreign_keys(context, now.id, plan.foreign.added)
    if plan.dropped_sequences:  # of columns that are not identity columns any more
        items = [*map(context.catalog_change().state.item, plan.dropped_sequences)]
        drop_objects(context, items, cascade=False)
    return Completed(plan.tag)


async def _time_to_alter(context: StatementContext, id: GlobalId) -> Timestamp:
    """Return the time of the committed rows to check; a committed table's definition is kept."""
    if id in context.names.state.objects:
        await context.tables.keys.ready(id)
        remember_committed(context.transaction, context.names.catalog, id)
    return context.times.oracle.read_ts()


async def _redefine(
    context: StatementContext,
    definition: CreateTable,
    table: Item,
    planned: tuple[Planned, Planned],
    added: AddedConstraints,
    time: Timestamp,
) -> None:
    """Give a table another definition over the same shard; `planned` are the old and the new."""
    change = context.catalog_change()
    (old, new), id = planned, table.id
    if added:
        remember_columns(change, id, old.desc)
    define_table(context, table, definition, new.desc.stored, adds_constraints=bool(added))
    if new.unique != old.unique:
        context.transaction.forget_keys(id)
    if added:
        committed = await committed_rows(context, id, old.desc, time)
        own = [part.rows.table for part in context.transaction.rows(id)]
        rows = await blocking.run(context.engines.executor, with_own_rows, committed, own, old.desc)
        await verify(context, id, new, added, rows, committed, time)
        if id in context.tables.group:
            change.constrained_since[id] = min(time, context.tables.group.changed(id))
    if new.desc.names != old.desc.names:
        renamed = rename_dependents_columns(change, id, old.desc.names, new.desc.names)
        await blocking.run(None, follow_names, context, change.state.item(id), renamed)
    await plan_dependents(context, id)


def rename_dependents_columns(
    change: CatalogTransaction, table: GlobalId, old: Sequence[str], names: Sequence[str]
) -> dict[str, str]:
    """Rename columns of a relation in all but policies that refers to them; return the names."""
    renamed = {then: now for then, now in zip(old, names, strict=True) if then != now}
    rename_columns(change, table, old, renamed)
    for index in change.state.indexes_on(table):
        sql = index.create_sql
        for then, now in renamed.items():
            sql = index_with_column_renamed(sql, then, now)
        change.alter_index(index, sql)
    foreign_keys.rename_columns(change, table, renamed)
    return renamed


def altered_indexes(context: StatementContext) -> Mapping[GlobalId, Mapping[str, KeyIndex]]:
    """Return the key indexes that the running transaction's new and altered tables will have."""
    change = context.catalog_change()
    found: dict[GlobalId, dict[str, KeyIndex]] = {}
    for id, planned in change.planned.items():
        item = change.state.get(id)
        if not isinstance(item, Item) or not item.has_key_indexes:
            continue
        found[id] = {}
        for constraint in planned.unique:
            index = committed_index(context, id, constraint, planned.desc)
            found[id][constraint.name] = index or KeyIndex(id, constraint, planned.desc, 0)
    return found
