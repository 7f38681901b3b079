"""Numbers: values of `numeric` without a declared scale, and PostgreSQL's arithmetic over them.

    >>> shown(divided(number("1.50"), number("3")))
    '0.50000000000000000000'

A number is a `Decimal` whose exponent is at most 0 and says its display scale, or NaN or an
infinity. Its datum is its text. A column of numbers is a struct of three fields, in this order:

    value   decimal(38, 20): the number, or what is nearest below it
    rest    bytes: empty if `value` is the number, else bytes that sort as the numbers do
    scale   int16: the display scale

So `(value, rest)` orders and identifies numbers on each engine, and all three order them by their
display scales within equal ones. NaN is the greatest, after infinity, as in PostgreSQL.
"""

import math
from collections.abc import Callable, Sequence
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
)

import pyarrow as pa

from foreshore.errors import NumericValueOutOfRange
from foreshore.sorted_numerics import numeric_bytes
from foreshore.types import NUMBER_PARTS, UNCONSTRAINED_SCALE

MOST_DIGITS = 131_072  # before the point
MOST_SCALE = 16_383
MOST_RESULT_SCALE = 2_000  # of round() and trunc()
MOST_QUOTIENT_SCALE = 1_000
MOST_FACTORIAL = 32_177
_SIGNIFICANT = 16  # the least number of significant digits of what is rounded

WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_UP, traps=[])
_FLOORS = Context(prec=200_000, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_FLOOR, traps=[])
NAN, ZERO = Decimal("NaN"), Decimal(0)
INFINITY, MINUS_INFINITY = Decimal("Infinity"), Decimal("-Infinity")
_UNIT = Decimal(1).scaleb(-UNCONSTRAINED_SCALE)
_GREATEST = Decimal(10**38 - 1).scaleb(-UNCONSTRAINED_SCALE, WIDE)
_LEAST = _GREATEST.copy_negate()
_RESTS = {"NaN": b"\xff", "Infinity": b"\xfe", "-Infinity": b"\x00"}

Parts = tuple[Decimal, bytes, int]


def number(text: str) -> Decimal:
    """Return the number of a datum, which is no exponential form."""
    return Decimal(text)


def shown(value: Decimal) -> str:
    """Return the datum: PostgreSQL's text."""
    if not value.is_finite():
        return "NaN" if value.is_nan() else str(value)
    text = format(value, "f")
    return text[1:] if not value and text[0] == "-" else text


def scale_of(value: Decimal) -> int:
    """Return the display scale."""
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def bounded(value: Decimal) -> Decimal:
    """Return `value` as a number; raises NumericValueOutOfRange if PostgreSQL cannot hold it."""
    if not value.is_finite():
        return value
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), value
    if value and value.adjusted() >= MOST_DIGITS:
        raise overflow()
    if exponent > 0:
        return value.quantize(Decimal(1), context=WIDE)
    return value if exponent >= -MOST_SCALE else rounded(value, MOST_SCALE)


def overflow() -> NumericValueOutOfRange:
    """Return the error of a number with too many digits."""
    return NumericValueOutOfRange("value overflows numeric format")


def limited(value: Decimal, precision: int, scale: int) -> Decimal:
    """Return `value` as a numeric(precision, scale) holds it, rounded half away from zero.

    Raises NumericValueOutOfRange if it has more digits before the point, or is infinite.
    """
    field = f"A field with precision {precision}, scale {scale}"
    if value.is_infinite():
        raise NumericValueOutOfRange(
            "numeric field overflow", detail=f"{field} cannot hold an infinite value."
        )
    if value.is_nan():
        return value
    kept = bounded(value if value and value.adjusted() > MOST_DIGITS else rounded(value, scale))
    if kept and kept.adjusted() >= precision - scale:
        bound = f"10^{precision - scale}" if precision != scale else "1"
        raise NumericValueOutOfRange(
            "numeric field overflow",
            detail=f"{field} must round to an absolute value less than {bound}.",
        )
    return kept


def rounded(value: Decimal, scale: int) -> Decimal:
    """Return a finite `value` with `scale` digits, rounded half away from zero."""
    return value.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, WIDE)


# --- parts ------------------------------------------------------------------------------------


def parts_of(value: Decimal) -> Parts:
    """Return the three fields of a number."""
    if not value.is_finite():
        rest = _RESTS[shown(value)]
        return (_LEAST if rest == b"\x00" else _GREATEST), rest, 0
    scale = scale_of(value)
    if value <= _LEAST or value > _GREATEST:
        return (_LEAST if value < 0 else _GREATEST), numeric_bytes(value), scale
    if scale <= UNCONSTRAINED_SCALE:
        return value, b"", scale
    below = value.quantize(_UNIT, ROUND_FLOOR, _FLOORS)
    return below, b"" if below == value else numeric_bytes(value), scale


def number_of(value: Decimal, rest: bytes, scale: int) -> Decimal:
    """Return the number of three fields."""
    if not rest:
        return value.quantize(Decimal((0, (1,), -scale)), context=WIDE)
    if len(rest) == 1:
        return {b"\xff": NAN, b"\xfe": INFINITY, b"\x00": MINUS_INFINITY}[rest]
    return _of_bytes(rest).quantize(Decimal((0, (1,), -scale)), context=WIDE)


def _of_bytes(key: bytes) -> Decimal:
    positive = key[0] == 2
    body = key[1:] if positive else bytes(255 - b for b in key[1:])
    digits = body[4:-1].decode()
    exponent = int.from_bytes(body[:4], "big") - 2**31 - len(digits) + 1
    return Decimal((0 if positive else 1, tuple(map(int, digits)), exponent))


def column_of(values: Sequence[Decimal | None]) -> pa.Array:
    """Return the column of numbers."""
    parts = [(ZERO, b"", 0) if v is None else parts_of(v) for v in values]
    fields = [
        pa.array([part[place] for part in parts], NUMBER_PARTS.field(place).type)
        for place in range(3)
    ]
    mask = pa.array([v is None for v in values], pa.bool_()) if None in values else None
    return pa.StructArray.from_arrays(fields, fields=list(NUMBER_PARTS), mask=mask)


def numbers_of(column: pa.Array) -> list[Decimal | None]:
    """Return the numbers of a column."""
    valid = column.is_valid().to_pylist()
    fields = zip(valid, *(column.field(place).to_pylist() for place in range(3)), strict=True)
    return [
        number_of(value, rest, scale) if there else None for there, value, rest, scale in fields
    ]


def order_key(value: Decimal) -> tuple[Decimal, bytes]:
    """Return what sorts as numbers do, and is equal for equal ones."""
    value, rest, _ = parts_of(value)
    return value, rest


def unit_bytes(value: Decimal) -> bytes:
    """Return 16 bytes that sort as the first fields of numbers do."""
    units = int(value.scaleb(UNCONSTRAINED_SCALE, WIDE))
    return int(units + 2**127).to_bytes(16, "big")


# --- arithmetic -------------------------------------------------------------------------------


def added(a: Decimal, b: Decimal) -> Decimal:
    """Return the sum, with the greater scale."""
    return bounded(WIDE.add(a, b))


def subtracted(a: Decimal, b: Decimal) -> Decimal:
    """Return the difference, with the greater scale."""
    return bounded(WIDE.subtract(a, b))


def multiplied(a: Decimal, b: Decimal) -> Decimal:
    """Return the product, with the sum of the scales."""
    return bounded(WIDE.multiply(a, b))


def _base_weight(value: Decimal) -> int:
    """Return the place of the first digit in base 10,000."""
    return math.floor(value.adjusted() / 4) if value else 0


def _first_digit(value: Decimal) -> int:
    """Return the first digit in base 10,000."""
    return int(value.copy_abs().scaleb(-4 * _base_weight(value), WIDE)) if value else 0


def quotient_scale(a: Decimal, b: Decimal) -> int:
    """Return the scale of a quotient: PostgreSQL's select_div_scale."""
    weight = _base_weight(a) - _base_weight(b) - (_first_digit(a) <= _first_digit(b))
    least = max(_SIGNIFICANT - 4 * weight, scale_of(a), scale_of(b), 0)
    return min(least, MOST_QUOTIENT_SCALE)


def _units(value: Decimal) -> tuple[int, int]:
    """Return an integer and a scale."""
    scale = scale_of(value)
    return int(value.scaleb(scale, WIDE)), scale


def divided(a: Decimal, b: Decimal) -> Decimal:
    """Return the quotient; raises ZeroDivisionError."""
    special = _special_quotient(a, b)
    if special is not None:
        return special
    return divided_to(a, b, quotient_scale(a, b))


def divided_to(a: Decimal, b: Decimal, scale: int) -> Decimal:
    """Return the quotient of finite numbers rounded to `scale` digits."""
    (x, s), (y, t) = _units(a), _units(b)
    x, y = abs(x) * 10 ** (scale + t), abs(y) * 10**s
    units, rest = divmod(x, y)
    units += rest >= y - rest
    return _of_units(-units if (a < 0) != (b < 0) else units, scale)


def _of_units(units: int, scale: int) -> Decimal:
    return bounded(WIDE.create_decimal(units).scaleb(-scale, WIDE))


def _special_quotient(a: Decimal, b: Decimal) -> Decimal | None:
    if a.is_nan() or b.is_nan():
        return NAN
    if not b:
        raise ZeroDivisionError
    if a.is_infinite():
        return NAN if b.is_infinite() else a.copy_sign(Decimal(1 if (a > 0) == (b > 0) else -1))
    return ZERO if b.is_infinite() else None


def whole_quotient(a: Decimal, b: Decimal) -> Decimal:
    """Return the quotient without its fraction; raises ZeroDivisionError."""
    special = _special_quotient(a, b)
    if special is not None:
        return special
    (x, s), (y, t) = _units(a), _units(b)
    units = abs(x) * 10**t // (abs(y) * 10**s)
    return _of_units(-units if (a < 0) != (b < 0) else units, 0)


def remainder(a: Decimal, b: Decimal) -> Decimal:
    """Return what is left of a whole quotient, with the greater scale; raises ZeroDivisionError."""
    if a.is_nan() or b.is_nan():
        return NAN
    if not b:
        raise ZeroDivisionError
    if a.is_infinite():
        return NAN
    if b.is_infinite():
        return a
    scale = max(scale_of(a), scale_of(b))
    x, y = int(a.scaleb(scale, WIDE)), int(b.scaleb(scale, WIDE))
    left = abs(x) % abs(y)
    return _of_units(-left if x < 0 else left, scale)


def cut(value: Decimal, digits: int, rounding: str) -> Decimal:
    """Return `value` with `digits` after the point; if they are negative, zeros before it."""
    if not value.is_finite():
        return value
    digits = min(max(digits, -MOST_RESULT_SCALE), MOST_RESULT_SCALE)
    kept = value.quantize(Decimal((0, (1,), -digits)), rounding, WIDE)
    return bounded(kept)


def negated(value: Decimal) -> Decimal:
    """Return the negative number; there is no negative zero."""
    return value.copy_negate() if value and not value.is_nan() else value


def sign(value: Decimal) -> Decimal:
    """Return -1, 0, 1 or NaN."""
    return NAN if value.is_nan() else Decimal((value > 0) - (value < 0))


def trimmed(value: Decimal) -> Decimal:
    """Return the number with the least scale that shows all its digits."""
    if not value.is_finite():
        return value
    digits, scale = _units(value)
    while scale and digits % 10 == 0:
        digits, scale = digits // 10, scale - 1
    return _of_units(digits, scale)


def least_scale(value: Decimal) -> int | None:
    """Return the least scale that shows all digits; None if `value` is not finite."""
    return scale_of(trimmed(value)) if value.is_finite() else None


def _common_units(a: Decimal, b: Decimal) -> tuple[int, int, int]:
    """Return finite numbers as integers at their greater scale, and that scale."""
    scale = max(scale_of(a), scale_of(b))
    return int(a.scaleb(scale, WIDE)), int(b.scaleb(scale, WIDE)), scale


def greatest_divisor(a: Decimal, b: Decimal) -> Decimal:
    """Return the greatest number of which both are multiples, with the greater scale."""
    if not (a.is_finite() and b.is_finite()):
        return NAN
    x, y, scale = _common_units(a, b)
    return _of_units(math.gcd(x, y), scale)


def least_multiple(a: Decimal, b: Decimal) -> Decimal:
    """Return the least number that is a multiple of both, with the greater scale."""
    if not (a.is_finite() and b.is_finite()):
        return NAN
    x, y, scale = _common_units(a, b)
    return _of_units(math.lcm(x, y), scale)


def factorial(n: int) -> Decimal:
    """Return `n` factorial; raises NumericValueOutOfRange if it is negative or too long."""
    if n < 0:
        raise NumericValueOutOfRange("factorial of a negative number is undefined")
    if n > MOST_FACTORIAL:
        raise overflow()
    return Decimal(math.factorial(n))


def with_scale(value: Decimal, scale: int) -> Decimal:
    """Return the number with another display scale, which loses no digit."""
    return rounded(value, scale) if value.is_finite() else value


def cut_to(value: Decimal, scale: int) -> Decimal:
    """Return a finite number with another display scale, its further digits cut off."""
    return value.quantize(Decimal((0, (1,), -scale)), ROUND_DOWN, WIDE)


Operation = Callable[[Decimal, Decimal], Decimal]
