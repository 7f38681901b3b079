"""Values of SQL types in files, and back.

Files have the types that all programs know: a type of its own in a file is one of `PLAIN`, and all
others are text, in the form of a cast to text. A numeric without a scale is decimal(38, 20); if a
value does not fit, the export fails. Times are in UTC.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.arrow_errors import describe_arrow_error
from foreshore.errors import (
    DataError,
    DatetimeFieldOverflow,
    DuplicateColumn,
    FeatureNotSupported,
    NumericValueOutOfRange,
)
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.casts import resolve_cast
from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import Call, Column
from foreshore.storage.lake.nested_lists import arrays_of_lists
from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NUMERIC_DIGITS,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    array_of,
    arrow_type,
    element_of,
    item_of,
    numeric,
    shaped_array,
)

PLAIN = frozenset(
    "bool int2 int4 int8 float4 float8 numeric date time timestamp timestamptz bytea".split()
) | {"text", "varchar", "bpchar", "name"}
NUMBER_SCALE = 20
_DAYS = (-719_162, 2_932_896)  # from 0001-01-01 to 9999-12-31
_ISO = (DATE, TIMESTAMP, TIMESTAMPTZ)


class WrongValue(Exception):
    """A value cannot be converted: which row of the batch, and the error."""

    def __init__(self, row: int, error: DataError) -> None:
        super().__init__(error.message)
        self.row = row
        self.error = error


def file_type(type: SqlType) -> pa.DataType:
    """Return the Arrow type of a column in Parquet and Delta files."""
    if type.name == "number":
        return pa.decimal128(NUMERIC_DIGITS, NUMBER_SCALE)
    if type.element is not None and type.element.name in PLAIN:
        return arrow_type(type)
    return arrow_type(type) if type.name in PLAIN else pa.string()


def check_delta(names: Sequence[str], types: Sequence[SqlType]) -> None:
    """Raise FeatureNotSupported if a Delta table cannot have a column."""
    for name, type in zip(names, types, strict=True):
        if TIME_OF_DAY in (type, type.element):
            raise FeatureNotSupported(
                f'column "{name}" of type {type} in a Delta table', hint="Cast the column to text."
            )


def check_distinct(names: Sequence[str]) -> None:
    """Raise DuplicateColumn if two columns of a file have one name, by which they are found."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise DuplicateColumn(
                f'column "{name}" specified more than once', hint="Give it an alias."
            )


def check_distinct_without_case(names: Sequence[str]) -> None:
    """Raise DuplicateColumn if two names differ by case only, which many readers do not see."""
    known: dict[str, str] = {}
    for name in names:
        if (other := known.setdefault(name.lower(), name)) != name:
            raise DuplicateColumn(
                f'columns "{other}" and "{name}" differ by case only',
                hint="Rename one of them in a materialized view: many readers ignore case.",
            )


def for_file(name: str, column: pa.Array, type: SqlType) -> pa.Array:
    """Return a column as files have it; raises NumericValueOutOfRange if a value does not fit."""
    wanted = file_type(type)
    if type.name == "number":
        rest = pc.fill_null(pc.binary_length(pc.struct_field(column, "rest")), 0)
        if pc.max(rest).as_py():
            raise NumericValueOutOfRange(
                f'a value of column "{name}" does not fit decimal(38, {NUMBER_SCALE})',
                hint="Cast the column to text, float8, or a numeric of another scale.",
            )
        return pc.struct_field(column, "value")
    return column if column.type == wanted else texts(column, type)


def check_years(name: str, column: pa.Array) -> None:
    """Raise DatetimeFieldOverflow unless dates and timestamps have the years 1 to 9999.

    Programs that read tables of a lake know no others, and no infinity.
    """
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    values = column.flatten() if is_list else column
    if pa.types.is_date(values.type):
        low, high = _DAYS
    elif pa.types.is_timestamp(values.type):
        low, high = (days * 86_400_000_000 for days in _DAYS)
        high += 86_400_000_000 - 1
    else:
        return
    numbers = values.view(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    found = pc.min_max(numbers)
    if found["min"].is_valid and not low <= found["min"].as_py() <= found["max"].as_py() <= high:
        raise DatetimeFieldOverflow(
            f'a value of column "{name}" is out of range for tables of a lake',
            detail="They have the years 1 to 9999, and no infinity.",
            hint="Cast the column to text.",
        )


def texts(column: pa.Array, type: SqlType) -> pa.Array:
    """Return a column as text, as COPY writes it."""
    if type.name == "bool":
        return pc.if_else(column, "t", "f")
    return column if column.type == pa.string() and type.name in PLAIN else cast(column, type, TEXT)


def json_texts(column: pa.Array, type: SqlType) -> pa.Array:
    """Return the values of a column as JSON."""
    if type.name in ("int2", "int4", "int8"):
        found = column.cast(pa.string())
    elif type.name == "bool":
        found = pc.if_else(column, "true", "false")
    elif type.name in ("json", "jsonb"):
        found = column
    else:
        resolved = resolve("to_json", (type,))
        call = Call(resolved.key, (Column(0, type, True),), resolved.result)
        found, _ = outcome(call, [column], len(column))
    return pc.fill_null(found, "null")


def type_of_file(name: str, type: pa.DataType) -> tuple[SqlType, pa.DataType]:
    """Return the SQL type of a column of a file, and the Arrow type to which it is cast before."""
    found = _plain(type)
    if found is None and (pa.types.is_list(type) or pa.types.is_large_list(type)):
        element, inner = type_of_file(name, type.value_type)
        innermost = element_of(element)
        found = array_of(element) if innermost is None else shaped_array(innermost)
        return found, pa.list_(inner)
    if found is None:
        raise FeatureNotSupported(f'column "{name}" of the file is of type {type}')
    return found, arrow_type(found)


def _plain(type: pa.DataType) -> SqlType | None:
    checks = (
        (pa.types.is_boolean, BOOL),
        (lambda t: t in (pa.int8(), pa.uint8(), pa.int16()), INT2),
        (lambda t: t in (pa.uint16(), pa.int32()), INT4),
        (lambda t: t in (pa.uint32(), pa.int64()), INT8),
        (lambda t: t == pa.uint64(), numeric(20, 0)),
        (lambda t: t in (pa.float16(), pa.float32()), FLOAT4),
        (lambda t: t == pa.float64(), FLOAT8),
        (pa.types.is_date, DATE),
        (pa.types.is_time, TIME_OF_DAY),
        (pa.types.is_string, TEXT),
        (pa.types.is_large_string, TEXT),
        (lambda t: t == pa.string_view(), TEXT),
        (pa.types.is_null, TEXT),
        (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), BYTEA),
        (pa.types.is_fixed_size_binary, BYTEA),
    )
    if pa.types.is_decimal(type):
        return numeric(NUMERIC_DIGITS, type.scale) if 0 <= type.scale <= NUMERIC_DIGITS else None
    if pa.types.is_timestamp(type):
        return TIMESTAMP if type.tz is None else TIMESTAMPTZ
    if pa.types.is_dictionary(type):
        return _plain(type.value_type)
    for check, found in checks:
        if check(type):
            return found
    return None


def from_file(name: str, column: pa.Array, target: SqlType) -> pa.Array:
    """Return a column of a file as values of `target`; raises WrongValue."""
    source, first = type_of_file(name, column.type)
    try:
        values = column if column.type == first else column.cast(first)
    except pa.ArrowInvalid as error:
        said = f'column "{name}": {describe_arrow_error(error)}'
        raise WrongValue(0, DataError(said)) from None
    if source.name == "shaped":
        values, errors = arrays_of_lists(values, source)
        _check(errors)
    if source == TEXT and target in _ISO:
        try:  # many at once, if all are in ISO form
            return values.cast(arrow_type(target))
        except pa.ArrowInvalid:
            pass  # the cast of each value knows other forms, and tells which one is wrong
    if source.name == "numeric" and target.name == "number":
        source = SqlType("numeric", scale=source.scale, trim=True)
    return cast(values, source, target)


def cast(column: pa.Array, source: SqlType, target: SqlType) -> pa.Array:
    """Return a column's values cast as an assignment does, or explicitly if there is none.

    Raises WrongValue for the first value that cannot be cast.
    """
    if source.element is not None and target.name == "shaped" and source.element != item_of(target):
        plain = array_of(item_of(target))
        return cast(cast(column, source, plain), plain, target)
    resolved = resolve_cast(source, target, "assignment") or resolve_cast(
        source, target, "explicit"
    )
    if resolved is None:
        raise FeatureNotSupported(f"cannot cast type {source} to {target}")
    if resolved.key == "relabel":
        return column
    call = Call(resolved.key, (Column(0, source, True),), resolved.result)
    found, errors = outcome(call, [column], len(column))
    if errors is not None:
        _check(errors)
    if resolved.result != target and found.type != arrow_type(target):
        return cast(found, resolved.result, target)
    return found


def _check(errors: pa.Array) -> None:
    """Raise WrongValue for the first row with an error."""
    if errors.null_count < len(errors):
        row = pc.index(pc.is_valid(errors), True).as_py()
        raise WrongValue(row, DataError.parse(errors[row].as_py()))


def batch_for_file(
    batch: pa.RecordBatch, names: Sequence[str], types: Sequence[SqlType]
) -> pa.RecordBatch:
    """Return rows as Parquet files have them."""
    arrays = [
        for_file(name, column, type)
        for name, column, type in zip(names, batch.columns, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, list(names))
