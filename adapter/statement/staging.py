"""Tables that a statement writes, and the rows that it will stage."""

from dataclasses import dataclass

from msgspec import Struct

from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.ids import GlobalId
from foreshore.isolation import BoundedStaleness
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc


class Target(Struct, frozen=True):
    """A table and the definition for which a statement makes its rows."""

    id: GlobalId
    planned: Planned
    desc: RelationDesc  # its columns
    width: int  # how many they are


@dataclass(frozen=True, slots=True)
class Staging:
    """Rows to stage, maybe later; see `stage_rows`."""

    target: Target
    deleted: TableRows | None
    inserted: TableRows | None
    updated: tuple[TableRows, TableRows] | None = None  # old and new rows, in one order


def require_writable(context: StatementContext, verb: str, table: GlobalId) -> None:
    """Raise if the transaction is read-only, unless the table is the session's own."""
    if not context.read_only:
        return
    item = context.planner.state.get(table)
    temporary = isinstance(item, Item) and item.temporary
    if not temporary or isinstance(context.isolation, BoundedStaleness):
        context.require_writable(verb)
