"""Text of floating-point numbers: the shortest that reads back, in PostgreSQL's layout."""

from decimal import Decimal
from math import isinf, isnan

import numpy as np


def format_float8(value: float, extra_digits: int = 1) -> str:
    """Return the shortest text that reads back as `value`, in PostgreSQL's layout.

    Where `extra_digits` is not above 0 it has that many digits more than 15.
    """
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if extra_digits <= 0:
        return f"{value:.{max(15 + extra_digits, 1)}g}"
    shortest = repr(value)
    if abs(value) >= 2**53:
        shortest = _avoid_midpoint(value, shortest, np.float64)
    return _lay_out(shortest, 15)


def format_float4(value: float, extra_digits: int = 1) -> str:
    """Return the shortest text that reads back as the same single-precision `value`.

    Where `extra_digits` is not above 0 it has that many digits more than 6.
    """
    if isnan(value) or isinf(value):
        return format_float8(value)
    if extra_digits <= 0:
        return f"{value:.{max(6 + extra_digits, 1)}g}"
    shortest = np.format_float_scientific(np.float32(value), unique=True)
    if abs(value) >= 2**24:
        shortest = _avoid_midpoint(value, shortest, np.float32)
    return _lay_out(shortest, 6)


def _avoid_midpoint(value: float, shortest: str, kind: type[np.float32] | type[np.float64]) -> str:
    """Return `shortest`, or a longer text if it is exactly between `value` and a neighbour.

    PostgreSQL does not rely on readers rounding such a text to even.
    """

    def is_midpoint(text: str) -> bool:
        twice = 2 * int(Decimal(text)) - int(value)
        with np.errstate(over="ignore"):
            neighbours = (np.nextafter(kind(value), kind(end)) for end in ("-inf", "inf"))
            return any(np.isfinite(n) and int(n) == twice for n in neighbours)

    if not is_midpoint(shortest):
        return shortest
    return next(
        text
        for digits in range(17)
        if kind(text := f"{value:.{digits}e}") == kind(value) and not is_midpoint(text)
    )


def _lay_out(shortest: str, digits: int) -> str:
    """Return a number in C's %g layout, switching to an exponent at `digits` places."""
    sign = "-" if shortest[0] == "-" else ""
    mantissa, _, power = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = int(power or 0)
    significant = (whole + fraction).lstrip("0")
    if not significant:
        return f"{sign}0"
    # The value is 0.significant times ten to the power of `point`.
    point = len(whole) + exponent - (len(whole + fraction) - len(significant))
    significant = significant.rstrip("0")
    if -4 < point <= digits:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{significant}"
        if len(significant) <= point:
            return f"{sign}{significant}{'0' * (point - len(significant))}"
        return f"{sign}{significant[:point]}.{significant[point:]}"
    tail = f".{significant[1:]}" if len(significant) > 1 else ""
    return f"{sign}{significant[0]}{tail}e{'-' if point < 1 else '+'}{abs(point - 1):02}"
