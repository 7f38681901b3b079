"""Kernels of grouping: points of change, sums by group, and what changes between points.

A *point* is a time at which a group changed. The points of a group come one after the other, in
order of time; the first of them stands for the group before the window.
"""

import numpy as np

from foreshore.compute.flow.kernels.float_sums import (
    PRODUCT_WORDS,
    WORDS,
    add_float,
    add_product,
    is_outlier,
)
from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.rows import same_words

FLOAT, COMOMENT = 3, 4  # kinds of sums


@kernel
def find_points(order, hashes, words, times, width, before):
    """Return for each point a row of the group, its time, and whether it is the group's first.

    `order` sorts updates by hash and key, the first `width` words, and time. The first point of a
    group has the time `before`.
    """
    count = len(order)
    row = np.empty(2 * count, np.int64)
    time = np.empty(2 * count, np.int64)
    first = np.empty(2 * count, np.bool_)
    size = 0
    for i in range(count):
        at = order[i]
        new = i == 0
        if not new:
            last = order[i - 1]
            new = hashes[at] != hashes[last] or not same_words(words, at, words, last, width)
        if new:
            row[size], time[size], first[size] = at, before, True
            size += 1
        if new or times[at] != time[size - 1]:
            row[size], time[size], first[size] = at, times[at], False
            size += 1
    return row[:size], time[:size], first[:size]


@inlined
def home_of(hash, size):
    """Return the slot of a table where a hash belongs: slots have the order of the hashes."""
    return ((hash >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)


@kernel
def find_slot(hashes, keys, used, hash, words, at, width):
    """Return the slot of a key in a hash table, or the free one where it would be."""
    mask = np.uint64(len(hashes) - 1)
    slot = home_of(hash, len(hashes))
    while used[slot]:
        if hashes[slot] == hash and same_words(keys, slot, words, at, width):
            break
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@inlined
def add_wide(sums, row, first, low, high, diff):
    """Add an integer of two words `diff` times to the sum in words `first` and `first` + 1."""
    if diff == 1:  # as mostly
        total = np.uint64(sums[row, first]) + np.uint64(low)
        carry = 1 if total < np.uint64(low) else 0
        sums[row, first] = np.int64(total)
        sums[row, first + 1] += high + carry
        return
    negative = diff < 0
    times = np.uint64(-diff if negative else diff)
    x0 = np.uint64(low) & np.uint64(0xFFFFFFFF)
    x1 = np.uint64(low) >> np.uint64(32)
    y0 = times & np.uint64(0xFFFFFFFF)
    y1 = times >> np.uint64(32)
    lowest = x0 * y0
    middle = x1 * y0 + (lowest >> np.uint64(32))
    other = x0 * y1 + (middle & np.uint64(0xFFFFFFFF))
    product = (other << np.uint64(32)) | (lowest & np.uint64(0xFFFFFFFF))
    upper = x1 * y1 + (middle >> np.uint64(32)) + (other >> np.uint64(32)) + np.uint64(high) * times
    if negative:
        product = ~product + np.uint64(1)
        upper = ~upper + np.uint64(1 if product == np.uint64(0) else 0)
    total = np.uint64(sums[row, first]) + product
    carry = 1 if total < product else 0
    sums[row, first] = np.int64(total)
    sums[row, first + 1] += np.int64(upper) + carry


@kernel
def accumulate(
    point_rows, point_times, point_first, point_hashes, point_words, width,
    order, hashes, words, times, diffs, kinds,
    table_hashes, table_keys, table_used, table_sums, sums,
):  # fmt: skip
    """Set the sums of each point's group at its time.

    Points are rows of `point_words`; updates are rows of `words`, sorted by `order` as the points
    are: the key, then their contributions, of each sum in `kinds` 1 word if it is 1, a low and a
    high word if it is 2, the bits of a float if it is `FLOAT`, and of two floats, of which and of
    whose products there are sums, if it is `COMOMENT`. Sum 0 is that of the diffs. The sums before
    the window are in the table.
    """
    most = sums.shape[1]
    u = 0
    for p in range(len(point_rows)):
        row = point_rows[p]
        if point_first[p]:
            slot = find_slot(
                table_hashes, table_keys, table_used, point_hashes[row], point_words, row, width
            )
            for k in range(most):
                sums[p, k] = table_sums[slot, k] if table_used[slot] else 0
            continue
        for k in range(most):
            sums[p, k] = sums[p - 1, k]
        while u < len(order):
            at = order[u]
            if hashes[at] != point_hashes[row]:
                break
            if times[at] > point_times[p] or not same_words(words, at, point_words, row, width):
                break
            diff = diffs[at]
            sums[p, 0] += diff
            word, to = width, 1
            for s in range(len(kinds)):
                if kinds[s] == 1:
                    sums[p, to] += diff * words[at, word]
                    word += 1
                    to += 1
                elif kinds[s] == 2:
                    add_wide(sums, p, to, words[at, word], words[at, word + 1], diff)
                    word += 2
                    to += 2
                elif kinds[s] == FLOAT:
                    if not is_outlier(words[at, word]):
                        add_float(sums, p, to, words[at, word], diff)
                    word += 1
                    to += WORDS
                else:
                    x, y = words[at, word], words[at, word + 1]
                    if not is_outlier(x) and not is_outlier(y):
                        add_float(sums, p, to, x, diff)
                        add_float(sums, p, to + WORDS, y, diff)
                        add_product(sums, p, to + 2 * WORDS, x, y, diff)
                    word += 2
                    to += 2 * WORDS + PRODUCT_WORDS
            u += 1


@kernel
def store(rows, last, hashes, words, width, sums, begin, always,
          table_hashes, table_keys, table_used, table_sums, count):  # fmt: skip
    """Write the sums of each group's last point into the table; return how many groups it has.

    They are the words of `sums` from `begin` on. A group without rows is removed unless `always`.
    """
    mask = np.uint64(len(table_hashes) - 1)
    for p in range(len(rows)):
        if not last[p]:
            continue
        row = rows[p]
        slot = find_slot(table_hashes, table_keys, table_used, hashes[row], words, row, width)
        keep = always
        for k in range(table_sums.shape[1]):
            keep = keep or sums[p, begin + k] != 0
        if keep:
            if not table_used[slot]:
                table_used[slot] = True
                table_hashes[slot] = hashes[row]
                for k in range(width):
                    table_keys[slot, k] = words[row, k]
                count += 1
            for k in range(table_sums.shape[1]):
                table_sums[slot, k] = sums[p, begin + k]
        elif table_used[slot]:
            count -= 1
            hole = np.uint64(slot)
            at = (hole + np.uint64(1)) & mask
            while table_used[at]:
                home = home_of(table_hashes[at], len(table_hashes))
                if ((at - home) & mask) >= ((at - hole) & mask):
                    table_hashes[hole] = table_hashes[at]
                    for k in range(width):
                        table_keys[hole, k] = table_keys[at, k]
                    for k in range(table_sums.shape[1]):
                        table_sums[hole, k] = table_sums[at, k]
                    hole = at
                at = (at + np.uint64(1)) & mask
            table_used[hole] = False
    return count


@kernel
def put_sums(sums, plan, words):
    """Write the words of counts and sums at each point.

    `plan` has for each of them whether it is a sum, its place among the sums, and its column's
    word, width, mask word and bit. A sum follows its count, and is NULL where that is 0. A sum of
    width 0 is there already.
    """
    for p in range(len(sums)):
        for k in range(len(plan)):
            at, word, width = plan[k, 1], plan[k, 2], plan[k, 3]
            if plan[k, 0] == 0:
                words[p, word] = sums[p, at]
            elif sums[p, at] != 0:
                for i in range(width):
                    words[p, word + i] = sums[p, at + 1 + i]
            else:
                for i in range(max(width, 1)):
                    words[p, word + i] = 0
                words[p, plan[k, 4]] |= np.int64(1) << plan[k, 5]


@kernel
def rehash(hashes, keys, used, sums, to_hashes, to_keys, to_used, to_sums):
    """Copy a table into a larger one."""
    width = keys.shape[1]
    for slot in range(len(hashes)):
        if used[slot]:
            to = find_slot(to_hashes, to_keys, to_used, hashes[slot], keys, slot, width)
            to_used[to] = True
            to_hashes[to] = hashes[slot]
            for k in range(width):
                to_keys[to, k] = keys[slot, k]
            for k in range(sums.shape[1]):
                to_sums[to, k] = sums[slot, k]


@kernel
def changes(words, exists, times, first):
    """Return the changes from point to point: rows, times, diffs.

    `words` has the output's row at each point, which is there as often as `exists` says.
    """
    count, width = words.shape
    out = np.empty((2 * count, width), np.int64)
    out_times = np.empty(2 * count, np.int64)
    out_diffs = np.empty(2 * count, np.int64)
    size = 0
    for p in range(count):
        if first[p]:
            continue
        old, new = exists[p - 1], exists[p]
        if old != 0 and new != 0 and same_words(words, p - 1, words, p, width):
            if old == new:
                continue
            new, old = new - old, 0
        if old != 0:
            for k in range(width):
                out[size, k] = words[p - 1, k]
            out_times[size] = times[p]
            out_diffs[size] = -old
            size += 1
        if new != 0:
            for k in range(width):
                out[size, k] = words[p, k]
            out_times[size] = times[p]
            out_diffs[size] = new
            size += 1
    return out[:size], out_times[:size], out_diffs[:size]


@kernel
def are_groups(hashes, order, words, width):
    """Whether rows in an order by their hashes have the same first `width` words if the hash is."""
    for i in range(1, len(order)):
        if hashes[i] == hashes[i - 1] and not same_words(
            words, order[i], words, order[i - 1], width
        ):
            return False
    return True


@kernel
def group_rows(hashes, words, times, width):
    """Return the order of updates in which those of one key are together, in order of time.

    The key is the first `width` words.
    """
    count = len(hashes)
    size = 16
    while size < 2 * count:
        size *= 2
    mask = np.uint64(size - 1)
    table = np.full(size, -1, np.int64)
    group = np.empty(count, np.int64)
    start = np.zeros(count + 1, np.int64)
    first = np.empty(count, np.int64)
    groups = 0
    in_order = True
    for i in range(count):
        if i > 0 and times[i] < times[i - 1]:
            in_order = False
        slot = hashes[i] & mask
        while True:
            found = table[slot]
            if found < 0:
                found = groups
                table[slot] = found
                first[found] = i
                groups += 1
                break
            other = first[found]
            if hashes[other] == hashes[i] and same_words(words, other, words, i, width):
                break
            slot = (slot + np.uint64(1)) & mask
        group[i] = found
        start[found + 1] += 1
    for g in range(groups):
        start[g + 1] += start[g]
    order = np.empty(count, np.int64)
    if in_order:
        for i in range(count):
            order[start[group[i]]] = i
            start[group[i]] += 1
    else:
        by_time = np.argsort(times, kind="mergesort")
        for at in range(count):
            i = by_time[at]
            order[start[group[i]]] = i
            start[group[i]] += 1
    return order
