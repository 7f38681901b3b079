"""Decimal columns as integers: a numeric of scale s is an integer multiple of 10**-s.

`unscaled` returns int64 if all values fit, otherwise Python integers in an object array. The same
NumPy expressions work for both, so the common case is fast and the rare one exact. Callers that
might exceed int64 call `widen` first.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import data_error
from foreshore.types import NUMERIC_DIGITS, SqlType

OVERFLOW = data_error("22003", "value overflows numeric format")
LIMIT = 10**NUMERIC_DIGITS

Ints = Any  # np.ndarray of int64, or of Python ints (dtype object)


def scale_of(type: SqlType) -> int:
    """Return the planned scale of a numeric, 0 for an integer."""
    return type.scale or 0


def limit_of(type: SqlType) -> int:
    """Return the first count of units that a numeric of the type cannot hold."""
    digits = NUMERIC_DIGITS if type.length is None else min(type.length, NUMERIC_DIGITS)
    return int(10**digits)


def unscaled(array: pa.Array) -> Ints:
    """Return the integers of a decimal128 or integer array, 0 for NULL."""
    if pa.types.is_integer(array.type):
        filled = array.fill_null(0) if array.null_count else array
        return filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    low, high = words[:, 0], words[:, 1]
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    if bool(np.all(high == (low >> 63))):
        return np.ascontiguousarray(low)
    return (
        (high.astype(object) << 64) + low.view(np.uint64).astype(object)
        if low.flags["C_CONTIGUOUS"]
        else (high.astype(object) << 64) + np.ascontiguousarray(low).view(np.uint64).astype(object)
    )


def magnitude(values: Ints) -> int:
    """Return the greatest absolute value."""
    if len(values) == 0:
        return 0
    return max(abs(int(values.max())), abs(int(values.min())))


def wide(values: Ints) -> Ints:
    """Return `values` as Python integers, which do not overflow."""
    return values if values.dtype == object else values.astype(object)


def widen(bound: int, *operands: Ints) -> tuple[Ints, ...]:
    """Return `operands` in a form for a computation whose results stay within `bound`."""
    if bound < 2**63 and all(o.dtype != object for o in operands):
        return operands
    return tuple(wide(o) for o in operands)


def rescale(values: Ints, by: int) -> Ints:
    """Return `values` times 10**by; for a negative `by` rounded half away from zero."""
    if by == 0:
        return values
    if by > 0:
        factor = 10**by
        # NumPy must hold the factor as well
        (values,) = widen(max(magnitude(values), 1) * factor, values)
        return values * factor
    return divide_half_up(values, 10**-by)


def divide_half_up(values: Ints, divisor: Any) -> Ints:
    """Return the quotients rounded half away from zero; no divisor is 0."""
    top = magnitude(divisor) if isinstance(divisor, np.ndarray) else abs(divisor)
    if values.dtype == object or top >= 2**62 or magnitude(values) >= 2**62:
        values = wide(values)
    sign = np.where((values < 0) != (divisor < 0), -1, 1)
    absolute, size = np.abs(values), np.abs(divisor) if top else divisor
    quotient = absolute // size
    rest = absolute - quotient * size
    return sign * (quotient + (rest >= size - rest))


def truncate_divide(values: Ints, divisor: Any) -> Ints:
    """Return the quotients truncated toward zero; no divisor is 0."""
    sign = np.where((values < 0) != (divisor < 0), -1, 1)
    return sign * (np.abs(wide(values)) // np.abs(divisor))


def pack(
    values: Ints, valid: pa.Array | None, scale: int, limit: int = LIMIT
) -> tuple[pa.Array, pa.Array | None]:
    """Return the numerics of `scale`, and errors where they reach `limit` units."""
    type = pa.decimal128(NUMERIC_DIGITS, scale)
    if magnitude(values) < limit:
        return _build(values, valid, type), None
    values = wide(values)
    fits = np.array([abs(v) < limit for v in values], dtype=bool)
    if valid is not None:
        fits |= ~valid.to_numpy(zero_copy_only=False)
    kept = pa.array(fits)
    errors = pc.if_else(kept, pa.scalar(None, pa.string()), pa.scalar(OVERFLOW))
    both = kept if valid is None else pc.and_(kept, valid)
    safe = np.where(np.array([abs(v) < limit for v in values], dtype=bool), values, 0)
    return _build(safe, both, type), errors


def _build(values: Ints, valid: pa.Array | None, type: pa.DataType) -> pa.Array:
    words = np.empty((len(values), 2), np.int64)
    if values.dtype == object:
        words[:, 0] = (values & 0xFFFFFFFFFFFFFFFF).astype(np.uint64).view(np.int64)
        words[:, 1] = (values >> 64).astype(np.int64)
    else:
        words[:, 0] = values
        words[:, 1] = values >> 63
    bitmap = None
    if valid is not None:
        bitmap = pa.array(valid.to_numpy(zero_copy_only=False)).buffers()[1]
    return pa.Array.from_buffers(type, len(values), [bitmap, pa.py_buffer(words)])


def valid_of(*arrays: pa.Array) -> pa.Array | None:
    """Return where none of `arrays` is NULL, or None if nowhere."""
    valid = None
    for array in arrays:
        if array.null_count:
            here = array.is_valid()
            valid = here if valid is None else pc.and_(valid, here)
    return valid


def text_where(mask: Any, text: str) -> pa.Array:
    """Return an array with `text` where the NumPy `mask` is set and NULL elsewhere."""
    values = np.full(len(mask), None, dtype=object)
    values[np.asarray(mask, dtype=bool)] = text
    return pa.array(values, pa.string())


def errors_where(mask: Any, text: str) -> pa.Array | None:
    """Return `text_where`, or None if the mask is empty."""
    return text_where(mask, text) if mask.any() else None
