"""Scopes: which columns a name may mean.

A `Scope` is the row that the expressions of one query see: the columns of its FROM side by side,
and the tables they came in. A name not found there is looked for in the scope around it, and is
then an `OuterColumn` as many levels out. USING and NATURAL merge columns: unqualified, the name
means the merged one; qualified, each side's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foreshore.errors import AmbiguousColumn, DuplicateAlias, UndefinedColumn, UndefinedTable
from foreshore.expr.ir import Column, OuterColumn
from foreshore.sql.bind.order import UNORDERED, RowOrder
from foreshore.types import ColumnType

if TYPE_CHECKING:
    from foreshore.sql.bind.expression import Clause


@dataclass(frozen=True, slots=True)
class Slot:
    """A named column: where in the row it is."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class Table:
    """A relation of FROM under the name by which columns are qualified."""

    alias: str
    schema: str | None  # where it is named without an alias, its schema
    slots: tuple[Slot, ...]
    outer: bool = False  # on the null-extended side of an outer join
    present: int | None = None  # then a column that is NULL just where the whole row is
    scalar: bool = False  # of a function: the name alone is its column
    hidden_name: str | None = None  # the relation's own name, where an alias hides it


@dataclass(slots=True)
class Scope:
    """The row of a query, within the rows around it."""

    columns: list[ColumnType] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    visible: list[Slot] = field(default_factory=list)  # what `*` and unqualified names mean
    parent: "Scope | None" = None
    used: bool = False  # whether a scope inside has found a column here
    # Where each column was first named, for errors about it.
    named: dict[int, tuple[str, int]] = field(default_factory=dict)
    hidden: list[Table] = field(default_factory=list)  # there, but out of reach: not LATERAL
    lateral: bool = False  # the left side of a join, seen from its right side
    order: RowOrder = UNORDERED  # in which the rows come
    clause: "Clause | None" = None  # where the subquery stands that is being bound within

    def column(self, index: int) -> Column:
        """Return the scalar for the column at `index`."""
        type = self.columns[index]
        return Column(index, type.type, type.nullable)

    def add_table(self, table: Table) -> None:
        """Let `table` be seen; its alias must be new."""
        for other in self.tables:
            if other.alias == table.alias and (
                other.schema is None or table.schema is None or other.schema == table.schema
            ):
                raise DuplicateAlias(f'table name "{table.alias}" specified more than once')
        self.tables.append(table)

    @contextmanager
    def seen_from(self, clause: "Clause") -> Iterator[None]:
        """Let what is bound within stand in `clause`."""
        before, self.clause = self.clause, clause
        try:
            yield
        finally:
            self.clause = before

    def find_table(self, alias: str, schema: str | None) -> Table | None:
        """Return the table of this scope that the qualifier names."""
        for table in self.tables:
            if table.alias == alias and (schema is None or table.schema == schema):
                return table
        return None


def resolve_column(scope: Scope | None, parts: tuple[str, ...], at: int) -> Column | OuterColumn:
    """Return what the column reference `parts` means in `scope`."""
    if len(parts) == 1:
        return _unqualified(scope, parts[0], at)
    *qualifier, name = parts
    table, level, owner = resolve_table(scope, tuple(qualifier), at)
    matching = [slot for slot in table.slots if slot.name == name]
    if not matching:
        raise UndefinedColumn(f"column {'.'.join(parts[-2:])} does not exist", position=at + 1)
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
    """Return PostgreSQL's guess at what was meant, where there is a close one."""
    while scope is not None:
        for table in scope.hidden:
            if any(slot.name == name for slot in table.slots):
                return (
                    f'There is a column named "{name}" in table "{table.alias}", '
                    "but it cannot be referenced from this part of the query."
                )
        scope = scope.parent
    return None


def resolve_table(
    scope: Scope | None, qualifier: tuple[str, ...], at: int
) -> tuple[Table, int, Scope]:
    """Return the table that `qualifier` names, how many levels out it is, and its scope."""
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
    """Return the column at `index` of the scope `level` levels out, `shown` so in errors."""
    scope.used = True
    scope.named.setdefault(index, (shown, at))
    type = scope.columns[index]
    if level == 0:
        return Column(index, type.type, type.nullable)
    return OuterColumn(level, index, type.type, type.nullable)
