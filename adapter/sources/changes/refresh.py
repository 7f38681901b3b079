"""ALTER SOURCE ... REFRESH TABLE: relations get the columns that their tables have there now.

The relation is altered as a table is by ALTER TABLE: views above keep the columns that they know,
and what is in use cannot be dropped or converted. With new columns it gets the present rows in the
same change (`_Contents`). The connector gets the table as a new one (`Details.number`): it reads
all rows at a place of the log and writes the difference at one time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.durable_subscriptions import subscribed_by
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.external.details import details_of, table_of
from foreshore.adapter.sources.changes.altering import alter_part
from foreshore.adapter.sources.changes.refresh_lake import is_lake_table, refresh_lake_table
from foreshore.adapter.sources.tables import is_table, source_called
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.news import Notices
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.errors import (
    DatabaseError,
    DependentObjectsStillExist,
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.sources.outputs import Column, Output
from foreshore.sources.postgres import PostgresSource
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.plan import RefreshSourceTables
from foreshore.sql.rewrite.full_names import dotted
from foreshore.storage.ingest.messages import OutputRelation
from foreshore.storage.ingest.postgres.details import ADDED, Details
from foreshore.types import RelationDesc


async def refresh_source_tables(context: StatementContext, plan: RefreshSourceTables) -> Completed:
    """Run ALTER SOURCE ... REFRESH TABLE."""
    source = source_called(context.planner, context.notice, plan.source, plan.if_exists)
    if source is not None:
        assert source.feed
        if is_lake_table(source.feed.spec):
            await refresh_lake_table(context, source, plan.names)
            return Completed("ALTER SOURCE")
        if not isinstance(source.feed.spec, PostgresSource):
            raise FeatureNotSupported("only tables of PostgreSQL and of lakes can be refreshed")
        for name in plan.names:
            found = find_if_exists(
                context.planner, context.notice, "source", name, if_exists=False, altered=True
            )
            assert isinstance(found, Item), found
            if not is_table(source, found):
                raise WrongObjectType(f'"{found.name}" is not a table of source "{source.name}"')
            await _refresh(context, source, found)
    return Completed("ALTER SOURCE")


async def _refresh(context: StatementContext, source: Item, table: Item) -> None:
    assert context.discovered is not None, source
    assert table.feed, table
    feed, outputs = table.feed, context.discovered.outputs
    if feed.reference not in outputs:
        raise UndefinedTable(f'table "{table_of(feed)}" does not exist in the source')
    output = outputs[feed.reference]
    if output.obstacle:
        raise ObjectNotInPrerequisiteState(output.obstacle, hint=output.hint or None)
    old = details_of(feed)
    new = msgspec.json.decode(output.details, type=Details)
    planned = context.planner.reader().planned[table.id]
    left_out = _left_out(context.planner, context.notice, table, old, output)
    if left_out:
        kept = [each for each in output.columns if each.name not in left_out]
        output = msgspec.structs.replace(output, columns=tuple(kept))
    actions = _actions(planned, old, new, output)
    lost = [name for name, *type in old.columns if _type_in(new, name) != type]
    if lost and (reads := subscribed_by(context.planner, table)) is not None:
        raise _needed(context.planner, source, table, reads)
    contents = _Contents(context, source, table, new, left_out, output)
    now = await _alter(context, table, actions, contents)
    filled = [
        f"ALTER COLUMN {quote_identifier(each.name)} DROP DEFAULT"
        for each in _added(old, output)
        if each.missing is not None
    ]
    now = await _alter(context, now, filled)
    change = context.catalog_change()
    names = change.planned[now.id].desc.names if actions else planned.desc.names
    has_key = bool(context.planner.reader().planned[now.id].unique)
    text = _details(old, new, names, left_out, has_key=has_key)
    needs = tuple(sorted({*now.depends_on, source.id}))
    change.put(
        msgspec.structs.replace(
            now,
            feed=msgspec.structs.replace(feed, details=text),
            depends_on=needs,
            bound=tuple((change.state.full_name(change.state.item(id)), id) for id in needs),
        )
    )


def _details(
    old: Details, new: Details, names: Sequence[str], left_out: tuple[str, ...], *, has_key: bool
) -> str:
    """Return what a relation with these columns remembers of its table from the refresh on."""
    by_name = {each[0]: each for each in new.columns}
    details = Details(
        new.oid,
        tuple(by_name[each] for each in names),
        new.key if has_key else 0,
        old.number + 1,
        old.table,
        old.options,
        left_out,
    )
    return msgspec.json.encode(details).decode()


def _added(old: Details, output: Output) -> list[Column]:
    """Return the columns of an output that its relation has not."""
    known = {name for name, *_ in old.columns}
    return [each for each in output.columns if each.name not in known]


@dataclass(frozen=True, slots=True)
class _Contents:
    """The present rows of a table whose relation gets new columns.

    They are not read if its rows here, with what rows from before have in new columns, are right:
    if it has ceased just as a column was added. A large table keeps its rows, too, until the
    connector has read it: else the statement would take long.
    """

    context: StatementContext
    source: Item
    table: Item
    details: Details  # of the table as it is
    left_out: tuple[str, ...]
    output: Output

    async def __call__(self, desc: RelationDesc) -> pa.Table | None:
        """Return rows with `__diff` in these columns; None: those that it has."""
        assert self.table.feed, self.table
        assert self.source.feed, self.source
        old = details_of(self.table.feed)
        added = _added(old, self.output)
        is_right = self._ceased_at_a_new_column() and all(each.is_uniform for each in added)
        if not added or is_right or self.source.feed.spec is None:
            return None
        reference = old.table or self.table.feed.reference
        text = _details(
            msgspec.structs.replace(old, table=reference),
            self.details,
            desc.names,
            self.left_out,
            has_key=False,
        )
        ingestion = self.context.feeds.ingestion
        relation = OutputRelation(self.table.id, desc, text)
        with self.context.interrupts.running():
            try:
                return await ingestion.rows_of(self.source.feed.spec, relation)
            except DatabaseError as error:
                self.context.notice(
                    f'table "{self.table.name}" gets its present rows later: {error.message}'
                )
                return None

    def _ceased_at_a_new_column(self) -> bool:
        statuses = self.context.feeds.ingestion.controller.statuses()
        status = statuses.get(self.source.id)
        output = None if status is None else status.outputs.get(self.table.id)
        why = None if output is None else output.counts.ceased
        return why is not None and why.endswith(ADDED)


def _type_in(details: Details, name: str) -> list[int] | None:
    """Return the type of a column as details have it; None if there is none such."""
    return next((type for each, *type in details.columns if each == name), None)


def _needed(planner: Planner, source: Item, table: Item, reads: Item) -> DependentObjectsStillExist:
    """Return the error for columns that went or changed under what needs a table's history."""
    describe, full_name = planner.reader().describe, planner.state.full_name
    assert table.feed, table
    reference = table_of(table.feed)
    return DependentObjectsStillExist(
        f"{describe(reads)} needs {describe(table)} as it was",
        detail=f"{describe(reads)} depends on {describe(table)}",
        hint=f"Run DROP {reads.kind.upper()} {dotted(full_name(reads))} and ALTER SOURCE"
        f" {quote_identifier(source.name)} REFRESH TABLE {quote_identifier(table.name)}, and create"
        f" the {reads.kind} anew; or read the table beside it: CREATE TABLE ... FROM SOURCE"
        f" {quote_identifier(source.name)} (REFERENCE {reference}). Until then its rows stay as"
        " they are.",
    )


async def _alter(
    context: StatementContext,
    table: Item,
    actions: Sequence[str],
    contents: _Contents | None = None,
) -> Item:
    """Run actions of ALTER TABLE on a relation of a source, and return what it is after them."""
    if actions:
        await alter_part(context, table, actions, contents)
    now = context.catalog_change().state.item_with(table.oid)
    assert isinstance(now, Item), table
    return now


def _left_out(
    planner: Planner, notice: Notices, table: Item, old: Details, output: Output
) -> tuple[str, ...]:
    """Return the new columns of an output that its relation cannot get at present.

    New columns end the history of a relation, which a sink or a durable subscription needs. It can
    do without them, so it goes on, with a notice.
    """
    reads = subscribed_by(planner, table)
    known = {name for name, *_ in old.columns}
    added = tuple(each.name for each in output.columns if each.name not in known)
    if reads is None or not added:
        return ()
    describe = planner.reader().describe
    names = ", ".join(map(quote_identifier, added))
    notice(
        f'table "{table.name}" goes on without {names}',
        detail=f"{describe(reads)} reads it, and its history would end.",
        hint=f"Drop the {reads.kind}, refresh the table, and create the {reads.kind} anew; or read"
        " the table beside it, by CREATE TABLE ... FROM SOURCE.",
    )
    return added


def _actions(planned: Planned, old: Details, new: Details, output: Output) -> Sequence[str]:
    """Return the actions of ALTER TABLE that give a relation the columns of an output."""
    was = {name: tuple(type) for name, *type in old.columns}
    now = {name: tuple(type) for name, *type in new.columns}
    given = {
        name
        for name, each in zip(planned.desc.names, planned.desc.columns, strict=True)
        if not each.nullable
    }
    actions = []
    keyed: set[str] = set()
    for key in planned.unique:
        columns = {planned.desc.names[place] for place in key.columns}
        if columns != set(output.key):
            actions.append(f"DROP CONSTRAINT {quote_identifier(key.name)}")
        else:
            keyed |= columns
    for each in was.keys() - now.keys():
        actions.append(f"DROP COLUMN {quote_identifier(each)}")
    for column in output.columns:
        name = quote_identifier(column.name)
        if column.name not in was:
            default = ""
            if column.missing is not None:
                default = f" DEFAULT {quote_string(column.missing)}::{column.type}"
            actions.append(f"ADD COLUMN {name} {column.type}{default}")
            continue
        if was[column.name] != now[column.name]:
            actions.append(
                f"ALTER COLUMN {name} TYPE {column.type} USING {name}::text::{column.type}"
            )
        if column.nullable and column.name in given and column.name not in keyed:
            actions.append(f"ALTER COLUMN {name} DROP NOT NULL")
    return actions
