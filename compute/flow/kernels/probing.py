"""Kernels that find rows by key: in sorted runs, their indexes, and in the hash-chained tail.

Only updates before a time are found.
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.rows import compare_rows, hash_row, same_words

IN_ORDER = 256  # rows from which on look-ups are made in the order of the hashes
ANY = 1 << 62  # matches: no limit
SPARSE = 24  # rows of a run for each that looks something up, from which on a search is faster
ONE_BY_ONE = 16  # places around a guess that are looked at before a wider search


class TooManyMatches(Exception):
    """More rows have the hashes that were looked up than the caller wants at once."""


@inlined
def first_from(hashes, hash, guess):
    """Return what `first_at` does, given a place to begin with.

    A few places beside it are looked at one by one; from there on the search widens.
    """
    count = len(hashes)
    step = np.int64(ONE_BY_ONE)
    if hashes[guess] < hash:
        low, end = guess + 1, min(guess + step, count)
        while low < end and hashes[low] < hash:
            low += 1
        high = low
        if low == end:
            while high < count and hashes[high] < hash:
                low = high + 1
                high = min(high + step, count)
                step *= 2
    else:
        low, end = guess, max(guess - step, 0)
        while low > end and hashes[low - 1] >= hash:
            low -= 1
        high = low
        if low == end:
            while low > 0 and hashes[low - 1] >= hash:
                high = low - 1
                low = max(low - step, 0)
                step *= 2
                if hashes[low] < hash:
                    low += 1
                    break
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < hash:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def expected_at(hash, count):
    """Return where a hash should be among `count` sorted ones, as they are uniform."""
    return min(np.int64(np.float64(hash) * (count / 18446744073709551616.0)), count - 1)


@inlined
def closer(hashes, hash, guess):
    """Return a better guess of the place of a hash than `guess`, by the distance to what is there.

    If a guess is off by n places, the next one is off by about the root of n.
    """
    count = len(hashes)
    distance = np.float64(np.int64(hash - hashes[guess]))
    moved = guess + np.int64(distance * (count / 18446744073709551616.0))
    return min(max(moved, 0), count - 1)


@inlined
def first_at(hashes, hash):
    """Return the place of the first of sorted `hashes` that is not less than `hash`."""
    if len(hashes) == 0:
        return 0
    guess = closer(hashes, hash, expected_at(hash, len(hashes)))
    return first_from(hashes, hash, closer(hashes, hash, guess))


@inlined
def same_key(a, i, b, j, places):
    """Whether row i of `a` begins with the words of row j of `b` at `places`."""
    for k in range(len(places)):
        if a[i, k] != b[j, places[k]]:
            return False
    return True


@inlined
def _with_hashes(wanted, order, hashes, most):
    """Return pairs of places of equal hashes: of rows that look up, and in sorted `hashes`.

    From `IN_ORDER` rows on, `wanted` is sorted, and `order` has the row of each hash. How many
    pairs there are comes last; if that is more than `most`, none of them are returned.
    They are counted first: arrays that grow in a loop make it many times slower.
    """
    count = len(hashes)
    starts = np.zeros(len(wanted), np.int64)
    if len(wanted) >= IN_ORDER and len(wanted) * SPARSE > count:
        # To pass rows one by one is faster than any search.
        at, last = first_at(hashes, wanted[0]), wanted[0]
        for i in range(len(wanted)):
            hash = wanted[i]
            if hash < last:
                at = first_at(hashes, hash)
            while at < count and hashes[at] < hash:
                at += 1
            starts[i], last = at, hash
    elif count > 0:
        # Each round has one read for each row, so that many are on their way at once.
        for i in range(len(wanted)):
            starts[i] = expected_at(wanted[i], count)
        for _ in range(2):
            for i in range(len(wanted)):
                starts[i] = closer(hashes, wanted[i], starts[i])
        for i in range(len(wanted)):
            starts[i] = first_from(hashes, wanted[i], starts[i])
    total = 0
    for i in range(len(wanted)):
        at = starts[i]
        while at < count and hashes[at] == wanted[i]:
            total += 1
            at += 1
    room = total if total <= most else 0
    left = np.empty(room, np.int64)
    right = np.empty(room, np.int64)
    if total > most:
        return left, right, total
    size = 0
    for i in range(len(wanted)):
        at = starts[i]
        row = np.int64(order[i]) if len(order) > 0 else i
        while at < count and hashes[at] == wanted[i]:
            left[size] = row
            right[size] = at
            size += 1
            at += 1
    return left, right, total


@inlined
def _fulfils(words, i, where):
    """Whether words of row i are within bounds; `where` has a word, bounds, mask word and bit.

    If that bit is set, which is not -1, the word is that of a NULL.
    """
    for k in range(len(where)):
        word = words[i, where[k, 0]]
        if word < where[k, 1] or word > where[k, 2]:
            return False
        if where[k, 4] >= 0 and (words[i, where[k, 3]] >> where[k, 4]) & 1 != 0:
            return False
    return True


@inlined
def _confirmed(left, right, keys, key, words, times, before, where):
    """Return the pairs whose keys are equal, of updates before a time that fulfil `where`.

    The rows are far apart in memory. A loop that does nothing else has many of them on their way
    at once.
    """
    each = 1 if len(times) == len(words) else 0
    kept = 0
    for p in range(len(left)):
        i, at = left[p], right[p]
        left[kept] = i
        right[kept] = at
        if times[each * at] < before and same_key(keys, i, words, at, key):
            kept += _fulfils(words, at, where)
    return left[:kept], right[:kept]


@kernel
def probe_run(wanted, order, keys, key, hashes, words, times, before, most, where):
    """Return pairs of places of rows with the same key: in `keys`, and in a run sorted by it.

    `wanted` are the hashes of the rows of `keys` in an `order`, which is empty if it is their own.
    The rows of `keys` begin with their key; that of the run's rows is at the places `key`. Times
    may be of length 1: the same for all. Rows of the run that do not fulfil `where` are left out.
    How many hashes are equal comes last; if they are more than `most`, no pairs are returned. A
    kernel that raised would never let go of the arrays that it was given.
    """
    left, right, total = _with_hashes(wanted, order, hashes, most)
    left, right = _confirmed(left, right, keys, key, words, times, before, where)
    return left, right, total


@kernel
def probe_index(wanted, order, keys, key, hashes, places, words, times, before, most, where):
    """Return what `probe_run` does, for a run with an index of this key: hashes and places."""
    left, right, total = _with_hashes(wanted, order, hashes, most)
    for p in range(len(right)):
        right[p] = places[right[p]]
    left, right = _confirmed(left, right, keys, key, words, times, before, where)
    return left, right, total


@kernel
def probe_tail(
    wanted, order, keys, key, heads, following, hashes, words, times, before, most, where
):
    """Return what `probe_run` does, for a tail."""
    mask = np.uint64(len(heads) - 1)
    total = 0
    for i in range(len(wanted)):
        at = heads[wanted[i] & mask]
        while at >= 0:
            total += hashes[at] == wanted[i]
            at = following[at]
    room = total if total <= most else 0
    left = np.empty(room, np.int64)
    right = np.empty(room, np.int64)
    if total > most:
        return left, right, total
    size = 0
    for i in range(len(wanted)):
        at = heads[wanted[i] & mask]
        row = np.int64(order[i]) if len(order) > 0 else i
        while at >= 0:
            if hashes[at] == wanted[i]:
                left[size] = row
                right[size] = at
                size += 1
            at = following[at]
    left, right = _confirmed(left, right, keys, key, words, times, before, where)
    return left, right, total


@kernel
def append_to_tail(heads, following, all_hashes, used, hashes):
    """Chain hashes from place `used` on of a tail, which has room for them."""
    mask = np.uint64(len(heads) - 1)
    for i in range(len(hashes)):
        at = used + i
        all_hashes[at] = hashes[i]
        slot = hashes[i] & mask
        following[at] = heads[slot]
        heads[slot] = at


@kernel
def cut_tail(heads, following, hashes, used, kept):
    """Remove the updates from place `kept` on, which are the last to have been added."""
    mask = np.uint64(len(heads) - 1)
    for at in range(used - 1, kept - 1, -1):
        heads[hashes[at] & mask] = following[at]


@kernel
def joined(left, right, keys, times, diffs, words, other_times, other_diffs, kept, added):
    """Return the pairs as rows: the words at `kept` of the left, those at `added` of the right.

    The time of a pair is the later one, its diff the product. The right times and diffs may be of
    length 1: the same for all.
    """
    by_time = 1 if len(other_times) == len(words) else 0
    by_diff = 1 if len(other_diffs) == len(words) else 0
    count = len(left)
    first = len(kept)
    out = np.empty((count, first + len(added)), np.int64)
    out_times = np.empty(count, np.int64)
    out_diffs = np.empty(count, np.int64)
    for p in range(count):
        i, j = left[p], right[p]
        for k in range(first):
            out[p, k] = keys[i, kept[k]]
        for k in range(len(added)):
            out[p, first + k] = words[j, added[k]]
        out_times[p] = max(times[i], other_times[by_time * j])
        out_diffs[p] = diffs[i] * other_diffs[by_diff * j]
    return out, out_times, out_diffs


@kernel
def merge_runs(
    a_hashes, a_words, a_times, a_diffs, b_hashes, b_words, b_times, b_diffs,
    ordered, seed, texts, arena, starts, lengths, since, i, j, size, budget,
    out_hashes, out_words, out_times, out_diffs, moved, origins,
):  # fmt: skip
    """Merge about `budget` more updates of two runs from places i and j; return (i, j, size).

    Times are moved to `since` and equal updates added up. Times and diffs of a run may be of length
    1: the same for all. The last row put out may have diff 0 until another follows. If there is
    room in `moved` it is set to where each update went, those of the second run after those of the
    first, and `origins` to the first update at each place.
    """
    traced = len(moved) > 0
    a_time = 1 if len(a_times) == len(a_words) else 0
    a_diff = 1 if len(a_diffs) == len(a_words) else 0
    b_time = 1 if len(b_times) == len(b_words) else 0
    b_diff = 1 if len(b_diffs) == len(b_words) else 0
    width = a_words.shape[1]
    end = i + j + budget
    while i + j < end and (i < len(a_hashes) or j < len(b_hashes)):
        if j >= len(b_hashes):
            first = True
        elif i >= len(a_hashes):
            first = False
        elif a_hashes[i] != b_hashes[j]:
            first = a_hashes[i] < b_hashes[j]
        else:
            order = 0
            if ordered:
                order = compare_rows(a_words, i, b_words, j, texts, arena, starts, lengths)
            else:
                a_hash, b_hash = hash_row(a_words, i, seed), hash_row(b_words, j, seed)
                if a_hash != b_hash:
                    order = -1 if a_hash < b_hash else 1
            first = order < 0 or (order == 0 and a_times[a_time * i] <= b_times[b_time * j])
        if first:
            hash, time, diff = a_hashes[i], max(a_times[a_time * i], since), a_diffs[a_diff * i]
        else:
            hash, time, diff = b_hashes[j], max(b_times[b_time * j], since), b_diffs[b_diff * j]
        same = size > 0 and out_hashes[size - 1] == hash and out_times[size - 1] == time
        if same:
            if first:
                same = same_words(a_words, i, out_words, size - 1, width)
            else:
                same = same_words(b_words, j, out_words, size - 1, width)
        if traced:
            moved[i if first else len(a_hashes) + j] = -1
        if same:
            out_diffs[size - 1] += diff
        else:
            if size > 0 and out_diffs[size - 1] == 0:
                size -= 1
            out_hashes[size] = hash
            for k in range(width):
                out_words[size, k] = a_words[i, k] if first else b_words[j, k]
            out_times[size] = time
            out_diffs[size] = diff
            if traced:
                origin = i if first else len(a_hashes) + j
                moved[origin] = size
                origins[size] = origin
            size += 1
        if first:
            i += 1
        else:
            j += 1
    return i, j, size


@kernel
def merge_indexes(
    a_hashes, a_places, b_hashes, b_places, skip, moved, origins, kept, i, j, size, budget,
    out_hashes, out_places,
):  # fmt: skip
    """Merge about `budget` more entries of two runs' indexes; return (i, j, size).

    The runs have been merged already: `moved` and `origins` are as `merge_runs` sets them, the
    updates of the second run are counted from `skip` on, and `kept` updates came out.
    """
    end = i + j + budget
    while i + j < end and (i < len(a_hashes) or j < len(b_hashes)):
        first = j >= len(b_hashes) or (i < len(a_hashes) and a_hashes[i] <= b_hashes[j])
        if first:
            hash, origin = a_hashes[i], np.int64(a_places[i])
            i += 1
        else:
            hash, origin = b_hashes[j], skip + np.int64(b_places[j])
            j += 1
        place = moved[origin]
        if 0 <= place < kept and origins[place] == origin:
            out_hashes[size] = hash
            out_places[size] = place
            size += 1
    return i, j, size
