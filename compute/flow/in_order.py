"""Reads parts of an index in the order of its key, as few updates as are needed.

    one part, sorted by the key      2  5  9 | 40 ...
    another                          3  5 | 17 50 ...
                                          cut: what is before it is read together

An update in one part may take back a row in another. Updates of one row have one key, so the rows
up to a key are those that the updates up to it add up to. A reader who needs the first rows only
takes cut after cut, each time twice as many updates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foreshore.compute.flow.batch import Batch, concat
from foreshore.compute.flow.key_order import KeyOrder, Value, value_of
from foreshore.compute.flow.layout import Place
from foreshore.compute.span import Span


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """Updates, and their order by a key."""

    updates: Batch
    order: KeyOrder


def slices(parts: Sequence[Sorted], span: Span, key: Sequence[Place], few: int) -> Iterator[Batch]:
    """Yield the updates in a span, slice after slice in its direction, at least one slice.

    About `few` updates of each part are in the first one. If the span is not ordered, it has all.
    """
    low, high = value_of(span.low, key), value_of(span.high, key)
    cursors = [_Cursor(part, span, low, high) for part in parts]
    width = len(key)
    while True:
        cut = _cut(cursors, few, width, span) if span.is_ordered else None
        taken = [each.take(cut) for each in cursors]
        yield concat(taken, taken[0].width)
        if not any(map(len, cursors)):
            return
        few *= 2


def _cut(cursors: Sequence["_Cursor"], few: int, width: int, span: Span) -> Value | None:
    """Return up to which value of the key updates are taken, None for all."""
    ends = [each.value(few - 1, width) for each in cursors if len(each) > few]
    if not ends:
        return None
    return max(ends) if span.descending else min(ends)


class _Cursor:
    """The updates of one part that are still to be read: from `begin` to `end` of its order."""

    def __init__(self, part: Sorted, span: Span, low: Value, high: Value) -> None:
        order = part.order
        self._part = part
        self._descending = span.descending
        self.begin = order.first_from(low) if span.low_inclusive else order.first_after(low)
        self.end = order.first_after(high) if span.high_inclusive else order.first_from(high)
        if not high:
            self.end = len(order)
        if not low:
            self.begin = 0
        self.end = max(self.begin, self.end)

    def __len__(self) -> int:
        return self.end - self.begin

    def value(self, at: int, width: int) -> Value:
        """Return the key of the update that is so far on in the direction."""
        place = self.end - 1 - at if self._descending else self.begin + at
        return self._part.order.value(place, width)

    def take(self, cut: Value | None) -> Batch:
        """Return the updates up to `cut`, which are taken then."""
        begin, end = self.begin, self.end
        if cut is None:
            self.begin = self.end
        elif self._descending:
            self.end = begin = min(max(self._part.order.first_from(cut), begin), end)
        else:
            self.begin = end = min(max(self._part.order.first_after(cut), begin), end)
        places = self._part.order.places[begin:end]
        return self._part.updates.take(np.asarray(places, np.int64))
