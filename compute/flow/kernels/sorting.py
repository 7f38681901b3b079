"""Sorting of places by any order: short parts by insertion, which are then merged."""

from typing import Any

from foreshore.compute.flow.kernels.jit import inlined

SMALL = 24


def merging_sort(before: Any) -> Any:
    """Return the stable sort by `before`, which says of two places whether the first comes first.

    The sort takes `order`, in which it sorts the places [start, stop), `spare` of the same length,
    and what `before` looks at.
    """

    @inlined
    def sort_small(order, start, stop, rows):
        for i in range(start + 1, stop):
            moving = order[i]
            at = i
            while at > start and before(moving, order[at - 1], rows):
                order[at] = order[at - 1]
                at -= 1
            order[at] = moving

    @inlined
    def sort(order, start, stop, spare, rows):
        for low in range(start, stop, SMALL):
            sort_small(order, low, min(low + SMALL, stop), rows)
        size = SMALL
        while size < stop - start:
            for low in range(start, stop, 2 * size):
                middle, high = min(low + size, stop), min(low + 2 * size, stop)
                i, j = low, middle
                for k in range(low, high):
                    if j >= high or (i < middle and not before(order[j], order[i], rows)):
                        spare[k] = order[i]
                        i += 1
                    else:
                        spare[k] = order[j]
                        j += 1
                for k in range(low, high):
                    order[k] = spare[k]
            size *= 2

    return sort
