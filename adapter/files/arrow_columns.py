"""Values of SQL types in Arrow streams, and back.

Most are as in files (storage/lake/columns.py). Arrow has types for some that files have as text:

    interval                  month_day_nano_interval
    uint2, uint4, uint8       uint16, uint32, uint64
    money                     decimal128(19, 2)
    oid, xid, cid, mz_timestamp  int64
    json, jsonb               arrow.json, an extension of string
    arrays                    lists of these

With EXACT_NUMERIC a numeric without a scale is a struct: a decimal, or else its text.
"""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.arrow_errors import describe_arrow_error
from foreshore.errors import DataError, NumericValueOutOfRange
from foreshore.exact_numeric import EXACT_NUMERIC, exact_numeric_column
from foreshore.list_items import items_of, with_items
from foreshore.storage.lake.columns import WrongValue, file_type, for_file, from_file
from foreshore.types import INTERVAL, SqlType, arrow_type

__all__ = [
    "WrongValue",
    "file_type",
    "for_file",
    "for_stream",
    "from_stream",
    "stream_field",
    "stream_type",
]

MONEY = pa.decimal128(19, 2)
JSON = pa.json_(pa.string())
SQL_TYPE = b"foreshore.type"  # the key of a field's metadata that has the SQL type's name

_UNSIGNED = {"uint2": pa.uint16(), "uint4": pa.uint32(), "uint8": pa.uint64()}
_JSON = frozenset(("json", "jsonb"))
_INTEGERS = frozenset(("oid", "xid", "cid", "mz_timestamp"))
_NANOS = 1000  # in a microsecond
_MOST_MICROS = (2**63 - 1) // _NANOS
_MONTHS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])


def stream_type(type: SqlType, *, exact_numeric: bool = False) -> pa.DataType:
    """Return the Arrow type of a column of a stream."""
    if exact_numeric and type.name == "number":
        return EXACT_NUMERIC
    if type.element is not None:
        return pa.list_(stream_type(type.element, exact_numeric=exact_numeric))
    if type.name in _UNSIGNED:
        return _UNSIGNED[type.name]
    if type.name in _INTEGERS:
        return pa.int64()
    if type.name == "money":
        return MONEY
    if type.name == "interval":
        return pa.month_day_nano_interval()
    return JSON if type.name in _JSON else file_type(type)


def stream_field(name: str, type: SqlType, *, exact_numeric: bool = False) -> pa.Field:
    """Return a column of a stream."""
    arrow = stream_type(type, exact_numeric=exact_numeric)
    return pa.field(name, arrow, metadata={SQL_TYPE: str(type).encode()})


def for_stream(
    name: str, column: pa.Array, type: SqlType, *, exact_numeric: bool = False
) -> pa.Array:
    """Return a column as streams have it; raises NumericValueOutOfRange if a value does not fit."""
    if exact_numeric and type.name == "number":
        return exact_numeric_column(column)
    if type.element is not None:
        items = for_stream(name, items_of(column), type.element, exact_numeric=exact_numeric)
        return with_items(column, items)
    if type.name in _UNSIGNED:
        numbers = pa.array(_numbers(column), mask=_nulls(column))
        return numbers.cast(_UNSIGNED[type.name])
    if type.name in _INTEGERS:
        return column
    if type.name == "money":
        whole = column.cast(pa.decimal128(19, 0))
        return pa.Array.from_buffers(MONEY, len(whole), whole.buffers(), offset=whole.offset)
    if type.name == "interval":
        return _intervals(name, column)
    found = for_file(name, column, type)
    return pa.ExtensionArray.from_storage(JSON, found) if type.name in _JSON else found


def from_stream(name: str, column: pa.Array, target: SqlType) -> pa.Array:
    """Return a column of a stream as values of `target`; raises WrongValue."""
    type = column.type
    if pa.types.is_duration(type):
        try:
            micros = column.cast(pa.duration("us")).cast(pa.int64())
        except pa.ArrowInvalid as error:  # parts of a microsecond
            said = f'column "{name}": {describe_arrow_error(error)}'
            raise WrongValue(0, DataError(said, sqlstate="22008")) from None
        column = _interval_structs(pc.multiply(micros, 0), pc.multiply(micros, 0), micros)
    elif type == pa.month_day_nano_interval():
        column = _from_intervals(column)
    else:
        if pa.types.is_dictionary(type):
            column = _without_views(column.dictionary).take(column.indices)
        column = _without_views(_without_extensions(column))
        _check_texts(column)
        return from_file(name, column, target)
    if target == INTERVAL:
        return column
    raise WrongValue(0, DataError(f'column "{name}" is of type {target}, not interval'))


def _check_texts(column: pa.Array) -> None:
    """Raise WrongValue if a text, also within lists, has a zero byte, which SQL's have not."""
    items = column
    while pa.types.is_list(items.type) or pa.types.is_large_list(items.type):
        items = items.flatten()
    if not (pa.types.is_string(items.type) or pa.types.is_large_string(items.type)):
        return
    has_zero = pc.match_substring(items, "\0")
    if pc.any(has_zero).as_py():
        row = pc.index(has_zero, True).as_py() if items is column else 0
        wrong = 'invalid byte sequence for encoding "UTF8": 0x00'
        raise WrongValue(row, DataError(wrong, sqlstate="22021"))


def _without_extensions(column: pa.Array) -> pa.Array:
    """Return values of an extension type, such as JSON, as Arrow stores them; UUIDs as text."""
    if pa.types.is_list(column.type) and isinstance(column.type.value_type, pa.BaseExtensionType):
        return with_items(column, _without_extensions(items_of(column)))
    if column.type == pa.uuid():
        return pa.array([None if each is None else str(each) for each in column.to_pylist()])
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _without_views(column: pa.Array) -> pa.Array:
    """Return texts and bytes, which polars has as views, as Arrow's functions take them."""
    if column.type == pa.string_view():
        return column.cast(pa.string())
    return column.cast(pa.binary()) if column.type == pa.binary_view() else column


def _numbers(column: pa.Array) -> np.ndarray:
    """Return unsigned integers, 0 for NULL."""
    if pa.types.is_integer(column.type):
        numbers: np.ndarray = column.fill_null(0).to_numpy(zero_copy_only=False)
        return numbers
    fixed = column.fill_null(bytes(8)).cast(pa.binary(8))
    found = np.frombuffer(fixed.buffers()[1], ">u8", len(fixed), fixed.offset * 8)
    return found.astype(np.uint64)


def _nulls(column: pa.Array) -> np.ndarray:
    found: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _intervals(name: str, column: pa.Array) -> pa.Array:
    """Return intervals as Arrow has them: their time in nanoseconds."""
    fields = [
        pc.fill_null(pc.struct_field(column, part), 0).to_numpy(zero_copy_only=False)
        for part in ("months", "days", "micros")
    ]
    if len(column) and int(np.abs(fields[2]).max()) > _MOST_MICROS:
        raise NumericValueOutOfRange(
            f'an interval of column "{name}" has a time beyond 292 years',
            sqlstate="22008",
            hint="Cast the column to text.",
        )
    found = np.empty(len(column), _MONTHS)
    found["months"], found["days"], found["nanos"] = fields[0], fields[1], fields[2] * _NANOS
    valid = pa.array(column.is_valid().to_numpy(zero_copy_only=False), pa.bool_()).buffers()[1]
    buffers = [valid, pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(column), buffers)


def _from_intervals(column: pa.Array) -> pa.Array:
    data = column.buffers()[1]
    found = np.frombuffer(data, _MONTHS, len(column), column.offset * _MONTHS.itemsize)
    array = partial(pa.array, mask=_nulls(column))
    micros = found["nanos"] // _NANOS
    return _interval_structs(
        array(np.ascontiguousarray(found["months"])),
        array(np.ascontiguousarray(found["days"])),
        array(micros),
    )


def _interval_structs(months: pa.Array, days: pa.Array, micros: pa.Array) -> pa.Array:
    wanted = arrow_type(INTERVAL)
    parts = [months.cast(pa.int32()), days.cast(pa.int32()), micros.cast(pa.int64())]
    fields = [wanted.field(i) for i in range(3)]
    mask = micros.is_null()
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
