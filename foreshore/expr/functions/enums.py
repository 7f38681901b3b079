"""Enums: functions over the values of a type. Their order is that of their stored forms."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foreshore.datum import repeat
from foreshore.errors import data_error
from foreshore.expr.functions.function import Kernel, Outcome, Signature, declare
from foreshore.expr.functions.rows import collect


def _values(types: Signature) -> tuple[str, ...]:
    defined = types.args[0].defined
    assert defined is not None, types
    return defined.values


def _constant(choose: Callable[[tuple[str, ...]], Any]) -> Kernel:
    """Return the kernel of a function of the type alone; its argument may be NULL."""

    def kernel(types: Signature, a: pa.Array) -> Outcome:
        return repeat(choose(_values(types)), types.result, len(a))

    return kernel


def _end(place: int) -> Kernel:
    """Return the kernel of the first or last value, which an enum without values has not."""
    constant = _constant(lambda values: values[place])

    def kernel(types: Signature, a: pa.Array) -> Outcome:
        if _values(types):
            return constant(types, a)
        text = data_error("55000", f"enum {types.args[0]} contains no values")
        return repeat(None, types.result, len(a)), pa.array([text] * len(a), pa.string())

    return kernel


def _is_empty(types: Signature) -> bool:
    return not _values(types)


def _range(types: Signature, low: pa.Array, high: pa.Array) -> Outcome:
    """Return the values from `low` to `high`; NULL is unbounded."""
    values = _values(types)

    def between(low: tuple[Any], high: tuple[Any]) -> tuple[str, ...]:
        return tuple(
            value
            for value in values
            if (low[0] is None or value >= low[0]) and (high[0] is None or value <= high[0])
        )

    rows = zip(((v,) for v in low.to_pylist()), ((v,) for v in high.to_pylist()), strict=True)
    return collect(types, between, rows)


for _name, _place in (("enum_first", 0), ("enum_last", -1)):
    declare(
        *(_name, "anyenum", "anyenum", _end(_place)),
        strict=False,
        fallible=True,
        fails=_is_empty,
    )
declare("enum_range", "anyenum", "anyarray", _constant(lambda values: values), strict=False)
declare("enum_range", "anyenum anyenum", "anyarray", _range, strict=False)
