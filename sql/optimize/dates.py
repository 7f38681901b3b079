"""Compare dates with a date where a statement compares them with a timestamp: no row needs a cast.

    d >= now() - interval '7 days'    d >= Once(first_date(now() - interval '7 days'))
    d = $1::timestamp                 d >= Once(first_date($1)) AND d <= Once(last_date($1))

This is exact (`functions/midnights.py`), also in the session's time zone. So it is with timestamps
and timestamptz in UTC, where they are the same data. In another zone, what a comparison of them
implies of the timestamps stands beside it, so that an index finds their range.

    t >= $1::timestamptz      t >= Once(before_local('Europe/Berlin', $1)) AND t >= $1
"""

from foreshore.expr.columns import type_of
from foreshore.expr.ir import And, Call, Once, Or, Scalar
from foreshore.expr.keys import Constant
from foreshore.types import BOOL, DATE, TIMESTAMP, TIMESTAMPTZ

_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_RANGES = {
    "lt": ("le",),
    "le": ("le",),
    "gt": ("ge",),
    "ge": ("ge",),
    "eq": ("ge", "le"),
    "ne": (),
}
_LOCAL = {"ge": "before_local(text,timestamptz)", "le": "after_local(text,timestamptz)"}
_BOUNDS = {"lt": "first_date", "ge": "first_date", "gt": "last_date", "le": "last_date"}
_MIDNIGHTS = frozenset(("compared(date,timestamp)", "compared(date,timestamptz)"))
_SAME_IN_UTC = {
    "cast(timestamp,timestamptz)": (TIMESTAMPTZ, TIMESTAMP),
    "cast(timestamptz,timestamp)": (TIMESTAMP, TIMESTAMPTZ),
}


def without_casts(comparison: Call) -> Scalar:
    """Return a comparison with what a statement knows, of its other side without a cast."""
    a, b = comparison.args
    if isinstance(b, Constant):
        return _without_cast(comparison.function, a, b) or comparison
    if isinstance(a, Constant):
        return _without_cast(_SWAPPED.get(comparison.function, ""), b, a) or comparison
    return comparison


def _without_cast(function: str, scalar: Scalar, value: Constant) -> Scalar | None:
    if function not in _SWAPPED or not isinstance(scalar, Call):
        return None
    match scalar:
        case Call(function="compared(text,timestamp)", args=(zone, local)):
            if isinstance(local, Call) and local.function in _MIDNIGHTS:
                return _of_date(function, local.args[0], (zone, value))
            return _with_range(Call(function, (scalar, value), BOOL), local, zone, value)
        case Call(function=cast, args=(date,)) if cast in _MIDNIGHTS:
            return _of_date(function, date, (value,))
        case Call(function=cast, args=(time,), type=type) if cast in _SAME_IN_UTC:
            source, target = _SAME_IN_UTC[cast]
            if type == type_of(value) == source and type_of(time) == target:
                same = Call(f"cast({source.name},{target.name})", (value,), target)
                return Call(function, (time, Once(same, target)), BOOL)
    return None


def _with_range(comparison: Call, local: Scalar, zone: Scalar, value: Scalar) -> Scalar:
    """Return a comparison of a moment with what it implies of its local time."""
    implied = []
    for function in _RANGES[comparison.function]:
        bound = Once(Call(_LOCAL[function], (zone, value), TIMESTAMP), TIMESTAMP)
        implied.append(Call(function, (local, bound), BOOL))
    return And((*implied, comparison)) if implied else comparison


def _of_date(function: str, date: Scalar, value: tuple[Scalar, ...]) -> Scalar:
    """Return a comparison of a date with dates; `value` is a timestamp, after the zone if any."""
    types = ",".join(type_of(each).name for each in value)

    def compared(function: str) -> Call:
        bound = Call(f"{_BOUNDS[function]}({types})", value, DATE)
        return Call(function, (date, Once(bound, DATE)), BOOL)

    match function:
        case "eq":
            return And((compared("ge"), compared("le")))
        case "ne":
            return Or((compared("lt"), compared("gt")))
        case _:
            return compared(function)
