"""Tables of a server as they were when their relations were made, and values as they send them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.parse_columns import parse_column
from foreshore.storage.ingest.messages import OutputRelation
from foreshore.storage.ingest.postgres.details import ADDED, Details
from foreshore.types import RelationDesc
from foreshore.update import DIFF_FIELD

Types = Mapping[str, tuple[int, int]]  # the type's oid and modifier, by the names of columns


class Misfit(Exception):
    """A table no longer fits its relation, which therefore stops to follow it."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table, and the relation that follows it; `reference` is that of the output."""

    reference: str
    id: GlobalId
    desc: RelationDesc
    details: Details

    @property
    def table(self) -> str:
        """Return the schema and the name of the table, with a dot between them."""
        return self.details.table or self.reference

    @property
    def part(self) -> str:
        """Return the part of the position that says since when it is followed."""
        number = self.details.number
        return f"{self.reference} ({self.id})" + (f" {number}" if number else "")

    @property
    def published_part(self) -> str:
        """Return the part of the position that says what has it in the publication."""
        return f"{self.part} published"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its columns in the server."""
        return tuple(each[0] for each in self.details.columns)

    def check(self, present: Types, ignored: Collection[str] | None = None) -> None:
        """Raise Misfit unless the columns are there with their types.

        Others may be there, too; if `ignored` is given, only those of it (schema.table.column), or
        those that the relation's own options exclude.
        """
        for name, *type in self.details.columns:
            if name not in present:
                raise Misfit(f'column "{name}" of "{self.table}" was dropped or renamed')
            if type != [0, 0] and tuple(type) != present[name]:
                raise Misfit(f'column "{name}" of "{self.table}" has another type')
        if ignored is not None:
            options = self.details.options
            if options is not None:
                ignored = {f"{self.table}.{each}" for each in options.exclude_columns}
            for name in present.keys() - {*self.names, *self.details.left_out}:
                if f"{self.table}.{name}" not in ignored:
                    raise Misfit(f'column "{name}" of "{self.table}" {ADDED}')

    def typed(self, texts: Sequence[pa.Array], diffs: pa.Array) -> pa.Table:
        """Return texts by columns as updates; raises Misfit."""
        columns = []
        for name, each, column in zip(self.names, texts, self.desc.columns, strict=True):
            try:
                values = parse_column(each, column.type, "UTC")
            except (DatabaseError, pa.ArrowInvalid) as error:
                raise Misfit(f'column "{name}" of "{self.table}": {error}') from error
            if values.null_count and not column.nullable:
                raise Misfit(f'column "{name}" of "{self.table}" has NULLs')
            columns.append(values)
        schema = self.desc.stored_schema().append(DIFF_FIELD)
        return pa.Table.from_arrays([*columns, diffs], schema=schema)


def split_reference(reference: str) -> tuple[str, str]:
    """Return the schema and the name of a table."""
    schema, _, name = reference.partition(".")
    return schema, name


def layouts(outputs: Mapping[str, OutputRelation]) -> dict[str, TableLayout]:
    """Return the tables of a source by their references."""
    return {
        reference: TableLayout(
            reference, each.id, each.desc, msgspec.json.decode(each.details, type=Details)
        )
        for reference, each in outputs.items()
        if each.details
    }
