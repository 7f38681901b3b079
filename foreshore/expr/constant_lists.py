"""Comparisons with all elements of a constant array: x = ANY('{1, 2}'), x <> ALL('{1, 2}')."""

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.datum import to_array
from foreshore.expr.columns import type_of
from foreshore.expr.equality import is_plain
from foreshore.expr.ir import Call, Literal
from foreshore.types import SqlType


def is_constant_list(call: Call) -> bool:
    """Whether `call` compares with a constant array as `is_compared_by_bytes` does."""
    if call.function not in ("eq_any", "ne_all"):
        return False
    value, array = call.args
    type = array.type.element if isinstance(array, Literal) else None
    if type is None or not isinstance(array, Literal) or array.value is None:
        return False
    return is_compared_by_bytes(type_of(value), type)


def is_compared_by_bytes(a: SqlType, b: SqlType) -> bool:
    """Whether values of two types are equal if and only if they are the same in Arrow arrays."""
    if a.name == b.name == "numeric":
        return a.scale is not None and a.scale == b.scale
    return a.name == b.name and is_plain(a) and is_plain(b)


def compared_with_list(call: Call, values: pa.Array) -> pa.Array:
    """Return the result for each of `values`, its first argument; see `is_constant_list`."""
    _, array = call.args
    assert isinstance(array, Literal), call
    assert array.type.element is not None, call
    elements = to_array(array.value, array.type.element)
    found = pc.is_in(values, value_set=elements.drop_null())
    if len(elements):  # over no elements the answer is known even for a NULL operand
        unknown = values.is_null()
        if elements.null_count:
            unknown = pc.or_(unknown, pc.invert(found))
        found = pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)
    return found if call.function == "eq_any" else pc.invert(found)
