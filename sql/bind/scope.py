"""Scopes: resolve names to columns.

A `Scope` is the row that the expressions of one query see: the columns of its FROM side by side,
and their tables. A name that is not found is searched in the enclosing scopes, and is then an
`OuterColumn` with the number of levels. USING and NATURAL merge columns: an unqualified name is the
merged column, a qualified name the column of one side.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foreshore.errors import AmbiguousColumn, DuplicateAlias, UndefinedColumn, UndefinedTable
from foreshore.expr.ir import Column, OuterColumn, Scalar
from foreshore.item_view import Name
from foreshore.sql.bind.near_columns import hint_for
from foreshore.sql.bind.needs import Origins
from foreshore.sql.bind.order import UNORDERED, RowOrder
from foreshore.types import NO_ORIGIN, ColumnType, ResultOrigin

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Clause


@dataclass(frozen=True, slots=True)
class Slot:
    """A named column and its position in the row."""

    name: str
    index: int
    origin: ResultOrigin = NO_ORIGIN  # of a column of a relation of the catalog


@dataclass(frozen=True, slots=True)
class Table:
    """A relation of FROM with the name that qualifies its columns."""

    alias: str
    schema: str | None  # the schema of a relation named without an alias
    slots: tuple[Slot, ...]
    outer: bool = False  # on the nullable side of an outer join
    present: int | None = None  # if `outer`: a column that is NULL exactly if the whole row is
    scalar: bool = False  # of a function: the bare name is its column
    hidden_name: str | None = None  # the relation's own name if an alias hides it
    key: tuple[int, ...] = ()  # the columns of its primary key, by their positions in the row
    oid: int | None = None  # of a relation of the catalog, its column `tableoid`
    unnamed: bool = False  # a subquery without an alias: `alias` is only shown in errors


@dataclass(slots=True)
class Scope:
    """The row of a query, within enclosing rows."""

    columns: list[ColumnType] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    visible: list[Slot] = field(default_factory=list)  # the columns of `*` and of unqualified names
    parent: "Scope | None" = None
    used: bool = False  # whether an inner scope has used a column of this one
    # The first name used for each column, for errors about it.
    named: dict[int, tuple[str, int]] = field(default_factory=dict)
    # tables that cannot be referenced without LATERAL
    hidden: list[Table] = field(default_factory=list)
    lateral: bool = False  # the left side of a join as seen from its right side
    order: RowOrder = UNORDERED  # the order of the rows
    clause: "Clause | None" = None  # the clause that contains the subquery being bound
    parameters: bool = False  # whether it is the row of a function's parameters, of no query
    origins: Origins = field(default_factory=dict)  # of which relation's columns the columns are

    def column(self, index: int) -> Column:
        """Return the column at `index`, which is read."""
        self.read(index)
        return self.unread(index)

    def unread(self, index: int) -> Column:
        """Return the column at `index`, which only keeps its value."""
        type = self.columns[index]
        return Column(index, type.type, type.nullable)

    def read(self, index: int) -> None:
        """Note that the column at `index` is read, for which a right is needed."""
        origin = self.origins.get(index)
        if origin is not None:
            origin.entry.columns.add(origin.position)

    def origins_of(self, outputs: Sequence[Scalar]) -> tuple[ResultOrigin, ...]:
        """Return the relations' columns that outputs over the row are; empty if none is."""
        known = {slot.index: slot.origin for table in self.tables for slot in table.slots}
        known.update((slot.index, slot.origin) for slot in self.visible)
        origins = tuple(
            known.get(each.index, NO_ORIGIN) if isinstance(each, Column) else NO_ORIGIN
            for each in outputs
        )
        return origins if any(oid for oid, _ in origins) else ()

    def add_table(self, table: Table) -> None:
        """Make `table` visible; raises an error if its alias is taken."""
        for other in self.tables:
            if other.unnamed or table.unnamed:
                continue
            if other.alias == table.alias and (
                other.schema is None or table.schema is None or other.schema == table.schema
            ):
                raise DuplicateAlias(f'table name "{table.alias}" specified more than once')
        self.tables.append(table)

    @contextmanager
    def seen_from(self, clause: "Clause") -> Iterator[None]:
        """Set `clause` for subqueries bound inside the block."""
        before, self.clause = self.clause, clause
        try:
            yield
        finally:
            self.clause = before

    def find_table(self, alias: str, schema: str | None) -> Table | None:
        """Return the table of this scope that the qualifier names."""
        for table in self.tables:
            if table.alias != alias or table.unnamed:
                continue
            if schema is None or table.schema == schema:
                return table
        return None


def resolve_column(scope: Scope | None, parts: tuple[str, ...], at: int) -> Column | OuterColumn:
    """Return the scalar of the column reference `parts` in `scope`."""
    if len(parts) == 1:
        return _unqualified(scope, parts[0], at)
    *qualifier, name = parts
    table, level, owner = resolve_table(scope, tuple(qualifier), at)
    matching = [slot for slot in table.slots if slot.name == name]
    if not matching:
        raise UndefinedColumn(
            f"column {'.'.join(parts[-2:])} does not exist",
            position=at + 1,
            hint=hint_for(scope, name, qualifier[-1]),
        )
    if len(matching) > 1:
        raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=at + 1)
    return reference(owner, level, matching[0].index, f"{table.alias}.{name}", at)


def _unqualified(scope: Scope | None, name: str, at: int) -> Column | OuterColumn:
    level, current = 0, scope
    while current is not None:
        matching = [slot for slot in current.visible if slot.name == name]
        if len(matching) > 1:
            raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=at + 1)
        if matching:
            index = matching[0].index
            owner = next(
                (t.alias for t in current.tables if any(s.index == index for s in t.slots)), None
            )
            shown = f"{owner}.{name}" if owner is not None else name
            return reference(current, level, index, shown, at)
        level, current = level + 1, current.parent
    raise UndefinedColumn(
        f'column "{name}" does not exist', position=at + 1, hint=_hint(scope, name)
    )


def _hint(scope: Scope | None, name: str) -> str | None:
    """Return PostgreSQL's hint with the column that was probably meant."""
    whole = scope
    while scope is not None:
        for table in scope.hidden:
            if any(slot.name == name for slot in table.slots):
                return (
                    f'There is a column named "{name}" in table "{table.alias}", '
                    "but it cannot be referenced from this part of the query."
                )
        scope = scope.parent
    return hint_for(whole, name)


def resolve_table(
    scope: Scope | None, qualifier: tuple[str, ...], at: int
) -> tuple[Table, int, Scope]:
    """Return the table that `qualifier` names, the number of levels out, and its scope."""
    alias = qualifier[-1]
    schema = qualifier[-2] if len(qualifier) > 1 else None
    level, current = 0, scope
    while current is not None:
        table = current.find_table(alias, schema)
        if table is not None:
            return table, level, current
        level, current = level + 1, current.parent
    current = scope
    shown = alias
    while current is not None:
        for table in current.tables:
            if table.hidden_name == alias:
                raise UndefinedTable(
                    f'invalid reference to FROM-clause entry for table "{shown}"',
                    hint=f'Perhaps you meant to reference the table alias "{table.alias}".',
                    position=at + 1,
                )
        if any(table.alias == alias for table in current.hidden):
            raise UndefinedTable(
                f'invalid reference to FROM-clause entry for table "{shown}"',
                hint=f'There is an entry for table "{alias}", '
                "but it cannot be referenced from this part of the query.",
                position=at + 1,
            )
        current = current.parent
    raise UndefinedTable(f'missing FROM-clause entry for table "{shown}"', position=at + 1)


def reference(scope: Scope, level: int, index: int, shown: str, at: int) -> Column | OuterColumn:
    """Return the column at `index` of the scope `level` levels out, named `shown` in errors."""
    scope.used = True
    scope.read(index)
    scope.named.setdefault(index, (shown, at))
    type = scope.columns[index]
    if level == 0:
        return Column(index, type.type, type.nullable)
    return OuterColumn(level, index, type.type, type.nullable)


def row_scope(table: Name, names: Sequence[str], columns: Sequence[ColumnType]) -> Scope:
    """Return the scope of a row of a table, in which any column may be NULL."""
    slots = [Slot(name, i) for i, name in enumerate(names)]
    nullable = [ColumnType(column.type) for column in columns]
    return Scope(nullable, [Table(table.item, table.schema, tuple(slots))], slots)
