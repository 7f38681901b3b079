"""Kernels over rows in words: hashes, comparison, sorting, consolidation.

Rows are ordered by the hash of their key (the first words), then by the hash of all words, then by
time. In ordered spines all words come in place of their hash. They are ordered as integers or as
text: `texts` has for each word 1 if it is a number of the interner that is ordered by its bytes, -1
if in descending order, else 0.
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.sorting import SMALL, merging_sort

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)


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
def _update_before(i, j, updates):
    """Whether update i comes before update j, by hash, words and time."""
    hashes, words, times, texts, arena, starts, lengths = updates
    if hashes[i] != hashes[j]:
        return hashes[i] < hashes[j]
    order = compare_rows(words, i, words, j, texts, arena, starts, lengths)
    if order != 0:
        return order < 0
    return times[i] < times[j]


_sort_by_words = merging_sort(_update_before)


@inlined
def same_words(a, i, b, j, width):
    """Whether the first words of two rows are equal."""
    for k in range(width):
        if a[i, k] != b[j, k]:
            return False
    return True


@inlined
def _lead_before(i, j, leads):
    """Whether row i comes before row j by the word that leads the order within a group."""
    return leads[i] < leads[j]


_sort_by_lead = merging_sort(_lead_before)


@inlined
def _lead_of(word, text, arena, starts, lengths):
    """Return a number in the order of a word: of a string, the first eight bytes decide."""
    if text == 0:
        return word
    head = np.uint64(0)
    for i in range(8):
        head <<= np.uint64(8)
        if i < lengths[word]:
            head |= np.uint64(arena[starts[word] + i])
    lead = np.int64(head ^ np.uint64(0x8000000000000000))
    return lead if text > 0 else ~lead


@inlined
def _lead_word(hashes, words, start, stop, key):
    """Return the first word in which some rows differ, -1 if they do in their key."""
    lead = words.shape[1]
    for i in range(start + 1, stop):
        if hashes[i] != hashes[start]:
            return -1
        for k in range(lead):
            if words[i, k] != words[start, k]:
                lead = k
                break
    return lead if lead >= key else -1


@kernel
def sort_updates(hashes, words, times, texts, key, arena, starts, lengths):
    """Return the order of updates by hash, words and time.

    The hash is that of the first `key` words. Rows with one key are sorted by the first word in
    which some of them differ, without calls; by all words only those that are equal in it.
    """
    count = len(hashes)
    order = np.arange(count)
    spare = np.empty(count, np.int64)
    updates = (hashes, words, times, texts, arena, starts, lengths)
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
        # Rows of one group are brought together first, as they are compared many times.
        near_hashes = np.empty(count, np.uint64)
        near_words = np.empty(words.shape, np.int64)
        near_times = np.empty(count, np.int64)
        for i in range(count):
            row = order[i]
            near_hashes[i] = hashes[row]
            near_times[i] = times[row]
            for k in range(words.shape[1]):
                near_words[i, k] = words[row, k]
        near = (near_hashes, near_words, near_times, texts, arena, starts, lengths)
        leads = np.zeros(count, np.int64)
        places = np.arange(count)
        start = 0
        high = np.uint64(32)
        while start < count:
            stop = start + 1
            prefix = near_hashes[start] >> high
            while stop < count and near_hashes[stop] >> high == prefix:
                stop += 1
            if stop - start > 1:
                lead = _lead_word(near_hashes, near_words, start, stop, key)
                if lead >= 0:
                    if lead < len(texts):
                        for i in range(start, stop):
                            leads[i] = _lead_of(
                                near_words[i, lead], texts[lead], arena, starts, lengths
                            )
                    _sort_by_lead(places, start, stop, spare, leads)
                    low = start
                    for i in range(start + 1, stop + 1):
                        if i == stop or leads[places[i]] != leads[places[low]]:
                            if i - low > 1:
                                _sort_by_words(places, low, i, spare, near)
                            low = i
                else:
                    _sort_by_words(places, start, stop, spare, near)
            start = stop
        for i in range(count):
            spare[i] = order[places[i]]
        order = spare
    else:
        _sort_by_words(order, 0, count, spare, updates)
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
def _row_before(i, j, rows):
    """Whether row i comes before row j, by the hash of its words and by time."""
    hashes, times = rows
    if hashes[i] != hashes[j]:
        return hashes[i] < hashes[j]
    return times[i] < times[j]


_sort_by_hash = merging_sort(_row_before)


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


@inlined
def _longest_cluster(hashes):
    """Return the greatest number of equal hashes, which stand together."""
    most, start = 0, 0
    for i in range(1, len(hashes) + 1):
        if i == len(hashes) or hashes[i] != hashes[start]:
            most = max(most, i - start)
            start = i
    return most


@inlined
def _order_cluster(
    order, spare, places, start, size, words, times, by_time, since, seed, hashes, row_times
):
    """Set the order of `size` updates at `places`, from `start` on, by all words' hash and time."""
    for i in range(size):
        row = places[start + i]
        order[i] = i
        hashes[i] = hash_row(words, row, seed)
        row_times[i] = max(times[by_time * row], since)
    _sort_by_hash(order, 0, size, spare, (hashes, row_times))


@kernel
def clustered(hashes, places, words, times, diffs, since, seed):
    """Return the updates at `places`, in the order of their sorted `hashes`, as a run.

    Those with one hash are ordered by the hash of all words, then by time. Times are moved to
    `since`, and equal updates are added up. Times and diffs may be of length 1: the same for all.
    """
    count, width = len(hashes), words.shape[1]
    by_time = 1 if len(times) == len(words) else 0
    by_diff = 1 if len(diffs) == len(words) else 0
    out_hashes, out_words = np.empty(count, np.uint64), np.empty((count, width), np.int64)
    out_times, out_diffs = np.empty(count, np.int64), np.empty(count, np.int64)
    most = _longest_cluster(hashes)
    order, spare = np.zeros(most, np.int64), np.empty(most, np.int64)
    row_hashes, row_times = np.empty(most, np.uint64), np.empty(most, np.int64)
    size, start = 0, 0
    while start < count:
        stop = start + 1
        while stop < count and hashes[stop] == hashes[start]:
            stop += 1
        order[0] = 0
        if stop > start + 1:
            _order_cluster(
                order, spare, places, start, stop - start, words, times, by_time, since, seed,
                row_hashes, row_times,
            )  # fmt: skip
        first = size
        for i in range(stop - start):
            row = places[start + order[i]]
            time = max(times[by_time * row], since)
            same = size > first and out_times[size - 1] == time
            if same and same_words(out_words, size - 1, words, row, width):
                out_diffs[size - 1] += diffs[by_diff * row]
                continue
            if size > first and out_diffs[size - 1] == 0:
                size -= 1
            out_hashes[size], out_times[size] = hashes[start], time
            out_diffs[size] = diffs[by_diff * row]
            for k in range(width):
                out_words[size, k] = words[row, k]
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
            if not same_words(words, other, words, at, width):
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
