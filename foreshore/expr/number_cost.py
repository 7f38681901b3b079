"""Costs of calls over numbers of any length, from their digits and exponents.

A number has up to 131,072 digits before the point, and is written out. So `1e130000` is long, and
the work at it grows with the square of its length. The unit is that of `cost.py`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import log10

from foreshore.expr.functions.function import ScalarFunction
from foreshore.types import Datum

MOST_DIGITS = 150_000
LONGEST_SEARCHED = 1 << 17  # characters: as many as are light
DIGIT = 2  # units per digit of arguments and result
SQUARES = 500  # square digits per unit
ROOT = 150  # of a square root
SERIES = 200  # units per digit of a result of exp, ln and log
POWER = 2000  # of a base to a fraction
# Casts to these read numbers in texts and documents.
_CONTAINERS = frozenset(("json", "jsonb", "anyarray", "list", "map", "record", "shaped"))
# A whole word, as hexadecimal digests have digits around an e, too.
_EXPONENT = re.compile(r"(?<![\w.])[0-9.]+[eE]([+-]?[0-9]{1,9})(?!\w)")
_NUMBER = "number"
_TRANSCENDENTAL = frozenset(("exp", "ln", "log"))


@lru_cache(4096)
def _facts(function: ScalarFunction) -> tuple[bool, bool]:
    result = function.result if isinstance(function.result, str) else "anyarray"  # a rule's
    names = [each.removesuffix("[]") for each in (*function.args, result)]
    reads = function.name.startswith("cast") or names[0] in ("json", "jsonb")
    target = names[-1]
    written = target in _CONTAINERS or "num" in target or names[0] in ("json", "jsonb")
    return reads and written, _NUMBER in names or function.name == "factorial"


def reads_numbers(function: ScalarFunction) -> bool:
    """Whether a function may write out numbers that its argument has with an exponent."""
    return _facts(function)[0]


def handles_numbers(function: ScalarFunction) -> bool:
    """Whether arguments or the result are numbers of any length."""
    return _facts(function)[1]


def digits_written(values: Sequence[Datum]) -> int:
    """Return the digits that numbers with exponents in texts have when they are written out.

    Long texts are not looked at: reading them is not light whatever they hold.
    """
    return sum(
        min(abs(int(each)), MOST_DIGITS)
        for value in values
        if isinstance(value, str) and len(value) <= LONGEST_SEARCHED
        for each in _EXPONENT.findall(value)
    )


def cost_of_numbers(
    name: str, values: Sequence[Datum], sizes: Sequence[int], size: int, work: int
) -> tuple[int, int]:
    """Return the size and the work of a call, given those of a call with one pass."""
    longest = max(*sizes, 0)
    match name:
        case "exp":
            exponent = _float(values[0])
            if exponent is not None:
                size = min(int(abs(exponent) / 2.3), MOST_DIGITS) + sizes[0]
                work += SERIES * size
        case "power":
            size, more = _power(values, sizes, size)
            work += more
        case "factorial":
            n = values[0] if isinstance(values[0], int) else 0
            size = int(n * log10(n)) if 1 < n < 40_000 else size
        case "sqrt":
            work += longest * longest // ROOT
        case _ if name in _TRANSCENDENTAL and any(value is not None for value in values):
            work += SERIES * longest
    digits = max(longest, size)
    return size, work + DIGIT * (sum(sizes) + size) + digits * digits // SQUARES


def _power(values: Sequence[Datum], sizes: Sequence[int], size: int) -> tuple[int, int]:
    """Return the size of a power, and what it costs more than its digits."""
    base, exponent = _float(values[0]), _float(values[1])
    if exponent is None:
        return size, 0
    if exponent != int(min(exponent, 1e300)):
        return size, POWER * max(sizes[0], sizes[1]) if base is not None else 0
    growth = abs(log10(abs(base))) if base else 1.0
    return min(int(abs(exponent) * max(growth, 0.1)), MOST_DIGITS) + sizes[0], 0


def _float(value: Datum) -> float | None:
    """Return about the value of a number, bounded; None if it is unknown."""
    if not isinstance(value, str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return max(min(found, 1e300), -1e300)
