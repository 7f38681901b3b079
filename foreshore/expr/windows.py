"""Properties of window functions that several layers use."""

from foreshore.expr.ir import Aggregate, Frame, Literal, WindowFunction

PLACES = frozenset((  # without a frame
    "row_number", "rank", "dense_rank", "lag", "lead", "last_known",
))  # fmt: skip
_ORDERED = frozenset((
    "row_number", "lag", "lead", "nth_value", "last_value", "last_known", "array_agg", "string_agg",
))  # fmt: skip
DEFAULT = Frame()  # from the first row of the partition to the last peer
WHOLE = Frame("range", None, None)  # the partition


def orders_peers(function: WindowFunction) -> bool:
    """Return whether the order of rows equal in the order's keys may matter to `function`."""
    frame = function.frame
    if function.function in _ORDERED:
        return True
    if function.function in PLACES or frame.unit != "rows":
        return False
    return not (frame.start is None and frame.end is None)


def is_first(function: WindowFunction) -> bool:
    """Return whether the value of `function` is that of the first row of the partition."""
    frame, end = function.frame, function.frame.end
    return (
        function.function == "nth_value"
        and isinstance(function.args[1], Literal)
        and function.args[1].value == 1
        and frame.start is None
        and (end is None or end.side != "preceding")
        and frame.exclude == "nothing"
    )


def aggregate_of(function: WindowFunction) -> Aggregate:
    """Return the core aggregate that `function` is over its frame, without the filter."""
    return Aggregate(function.function, function.args, function.type)  # type: ignore[arg-type]
