"""The result of a statement: rows as Arrow has them, and what programs make of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas
    import polars

TYPE = b"foreshore.type"  # in a field's metadata
UNSCALED = pa.decimal128(38, 20)  # of numerics without a declared scale
SHOWN_ROWS = 20
SHOWN_WIDTH = 40  # characters of one value


@dataclass(slots=True)
class _Place:
    """How many rows `fetchone` and `fetchmany` have returned."""

    row: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """Rows, and the tag that the server has sent for the statement, such as `INSERT 0 1`.

    It has Arrow's interface, so `polars.DataFrame(result)`, `pyarrow.table(result)` and DuckDB take
    it. `to_df` and `fetchdf`, `to_arrow_table` and `fetch_arrow_table` are other names of `df` and
    `arrow`.
    """

    table: pa.Table
    status: str = ""
    _place: _Place = field(default_factory=_Place, repr=False, compare=False)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.column_names)

    @property
    def types(self) -> list[str]:
        """The SQL types of the columns; Arrow's if the server has told none."""
        return [_sql_type(each) or str(each.type) for each in self.table.schema]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.table.num_rows, self.table.num_columns

    @property
    def description(self) -> list[tuple[Any, ...]]:
        """Names and types of the columns, as DB-API has them."""
        named = zip(self.columns, self.types, strict=True)
        return [(name, type, None, None, None, None, None) for name, type in named]

    def arrow(self) -> pa.Table:
        """Return the rows as a table of Arrow."""
        return self.table

    def df(self, *, exact: bool = False) -> "pandas.DataFrame":
        """Return the rows as a DataFrame of pandas.

        A numeric becomes a float64, as with `pandas.read_sql`; with `exact` a Decimal.
        """
        found = self.table
        for place, column in enumerate(found.schema):
            if not exact and pa.types.is_decimal(column.type):
                found = found.set_column(place, column.name, found.column(place).cast(pa.float64()))
        return found.to_pandas()

    def pl(self) -> "polars.DataFrame":
        """Return the rows as a DataFrame of polars, which has intervals as text."""
        import polars

        found = polars.from_arrow(_without_intervals(self.table))
        assert isinstance(found, polars.DataFrame)
        return found

    def fetchnumpy(self) -> dict[str, Any]:
        """Return the columns as arrays of NumPy, by name."""
        frame = self.df()
        return {name: frame.iloc[:, place].to_numpy() for place, name in enumerate(frame.columns)}

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that `fetchone` and `fetchmany` have left, as tuples."""
        return _tuples(self.table.slice(self._place.row))

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Return the next rows, so many at most."""
        found = _tuples(self.table.slice(self._place.row, size))
        self._place.row += len(found)
        return found

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, from the first one on; None after the last one."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def scalar(self) -> Any:
        """Return the first column of the first row; None if there is no row."""
        first = _tuples(self.table.slice(0, 1))
        return first[0][0] if first and first[0] else None

    def show(self) -> None:
        """Print the first rows."""
        print(self)

    to_df = fetchdf = df
    to_arrow_table = fetch_arrow_table = arrow

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream, for libraries that read Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(_tuples(self.table))

    def __repr__(self) -> str:
        if not self.table.num_columns:
            return self.status or f"{len(self)} rows"
        rows = _tuples(self.table.slice(0, SHOWN_ROWS))
        lines = _aligned(self.columns, [[_shown(value) for value in row] for row in rows])
        return "\n".join([*lines, f"({_counted(len(self))})"])

    def _repr_html_(self) -> str:
        from html import escape

        def row(tag: str, values: Sequence[str]) -> str:
            return f"<tr>{''.join(f'<{tag}>{escape(v)}</{tag}>' for v in values)}</tr>"

        rows = _tuples(self.table.slice(0, SHOWN_ROWS))
        body = "".join(row("td", [_shown(value) for value in each]) for each in rows)
        return f"<table>{row('th', self.columns)}{body}</table><p>{_counted(len(self))}</p>"


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as tuples of Python values."""
    if not table.num_columns:
        return [()] * table.num_rows
    columns = [
        _values(column, each) for column, each in zip(table.columns, table.schema, strict=True)
    ]
    return list(zip(*columns, strict=True))


def _values(column: pa.ChunkedArray, of: pa.Field) -> list[Any]:
    """Return the values of a column; numerics without a scale have as many digits as they need."""
    values: list[Any] = column.to_pylist()
    if of.type == UNSCALED:
        return [None if each is None else _without_zeros(each) for each in values]
    return values


def _without_zeros(value: Decimal) -> Decimal:
    text = format(value, "f")
    return Decimal(text.rstrip("0").rstrip(".")) if "." in text else value


def _sql_type(of: pa.Field) -> str | None:
    """Return the SQL type of a column, which the server tells."""
    told = (of.metadata or {}).get(TYPE)
    return None if told is None else told.decode()


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
    for place, each in enumerate(table.schema):
        if each.type == pa.month_day_nano_interval():
            texts = pa.array(map(_interval_text, table.column(place).to_pylist()), pa.string())
            table = table.set_column(place, each.name, texts)
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
