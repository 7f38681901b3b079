"""Aggregates as functions over the array of a group's values: bits of integers, members of jsonb.

    bit_and(x)               =  bits_and(array_agg(x))
    jsonb_object_agg(k, v)   =  jsonb_of_members(array_agg(jsonb_member(k, v)))

Also jsonb_object, which makes an object of arrays of text.
"""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from foreshore.errors import data_error
from foreshore.expr.functions.bit_strings import combined_bits
from foreshore.expr.functions.function import BY_KEY, Outcome, Signature, declare, hidden
from foreshore.expr.functions.jsontext import dumps, loads
from foreshore.expr.functions.rows import fail, mapped

_MISSING_KEY = data_error("22023", "field name must not be null")


def _combined(combine: Callable[[int, int], int]) -> Callable[[Sequence[int | None]], int | None]:
    def compute(values: Sequence[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return reduce(combine, known) if known else None

    return compute


def _member(types: Signature, key: pa.Array, value: pa.Array) -> Outcome:
    """Return objects of one member."""
    values, errors = BY_KEY["jsonb_build_object(any)"].kernel(types, key, value)
    missing = errors.is_valid()
    found = pa.array(
        [_MISSING_KEY if failed else None for failed in missing.to_pylist()], pa.string()
    )
    return values, found


def _of_members(members: Sequence[str]) -> str:
    """Return the object of all members; of equal keys the last counts."""
    document: dict[str, Any] = {}
    for member in members:
        document.update(loads(member))
    return dumps(document)


def object_of_pairs(texts: Sequence[str | None]) -> str:
    """Return the jsonb object of keys and values in turns."""
    if len(texts) % 2:
        raise fail("2202E", "array must have even number of elements")
    return _object(texts[::2], texts[1::2])


def _object(keys: Sequence[str | None], values: Sequence[str | None]) -> str:
    if bool(keys) != bool(values):
        raise fail("2202E", "wrong number of array subscripts")
    if len(keys) != len(values):
        raise fail("2202E", "mismatched array dimensions")
    if None in keys:
        raise fail("22004", "null value not allowed for object key")
    return dumps(dict(zip(keys, values, strict=True)))


def _of_bits(name: str) -> Callable[[Sequence[bytes | None]], bytes | None]:
    kernel = combined_bits(name.upper(), getattr(operator, f"{name}_" if name != "xor" else "xor"))

    def compute(values: Sequence[bytes | None]) -> bytes | None:
        known = [value for value in values if value is not None]
        return reduce(kernel, known) if known else None

    return compute


for _name in ("and", "or", "xor"):
    hidden(f"bits_{_name}(bit[])", "bit[]", "bit", mapped(_of_bits(_name)), fallible=True)
    _combine = _combined(getattr(operator, f"{_name}_" if _name != "xor" else "xor"))
    for _t in ("int2", "int4", "int8"):
        hidden(f"bits_{_name}({_t}[])", f"{_t}[]", _t, mapped(_combine))
hidden("jsonb_member(any,any)", "any any", "jsonb", _member, strict=False, fallible=True)
hidden("jsonb_of_members(jsonb[])", "jsonb[]", "jsonb", mapped(_of_members))
declare("jsonb_object", "text[]", "jsonb", mapped(object_of_pairs), fallible=True)
declare("jsonb_object", "text[] text[]", "jsonb", mapped(_object), fallible=True)
