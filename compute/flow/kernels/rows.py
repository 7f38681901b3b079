"""Kernels over rows in words: hashes, comparison, sorting, consolidation.

Rows are ordered by the hash of their key (the first words), then by the hash of all words, then by
time. In ordered spines all words come in place of their hash. They are ordered as integers or as
text: `texts` has for each word 1 if it is a number of the interner that is ordered by its bytes, -1
if in descending order, else 0.
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)
SMALL = 24


@kernel
def hash_keys(words, width, seed, hashes):
    """Set the hash of the first `width` words of each row."""
    for i in range(len(hashes)):
        hash = seed
        for j in range(width):
            hash = (hash + _A) ^ np.uint64(words[i, j])
            hash = (hash ^ (hash >> np.uint64(30))) * _B
            hash = (hash ^ (hash >> np.uint64(27))) * _C
            hash ^= hash >> np.uint64(31)
        hashes[i] = hash


@inlined
def compare_texts(a, b, arena, starts, lengths):
    """Return -1, 0 or 1: the order of two strings by their bytes."""
    if a == b:
        return 0
    left, right = starts[a], starts[b]
    most = min(lengths[a], lengths[b])
    for i in range(most):
        x, y = arena[left + i], arena[right + i]
        if x != y:
            return -1 if x < y else 1
    if lengths[a] == lengths[b]:
        return 0
    return -1 if lengths[a] < lengths[b] else 1


@inlined
def compare_rows(a, i, b, j, texts, arena, starts, lengths):
    """Return -1, 0 or 1: the order of row i of `a` and row j of `b` by their words."""
    for k in range(len(texts)):
        x, y = a[i, k], b[j, k]
        if x != y:
            if texts[k] == 0:
                return -1 if x < y else 1
            order = compare_texts(x, y, arena, starts, lengths) * texts[k]
            if order != 0:
                return order
    return 0


@inlined
def _before(i, j, hashes, words, times, texts, arena, starts, lengths):
    """Whether update i comes before update j."""
    if hashes[i] != hashes[j]:
        return hashes[i] < hashes[j]
    order = compare_rows(words, i, words, j, texts, arena, starts, lengths)
    if order != 0:
        return order < 0
    return times[i] < times[j]


@inlined
def _sort_small(order, start, stop, hashes, words, times, texts, arena, starts, lengths):
    for i in range(start + 1, stop):
        moving = order[i]
        at = i
        while at > start and _before(
            moving, order[at - 1], hashes, words, times, texts, arena, starts, lengths
        ):
            order[at] = order[at - 1]
            at -= 1
        order[at] = moving


@inlined
def _sort_merging(order, start, stop, spare, hashes, words, times, texts, arena, starts, lengths):
    """Sort places [start, stop) of `order` by merging longer and longer parts."""
    for at in range(start, stop, SMALL):
        _sort_small(
            order, at, min(at + SMALL, stop), hashes, words, times, texts, arena, starts, lengths
        )
    size = SMALL
    while size < stop - start:
        for low in range(start, stop, 2 * size):
            middle, high = min(low + size, stop), min(low + 2 * size, stop)
            i, j = low, middle
            for k in range(low, high):
                if j >= high or (
                    i < middle
                    and not _before(
                        order[j], order[i], hashes, words, times, texts, arena, starts, lengths
                    )
                ):
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
            for k in range(low, high):
                order[k] = spare[k]
        size *= 2


@kernel
def sort_updates(hashes, words, times, texts, arena, starts, lengths):
    """Return the order of updates by hash, words and time."""
    count = len(hashes)
    order = np.arange(count)
    spare = np.empty(count, np.int64)
    if count > 4 * SMALL:
        # By the upper 32 bits of the hash first, a digit of 11 bits at a time.
        counts = np.empty(2048, np.int64)
        for shift in (32, 43, 54):
            by = np.uint64(shift)
            counts[:] = 0
            for i in range(count):
                counts[(hashes[i] >> by) & np.uint64(2047)] += 1
            total = 0
            for digit in range(2048):
                here = counts[digit]
                counts[digit] = total
                total += here
            for i in range(count):
                digit = (hashes[order[i]] >> by) & np.uint64(2047)
                spare[counts[digit]] = order[i]
                counts[digit] += 1
            order, spare = spare, order
        start = 0
        high = np.uint64(32)
        while start < count:
            stop = start + 1
            prefix = hashes[order[start]] >> high
            while stop < count and hashes[order[stop]] >> high == prefix:
                stop += 1
            if stop - start > 1:
                _sort_merging(
                    order, start, stop, spare, hashes, words, times, texts, arena, starts, lengths
                )
            start = stop
    else:
        _sort_merging(order, 0, count, spare, hashes, words, times, texts, arena, starts, lengths)
    return order


@inlined
def hash_row(words, i, seed):
    """Return the hash of all words of a row."""
    hash = seed
    for j in range(words.shape[1]):
        hash = (hash ^ np.uint64(words[i, j])) * _B
        hash ^= hash >> np.uint64(29)
    return hash * _C


@inlined
def _is_before(i, j, keys, hashes, times):
    if keys[i] != keys[j]:
        return keys[i] < keys[j]
    if hashes[i] != hashes[j]:
        return hashes[i] < hashes[j]
    return times[i] < times[j]


@inlined
def _sort_segment(order, start, stop, spare, keys, hashes, times):
    """Sort places [start, stop) of `order` by key hash, row hash and time."""
    for low in range(start, stop, SMALL):
        for i in range(low + 1, min(low + SMALL, stop)):
            moving = order[i]
            at = i
            while at > low and _is_before(moving, order[at - 1], keys, hashes, times):
                order[at] = order[at - 1]
                at -= 1
            order[at] = moving
    size = SMALL
    while size < stop - start:
        for low in range(start, stop, 2 * size):
            middle, high = min(low + size, stop), min(low + 2 * size, stop)
            i, j = low, middle
            for k in range(low, high):
                if j >= high or (
                    i < middle and not _is_before(order[j], order[i], keys, hashes, times)
                ):
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
            for k in range(low, high):
                order[k] = spare[k]
        size *= 2


@kernel
def sort_by_hashes(keys, words, times, seed):
    """Return the order of updates by the hashes of their keys, those of their rows, and time.

    They are distributed by the upper bits of the keys' hashes, into parts that fit into a cache.
    """
    count = len(keys)
    hashes = np.empty(count, np.uint64)
    for i in range(count):
        hashes[i] = hash_row(words, i, seed)
    order = np.arange(count)
    spare = np.empty(count, np.int64)
    if count <= 8 * SMALL:
        _sort_segment(order, 0, count, spare, keys, hashes, times)
        return order
    bits = 1
    while bits < 12 and count >> bits > 16:
        bits += 1
    shift = np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(count):
        starts[(keys[i] >> shift) + np.uint64(1)] += 1
    for part in range(1 << bits):
        starts[part + 1] += starts[part]
    at = starts[:-1].copy()
    for i in range(count):
        part = keys[i] >> shift
        order[at[part]] = i
        at[part] += 1
    most = 0
    for part in range(1 << bits):
        most = max(most, starts[part + 1] - starts[part])
    part_keys = np.empty(most, np.uint64)
    part_hashes = np.empty(most, np.uint64)
    part_times = np.empty(most, np.int64)
    part_order = np.empty(most, np.int64)
    part_spare = np.empty(most, np.int64)
    counts = np.empty(257, np.int64)
    for part in range(1 << bits):
        start, size = starts[part], starts[part + 1] - starts[part]
        if size < 2:
            continue
        for i in range(size):
            row = order[start + i]
            part_keys[i] = keys[row]
            part_hashes[i] = hashes[row]
            part_times[i] = times[row]
        # By the next 8 bits, which leaves few rows to be compared unless many have one key.
        by = np.uint64(56 - bits)
        counts[:] = 0
        for i in range(size):
            counts[((part_keys[i] >> by) & np.uint64(255)) + np.uint64(1)] += 1
        for digit in range(256):
            counts[digit + 1] += counts[digit]
        for i in range(size):
            digit = (part_keys[i] >> by) & np.uint64(255)
            part_order[counts[digit]] = i
            counts[digit] += 1
        low = 0
        for digit in range(256):
            high = counts[digit]
            if high - low > 1:
                _sort_segment(part_order, low, high, part_spare, part_keys, part_hashes, part_times)
            low = high
        for i in range(size):
            spare[start + i] = order[start + part_order[i]]
    for part in range(1 << bits):
        if starts[part + 1] - starts[part] < 2:
            for i in range(starts[part], starts[part + 1]):
                spare[i] = order[i]
    return spare


@kernel
def pick_words(words, picked, out):
    """Copy the words at `picked` of each row."""
    for i in range(len(words)):
        for k in range(len(picked)):
            out[i, k] = words[i, picked[k]]


@inlined
def _same_row(a, i, b, j, width):
    for k in range(width):
        if a[i, k] != b[j, k]:
            return False
    return True


@kernel
def gather_consolidated(order, hashes, words, times, diffs, since):
    """Return the updates in `order`, times moved to `since`, equal ones added up."""
    count, width = words.shape
    out_hashes = np.empty(count, np.uint64)
    out_words = np.empty((count, width), np.int64)
    out_times = np.empty(count, np.int64)
    out_diffs = np.empty(count, np.int64)
    size = 0
    i = 0
    while i < count:
        at = order[i]
        time = max(times[at], since)
        diff = diffs[at]
        i += 1
        while i < count:
            other = order[i]
            if max(times[other], since) != time or hashes[other] != hashes[at]:
                break
            if not _same_row(words, other, words, at, width):
                break
            diff += diffs[other]
            i += 1
        if diff != 0:
            out_hashes[size] = hashes[at]
            for k in range(width):
                out_words[size, k] = words[at, k]
            out_times[size] = time
            out_diffs[size] = diff
            size += 1
    return out_hashes[:size], out_words[:size], out_times[:size], out_diffs[:size]
