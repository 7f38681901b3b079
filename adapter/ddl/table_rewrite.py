"""ALTER TABLE that adds and drops columns: the table goes on as another collection.

A shard has the columns that it was made with. So the table, with its oid, name and all that is said
of it, gets another id and another shard, which begins with the rows of the old one in the new
columns; indexes that are made of it get other ids too. Whatever refers to the table is bound to the
new id and planned anew: it knows the columns that it always knew (`Item.known`). Materialized
views keep their shards, in which nothing changes.

The rows are those at the time when the table was locked, and stand in the new shard at that time
(`AlteredTable.contents`); earlier it cannot be read. What the transaction itself has written, and
goes on to write, follows at its commit.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.ddl.definitions import constraint_names, plan_created_table, plan_item
from foreshore.adapter.ddl.drop import drop_objects, tell_cascaded
from foreshore.adapter.ddl.verify_constraints import Gained, gained, together, verify
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.side_effects import results_by_row
from foreshore.adapter.transaction.transaction import AlteredTable
from foreshore.adapter.transaction.written_rows import Written
from foreshore.adapter.write.target import committed_rows
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import ColumnOf, Item, KnownColumn
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError, DataError, FeatureNotSupported
from foreshore.expr.datum import repeat
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Call, Scalar, sources_of, walk_scalars
from foreshore.expr.split import columns_used
from foreshore.ids import GlobalId
from foreshore.rows import negated, repeated, split_diffs
from foreshore.sql.optimize.projection import narrow
from foreshore.sql.plan import AlterTable, CreateTable
from foreshore.sql.rewrite.bind_parameters import bind_scalar, parameter_bindings
from foreshore.table_rows import TableRows
from foreshore.types import ColumnType, RelationDesc
from foreshore.update import DIFF, DIFF_FIELD, Timestamp


async def reshape(
    context: StatementContext, plan: AlterTable, table: Item, since: Timestamp, time: Timestamp
) -> None:
    """Let `table` have the columns that `plan` says, with its rows as of `time`.

    Nobody else writes it, and it can be read from `since` on. Raises what PostgreSQL would if
    others use a dropped column, or if the rows do not fulfil what the new columns promise.
    """
    change = context.catalog_change()
    planned = context.planner.reader().planned
    old, definition = planned[table.id], plan.definition
    assert definition is not None
    going = [
        (
            _parts(change.state, planned, table.id, at),
            await blocking.run(None, _users, context, table, at),
        )
        for at, _ in plan.dropped
    ]
    ids = {table.id: change.allot_item()}
    for index in _indexes_of(change.state, planned, table.id):
        ids[index.id] = change.allot_item()
    remember(context, table.id, old.desc, [at for at, _ in plan.dropped])
    more = gained(old, plan_created_table(definition), plan.columns)
    change.alter_table(
        table,
        definition.sql,
        constraint_names(definition),
        since,
        definition.depends_on,
        columns=plan.columns,
        adds_constraints=bool(more),
    )
    change.rekey(ids)
    for id in ids:
        change.planned.pop(id, None)
    id = ids[table.id]
    new = change.planned[id] = plan_created_table(definition)
    for (at, cascade), (parts, users) in zip(plan.dropped, going, strict=True):
        _drop_column(context, change.state.item(id), old.desc.names[at], ids, parts, users, cascade)
    for item in above(change.state, id):
        if item.id not in context.coordinator.state.objects and 0 < item.since < since:
            raise FeatureNotSupported(
                f'cannot add or drop columns of table "{table.name}" in the transaction that has '
                f'made {item.kind} "{item.name}" AS OF an earlier time'
            )
    await plan_above(context, id)
    await _move_rows(context, plan, definition, (table.id, old), (id, new), more, since, time)


def above(state: State, id: GlobalId) -> Iterator[Item]:
    """Yield the items that depend on `id`, those first on which others depend."""
    below = {id}
    for item in state.items():
        if not below.isdisjoint(item.depends_on):
            below.add(item.id)
            yield item


async def plan_above(context: StatementContext, id: GlobalId) -> None:
    """Plan what depends on table `id` anew, in the running transaction."""
    change, planned = context.catalog_change(), dict(context.planner.reader().planned)
    state = change.state
    items = list(above(state, id))

    def plan() -> dict[GlobalId, Planned]:
        for item in items:
            planned[item.id] = plan_item(state, planned, item)
        return {item.id: planned[item.id] for item in items}

    change.planned.update(await blocking.run(None, plan))


def _indexes_of(
    state: State, planned: Mapping[GlobalId, Planned], table: GlobalId
) -> Iterator[Item]:
    """Yield the indexes whose contents are made of the table's shard."""
    for item in above(state, table):
        if item.on is not None:
            definition = planned[item.on].definition
            is_view = state.item(item.on).type == "view"
            if item.on == table or (
                is_view and definition is not None and table in sources_of(definition)
            ):
                yield item


# --- what knows the columns ----------------------------------------------------------------


def _knows(item: Item, table: GlobalId, desc: RelationDesc) -> Sequence[KnownColumn]:
    """Return the columns of `table` as the definition of a view knows them."""
    known = (item.known or {}).get(table)
    if known is None:
        known = tuple(KnownColumn(name, name) for name in desc.names)
    nullable = {n for n, column in zip(desc.names, desc.columns, strict=True) if column.nullable}
    return [replace(c, nullable=c.nullable or c.now in nullable) for c in known]


def _known_keys(
    item: Item, table: GlobalId, known: Sequence[KnownColumn], desc: RelationDesc
) -> Sequence[tuple[str, ...]]:
    """Return the keys of `table` as the definition of a view knows them."""
    names = {each.now: each.name for each in known}
    by_name = [[desc.names[place] for place in key] for key in desc.keys]
    present = [tuple(names[name] for name in key) for key in by_name if set(key) <= names.keys()]
    keys = (item.known_keys or {}).get(table)
    if keys is None:
        return present
    # One that was lost meanwhile, as nothing was maintained, is not taken up again.
    return [key for key in keys if any(set(each) <= set(key) for each in present)]


def _without(known: Sequence[KnownColumn], name: str, column: ColumnType) -> list[KnownColumn]:
    return [KnownColumn(c.name, None, column.type) if c.now == name else c for c in known]


def _views(state: State, table: GlobalId) -> list[Item]:
    """Return the views that name the table."""
    items = sorted(map(state.item, state.dependents.get(table, ())), key=lambda item: item.oid)
    return [item for item in items if item.on is None]


def remember(
    context: StatementContext, table: GlobalId, desc: RelationDesc, dropped: Sequence[int] = ()
) -> None:
    """Let the views that name the table keep the columns that they know, and what those promise."""
    change = context.catalog_change()
    for item in _views(change.state, table):
        known = _knows(item, table, desc)
        keys = _known_keys(item, table, known, desc)
        for at in dropped:
            known = _without(known, desc.names[at], desc.columns[at])
        change.remember(item, table, known, keys)


# --- what goes with a column ---------------------------------------------------------------


def _parts(
    state: State, planned: Mapping[GlobalId, Planned], table: GlobalId, at: int
) -> list[GlobalId]:
    """Return the indexes of the table over a column, and the sequences that are its own."""
    name = planned[table].desc.names[at]
    indexes = [
        item.id
        for item in state.indexes_on(table)
        if any(at in columns_used(scalar) for scalar in planned[item.id].key)
    ]
    return indexes + [
        item.id
        for item in state.sequences_of(table)
        if item.owned_by and item.owned_by.column == name
    ]


def _users(context: StatementContext, table: Item, at: int) -> list[GlobalId]:
    """Return the views that use a column: that would mean something else if it were all NULL.

    Which of equals a LIMIT takes is no meaning.
    """
    reader = context.planner.reader()
    state, planned = reader.state, reader.planned
    desc = planned[table.id].desc

    def meaning(item: Item, known: Sequence[KnownColumn]) -> object:
        columns = {**(item.known or {}), table.id: tuple(known)}
        try:
            plan = plan_item(state, planned, replace(item, known=columns))
        except DatabaseError as error:
            return error
        assert plan.definition is not None, item
        return narrow(plan.definition, ties=False)

    found = []
    for item in _views(state, table.id):
        known = _knows(item, table.id, desc)
        gone = _without(known, desc.names[at], desc.columns[at])
        if meaning(item, known) != meaning(item, gone):
            found.append(item.id)
    return found


def _drop_column(
    context: StatementContext,
    table: Item,
    name: str,
    ids: Mapping[GlobalId, GlobalId],
    parts: Sequence[GlobalId],
    users: Sequence[GlobalId],
    cascade: bool,
) -> None:
    """Drop what goes with a column that the table has no longer; raises if that may not be."""
    change = context.catalog_change()

    def present(each: Sequence[GlobalId]) -> tuple[Item, ...]:
        now = [ids.get(id, id) for id in each]
        return tuple(change.state.item(id) for id in now if id in change.state.objects)

    column = ColumnOf(f"{table.id}.{name}", name, table, present(parts), present(users))
    tell_cascaded(context, drop_objects(context, [column], cascade=cascade))


# --- rows ----------------------------------------------------------------------------------


async def _move_rows(
    context: StatementContext,
    plan: AlterTable,
    definition: CreateTable,
    before: tuple[GlobalId, Planned],
    after: tuple[GlobalId, Planned],
    more: Gained,
    since: Timestamp,
    time: Timestamp,
) -> None:
    """Let the new collection begin with the rows of the old; raises if they may not be there."""
    transaction, executor = context.transaction, context.coordinator.executor
    (old_id, old), (id, new) = before, after
    committed = await committed_rows(context, old_id, old.desc, time)
    own = [part.rows.table for part in transaction.rows(old_id)]
    transaction.unwrite(old_id)
    transaction.stage_altered(old_id, AlteredTable())
    if own and all(pc.min(part.column(DIFF)).as_py() > 0 for part in own):
        contents = await _in_columns(context, committed, plan.columns, definition)
        parts = [await _in_columns(context, part, plan.columns, definition) for part in own]
        for part in parts:
            transaction.write(id, Written(TableRows.of_table(new.desc, part), {}))
        rows = pa.concat_tables([contents, *parts])
    elif own:
        mixed = await blocking.run(executor, together, committed, own, old.desc)
        rows = await _in_columns(context, mixed, plan.columns, definition)
        contents = await _in_columns(context, committed, plan.columns, definition)
        for part in (negated(contents), rows):
            transaction.write(id, Written(TableRows.of_table(new.desc, part), {}))
    else:
        rows = contents = await _in_columns(context, committed, plan.columns, definition)
    transaction.stage_altered(id, AlteredTable(contents=contents))
    await verify(context, id, new, more, rows, contents, since)


async def _in_columns(
    context: StatementContext,
    rows: pa.Table,
    columns: Sequence[int | None],
    definition: CreateTable,
) -> pa.Table:
    """Return rows with `__diff` in the columns of `definition`.

    `columns` says where each was; a new one has its default, the same in all rows unless that takes
    numbers from a sequence.
    """
    coordinator = context.coordinator
    replace = parameter_bindings((), context.environment_values(coordinator.oracle.read_ts()))
    defaults = {
        place: definition.defaults[place] for place, was in enumerate(columns) if was is None
    }
    counting = {place for place, default in defaults.items() if _takes_numbers(default)}
    if counting:
        rows = await blocking.run(coordinator.executor, repeated, rows)
    given: dict[int, pa.Array] = {}
    for place, default in defaults.items():
        if place in counting:
            numbers = await results_by_row(context, rows, (default,), replace)
            given[place] = split_diffs(numbers)[0][0]
        else:
            value = constant(bind_scalar(default, replace))
            if isinstance(value, str):
                raise DataError.parse(value)
            type = definition.desc.columns[place].type
            given[place] = await blocking.run(
                coordinator.executor, repeat, value.value, type, rows.num_rows
            )
    kept = [given[place] if was is None else rows.column(was) for place, was in enumerate(columns)]
    schema = definition.desc.stored_schema().append(DIFF_FIELD)
    return pa.Table.from_arrays([*kept, rows.column(rows.num_columns - 1)], schema=schema)


def _takes_numbers(default: Scalar) -> bool:
    return any(isinstance(e, Call) and e.number > 0 for e in walk_scalars(default))
