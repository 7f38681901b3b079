"""Ranges of an index's key, with arguments and session values put in."""

from foreshore.compute.span import Span, Values
from foreshore.expr.ir import Literal
from foreshore.expr.keys import End, KeyRange
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.types import BOOL

_NULL = Literal(None, BOOL)  # of any type


def bound_span(range: KeyRange, bindings: Replace) -> Span | None:
    """Return a range of a key as a span, None if no row can be in it."""
    low, high = _values(range.low, bindings), _values(range.high, bindings)
    for end, values in ((range.low, low), (range.high, high)):
        if any(value.value is None for value in values[: end.decisive]):
            return None  # a comparison with NULL is not TRUE
    high_inclusive = range.high.inclusive
    if range.high.before_null:
        high, high_inclusive = (*high, _NULL), False
    low, low_inclusive = _before_null(low, range.low, range.low.inclusive)
    high, high_inclusive = _before_null(high, range.high, high_inclusive)
    return Span(low, low_inclusive, high, high_inclusive, range.descending, range.is_ordered)


def _before_null(values: Values, end: End, inclusive: bool) -> tuple[Values, bool]:
    """Return an end without a later value that is NULL and what follows it.

    Where the values before it are equal, the comparison is not TRUE.
    """
    for place, value in enumerate(values[end.decisive :], end.decisive):
        if value.value is None and value is not _NULL:
            return values[:place], False
    return values, inclusive


def _values(end: End, bindings: Replace) -> Values:
    """Return the values of an end."""
    bound = [bind_scalar(each, bindings) for each in end.values]
    return tuple([each for each in bound if isinstance(each, Literal)])
