"""Tables by position: the layouts in which updates and contents are exchanged with engines."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from foreshore.compute.delta.closed import Closed
from foreshore.compute.render.dialect import Dialect
from foreshore.compute.render.frame import group_by
from foreshore.datum import to_array
from foreshore.expr.ir import Constant
from foreshore.types import ColumnType
from foreshore.update import DIFF, TIME


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table: those of the row, then the sums of each entry, with their types.

    `forms` are, for each column of the row, the forms that distinguish it (`Dialect.identity`).
    """

    rows: tuple[tuple[str, str], ...]
    forms: tuple[tuple[str, ...], ...]
    sums: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        """Return the names of all columns."""
        return [name for name, _ in (*self.rows, *self.sums)]


def row_layout(columns: Sequence[ColumnType], dialect: Dialect, *, timed: bool) -> Layout:
    """Return the layout of rows c0, ..., d; `timed` ones have t before d."""
    rows = [(f"c{i}", dialect.type_name(column.type)) for i, column in enumerate(columns)]
    forms = [dialect.identity(f"c{i}", column.type) for i, column in enumerate(columns)]
    if timed:
        rows.append(("t", "BIGINT"))
        forms.append(("t",))
    return Layout(tuple(rows), tuple(forms), (("d", "BIGINT"),))


def consolidate_select(
    name: str, layout: Layout, dialect: Dialect, closed: Closed | None = None
) -> str:
    """Return the SELECT of a table with one entry for each row, omitting zeros and closed rows."""
    rows = [
        f"{dialect.of_group(column, forms)} AS {column}"
        for (column, _), forms in zip(layout.rows, layout.forms, strict=True)
    ]
    sums = [f"CAST(sum({column}) AS {type}) AS {column}" for column, type in layout.sums]
    by = group_by([form for forms in layout.forms for form in forms])
    some = " OR ".join(f"sum({column}) <> 0" for column, _ in layout.sums)
    where = ""
    if closed is not None:
        through = dialect.literal(closed.through, closed.type)
        where = f" WHERE c{closed.column} IS NULL OR c{closed.column} > {through}"
    return f"SELECT {', '.join([*rows, *sums])} FROM {name}{where}{by} HAVING {some}"


def by_position(updates: pa.Table) -> pa.Table:
    """Return updates with their columns named c0, ..., t, d."""
    width = updates.num_columns - 2
    assert updates.column_names[width:] == [TIME, DIFF], updates.schema
    return updates.rename_columns([*(f"c{i}" for i in range(width)), "t", "d"])


def constant_table(constant: Constant) -> pa.Table:
    """Return the rows of a constant with their multiplicities: c0, ..., d."""
    arrays = [
        to_array([row[i] for row, _ in constant.rows], column.type)
        for i, column in enumerate(constant.columns)
    ]
    arrays.append(pa.array([count for _, count in constant.rows], pa.int64()))
    return pa.Table.from_arrays(arrays, [*(f"c{i}" for i in range(len(arrays) - 1)), "d"])


def cast_to_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `table` with the names and exact types of `schema`, column by column."""
    return table.rename_columns(schema.names).cast(schema)
