"""Roots, logarithms and powers of numbers, with PostgreSQL's number of digits.

Each function returns a number rounded to the scale that PostgreSQL 15 chooses: at least 16
significant digits, and the scales of the operands. They raise a DataError out of their domain.
"""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

from foreshore.errors import DivisionByZero, InvalidForLogarithm, InvalidForPower
from foreshore.numbers import (
    INFINITY,
    MINUS_INFINITY,
    NAN,
    WIDE,
    ZERO,
    bounded,
    divided_to,
    overflow,
    rounded,
    scale_of,
)

_LEAST_DIGITS = 16
_MOST_SCALE = 1_000
_MOST_WEIGHT = 2_000
_TO_DECIMAL = 0.434294481903252  # log10(e), as PostgreSQL writes it
_ONE = Decimal(1)


def _context(digits: int) -> Context:
    return Context(prec=max(digits, 1) + 20, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def _scale(digits: int, *operands: Decimal) -> int:
    return min(max(digits, *map(scale_of, operands), 0), _MOST_SCALE)


def _base_weight(value: Decimal) -> int:
    return value.adjusted() // 4 if value else 0


def sqrt(x: Decimal) -> Decimal:
    """Return the square root."""
    if x.is_nan():
        return x
    if x < 0:
        raise InvalidForPower("cannot take square root of a negative number")
    if x.is_infinite():
        return x
    weight = _base_weight(x)
    half = 2 * weight + 1 if weight >= 0 else 1 - (1 - 4 * weight) // 2
    return sqrt_to(x, _scale(_LEAST_DIGITS - half, x))


def sqrt_to(x: Decimal, scale: int) -> Decimal:
    """Return the square root of a number that is not negative, rounded to `scale` digits."""
    return rounded(_context(scale + abs(x.adjusted())).sqrt(x), scale)


def exp(x: Decimal) -> Decimal:
    """Return e to the power of x."""
    if not x.is_finite():
        return x if x.is_nan() or x > 0 else ZERO
    weight = int(min(max(float(x) * _TO_DECIMAL, -_MOST_WEIGHT), _MOST_WEIGHT))
    return _exp(x, _scale(_LEAST_DIGITS - weight, x))


def _exp(x: Decimal, scale: int) -> Decimal:
    if x.copy_abs() >= 3 * _MOST_WEIGHT:
        if x > 0:
            raise overflow()
        return rounded(ZERO, scale)
    return rounded(_context(scale + int(max(x, ZERO))).exp(x), scale)


def _ln_weight(x: Decimal) -> int:
    """Return about the decimal weight of ln(x), as PostgreSQL estimates it."""
    if Decimal("0.9") <= x <= Decimal("1.1"):
        rest = WIDE.subtract(x, _ONE)
        return rest.adjusted() if rest else 0
    logarithm = _context(30).ln(x)
    return int(_context(30).log10(logarithm.copy_abs()))


def _check_logarithm(x: Decimal) -> None:
    if x == 0:
        raise InvalidForLogarithm("cannot take logarithm of zero")
    if x < 0:
        raise InvalidForLogarithm("cannot take logarithm of a negative number")


def ln(x: Decimal) -> Decimal:
    """Return the natural logarithm."""
    if x.is_nan():
        return x
    _check_logarithm(x)
    if x.is_infinite():
        return x
    scale = _scale(_LEAST_DIGITS - _ln_weight(x), x)
    return rounded(_context(scale + 8).ln(x), scale)


def log10(x: Decimal) -> Decimal:
    """Return the logarithm to the base 10."""
    return log(Decimal(10), x)


def log(base: Decimal, x: Decimal) -> Decimal:
    """Return the logarithm of x to a base."""
    if base.is_nan() or x.is_nan():
        return NAN
    _check_logarithm(base)
    _check_logarithm(x)
    if base.is_infinite():
        return NAN if x.is_infinite() else ZERO
    if x.is_infinite():
        return x
    if base == 1:
        raise DivisionByZero("division by zero")
    weight = _ln_weight(x) - _ln_weight(base)
    scale = _scale(_LEAST_DIGITS - weight, base, x)
    context = _context(scale + 30)
    return rounded(context.divide(context.ln(x), context.ln(base)), scale)


def power(x: Decimal, y: Decimal) -> Decimal:
    """Return x to the power of y."""
    if not (x.is_finite() and y.is_finite()):
        return _special_power(x, y)
    whole = y == y.to_integral_value()
    if x == 0 and y < 0:
        raise InvalidForPower("zero raised to a negative power is undefined")
    if x < 0 and not whole:
        raise InvalidForPower(
            "a negative number raised to a non-integer power yields a complex result"
        )
    if whole and -(2**31) <= y < 2**31:
        return _whole_power(x, int(y), _scale(_LEAST_DIGITS, x))
    if x == 0:
        return rounded(ZERO, _LEAST_DIGITS)
    context = _context(40)
    exponent = context.multiply(y, context.ln(x.copy_abs()))
    if exponent.copy_abs() > Decimal("3.01") * _MOST_WEIGHT:
        if exponent > 0:
            raise overflow()
        return rounded(ZERO, _MOST_SCALE)
    scale = _scale(_LEAST_DIGITS - int(float(exponent) * _TO_DECIMAL), x, y)
    context = _context(scale + abs(int(exponent)) + 40)
    size = _exp(context.multiply(y, context.ln(x.copy_abs())), scale)
    return size.copy_negate() if x < 0 and int(y) % 2 else size


def _whole_power(x: Decimal, y: int, scale: int) -> Decimal:
    if y == 0:
        return rounded(_ONE, scale)
    if x == 0:
        return rounded(ZERO, scale)
    if y == -1:
        return divided_to(_ONE, x, scale)
    digits = y * float(_context(30).log10(x.copy_abs()))
    if digits > 4 * 2**15:
        raise overflow()
    if digits + 1 < -scale:
        return rounded(ZERO, scale)
    exact = _context(scale + max(int(digits), 0) + 20).power(x, y)
    return bounded(rounded(exact, scale))


def _special_power(x: Decimal, y: Decimal) -> Decimal:
    """Return a power of or to NaN or an infinity."""
    if x.is_nan() or y.is_nan():
        if (not x.is_nan() and x == 1) or (not y.is_nan() and y == 0):
            return _ONE
        return NAN
    if x == 1 or y == 0:
        return _ONE
    if x == 0 and y < 0:
        raise InvalidForPower("zero raised to a negative power is undefined")
    if x == 0:
        return ZERO
    if y.is_infinite():
        if x == -1:
            return _ONE
        return INFINITY if (x.copy_abs() > 1) == (y > 0) else ZERO
    if x < 0 and y != y.to_integral_value():
        raise InvalidForPower(
            "a negative number raised to a non-integer power yields a complex result"
        )
    if y < 0:
        return ZERO
    return MINUS_INFINITY if x < 0 and int(y) % 2 else INFINITY
