"""OVERLAPS: whether two periods of time have a moment in common.

A period is half-open and given by its ends in either order; one with equal ends is that moment. An
end may be NULL, and the answer is NULL where it depends on that end.
"""

from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.expr.functions.function import Outcome, Signature, declare

Period = tuple[Any, Any]  # numbers, or bytes in order


def _period(start: Any, end: Any) -> Period | None:
    """Return the lesser end that is known, and the other; None if neither is known."""
    if start is None:
        return None if end is None else (end, None)
    if end is not None and start > end:
        return end, start
    return start, end


def _overlap(one: Period | None, other: Period | None) -> bool | None:
    if one is None or other is None:
        return None
    (first, first_end), (second, second_end) = sorted((one, other), key=lambda period: period[0])
    if first == second:
        return None if first_end is None or second_end is None else True
    if first_end is None:
        return None
    if second < first_end:
        return True
    return None if second_end is None else False


def _overlaps(types: Signature, *arrays: pa.Array) -> Outcome:
    data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
    rows = zip(*data, strict=True)
    return pa.array([_overlap(_period(a, b), _period(c, d)) for a, b, c, d in rows], pa.bool_())


for _t in ("timestamp", "timestamptz", "time", "timetz"):
    declare("_overlaps", f"{_t} {_t} {_t} {_t}", "bool", _overlaps, strict=False)
