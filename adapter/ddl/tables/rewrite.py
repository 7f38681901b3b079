"""ALTER TABLE that adds and drops columns: the table becomes another collection.

A shard's columns never change. So the table, with its oid, name and comments, gets another id and
another shard, which begins with the old rows in the new columns. Indexes built from its shard get
other ids too. Everything that refers to the table is bound to the new id and planned again; views
keep the columns that they know (`catalog/known_columns.py`). Materialized views keep their shards.

The new shard begins with the committed rows as of the time when the table was locked, and cannot be
read earlier. The transaction's own rows follow when it commits.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.calls.side_effects import results_by_row
from foreshore.adapter.ddl.dependents import plan_dependents
from foreshore.adapter.ddl.drop import drop_objects, notify_cascaded
from foreshore.adapter.ddl.sequences import define_table
from foreshore.adapter.ddl.tables.verify_constraints import verify
from foreshore.adapter.definitions.plan_items import plan_created_table, plan_item
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.transaction import AlteredTable, Written
from foreshore.adapter.write.source import with_own_rows
from foreshore.adapter.write.stage import values_of
from foreshore.adapter.write.target import committed_rows
from foreshore.catalog.item import ColumnOf, Item, KnownColumn
from foreshore.catalog.known_columns import (
    known_columns,
    remember_columns,
    views_naming,
    without_column,
)
from foreshore.catalog.planned import Planned
from foreshore.catalog.table_changes import (
    AddedConstraints,
    indexes_of_shard,
    parts_of_column,
)
from foreshore.datum import repeat
from foreshore.errors import DatabaseError, DataError, FeatureNotSupported
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Call, Scalar
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.ids import GlobalId
from foreshore.rows import negated, repeated, split_diffs
from foreshore.sql.optimize.projection import narrow
from foreshore.sql.plan import AlterTable, CreateTable
from foreshore.sql.rewrite.bind_parameters import parameter_bindings
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc
from foreshore.update import DIFF, DIFF_FIELD, Timestamp


class Contents(Protocol):
    """A function that replaces the rows of a table while the table is rewritten."""

    async def __call__(self, desc: RelationDesc) -> pa.Table | None:
        """Return rows with `__diff` in these columns; None: those that it has."""
        ...


def requires_rewrite(old: Planned, plan: AlterTable) -> bool:
    """Return whether columns are added or dropped, or get other types."""
    return bool(plan.converted) or list(plan.columns) != list(range(len(old.desc.names)))


async def rewrite_table(
    context: StatementContext,
    plan: AlterTable,
    table: Item,
    added: AddedConstraints,
    time: Timestamp,
    contents: Contents | None = None,
) -> None:
    """Give `table`, which is locked, the columns of `plan`, with its rows as of `time`.

    `contents` gives other rows in place of them, if it has some.

    Raises PostgreSQL's errors for used columns that are dropped and for rows that violate added
    constraints.
    """
    change = context.catalog_change()
    planned = context.planner.reader().planned
    old, definition = planned[table.id], plan.definition
    since = time if table.id in context.names.state.objects else table.since
    assert definition is not None
    dropped = [
        (
            parts_of_column(change.state, planned, table.id, place),
            await blocking.run(None, _users, context, table, place),
        )
        for place, _ in plan.dropped
    ]
    for place, _ in plan.converted:
        await _refuse_users(context, table, plan.columns[place])
    ids = {table.id: change.allot_item()}
    for index in indexes_of_shard(change.state, planned, table.id):
        ids[index.id] = change.allot_item()
    remember_columns(change, table.id, old.desc, [place for place, _ in plan.dropped])
    adds = bool(added)
    define_table(
        context, table, definition, (), since=since, columns=plan.columns, adds_constraints=adds
    )
    change.rekey(ids)
    for id in ids:
        change.planned.pop(id, None)
    id = ids[table.id]
    new = change.planned[id] = plan_created_table(definition)
    for (place, cascade), (parts, users) in zip(plan.dropped, dropped, strict=True):
        name = old.desc.names[place]
        _drop_column(context, change.state.item(id), name, ids, parts, users, cascade)
    for item in change.state.items_above(id):
        if item.id not in context.names.state.objects and 0 < item.since < since:
            raise FeatureNotSupported(
                f'cannot add or drop columns of table "{table.name}" in the transaction that has '
                f'made {item.kind} "{item.name}" AS OF an earlier time'
            )
    await plan_dependents(context, id)
    given = None if contents is None else await contents(new.desc)
    before, after = (table.id, old), (id, new)
    await _move_rows(context, plan, definition, before, after, added, since, time, given)


# --- dropped columns -----------------------------------------------------------------------


def _users(context: StatementContext, table: Item, at: int) -> list[GlobalId]:
    """Return the views that use a column: their plan would change if it were all NULL.

    Ties under LIMIT are ignored.
    """
    reader = context.planner.reader()
    state, planned = reader.state, reader.planned
    desc = planned[table.id].desc

    def plan_with(item: Item, known: Sequence[KnownColumn]) -> object:
        columns = {**(item.known or {}), table.id: tuple(known)}
        try:
            plan = plan_item(state, planned, replace(item, known=columns))
        except DatabaseError as error:
            return error
        if item.is_policy:
            return tuple(narrow(each, ties=False) for each in plan.policy)
        if plan.body is None:
            assert plan.function is not None, item
            return plan.function  # it would be an error without a column that it uses
        return narrow(plan.body, ties=False)

    found = []
    for item in views_naming(state, table.id):
        if item.part_of == table.id:
            continue  # the progress of a source, and the like, which are tables
        known = known_columns(item, table.id, desc)
        gone = without_column(known, desc.names[at], desc.columns[at])
        if plan_with(item, known) != plan_with(item, gone):
            found.append(item.id)
    return found


async def _refuse_users(context: StatementContext, table: Item, place: int | None) -> None:
    """Raise if a view uses a column whose type is to change."""
    assert place is not None
    users = await blocking.run(None, _users, context, table, place)
    if users:
        reader = context.planner.reader()
        user = reader.state.item(users[0])
        column = reader.planned[table.id].desc.names[place]
        if user.is_policy:
            raise FeatureNotSupported(
                "cannot alter type of a column used in a policy definition",
                detail=f'{reader.describe(user)} depends on column "{column}"',
            )
        raise FeatureNotSupported(
            "cannot alter type of a column used by a view or rule",
            detail=f'rule _RETURN on view {user.name} depends on column "{column}"',
        )


def _drop_column(
    context: StatementContext,
    table: Item,
    name: str,
    ids: Mapping[GlobalId, GlobalId],
    parts: Sequence[GlobalId],
    users: Sequence[GlobalId],
    cascade: bool,
) -> None:
    """Drop the parts of a dropped column, and its users if `cascade`; raise if there are users."""
    change = context.catalog_change()

    def present(each: Sequence[GlobalId]) -> tuple[Item, ...]:
        now = [ids.get(id, id) for id in each]
        return tuple(change.state.item(id) for id in now if id in change.state.objects)

    column = ColumnOf(f"{table.id}.{name}", name, table, present(parts), present(users))
    notify_cascaded(context.notice, drop_objects(context, [column], cascade=cascade))


# --- rows ----------------------------------------------------------------------------------


async def _move_rows(
    context: StatementContext,
    plan: AlterTable,
    definition: CreateTable,
    before: tuple[GlobalId, Planned],
    after: tuple[GlobalId, Planned],
    added: AddedConstraints,
    since: Timestamp,
    time: Timestamp,
    given: pa.Table | None,
) -> None:
    """Stage the rows of the new collection; raise if they violate added constraints."""
    transaction, executor = context.transaction, context.engines.executor
    (old_id, old), (id, new) = before, after
    committed = await committed_rows(context, old_id, old.desc, time)
    own = [part.rows.table for part in transaction.rows(old_id)]
    transaction.unwrite(old_id)
    transaction.stage_altered(old_id, AlteredTable())
    if given is not None:
        rows = contents = given
    elif all(pc.min(part.column(DIFF)).as_py() > 0 for part in own):
        contents = await _in_columns(context, committed, plan, definition)
        parts = [await _in_columns(context, part, plan, definition) for part in own]
        for part in parts:
            transaction.write(id, Written(TableRows.of_table(new.desc, part), {}))
        rows = pa.concat_tables([contents, *parts])
    else:
        mixed = await blocking.run(executor, with_own_rows, committed, own, old.desc)
        rows = await _in_columns(context, mixed, plan, definition)
        contents = await _in_columns(context, committed, plan, definition)
        for part in (negated(contents), rows):
            transaction.write(id, Written(TableRows.of_table(new.desc, part), {}))
    transaction.stage_altered(id, AlteredTable(contents=contents))
    await verify(context, id, new, added, rows, contents, since)


async def _in_columns(
    context: StatementContext,
    rows: pa.Table,
    plan: AlterTable,
    definition: CreateTable,
) -> pa.Table:
    """Return rows with `__diff` in the columns of `definition`.

    A new column has its default, evaluated once, or for each row if it calls nextval. Columns that
    are converted or generated are computed.
    """
    engines, columns = context.engines, plan.columns
    replace = parameter_bindings((), context.session_value(context.times.oracle.read_ts()))
    defaults = {
        place: definition.defaults[place] for place, was in enumerate(columns) if was is None
    }
    by_row = {place for place, default in defaults.items() if _calls_nextval(default)}
    if by_row:
        rows = await blocking.run(engines.executor, repeated, rows)
    given: dict[int, pa.Array] = {}
    for place, default in defaults.items():
        if place in by_row:
            numbers = await results_by_row(context, rows, (default,), replace)
            given[place] = split_diffs(numbers)[0][0]
        else:
            value = constant(bind_scalar(default, replace))
            if isinstance(value, str):
                raise DataError.parse(value)
            type = definition.desc.columns[place].type
            given[place] = await blocking.run(
                engines.executor, repeat, value.value, type, rows.num_rows
            )
    kept = [given[place] if was is None else rows.column(was) for place, was in enumerate(columns)]
    if plan.converted or definition.computed:
        kept = await blocking.run(
            engines.executor, _computed, kept, rows, plan, definition, replace
        )
    schema = definition.desc.stored_schema().append(DIFF_FIELD)
    return pa.Table.from_arrays([*kept, rows.column(rows.num_columns - 1)], schema=schema)


def _computed(
    kept: Sequence[pa.ChunkedArray | pa.Array],
    rows: pa.Table,
    plan: AlterTable,
    definition: CreateTable,
    replace: Replace,
) -> list[pa.Array]:
    """Return the new columns with those computed that are converted, or generated and new."""
    new, (old, diffs) = [*kept], split_diffs(rows)
    for place, value in plan.converted:
        new[place] = values_of(bind_scalar(value, replace), old, rows.num_rows)
    added = [each for each in definition.computed if plan.columns[each[0]] is None]
    if added:
        names = [str(i) for i in range(len(new) + 1)]
        whole, _ = split_diffs(pa.Table.from_arrays([*new, diffs], names=names))
        for place, value in added:
            new[place] = values_of(value, whole, rows.num_rows)
    return new


def _calls_nextval(default: Scalar) -> bool:
    return any(isinstance(e, Call) and e.number > 0 for e in walk_scalars(default))
