"""ALTER SOURCE ... REFRESH TABLE of sources of lake tables: the columns that the table has now.

A column is the same if its id is, so one that is renamed keeps its name here; in formats without
ids it is another one. All rows are read again, and the difference is written at one time.
"""

from collections.abc import Iterator, Sequence

import msgspec

from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.sources.changes.altering import alter_part
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.errors import WrongObjectType
from foreshore.item_view import Name
from foreshore.sources.files import TABLES, FilesSource
from foreshore.sources.iceberg import IcebergSource
from foreshore.sources.lake import LakeChanges, LakeDetails, lake_changes
from foreshore.sources.outputs import OWN_ROWS
from foreshore.sources.spec import SourceSpec
from foreshore.sql.parse.keywords import quote_identifier


def is_lake_table(spec: SourceSpec | None) -> bool:
    """Whether a source follows a table of a lake, with the columns that the table has."""
    if not isinstance(spec, FilesSource | IcebergSource) or spec.columns:
        return False
    return isinstance(spec, IcebergSource) or spec.format in TABLES


async def refresh_lake_table(
    context: StatementContext, source: Item, names: Sequence[Name]
) -> None:
    """Give the relation of a source the columns of its table."""
    for name in names:
        found = find_if_exists(
            context.planner, context.notice, "source", name, if_exists=False, altered=True
        )
        assert isinstance(found, Item), found
        if found.id != source.id:
            raise WrongObjectType(
                f'"{found.name}" is not the table of source "{source.name}"',
                hint=f"Its rows are in {source.name} itself.",
            )
    assert context.discovered is not None, source
    assert source.feed, source
    desc = context.planner.reader().planned[source.id].desc
    types = {name: str(each.type) for name, each in zip(desc.names, desc.columns, strict=True)}
    output = context.discovered.outputs[OWN_ROWS]
    known, now = LakeDetails.read(source.feed.details), LakeDetails.read(output.details)
    changes = lake_changes(types, known, output.columns, now)
    if changes.text() is None:
        return
    await alter_part(context, source, list(_actions(changes)))
    change = context.catalog_change()
    item = change.state.item_with(source.oid)
    assert isinstance(item, Item), source
    assert item.feed, item
    ids = None
    if now.ids is not None and known.ids is not None:
        ids = {name: id for name, id in known.ids.items() if name not in changes.dropped}
        ids |= {each.name: now.ids[each.name] for each in changes.added}
    details = LakeDetails(ids, known.number + 1).text()
    change.put(
        msgspec.structs.replace(item, feed=msgspec.structs.replace(item.feed, details=details))
    )


def _actions(changes: LakeChanges) -> Iterator[str]:
    """Yield the actions of ALTER TABLE."""
    for name in changes.dropped:
        yield f"DROP COLUMN {quote_identifier(name)}"
    for each in changes.added:
        yield f"ADD COLUMN {quote_identifier(each.name)} {each.type}"
    for each in changes.retyped:
        name = quote_identifier(each.name)
        yield f"ALTER COLUMN {name} TYPE {each.type} USING {name}::text::{each.type}"
