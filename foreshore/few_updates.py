"""A few updates at one time, as tuples of data; columns are made when somebody asks for them.

Columns of one value each cost more than all else in the commit of a row. So rows that statements
make one by one go to the log and into memory as they are, if their columns have *plain* types:
integers and times, booleans, texts, bytes, floats and decimals. In MessagePack their data are
integers, booleans, strings, binaries, floats, and decimals their text; NULL is nil. What was
written and what is read back become columns by the same function, `together`.
"""

import re
from array import array as packed
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from foreshore.by_identity import ByIdentity
from foreshore.update import Timestamp

MOST_ROWS = 256  # beyond which columns cost less
MOST_BYTES = 1 << 20  # encoded; the events of a group have a length of 32 bits

Values = tuple[Any, ...]
# Of a column: whether it may be NULL, the class of its data, and what tells which of these fit.
Check = tuple[bool, type, Callable[[Any], object] | None]

_INTEGERS = {16: ("h", pa.int16()), 32: ("i", pa.int32()), 64: ("q", pa.int64())}  # by bits
_CLASSES = {pa.bool_(): bool, pa.string(): str, pa.binary(): bytes}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[list[Any]]).decode
_unpack = msgspec.msgpack.Decoder(tuple[int, list[int], msgspec.Raw]).decode


class FewUpdates(msgspec.Struct, frozen=True, eq=False):
    """Updates at `time` to a shard with this schema of updates: rows, and a diff for each.

    The data fit the schema, as `few_updates` sees to. `encoded` is the rows in MessagePack.
    """

    schema: pa.Schema
    time: Timestamp
    rows: Sequence[Sequence[Any]]
    diffs: Sequence[int]
    encoded: bytes

    @property
    def num_rows(self) -> int:
        """How many updates there are."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """How many bytes the rows have in MessagePack."""
        return len(self.encoded)

    @property
    def table(self) -> pa.Table:
        """The updates in columns."""
        return together([self])


def few_updates(
    schema: pa.Schema, time: Timestamp, rows: Sequence[Values], diffs: Sequence[int]
) -> FewUpdates | None:
    """Return updates as tuples; None if they are too many or too long, or not of plain types."""
    checks = _checks_of(schema)
    if checks is None or not 0 < len(rows) <= MOST_ROWS:
        return None
    for row in rows:
        for value, (nullable, kind, check) in zip(row, checks, strict=True):
            if value is None:
                if not nullable:
                    return None
            elif value.__class__ is not kind or (check is not None and not check(value)):
                return None
    try:
        encoded = _encode(rows)
    except UnicodeEncodeError:  # half of a pair of surrogates, which no column takes either
        return None
    if len(encoded) > MOST_BYTES:
        return None
    return FewUpdates(schema, time, rows, diffs, encoded)


def decoded(schema: pa.Schema, time: Timestamp, encoded: bytes, diffs: Sequence[int]) -> FewUpdates:
    """Return updates of which `encoded` are the rows."""
    return FewUpdates(schema, time, _decode(encoded), diffs, encoded)


def packed_updates(updates: FewUpdates) -> bytes:
    """Return the updates, without their schema, in one piece, for `unpacked_updates`."""
    return _encode((updates.time, updates.diffs, msgspec.Raw(updates.encoded)))


def unpacked_updates(schema: pa.Schema, data: bytes | memoryview) -> FewUpdates:
    """Return the updates that `packed_updates` has put in one piece."""
    time, diffs, encoded = _unpack(data)
    return decoded(schema, time, bytes(encoded), diffs)


def together(parts: Sequence[FewUpdates]) -> pa.Table:
    """Return the updates of `parts`, which have one schema, in their order."""
    schema = parts[0].schema
    rows = list(chain.from_iterable([part.rows for part in parts]))
    diffs = list(chain.from_iterable([part.diffs for part in parts]))
    times = [part.time for part in parts for _ in part.rows]
    data: Iterable[Sequence[Any]] = (*zip(*rows, strict=True), times, diffs)
    columns = [_column(*each) for each in zip(data, schema.types, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(data: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Return a column of a plain type."""
    if pa.types.is_decimal(type):
        return pa.array([None if d is None else Decimal(d) for d in data], type)
    if not _is_integral(type):
        return pa.array(data, type)
    code, integers = _INTEGERS[type.bit_width]
    if None in data:
        return pa.array(data, integers).view(type)
    return pa.Array.from_buffers(type, len(data), [None, pa.py_buffer(packed(code, data))])


# --- plain types ---------------------------------------------------------------------------


def _checks(schema: pa.Schema) -> tuple[Check, ...] | None:
    """Return what tells whether a value fits its column; None if a column is not plain."""
    checks = [_check(field) for field in list(schema)[:-2]]
    return None if None in checks else tuple(filter(None, checks))


_checks_of = ByIdentity(_checks)


def _check(field: pa.Field) -> Check | None:
    type = field.type
    if _is_integral(type):
        integers = range(-1 << (type.bit_width - 1), 1 << (type.bit_width - 1))
        return field.nullable, int, integers.__contains__
    if pa.types.is_decimal128(type):
        fits = re.compile(rf"-?[0-9]{{1,{38 - type.scale}}}(?:\.[0-9]{{0,{type.scale}}})?")
        return field.nullable, str, fits.fullmatch
    if type == pa.float64():  # NaN is left to what makes it canonical
        return field.nullable, float, lambda v: v == v
    kind = _CLASSES.get(type)
    return None if kind is None else (field.nullable, kind, None)


def _is_integral(type: pa.DataType) -> bool:
    return bool(
        (pa.types.is_signed_integer(type) and type.bit_width >= 16)
        or pa.types.is_date32(type)
        or pa.types.is_time64(type)
        or pa.types.is_timestamp(type)
    )
