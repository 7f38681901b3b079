"""Foreign keys of what a statement writes: checks, and the actions of ON DELETE and ON UPDATE.

After the rows of a statement are staged, foreign keys are followed: rows that refer to a key which
is gone are deleted or updated, and so on. All checks come last, over what the statement has made of
the tables. They are about the newest committed rows with the transaction's own; group commit checks
once more that the keys to which new rows refer are there. A key is deleted only while the commit
finds that no row refers to it: rows are looked up as for a DELETE, so they are part of what the
transaction has read.

A deferred foreign key is checked in the same way over all that the transaction has written.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.staging import Staging
from foreshore.adapter.transaction.violations import match_full_nulls, not_present, still_referenced
from foreshore.adapter.write.referential_actions import acted, referring_rows
from foreshore.adapter.write.stage import key_index, stage_rows
from foreshore.adapter.write.target import planned_of, target_of
from foreshore.catalog.item import Item
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import MANY
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.keys.references import (
    MixedNulls,
    Reference,
    ReferredKeys,
    changed_keys,
    gone_keys,
    missing_places,
    reference_of,
    referred_keys,
    with_changed_reference,
)
from foreshore.errors import TableAltered, UndefinedObject, WrongObjectType
from foreshore.foreign_key import Action, ForeignKey
from foreshore.ids import GlobalId
from foreshore.sql.plan import SetConstraints
from foreshore.table_rows import TableRows
from foreshore.update import DIFF, TIME, at_time


async def follow(
    context: StatementContext, changes: Sequence[Staging]
) -> Sequence[ReferredKeys] | None:
    """Follow the foreign keys of, or to, the tables of `changes`, which are staged.

    Return the keys to which the new rows of a single change refer; None if others have followed, or
    if the commit has to check a foreign key by itself.
    """
    following = _Following(context)
    await following.run(changes)
    is_single = len(following.done) == 1 and not following.is_deferrable
    return following.refers if is_single else None


Pairs: TypeAlias = tuple[TableRows, TableRows]  # old and new rows, in one order


@dataclass(slots=True)
class _Following:
    """The foreign keys that a statement's changes concern."""

    context: StatementContext
    changes: deque[Staging] = field(default_factory=deque)
    done: list[Staging] = field(default_factory=list)
    refers: list[ReferredKeys] = field(default_factory=list)  # to which new rows do
    is_deferrable: bool = False  # whether the commit may check a foreign key
    referring: list[tuple[ForeignKey, Staging]] = field(default_factory=list)
    gone: list[tuple[Reference, ReferredKeys]] = field(default_factory=list)

    async def run(self, changes: Sequence[Staging]) -> None:
        context, state = self.context, self.context.planner.state
        self.changes.extend(changes)
        while self.changes:
            change = self.changes.popleft()
            self.done.append(change)
            id = change.target.id
            if change.inserted is not None:
                for key in state.foreign_keys_of(id):
                    self.is_deferrable |= key.deferrable or not key.valid
                    if not context.transaction.is_deferred(key):
                        self.referring.append((key, change))
            if change.deleted is not None:
                for child, key in state.references_to(id):
                    self.is_deferrable |= key.deferrable
                    await self._changed_keys(resolved(context, child, key), change)
        for reference, keys in self.gone:
            await check_unreferenced(context, reference, keys)
        for key, change in self.referring:
            assert change.inserted is not None
            reference = resolved(context, change.target.id, key)
            new, old = change.inserted, change.deleted
            if not key.valid:  # a row that does not change may refer to a missing key
                old, pairs = None, change.updated
                if pairs is not None and pairs[1].num_rows == new.num_rows:
                    new = with_changed_reference(reference, *pairs)
            self.refers.append(await check_present(context, reference, new, old))

    async def _changed_keys(self, reference: Reference, change: Staging) -> None:
        """Act on the keys that a change has deleted, or note them for the check at the end."""
        assert change.deleted is not None
        key, deferred = reference.key, self.context.transaction.is_deferred(reference.key)
        index, _ = await _referenced(self.context, reference)
        old, new = change.updated or (None, None)
        found: list[tuple[ReferredKeys, Action, Pairs | None]] = []
        if old is not None and new is not None and old.num_rows:
            acts = key.on_update != "no action"
            keys = changed_keys(reference, index, old, new)
            if len(keys) and not acts:
                keys = gone_keys(reference, index, old, change.inserted)
            found.append((keys, key.on_update, (old, new)))
        if old is None or change.deleted.num_rows > old.num_rows:
            kept = change.inserted if key.on_delete == "no action" else None
            gone = gone_keys(reference, index, change.deleted, kept, old)
            found.append((gone, key.on_delete, None))
        for keys, action, pairs in found:
            if not len(keys):
                continue
            if action == "no action":
                if not deferred:
                    self.gone.append((reference, keys))
            elif action == "restrict":
                await check_unreferenced(self.context, reference, keys, anyway=True)
            else:
                await self._act(reference, keys, action, pairs)

    async def _act(
        self,
        reference: Reference,
        keys: ReferredKeys,
        action: Action,
        updated: Pairs | None,
    ) -> None:
        context = self.context
        rows = await referring_rows(context, reference, keys)
        if not rows.num_rows:
            return
        target = target_of(context, reference.child, "UPDATE" if updated else "DELETE")
        change = await acted(context, target, reference, action, rows, updated)
        await stage_rows(context, target, deleted=change.deleted, inserted=change.inserted)
        self.changes.append(change)
        if action == "set default":  # which may be the key that is gone
            assert change.inserted is not None
            self.gone.append((reference, keys))


def resolved(context: StatementContext, child: GlobalId, key: ForeignKey) -> Reference:
    """Return a foreign key of table `child` over the present columns.

    Raises TableAltered if the referenced key is another one by now.
    """
    planned, parent = planned_of(context, child), planned_of(context, key.references)
    found = reference_of(child, key, planned.desc, parent.desc, parent.unique)
    if found is None:
        raise TableAltered
    return found


async def check_present(
    context: StatementContext,
    reference: Reference,
    new: TableRows,
    old: TableRows | None,
    *,
    are_all: bool = False,
) -> ReferredKeys:
    """Return the keys to which `new` rows refer; raises ForeignKeyViolation if one is missing.

    They are the transaction's own, some of which may be gone again, or all rows of the table.
    """
    index, own = await _referenced(context, reference)
    state, viewer = context.planner.state, context.viewer
    is_many = new.num_rows > MANY
    try:
        if is_many:
            run = context.engines.executor
            keys = await blocking.run(run, referred_keys, reference, index, new, old)
        else:
            keys = referred_keys(reference, index, new, old)
    except MixedNulls:
        raise match_full_nulls(state, state.item(reference.child), reference.key) from None
    if keys.out_of_range is not None:
        raise not_present(state, reference, keys.out_of_range, 0, viewer)
    if is_many:
        index.settled()
        missing = await blocking.run(context.engines.executor, missing_places, index, own, keys)
    else:
        missing = missing_places(index, own, keys)
    if not missing:
        return keys
    if are_all or _is_written(context, reference, index, keys.take(missing[:1])):
        raise not_present(state, reference, keys.columns, missing[0], viewer)
    return keys


def _is_written(
    context: StatementContext, reference: Reference, index: KeyIndex, missing: ReferredKeys
) -> bool:
    """Whether a row that refers to a missing key is still there after all that was written."""
    new, _ = net_rows(context, reference.child)
    found = referred_keys(reference, index, new, None)
    return not set(missing.hashes).isdisjoint(found.hashes)


async def check_unreferenced(
    context: StatementContext, reference: Reference, gone: ReferredKeys, *, anyway: bool = False
) -> None:
    """Raise ForeignKeyViolation if a row refers to a key that is there no more, or is `anyway`."""
    if not anyway:
        index, own = await _referenced(context, reference)
        gone = gone.take(missing_places(index, own, gone))
        if not len(gone):
            return
    rows = await referring_rows(context, reference, gone)
    if rows.num_rows:
        columns = [rows.table.column(i).combine_chunks() for i in reference.columns]
        state = context.planner.state
        raise still_referenced(state, reference, columns, 0, context.viewer)


async def _referenced(
    context: StatementContext, reference: Reference
) -> tuple[KeyIndex, OwnRows | None]:
    """Return the index of the referenced key, and the transaction's own rows by it."""
    parent = planned_of(context, reference.parent)
    await context.tables.keys.ready(reference.parent)
    index = key_index(context, reference.parent, parent.desc, reference.constraint)
    written = context.transaction.rows(reference.parent)
    return index, written.by_key(index.layout) if written else None


def net_rows(context: StatementContext, id: GlobalId) -> tuple[TableRows, TableRows]:
    """Return the rows that the transaction adds to a table and those that it takes away."""
    desc = target_of(context, id).desc
    parts = [part.rows for part in context.transaction.rows(id)]
    if len(parts) == 1 and parts[0].are_tuples:
        pairs = list(zip(parts[0].tuples, parts[0].diffs, strict=True))
        added = [row for row, diff in pairs if diff > 0]
        removed = [row for row, diff in pairs if diff < 0]
        return TableRows(desc, added), TableRows(desc, removed)
    tables = [part.table for part in parts]
    whole = pa.concat_tables(tables) if tables else TableRows(desc, ()).table
    net = whole
    if len(parts) > 1:
        net = consolidate(at_time(whole, 0), desc.stored_schema(), 0).drop_columns([TIME])
    diffs = net.column(DIFF).to_numpy()
    new, old = net.filter(pa.array(diffs > 0)), net.filter(pa.array(diffs < 0))
    return TableRows.of_table(desc, new), TableRows.of_table(desc, old).deleted()


async def set_constraints(context: StatementContext, plan: SetConstraints) -> Completed:
    """Run SET CONSTRAINTS: check foreign keys at the commit, or now and then after statements."""
    transaction = context.transaction
    if not transaction.block:
        context.notice(
            "SET CONSTRAINTS can only be used in transaction blocks",
            severity="WARNING",
            sqlstate="25P01",
        )
    named = [
        key.oid
        for name in plan.names
        for key in _called(context.planner, name, deferred=plan.deferred)
    ]
    deferred = dict.fromkeys(named if plan.names else (0,), plan.deferred)
    before = {**transaction.staged.deferred} if plan.names else {}
    transaction.staged = replace(transaction.staged, deferred={**before, **deferred})
    if not plan.deferred:
        for id in transaction.staged.rows:
            await _check_immediate(context, id)
    return Completed("SET CONSTRAINTS")


def _called(planner: Planner, parts: tuple[str, ...], *, deferred: bool) -> list[ForeignKey]:
    """Return the deferrable foreign keys of a name, in the first schema of the path that has it.

    If they are to be `deferred`, another constraint is an error.
    """
    reader = planner.reader()
    by_schema: dict[str, list[ForeignKey | None]] = {}
    for item in reader.state.all(Item):
        keys = {key.name: key for key in item.foreign_keys or ()}
        names = [*keys, *(each.name for each in item.constraints)]
        if parts[-1] in names and (len(parts) > 1 or reader.is_visible(item)):
            by_schema.setdefault(item.schema, []).append(keys.get(parts[-1]))
    schema = (
        reader.schema(parts[-3] if len(parts) > 2 else reader.database, parts[-2])
        if (len(parts) > 1)
        else None
    )
    found = by_schema.get(schema.id, []) if schema else next(iter(by_schema.values()), [])
    if not found:
        raise UndefinedObject(f'constraint "{parts[-1]}" does not exist')
    deferrable = [key for key in found if key is not None and key.deferrable]
    if deferred and len(deferrable) < len(found):
        raise WrongObjectType(f'constraint "{parts[-1]}" is not deferrable')
    return deferrable


async def referred_at_commit(context: StatementContext, id: GlobalId) -> Sequence[ReferredKeys]:
    """Return the keys to which a table's new rows refer, after checks that were deferred.

    Left out are keys of tables that the transaction has made or altered, which nobody else writes
    until it ends.
    """
    transaction, state = context.transaction, context.planner.state
    if not state.has_foreign_keys(id):
        return ()
    new, old = net_rows(context, id)
    for child, key in state.references_to(id):
        if key.deferrable:
            await _check_references(context, child, key, old, new)
    found = []
    for key in state.foreign_keys_of(id):
        reference = resolved(context, id, key)
        if key.deferrable:
            referred = await check_present(context, reference, new, old)
        else:
            index, _ = await _referenced(context, reference)
            referred = referred_keys(reference, index, new, old)
        if transaction.catalog is None or key.references not in transaction.catalog.planned:
            found.append(referred)
    return found


async def _check_immediate(context: StatementContext, id: GlobalId) -> None:
    """Check those deferrable foreign keys of a table, and to it, that are not deferred."""
    transaction, state = context.transaction, context.planner.state
    own = [(id, key) for key in state.foreign_keys_of(id)]
    checked = [
        (child, key)
        for child, key in dict.fromkeys([*own, *state.references_to(id)])
        if key.deferrable and not transaction.is_deferred(key)
    ]
    if not checked:
        return
    new, old = net_rows(context, id)
    for child, key in checked:
        if key.references == id:
            await _check_references(context, child, key, old, new)
        if child == id:
            await check_present(context, resolved(context, child, key), new, old)


async def _check_references(
    context: StatementContext, child: GlobalId, key: ForeignKey, old: TableRows, new: TableRows
) -> None:
    """Check that no row of `child` refers to a key that has gone from the table of the rows."""
    if "no action" in (key.on_delete, key.on_update):
        reference = resolved(context, child, key)
        index, _ = await _referenced(context, reference)
        await check_unreferenced(context, reference, gone_keys(reference, index, old, new))
