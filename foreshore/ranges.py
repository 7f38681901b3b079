"""Ranges and multiranges: the stored form of their values, and their algebra.

A range is the set of values between two *cuts*; a cut is beside a value, or at an end of the order:

    [1,5)    from before 1 to before 5
    (1,5]    from after 1 to after 5
    (,5)     from the lower end to before 5

A cut is stored as bytes whose order is that of the cuts: 00 and 02 are the ends, and between them
01, the value as bytes that sort as it does, and 00 before or 01 after the value. A range is stored
as 01 and its two cuts, the empty range as 00. So the order and the equality of ranges in SQL are
those of their stored forms, and no stored form is the beginning of another one. A multirange is
stored as its ranges in order, of which no two overlap or touch.

The algebra compares cuts as bytes and needs no values.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NamedTuple

from foreshore.calendar import DATE_MOST
from foreshore.errors import DataError, NumericValueOutOfRange
from foreshore.sorted_numerics import numeric_bytes, numeric_end, numeric_of
from foreshore.types import DATE, INT4, INT8, NUMERIC, TIMESTAMP, TIMESTAMPTZ, SqlType

# The type of the bounds of each range type.
BOUNDS: dict[str, SqlType] = {
    "int4range": INT4,
    "int8range": INT8,
    "numrange": NUMERIC,
    "daterange": DATE,
    "tsrange": TIMESTAMP,
    "tstzrange": TIMESTAMPTZ,
}
# The range type of each multirange type.
MULTIRANGES = {f"{name.removesuffix('range')}multirange": name for name in BOUNDS}
_MULTIRANGE_OF = {one: many for many, one in MULTIRANGES.items()}
_DISCRETE = frozenset({"int4range", "int8range", "daterange"})
_GREATEST = {"int4range": 2**31 - 1, "int8range": 2**63 - 1, "daterange": DATE_MOST}
_OVERFLOW = {
    "int4range": ("22003", "integer out of range"),
    "int8range": ("22003", "bigint out of range"),
    "daterange": ("22008", "date out of range"),
}
_WORD = 8  # bytes of an integer
_HALF = 2**63

LOWER_END, UPPER_END = b"\x00", b"\x02"
EMPTY = b"\x00"


class Range(NamedTuple):
    """The two cuts of a range that is not empty."""

    low: bytes
    high: bytes


class Bound(NamedTuple):
    """A finite bound of a range."""

    value: Any
    inclusive: bool


Ranges = tuple[Range, ...]  # in order, and apart from each other


def multirange_of(type: SqlType) -> SqlType:
    """Return the multirange type of a range type."""
    return SqlType(_MULTIRANGE_OF[type.name])


# --- bytes ------------------------------------------------------------------------------------


def cut(value: Any, *, after: bool, type: str) -> bytes:
    """Return the cut before or after a value of the bounds of the range type `type`."""
    if type == "numrange":
        key = numeric_bytes(Decimal(str(value)))
    else:
        key = (int(value) + _HALF).to_bytes(_WORD, "big")
    return b"\x01" + key + (b"\x01" if after else b"\x00")


def value_of(cut: bytes, type: str) -> Any:
    """Return the datum beside a cut that is not an end."""
    if type == "numrange":
        return numeric_of(cut[1:-1])
    return int.from_bytes(cut[1:-1], "big") - _HALF


def lower_bound(range: Range, type: str) -> Bound | None:
    """Return the lower bound of a range, None if it is infinite."""
    if range.low == LOWER_END:
        return None
    return Bound(value_of(range.low, type), range.low[-1] == 0)


def upper_bound(range: Range, type: str) -> Bound | None:
    """Return the upper bound of a range, None if it is infinite."""
    if range.high == UPPER_END:
        return None
    return Bound(value_of(range.high, type), range.high[-1] == 1)


def stored(range: Range | None) -> bytes:
    """Return the stored form of a range; None is the empty one."""
    return EMPTY if range is None else b"\x01" + range.low + range.high


def range_of(datum: bytes, type: str) -> Range | None:
    """Return the range of a stored form, None for the empty one."""
    if datum == EMPTY:
        return None
    end = _end_of_cut(datum, 1, type)
    return Range(datum[1:end], datum[end:])


def ranges_of(datum: bytes, type: str) -> Ranges:
    """Return the ranges of the stored form of a multirange of the range type `type`."""
    found = []
    at = 0
    while at < len(datum):
        middle = _end_of_cut(datum, at + 1, type)
        end = _end_of_cut(datum, middle, type)
        found.append(Range(datum[at + 1 : middle], datum[middle:end]))
        at = end
    return tuple(found)


def stored_ranges(ranges: Ranges) -> bytes:
    """Return the stored form of a multirange."""
    return b"".join(map(stored, ranges))


def _end_of_cut(datum: bytes, at: int, type: str) -> int:
    if datum[at] != 1:
        return at + 1
    if type != "numrange":
        return at + _WORD + 2
    return numeric_end(datum, at + 1) + 1


# --- construction -----------------------------------------------------------------------------


def make_range(low: Bound | None, high: Bound | None, type: str) -> Range | None:
    """Return the range between two bounds, in the canonical form of its type.

    Ranges of whole numbers and dates become `[low, high)`. Raises DataError.
    """
    if low is not None and high is not None:
        first, last = (cut(each.value, after=False, type=type) for each in (low, high))
        if last < first:
            raise DataError(
                "range lower bound must be less than or equal to range upper bound",
                sqlstate="22000",
            )
        if first == last and not (low.inclusive and high.inclusive):
            return None
    if type in _DISCRETE:
        if low is not None and not low.inclusive and _is_finite(low.value, type):
            low = Bound(_next(low.value, type), True)
        if high is not None and high.inclusive and _is_finite(high.value, type):
            high = Bound(_next(high.value, type), False)
    found = Range(
        LOWER_END if low is None else cut(low.value, after=not low.inclusive, type=type),
        UPPER_END if high is None else cut(high.value, after=high.inclusive, type=type),
    )
    return found if found.low < found.high else None


def _is_finite(value: int, type: str) -> bool:
    return type != "daterange" or -(2**31) < value < 2**31 - 1


def _next(value: int, type: str) -> int:
    if value >= _GREATEST[type]:
        sqlstate, message = _OVERFLOW[type]
        raise NumericValueOutOfRange(message, sqlstate=sqlstate)
    return value + 1


# --- algebra ----------------------------------------------------------------------------------


def union(ranges: Iterable[Range]) -> Ranges:
    """Return the union of ranges in any order."""
    found: list[Range] = []
    for each in sorted(ranges):
        if found and each.low <= found[-1].high:
            found[-1] = Range(found[-1].low, max(found[-1].high, each.high))
        else:
            found.append(each)
    return tuple(found)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    """Return the values in both."""
    found = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i].low, b[j].low), min(a[i].high, b[j].high)
        if low < high:
            found.append(Range(low, high))
        if a[i].high < b[j].high:
            i += 1
        else:
            j += 1
    return tuple(found)


def difference(a: Ranges, b: Ranges) -> Ranges:
    """Return the values of `a` that are not in `b`."""
    return intersection(a, complement(b))


def complement(ranges: Ranges) -> Ranges:
    """Return the values that are in none of `ranges`."""
    edges = [LOWER_END, *(edge for each in ranges for edge in each), UPPER_END]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple(Range(low, high) for low, high in pairs if low < high)


def contains(a: Ranges, b: Ranges) -> bool:
    """Return whether each range of `b` is within one of `a`."""
    return all(any(x.low <= y.low and y.high <= x.high for x in a) for y in b)


def overlap(a: Ranges, b: Ranges) -> bool:
    """Return whether some value is in both."""
    return bool(intersection(a, b))


def adjacent(a: Ranges, b: Ranges) -> bool:
    """Return whether one ends where the other begins."""
    return bool(a and b) and (a[-1].high == b[0].low or b[-1].high == a[0].low)


def spanned(ranges: Ranges) -> Range | None:
    """Return the smallest range that contains `ranges`."""
    return Range(ranges[0].low, ranges[-1].high) if ranges else None


Test = Callable[[Ranges, Ranges], bool]
# The operators of positions, all false if one side is empty.
POSITIONS: dict[str, Test] = {
    "<<": lambda a, b: bool(a and b) and a[-1].high <= b[0].low,
    ">>": lambda a, b: bool(a and b) and b[-1].high <= a[0].low,
    "&<": lambda a, b: bool(a and b) and a[-1].high <= b[-1].high,
    "&>": lambda a, b: bool(a and b) and a[0].low >= b[0].low,
    "-|-": adjacent,
}
