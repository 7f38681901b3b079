"""The result of a statement: rows as Arrow has them, and what programs make of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.embedded.nested_arrays import TYPE, is_nested, nested_lists
from foreshore.embedded.python_values import JSON, python_values
from foreshore.exact_numeric import EXACT_NUMERIC, as_decimals, decimals, floats, has_exact_numeric

if TYPE_CHECKING:
    import pandas
    import polars

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

    _rows: pa.Table  # numerics without a scale may be EXACT_NUMERIC
    status: str = ""
    _place: _Place = field(default_factory=_Place, repr=False, compare=False)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._rows.column_names)

    @property
    def types(self) -> list[str]:
        """The SQL types of the columns; Arrow's if the server has told none."""
        return [_sql_type(each) or str(each.type) for each in self._rows.schema]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self._rows.num_rows, self._rows.num_columns

    @property
    def description(self) -> list[tuple[Any, ...]]:
        """Names and types of the columns, as DB-API has them."""
        named = zip(self.columns, self.types, strict=True)
        return [(name, type, None, None, None, None, None) for name, type in named]

    @property
    def table(self) -> pa.Table:
        """The rows as `arrow` returns them."""
        return as_decimals(self._rows)

    def arrow(self) -> pa.Table:
        """Return the rows as a table of Arrow.

        Raises NumericValueOutOfRange if a numeric is one that Arrow's decimals do not have, such as
        NaN.
        """
        return self.table

    def df(self, *, exact: bool = False) -> "pandas.DataFrame":
        """Return the rows as a DataFrame of pandas, which has JSON as Python objects.

        A numeric becomes a float64, as with `pandas.read_sql`; with `exact` a Decimal.
        """
        import pandas

        found, objects = self._rows, dict[int, list[Any]]()
        for place, column in enumerate(found.schema):
            if column.type == EXACT_NUMERIC:
                if exact:
                    objects[place] = decimals(found.column(place))
                found = found.set_column(place, column.name, floats(found.column(place)))
            elif has_exact_numeric(column.type):
                objects[place] = python_values(found.column(place))
            elif not exact and pa.types.is_decimal(column.type):
                found = found.set_column(place, column.name, found.column(place).cast(pa.float64()))
        try:
            frame = found.to_pandas()
        except (OverflowError, ValueError):  # a date or time that Python has not
            frame = _frame_by_column(found)
        for place, each in enumerate(found.schema):
            if each.type == JSON or is_nested(each):
                objects[place] = _values(each, found.column(place))
        for place, values in objects.items():
            frame.isetitem(place, pandas.Series(values, dtype=object, index=frame.index))
        return frame

    def pl(self) -> "polars.DataFrame":
        """Return the rows as a DataFrame of polars, which has intervals and JSON as text."""
        import polars

        found = polars.from_arrow(_without_intervals(without_json(self.table)))
        assert isinstance(found, polars.DataFrame)
        return found

    def fetchnumpy(self) -> dict[str, Any]:
        """Return the columns as arrays of NumPy, by name."""
        frame = self.df()
        return {name: frame.iloc[:, place].to_numpy() for place, name in enumerate(frame.columns)}

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that `fetchone` and `fetchmany` have left, as tuples."""
        return _tuples(self._rows.slice(self._place.row))

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Return the next rows, so many at most."""
        found = _tuples(self._rows.slice(self._place.row, size))
        self._place.row += len(found)
        return found

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, from the first one on; None after the last one."""
        found = self.fetchmany(1)
        return found[0] if found else None

    def scalar(self) -> Any:
        """Return the first column of the first row; None if there is no row."""
        first = _tuples(self._rows.slice(0, 1))
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
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(_tuples(self._rows))

    def __repr__(self) -> str:
        if not self._rows.num_columns:
            return self.status or f"{len(self)} rows"
        rows = _tuples(self._rows.slice(0, SHOWN_ROWS))
        lines = _aligned(self.columns, [[_shown(value) for value in row] for row in rows])
        return "\n".join([*lines, f"({_counted(len(self))})"])

    def _repr_html_(self) -> str:
        from html import escape

        def row(tag: str, values: Sequence[str]) -> str:
            return f"<tr>{''.join(f'<{tag}>{escape(v)}</{tag}>' for v in values)}</tr>"

        rows = _tuples(self._rows.slice(0, SHOWN_ROWS))
        body = "".join(row("td", [_shown(value) for value in each]) for each in rows)
        return f"<table>{row('th', self.columns)}{body}</table><p>{_counted(len(self))}</p>"


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as tuples of Python values."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*map(_values, table.schema, table.columns), strict=True))


def _values(of: pa.Field, column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python's."""
    return nested_lists(of, column) if is_nested(of) else python_values(column)


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


def _frame_by_column(table: pa.Table) -> "pandas.DataFrame":
    """Return a DataFrame whose columns are Python's values where pandas cannot convert them."""
    import pandas

    columns = []
    for column in table.columns:
        try:
            columns.append(column.to_pandas())
        except (OverflowError, ValueError):
            columns.append(pandas.Series(python_values(column), dtype=object))
    frame = pandas.concat(columns, axis="columns")
    frame.columns = pandas.Index(table.column_names)
    return frame


def without_json(table: pa.Table) -> pa.Table:
    """Return a table with text in place of Arrow's JSON type, also within lists."""
    for place, each in enumerate(table.schema):
        if (type := _text_type(each.type)) != each.type:
            table = table.set_column(place, each.with_type(type), table.column(place).cast(type))
    return table


def _text_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type):
        return pa.list_(_text_type(type.value_type))
    return pa.string() if type == JSON else type


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
