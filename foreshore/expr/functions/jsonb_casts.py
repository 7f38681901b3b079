"""Casts of jsonb to bool and to numbers."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from foreshore.expr.functions.decimals import limit_of
from foreshore.expr.functions.function import Outcome, Signature, hidden
from foreshore.expr.functions.jsontext import kind_of, loads
from foreshore.expr.functions.rows import Failure, fail, out_of_range
from foreshore.types import SqlType

MAX_NUMBERS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}


_KINDS = {
    "bool": "boolean", "numeric": "numeric", "int2": "smallint", "int4": "integer",
    "int8": "bigint", "float4": "real", "float8": "double precision",
}  # fmt: skip


def _cast(target: SqlType) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        value = loads(text)
        if target.name == "bool":
            if isinstance(value, bool):
                return value
        elif isinstance(value, Decimal):
            return _number(value, target)
        kind = kind_of(text).replace("number", "numeric")
        raise fail("22023", f"cannot cast jsonb {kind} to type {_KINDS[target.name]}")

    return convert


def _number(value: Decimal, target: SqlType) -> Any:
    from decimal import ROUND_HALF_UP, Context

    wide = Context(prec=200)
    if target.name in MAX_NUMBERS:
        if abs(value) > 10**20:
            raise Failure(out_of_range(target))
        whole = int(value.to_integral_value(ROUND_HALF_UP))
        if not -MAX_NUMBERS[target.name] <= whole < MAX_NUMBERS[target.name]:
            raise Failure(out_of_range(target))
        return whole
    if target.name in ("float4", "float8"):
        result = float(value)
        if result in (float("inf"), float("-inf")):
            raise fail("22003", f'"{value}" is out of range for type {target}')
        return result
    scale = target.scale or 0
    if value.adjusted() > 40:
        raise fail("22003", "numeric field overflow")
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, wide)
    if (target.length is None and rounded != value) or abs(rounded.scaleb(scale, wide)) >= limit_of(
        target
    ):
        raise fail("22003", "numeric field overflow")
    return format(rounded, "f")


def _cast_kernel(types: Signature, a: pa.Array) -> Outcome:
    from foreshore.expr.functions.rows import rowwise

    return rowwise(types, _cast(types.result), a)


for _target in _KINDS:
    hidden(f"cast(jsonb,{_target})", "jsonb", _target, _cast_kernel, fallible=True)
