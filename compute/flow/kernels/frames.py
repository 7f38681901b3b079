"""Kernels over the frames of rows in order within partitions."""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel


@kernel
def find_edges(keys, edges, null, endless, ends, right, before, found):
    """Set the place of each row's edge among the keys of its partition, which are in order.

    It is before the first key that is not less than the edge, or with `right` after the last one
    that is not greater; of an `endless` edge before or after all. Rows whose key is NULL, which
    stand together, are left as they are. `ends` has the end of each row's partition.
    """
    start = 0
    while start < len(keys):
        stop = ends[start]
        first = start
        while first < stop and null[first]:
            first += 1
        last = first
        while last < stop and not null[last]:
            last += 1
        for row in range(first, last):
            if endless[row]:
                found[row] = first if before else last
                continue
            low, high = first, last
            while low < high:
                middle = (low + high) >> 1
                if keys[middle] < edges[row] or (right and keys[middle] == edges[row]):
                    low = middle + 1
                else:
                    high = middle
            found[row] = low
        start = stop


@inlined
def _added(low, high, other_low, other_high):
    """Return the sum of two integers of 128 bits."""
    total = np.uint64(low) + np.uint64(other_low)
    carry = 1 if total < np.uint64(low) else 0
    return np.int64(total), high + other_high + carry


@inlined
def _subtracted(low, high, other_low, other_high):
    """Return the difference of two integers of 128 bits."""
    borrow = 1 if np.uint64(low) < np.uint64(other_low) else 0
    return np.int64(np.uint64(low) - np.uint64(other_low)), high - other_high - borrow


@kernel
def subtract_rows(words, word, width, counted, partition, low, high):
    """Subtract the values of rows from sums of 128 bits of their partitions.

    A value is at `word`, of `width` words; only those of rows that are `counted` are.
    """
    for i in range(len(words)):
        if counted[i]:
            p, value = partition[i], words[i, word]
            above = words[i, word + 1] if width == 2 else value >> np.int64(63)
            low[p], high[p] = _subtracted(low[p], high[p], value, above)


@kernel
def put_sums(
    words, word, width, counted, firsts, ends, partition, before_low, before_high,
    out, place, out_width,
):  # fmt: skip
    """Write the sum over each row's frame, an integer of 128 bits, of which the high word may lack.

    A frame has parts: the rows from `firsts` to `ends`, by part and row. What was `before` the rows
    of a partition is added.
    """
    count = len(words)
    low, high = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    for i in range(count):
        low[i + 1], high[i + 1] = low[i], high[i]
        if counted[i]:
            value = words[i, word]
            above = words[i, word + 1] if width == 2 else value >> np.int64(63)
            low[i + 1], high[i + 1] = _added(low[i], high[i], value, above)
    for i in range(count):
        p = partition[i]
        total, above = before_low[p], before_high[p]
        for part in range(len(firsts)):
            first, end = firsts[part, i], ends[part, i]
            more, more_above = _subtracted(low[end], high[end], low[first], high[first])
            total, above = _added(total, above, more, more_above)
        out[i, place] = total
        if out_width == 2:
            out[i, place + 1] = above
