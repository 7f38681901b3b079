"""The result of a statement: rows as Arrow has them, and what programs make of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 20
SHOWN_WIDTH = 40  # characters of one value


@dataclass(frozen=True, slots=True)
class Result:
    """Rows, and the tag that the server has sent for the statement, such as `INSERT 0 1`."""

    table: pa.Table
    status: str = ""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.column_names)

    def arrow(self) -> pa.Table:
        """Return the rows as a table of Arrow."""
        return self.table

    def df(self) -> "pandas.DataFrame":
        """Return the rows as a DataFrame of pandas."""
        return self.table.to_pandas()

    def pl(self) -> "polars.DataFrame":
        """Return the rows as a DataFrame of polars, which has intervals as text."""
        import polars

        found = polars.from_arrow(_without_intervals(self.table))
        assert isinstance(found, polars.DataFrame)
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python values."""
        if not self.table.num_columns:
            return [()] * self.table.num_rows
        columns = [column.to_pylist() for column in self.table.columns]
        return list(zip(*columns, strict=True))

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row; None if there is none."""
        first = Result(self.table.slice(0, 1)).fetchall()
        return first[0] if first else None

    def scalar(self) -> Any:
        """Return the first column of the first row; None if there is no row."""
        row = self.fetchone()
        return row[0] if row else None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __repr__(self) -> str:
        if not self.table.num_columns:
            return self.status or f"{len(self)} rows"
        rows = Result(self.table.slice(0, SHOWN_ROWS)).fetchall()
        lines = _aligned(self.columns, [[_shown(value) for value in row] for row in rows])
        return "\n".join([*lines, f"({_counted(len(self))})"])

    def _repr_html_(self) -> str:
        from html import escape

        def row(tag: str, values: Sequence[str]) -> str:
            return f"<tr>{''.join(f'<{tag}>{escape(v)}</{tag}>' for v in values)}</tr>"

        rows = Result(self.table.slice(0, SHOWN_ROWS)).fetchall()
        body = "".join(row("td", [_shown(value) for value in each]) for each in rows)
        return f"<table>{row('th', self.columns)}{body}</table><p>{_counted(len(self))}</p>"


def _counted(rows: int) -> str:
    shown = f"{rows} row" if rows == 1 else f"{rows} rows"
    return f"{shown}, {SHOWN_ROWS} shown" if rows > SHOWN_ROWS else shown


def _shown(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= SHOWN_WIDTH else f"{text[: SHOWN_WIDTH - 1]}…"


def _aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    shown = [_shown(name) for name in names]
    widths = [
        max([len(name), *(len(row[place]) for row in rows)]) for place, name in enumerate(shown)
    ]

    def line(values: Sequence[str]) -> str:
        padded = (v.ljust(width) for v, width in zip(values, widths, strict=True))
        return " | ".join(padded).rstrip()

    return [line(shown), "-+-".join("-" * width for width in widths), *map(line, rows)]


def _without_intervals(table: pa.Table) -> pa.Table:
    """Return a table with text in place of intervals, as `1 mons 2 days 3.5 seconds`."""
    for place, field in enumerate(table.schema):
        if field.type == pa.month_day_nano_interval():
            texts = pa.array(map(_interval_text, table.column(place).to_pylist()), pa.string())
            table = table.set_column(place, field.name, texts)
    return table


def _interval_text(value: Any) -> str | None:
    if value is None:
        return None
    return f"{value.months} mons {value.days} days {value.nanoseconds / 1e9:g} seconds"


def concatenated(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return batches as a table."""
    return pa.Table.from_batches(batches, schema)


def rows_with(table: pa.Table, column: str, value: int) -> pa.Table:
    """Return the rows in which a column of integers has a value."""
    return table.filter(pc.equal(table.column(column), value))
