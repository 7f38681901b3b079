"""Subscripts of int2vector and oidvector, the catalog's arrays, which start at 0.

All other functions use the array to which a vector casts. Our arrays have no lower bound, so
subscripts of the cast array start at 1, where PostgreSQL's start at 0.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.expr.functions.function import Outcome, Signature, declare, declare_table
from foreshore.expr.functions.temporal import data_rows


def _subscript(vector: Any, index: int) -> Any:
    return vector[index] if 0 <= index < len(vector) else None


def _slice(vector: Any, low: int, high: int = 2**31) -> Any:
    return tuple(vector[max(low, 0) : max(high + 1, 0)])


def _position(vector: Any, item: int) -> int | None:
    return next((i for i, each in enumerate(vector) if each == item), None)


def _positions(vector: Any, item: int) -> tuple[int, ...]:
    return tuple(i for i, each in enumerate(vector) if each == item)


def _subscripts(vector: Any, dimension: int) -> tuple[int, ...]:
    return tuple(range(len(vector))) if dimension == 1 else ()


def _lower(types: Signature, a: pa.Array, dimension: pa.Array) -> Outcome:
    return _bound(pa.scalar(0, pa.int32()), a, dimension)


def _upper(types: Signature, a: pa.Array, dimension: pa.Array) -> Outcome:
    last = pc.subtract(pc.list_value_length(a).cast(pa.int32()), pa.scalar(1, pa.int32()))
    return _bound(last, a, dimension)


def _bound(value: Any, a: pa.Array, dimension: pa.Array) -> pa.Array:
    """Return `value` if the vector has the dimension, otherwise NULL."""
    fits = pc.and_(pc.equal(dimension, 1), pc.greater(pc.list_value_length(a), 0))
    return pc.if_else(fits.fill_null(False), value, pa.scalar(None, pa.int32()))


for _vector, _element, _item in (("int2vector", "int2", "int8"), ("oidvector", "oid", "oid")):
    declare("array_subscript", f"{_vector} int4", _element, data_rows(_subscript))
    declare("array_slice", f"{_vector} int4", f"{_element}[]", data_rows(_slice))
    declare("array_slice", f"{_vector} int4 int4", f"{_element}[]", data_rows(_slice))
    declare("array_lower", f"{_vector} int4", "int4", _lower)
    declare("array_upper", f"{_vector} int4", "int4", _upper)
    declare("array_position", f"{_vector} {_item}", "int4", data_rows(_position))
    declare("array_positions", f"{_vector} {_item}", "int4[]", data_rows(_positions))
    declare_table("generate_subscripts", f"{_vector} int4", "int4[]", data_rows(_subscripts))
