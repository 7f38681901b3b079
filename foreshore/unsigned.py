"""Unsigned integers of 2, 4 and 8 bytes, which Materialize has.

uint2 and uint4 are stored as int64, uint8 as 8 bytes, most significant first, which sort as the
numbers do.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.digits import is_digits
from foreshore.errors import InvalidTextRepresentation
from foreshore.types import Datum, SqlType

GREATEST = {"uint2": 2**16 - 1, "uint4": 2**32 - 1, "uint8": 2**64 - 1}


def datum_of(value: int, type: SqlType) -> Datum:
    """Return the datum of a number within the range of `type`."""
    return value.to_bytes(8, "big") if type.name == "uint8" else value


def number_of(datum: Any) -> int:
    """Return the number of a datum."""
    return int.from_bytes(datum, "big") if isinstance(datum, bytes) else int(datum)


def numbers_of(array: pa.Array) -> Any:
    """Return the numbers of a column as an array of NumPy, 0 for NULL; uint64 for uint8."""
    if not pa.types.is_binary(array.type):
        return array.fill_null(0).to_numpy(zero_copy_only=False)
    data = b"".join(array.fill_null(bytes(8)).to_pylist())
    return np.frombuffer(data, ">u8").astype(np.uint64)


def column_of(values: Iterable[int], valid: Any, type: SqlType) -> pa.Array:
    """Return the column of numbers within the range of `type`, NULL where `valid` is false."""
    kept = [v if ok else None for v, ok in zip(values, valid, strict=True)]
    if type.name == "uint8":
        return pa.array([None if v is None else datum_of(v, type) for v in kept], pa.binary())
    return pa.array(kept, pa.int64())


def parse_unsigned(text: str, type: SqlType, zone: str, now: int | None) -> Datum:
    """Return the datum of a text; raises InvalidTextRepresentation."""
    digits = text.strip()
    start = f"invalid input syntax for type {type}: "
    if not is_digits(digits.removeprefix("+")):
        what = (
            "invalid digit found in string" if digits else "cannot parse integer from empty string"
        )
        raise InvalidTextRepresentation(f'{start}{what}: "{text}"')
    significant = digits.removeprefix("+").lstrip("0") or "0"
    # Python converts no longer ones.
    if len(significant) > 20 or int(significant) > GREATEST[type.name]:
        raise InvalidTextRepresentation(
            f'{start}number too large to fit in target type: "{text}"', sqlstate="22003"
        )
    return datum_of(int(significant), type)


def format_unsigned(datum: Datum, type: SqlType, style: Any) -> str:
    """Return the text of a datum."""
    return str(number_of(datum))
