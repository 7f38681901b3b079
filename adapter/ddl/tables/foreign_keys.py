"""Foreign keys in CREATE TABLE and ALTER TABLE: they are added, validated, renamed and dropped."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import msgspec

from foreshore import blocking
from foreshore.adapter.ddl.sequences import remember_committed
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.write.foreign_keys import check_present, resolved
from foreshore.adapter.write.source import with_own_rows
from foreshore.adapter.write.target import committed_rows, lock_to_alter, target_of
from foreshore.catalog.planned import Planned
from foreshore.catalog.transaction import Transaction
from foreshore.errors import DependentObjectsStillExist
from foreshore.foreign_key import THIS_TABLE, ForeignKey
from foreshore.ids import GlobalId
from foreshore.sql.bind.definitions.foreign_keys import check_types
from foreshore.sql.plan import ForeignKeyChanges
from foreshore.table_rows import TableRows


async def add_foreign_keys(
    context: StatementContext, table: GlobalId, new: Sequence[ForeignKey]
) -> None:
    """Add foreign keys to a table; raises ForeignKeyViolation if a row breaks one that is valid.

    The referenced tables are locked until the transaction ends, as is the table, unless it is new.
    """
    keys = [
        msgspec.structs.replace(key, references=table) if key.references == THIS_TABLE else key
        for key in new
    ]
    parents = sorted({key.references for key in keys} - {table})
    await lock_to_alter(context, parents)
    change = context.catalog_change()
    state = change.state
    change.set_foreign_keys(state.item(table), (*state.foreign_keys_of(table), *keys))
    plan_again(context, (table, *parents))
    for key in keys:
        if key.valid:
            await _verify(context, table, key)


def plan_again(context: StatementContext, tables: Iterable[GlobalId]) -> None:
    """Let writes to tables that were planned before the change of a foreign key fail."""
    change, planned = context.catalog_change(), context.planner.reader().planned
    for id in tables:
        if id in context.names.state.objects:
            remember_committed(context.transaction, context.names.catalog, id)
        change.planned[id] = replace(planned[id])


async def _verify(context: StatementContext, table: GlobalId, key: ForeignKey) -> None:
    target = target_of(context, table)
    time = context.times.oracle.read_ts()
    committed = await committed_rows(context, table, target.desc, time)
    own = [part.rows.table for part in context.transaction.rows(table)]
    rows = await blocking.run(context.engines.executor, with_own_rows, committed, own, target.desc)
    if rows.num_rows:
        found = TableRows.of_table(target.desc, rows)
        await check_present(context, resolved(context, table, key), found, None, are_all=True)


async def change_foreign_keys(
    context: StatementContext, table: GlobalId, changes: ForeignKeyChanges
) -> None:
    """Drop, rename and validate foreign keys of a table, which is locked."""
    change = context.catalog_change()
    renamed = dict(changes.renamed)
    keys = []
    touched = {table}
    for key in change.state.foreign_keys_of(table):
        if key.name in changes.dropped:
            touched.add(key.references)
            continue
        kept = msgspec.structs.replace(key, name=renamed.get(key.name, key.name))
        if key.name in changes.validated and not key.valid:
            await _verify(context, table, key)
            kept = msgspec.structs.replace(kept, valid=True)
        keys.append(kept)
    if tuple(keys) != change.state.foreign_keys_of(table):
        change.set_foreign_keys(change.state.item(table), keys)
        plan_again(context, touched)


async def verify_converted(
    context: StatementContext, table: GlobalId, columns: Collection[str]
) -> None:
    """Verify the foreign keys of a table, and to it, whose `columns` have got other types."""
    state = context.catalog_change().state
    keys = [(table, key) for key in state.foreign_keys_of(table) if {*columns} & {*key.columns}]
    keys += [(c, key) for c, key in state.references_to(table) if {*columns} & {*key.referenced}]
    for child, key in dict.fromkeys(keys):
        own, other = target_of(context, child).desc, target_of(context, key.references).desc
        check_types(key, own, other)
        await _verify(context, child, key)


def rename_columns(change: Transaction, table: GlobalId, renamed: dict[str, str]) -> None:
    """Rename columns of a table in the foreign keys that have them."""
    owners = {table, *(child for child, _ in change.state.references_to(table))}
    for owner in sorted(owners):
        keys = change.state.foreign_keys_of(owner)
        for old, new in renamed.items():
            keys = tuple(key.renamed(table, owner, old, new) for key in keys)
        if keys != change.state.foreign_keys_of(owner):
            change.set_foreign_keys(change.state.item(owner), keys)


def drop_needing(
    context: StatementContext, table: GlobalId, old: Planned, new: Planned, *, cascade: bool
) -> None:
    """Drop the foreign keys whose key a table loses; raise without `cascade`."""
    change, reader = context.catalog_change(), context.planner.reader()
    for child, key in change.state.references_to(table):
        if not set(key.referenced) <= set(new.desc.names):
            continue  # it goes with its column
        if any(_names(new, each.columns) == set(key.referenced) for each in new.unique):
            continue
        lost = next(e for e in old.unique if _names(old, e.columns) == set(key.referenced))
        described = f"constraint {key.name} on {reader.describe(change.state.item(child))}"
        if not cascade:
            on = reader.describe(change.state.item(table))
            raise DependentObjectsStillExist(
                f"cannot drop constraint {lost.name} on {on} because other objects depend on it",
                detail=f"{described} depends on index {lost.name}",
                hint="Use DROP ... CASCADE to drop the dependent objects too.",
            )
        context.notice(f"drop cascades to {described}")
        left = [each for each in change.state.foreign_keys_of(child) if each.name != key.name]
        change.set_foreign_keys(change.state.item(child), left)
        plan_again(context, (child,))


def _names(planned: Planned, columns: Sequence[int]) -> set[str]:
    return {planned.desc.names[i] for i in columns}
