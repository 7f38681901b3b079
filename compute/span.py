"""Spans: parts of an index in the order of its key."""

from typing import TypeAlias

import msgspec

from foreshore.expr.ir import Literal

Values: TypeAlias = tuple[Literal, ...]


class Span(msgspec.Struct, frozen=True):
    """The rows of an index from `low` to `high`, in ascending or descending order.

    An end has values of the first columns of the key, and rows compare with it by these; without
    values it is open. NULL comes last. With `is_ordered` rows are wanted from one end on, until
    there are enough.
    """

    low: Values = ()
    low_inclusive: bool = True
    high: Values = ()
    high_inclusive: bool = True
    descending: bool = False
    is_ordered: bool = False
