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


@kernel
def hash_places(words, places, seed, hashes):
    """Set the hash of the words at `places` of each row, as `hash_keys` of the first words."""
    for i in range(len(hashes)):
        hash = seed
        for j in range(len(places)):
            hash = (hash + _A) ^ np.uint64(words[i, places[j]])
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
def sort_hashes(hashes):
    """Return hashes in ascending order, and the place of each.

    They are distributed by 11 bits at a time of their upper 33, which leaves few to be moved.
    """
    count = len(hashes)
    sorted = hashes.copy()
    places = np.arange(count).astype(np.int32)
    if count > 4 * SMALL:
        spare = np.empty(count, np.uint64)
        spare_places = np.empty(count, np.int32)
        at = np.empty(2048, np.int64)
        for shift in (31, 42, 53):
            by = np.uint64(shift)
            at[:] = 0
            for i in range(count):
                at[(sorted[i] >> by) & np.uint64(2047)] += 1
            total = 0
            for digit in range(2048):
                here = at[digit]
                at[digit] = total
                total += here
            for i in range(count):
                digit = (sorted[i] >> by) & np.uint64(2047)
                spare[at[digit]] = sorted[i]
                spare_places[at[digit]] = places[i]
                at[digit] += 1
            sorted, spare = spare, sorted
            places, spare_places = spare_places, places
    for i in range(1, count):
        hash, place = sorted[i], places[i]
        at = i
        while at > 0 and sorted[at - 1] > hash:
            sorted[at] = sorted[at - 1]
            places[at] = places[at - 1]
            at -= 1
        sorted[at] = hash
        places[at] = place
    return sorted, places


@kernel
def clustered(hashes, places, words, times, diffs, since, seed):
    """Return the updates at `places`, in the order of their sorted `hashes`, as a run.

    Those with one hash are ordered by the hash of all words, then by time. Times are moved to
    `since`, and equal updates are added up. Times and diffs may be of length 1: the same for all.
    """
    count, width = len(hashes), words.shape[1]
    by_time = 1 if len(times) == len(words) else 0
    by_diff = 1 if len(diffs) == len(words) else 0
    out_hashes = np.empty(count, np.uint64)
    out_words = np.empty((count, width), np.int64)
    out_times = np.empty(count, np.int64)
    out_diffs = np.empty(count, np.int64)
    most, start = 0, 0
    while start < count:
        stop = start + 1
        while stop < count and hashes[stop] == hashes[start]:
            stop += 1
        most = max(most, stop - start)
        start = stop
    order = np.empty(most, np.int64)
    spare = np.empty(most, np.int64)
    same = np.empty(most, np.uint64)
    row_hashes = np.empty(most, np.uint64)
    row_times = np.empty(most, np.int64)
    size, start = 0, 0
    while start < count:
        stop = start + 1
        while stop < count and hashes[stop] == hashes[start]:
            stop += 1
        group = stop - start
        if group > 1:
            for i in range(group):
                row = places[start + i]
                order[i] = i
                same[i] = 0
                row_hashes[i] = hash_row(words, row, seed)
                row_times[i] = max(times[by_time * row], since)
            _sort_segment(order, 0, group, spare, same, row_hashes, row_times)
        else:
            order[0] = 0
        first = size
        for i in range(group):
            row = places[start + order[i]]
            time = max(times[by_time * row], since)
            if size > first and out_times[size - 1] == time:
                equal = True
                for k in range(width):
                    if out_words[size - 1, k] != words[row, k]:
                        equal = False
                        break
                if equal:
                    out_diffs[size - 1] += diffs[by_diff * row]
                    continue
            if size > first and out_diffs[size - 1] == 0:
                size -= 1
            out_hashes[size] = hashes[start]
            for k in range(width):
                out_words[size, k] = words[row, k]
            out_times[size] = time
            out_diffs[size] = diffs[by_diff * row]
            size += 1
        if size > first and out_diffs[size - 1] == 0:
            size -= 1
        start = stop
    return out_hashes[:size], out_words[:size], out_times[:size], out_diffs[:size]


@kernel
def find_nulls(words, bits, null, some):
    """Set where each column is NULL, and whether it is somewhere; `bits` are those of a layout."""
    for k in range(len(bits)):
        word, bit = bits[k, 0], bits[k, 1]
        for i in range(len(words)):
            null[k, i] = word >= 0 and (words[i, word] >> bit) & 1 != 0
            if null[k, i]:
                some[k] = True


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
