"""Ranges of an index's key, with arguments and session values put in."""

from foreshore.compute.span import Span, Values
from foreshore.expr.cost import is_light
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Literal
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.sql.optimize.key_range import End, KeyRange
from foreshore.types import BOOL

_NULL = Literal(None, BOOL)  # of any type


def bound_span(range: KeyRange, bindings: Replace) -> Span | None:
    """Return a range of a key as a span, None if no row can be in it.

    An end that cannot be computed is left open: the query's own condition has the error.
    """
    low, high = _values(range.low, bindings), _values(range.high, bindings)
    if any(value.value is None for value in (*(low or ()), *(high or ()))):
        return None  # a comparison with NULL is not TRUE
    high_inclusive = range.high.inclusive
    if high is not None and range.high.before_null:
        high, high_inclusive = (*high, _NULL), False
    return Span(
        low or (),
        range.low.inclusive,
        high or (),
        high_inclusive,
        range.descending,
        range.is_ordered,
    )


def _values(end: End, bindings: Replace) -> Values | None:
    """Return the values of an end, None if one cannot be computed."""
    found: list[Literal] = []
    for scalar in end.values:
        bound = bind_scalar(scalar, bindings)
        if not is_light(bound):
            return None
        value = bound if isinstance(bound, Literal) else constant(bound)
        if not isinstance(value, Literal):
            return None
        found.append(value)
    return tuple(found)
