"""Tables that a statement writes, and the rows that it will stage."""

from dataclasses import dataclass

from msgspec import Struct

from foreshore.catalog.planned import Planned
from foreshore.ids import GlobalId
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
