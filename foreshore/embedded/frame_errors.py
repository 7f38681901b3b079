"""Error messages for DataFrames and files that cannot be converted to rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq

from foreshore.embedded.csv_files import csv_schema
from foreshore.errors import (
    BadCopyFileFormat,
    DatabaseError,
    DataError,
    DatatypeMismatch,
    DuplicateColumn,
    InsufficientPrivilege,
    InvalidParameterValue,
)

_ONE_TYPE = "Give the column one type, such as df[c] = df[c].astype(str)."
_RAGGED = re.compile(r"Row #(?P<row>\d+): Expected (?P<wanted>\d+) columns, got (?P<found>\d+)")
_VALUE = re.compile(
    r"CSV column #(?P<column>\d+):(?: Row #(?P<row>\d+):)?"
    r" CSV conversion error to (?P<type>[^:]+): invalid value '(?P<value>.*)'",
    re.DOTALL,
)


def wrong_frame(data: Any) -> DatabaseError:
    """Return the error for data that Arrow does not take: which column, and why."""
    columns = _columns(data)
    names = [str(name) for name, _ in columns]
    if twice := [name for name in names if names.count(name) > 1]:
        return DuplicateColumn(f'column "{twice[0]}" specified more than once')
    for name, values in columns:
        try:
            pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return _wrong_column(str(name), values)
    counts = sorted({len(values) for _, values in columns})
    if len(counts) > 1:
        return InvalidParameterValue(f"columns have {counts[0]} and {counts[-1]} rows")
    return DatatypeMismatch(f"rows of type {type(data).__name__} cannot be read")


def _columns(data: Any) -> list[tuple[Any, Any]]:
    """Return names and values of what has columns or rows by name."""
    if isinstance(data, Mapping):
        return list(data.items())
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        return [(name, [row.get(name) for row in data]) for name in names]
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        return [(name, data.iloc[:, place]) for place, name in enumerate(data.columns)]
    return []


def _wrong_column(name: str, values: Any) -> DatabaseError:
    if not isinstance(values, Iterable):
        return InvalidParameterValue(
            f'column "{name}" is of type {type(values).__name__}, and must be a list of values'
        )
    given = [each for each in values if each is not None]
    if any(isinstance(each, str) and _is_no_text(each) for each in given):
        return DataError(f'column "{name}" has text that is not valid UTF8', sqlstate="22021")
    types = sorted({type(each).__name__ for each in given})
    if types == ["int"]:
        return DatatypeMismatch(
            f'column "{name}" has integers beyond 64 bits', hint="Make them Decimal."
        )
    special = next((e for e in given if isinstance(e, Decimal) and not e.is_finite()), None)
    if special is not None:
        return DatatypeMismatch(
            f'column "{name}" has {special}, which Arrow\'s decimals do not have',
            hint="Make the values texts or floats; the table's column may be numeric.",
        )
    if len(types) == 1:
        return DatatypeMismatch(
            f'column "{name}" has values of type {types[0]}, which SQL has not', hint=_ONE_TYPE
        )
    shown = ", ".join(types[:-1]) + " and " + types[-1] if types else "no type"
    return DatatypeMismatch(f'column "{name}" has values of types {shown}', hint=_ONE_TYPE)


def _is_no_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def rounded_value(batch: pa.RecordBatch, place: int, type: pa.DataType) -> DatabaseError:
    """Return the error for a number that a table's column would round, the first of a batch."""
    column = batch.column(place)
    low, high = 0, len(column)
    while high - low > 1:  # the first half that has one
        middle = (low + high) // 2
        is_low = _rounds(column.slice(low, middle - low), type)
        low, high = (low, middle) if is_low else (middle, high)
    value = column[low].as_py()
    kind = "an integer" if pa.types.is_integer(type) else f"a number of {type.scale} decimals"
    return DatatypeMismatch(
        f'column "{batch.schema.names[place]}": {value} is not {kind}',
        hint="The table's column has fewer digits. Change its type by ALTER TABLE, or round the"
        " values.",
    )


def _rounds(column: pa.Array, type: pa.DataType) -> bool:
    try:
        column.cast(type)
    except pa.ArrowInvalid:
        return True
    return False


def dataset_of_parquet(files: Sequence[str]) -> dataset.Dataset:
    """Return files as one dataset; raises BadCopyFileFormat if one is no Parquet file."""
    first: pa.Schema | None = None
    for file in files:
        schema = _schema(pq.read_schema, file, "parquet")
        if first is None:
            first = schema
        for field in schema:
            if field.name in first.names and first.field(field.name).type != field.type:
                raise DatatypeMismatch(
                    f'column "{field.name}" is of type {field.type} in file "{file}", and of'
                    f' type {first.field(field.name).type} in "{files[0]}"'
                )
    try:
        return dataset.dataset(list(files), format="parquet")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise wrong_file(files[0], error, "parquet") from None


def schema_of_csv(files: Sequence[str]) -> pa.Schema:
    """Return the columns of the first file; raises BadCopyFileFormat if one is no CSV file."""
    first, *_ = [_schema(csv_schema, file, "csv") for file in files]
    return first


def _schema(read: Callable[[str], pa.Schema], file: str, format: str) -> pa.Schema:
    try:
        return read(file)
    except PermissionError:
        raise _permission(file) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise wrong_file(file, error, format) from None


def readable(batches: Iterator[pa.RecordBatch], files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches of Parquet files; raises BadCopyFileFormat where one cannot be read."""
    try:
        yield from batches
    except (pa.ArrowException, OSError, ValueError) as error:
        name = files[0] if len(files) == 1 else f"{files[0]} and others"
        raise wrong_file(name, error, "parquet") from None


def _permission(file: str) -> DatabaseError:
    return InsufficientPrivilege(f'could not open file "{file}" for reading: Permission denied')


def wrong_file(file: str, error: Exception, format: str) -> DatabaseError:
    """Return the error for a file that Arrow cannot read."""
    said = str(error)
    if not Path(file).exists() or isinstance(error, FileNotFoundError):
        detail = "It is gone."
    elif found := _RAGGED.search(said):
        detail = (
            f"Row {found['row']} has {found['found']} columns, and must have {found['wanted']}."
        )
    elif found := _VALUE.search(said):
        row = f", row {found['row']}" if found["row"] else ""
        return BadCopyFileFormat(
            f'file "{file}": invalid {found["type"]} value "{found["value"]}"',
            detail=f"It is in column {int(found['column']) + 1}{row}; the first rows say the type.",
            hint="Load it into a table with a column of text, by COPY FROM the file.",
        )
    elif Path(file).stat().st_size == 0:
        detail = "It is empty."
    else:
        detail = "It is damaged, or of another format."
    return BadCopyFileFormat(f'file "{file}" is not a readable {format} file', detail=detail)
