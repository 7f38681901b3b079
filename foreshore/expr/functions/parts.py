"""Split numerics into two parts whose sums have room for more digits than a numeric.

    x = high_part(x) * unit + low_part(x)        |low_part(x)| < unit, both of the sign of x

A sum of 38-digit numerics may overflow, finally or only until a row is deleted. The sums of the
parts do not overflow for up to 10**18 rows (10**8 at a scale of 30). So only combining the sums may
fail. That is an ordinary expression whose error is maintained and disappears with the rows.
"""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from foreshore.expr.functions.decimals import (
    pack,
    scale_of,
    truncate_divide,
    unscaled,
    valid_of,
    wide,
)
from foreshore.expr.functions.function import Outcome, Renderer, Signature, hidden
from foreshore.expr.functions.numeric import decimal_name, same, whole
from foreshore.expr.functions.rows import single
from foreshore.types import Datum, SqlType

# Digits of a low part on either side of the point; more if the scale is larger.
_DIGITS = 20
# Sums of numerics with no more declared digits than this have room for 10**10 rows without parts.
_FEW_DIGITS = 28
_WIDE = Context(prec=100)


def unit_of(scale: int) -> int:
    """Return the unit of the high part of a numeric of `scale`: a power of ten, at least 1."""
    return int(10 ** max(_DIGITS - scale, 0))


def _high_part(types: Signature, a: pa.Array) -> Outcome:
    scale = scale_of(types.args[0])
    return pack(truncate_divide(wide(unscaled(a)), unit_of(scale) * 10**scale), valid_of(a), 0)


def _low_part(types: Signature, a: pa.Array) -> Outcome:
    scale, values = scale_of(types.args[0]), wide(unscaled(a))
    unit = unit_of(scale) * 10**scale
    return pack(values - truncate_divide(values, unit) * unit, valid_of(a), scale)


def _parts_of_one(types: Signature) -> Callable[[Any], tuple[int, int]]:
    """Return the function from a datum to its parts, the low one times the power of its scale."""
    scale = scale_of(types.args[0])
    unit = unit_of(scale) * 10**scale

    def parts(datum: Any) -> tuple[int, int]:
        number = int(Decimal(datum).scaleb(scale, _WIDE))
        high, low = divmod(abs(number), unit)
        return (high, low) if number >= 0 else (-high, -low)

    return parts


def _high_of_one(types: Signature) -> Callable[..., Datum]:
    parts = _parts_of_one(types)
    return lambda datum: str(parts(datum)[0])


def _low_of_one(types: Signature) -> Callable[..., Datum]:
    parts, scale = _parts_of_one(types), scale_of(types.args[0])
    return single(lambda datum: Decimal(parts(datum)[1]).scaleb(-scale, _WIDE), types.result)


def _high_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    (x,), name = args, decimal_name(0)
    unit = unit_of(scale_of(types.args[0]))
    if dialect.name == "duckdb":
        cut = f"trunc({x})"
        return cut if unit == 1 else f"CAST(CAST({cut} AS HUGEINT) // {unit} AS {name})"
    cut = f"CAST(CASE WHEN {x} < 0 THEN ceil({x}) ELSE floor({x}) END AS {name})"
    return cut if unit == 1 else f"CAST({cut} div CAST({unit} AS {name}) AS {name})"


def _low_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    high, scale = _high_sql(dialect, types, args), scale_of(types.args[0])
    unit, name = unit_of(scale), decimal_name(scale)
    if unit == 1:
        held = high
    elif dialect.name == "duckdb":
        held = f"CAST({high} AS HUGEINT) * {unit}"
    else:
        held = f"{high} * CAST({unit} AS {decimal_name(0)})"
    return f"CAST({args[0]} - CAST({held} AS {name}) AS {name})"


def needs_parts(type: SqlType) -> bool:
    """Return whether a sum over columns of `type` may exceed the digits of a numeric."""
    return type.name == "numeric" and (type.length is None or type.length > _FEW_DIGITS)


hidden(
    "high_part(numeric)",
    "numeric",
    whole,
    _high_part,
    one=_high_of_one,
    duckdb=_high_sql,
    spark=_high_sql,
)
hidden(
    "low_part(numeric)",
    "numeric",
    same,
    _low_part,
    one=_low_of_one,
    duckdb=_low_sql,
    spark=_low_sql,
)
