"""Numbers as the integers that they equal, by which integer keys are looked up: `id = 5.0`."""

from decimal import Decimal

from foreshore.expr.functions.function import hidden
from foreshore.expr.functions.rows import Mapped
from foreshore.types import Datum

BITS = {"int2": 15, "int4": 31, "int8": 63}


def whole_number(number: Datum | Decimal, type: str) -> int | None:
    """Return the value of an integer type that a number equals; None if there is none."""
    if isinstance(number, float):
        if not number.is_integer():
            return None
        found = int(number)
    else:
        exact = Decimal(str(number))
        if not exact.is_finite() or exact != exact.to_integral_value():
            return None
        found = int(exact)
    return found if -(2 ** BITS[type]) <= found < 2 ** BITS[type] else None


for _source in ("numeric", "float8"):
    for _type in BITS:
        hidden(
            f"whole({_source},{_type})",
            _source,
            _type,
            Mapped(lambda number, type=_type: whole_number(number, type)),
            one=lambda types: lambda number: whole_number(number, types.result.name),
        )
