"""Kernels that sort many rows by hash: rows go to partitions of the hashes, which are then sorted.

Rows are moved twice, to their partition and within it, where they fit in the processor's cache.
Sorting hashes first and fetching each row from where it is would wait for memory once a row. After
Manegold, Boncz and Kersten, "Optimizing Main-Memory Join on Modern Hardware" (2002).
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.rows import hash_places, hash_row
from foreshore.compute.flow.kernels.sorting import SMALL, merging_sort


@kernel
def count_rows(words, key, seed, shift, counts):
    """Count the rows of each partition: the hash of the words at `key` without `shift` bits."""
    down = np.uint64(shift)
    hashes = np.empty(len(words), np.uint64)
    hash_places(words, key, seed, hashes)
    for i in range(len(words)):
        counts[np.int64(hashes[i] >> down)] += 1


@kernel
def scatter(words, times, diffs, key, seed, shift, at, out_hashes, out_words, extra):
    """Write rows to their partitions, from the places `at` on, which are moved.

    Times and diffs, which may be of length 1 if they are the same for all, go to `extra`, unless it
    is empty.
    """
    count, width = words.shape
    by_time = 1 if len(times) == count else 0
    by_diff = 1 if len(diffs) == count else 0
    down = np.uint64(shift)
    hashes = np.empty(count, np.uint64)
    hash_places(words, key, seed, hashes)
    for i in range(count):
        p = np.int64(hashes[i] >> down)
        to = at[p]
        at[p] += 1
        out_hashes[to] = hashes[i]
        for k in range(width):
            out_words[to, k] = words[i, k]
        if len(extra):
            extra[to, 0], extra[to, 1] = times[by_time * i], diffs[by_diff * i]


@inlined
def _before(i, j, rows):
    """Whether row i comes before row j, by hash, the hash of all words, and time."""
    hashes, row_hashes, times = rows
    if hashes[i] != hashes[j]:
        return hashes[i] < hashes[j]
    if row_hashes[i] != row_hashes[j]:
        return row_hashes[i] < row_hashes[j]
    return times[i] < times[j]


_sort_bucket = merging_sort(_before)


@kernel
def sort_partitions(
    ends, shift, time, since, seed, out_hashes, out_words, extra, out_times, out_diffs
):
    """Sort the updates of all partitions in place, in the order of `rows.clustered`.

    `ends` are the places where partitions end. If `extra` is empty, all updates are at `time` with
    diff 1, and only one time is written. Times are moved to `since`, and equal updates are added
    up. Returns how many remain.

    `out_diffs` are zeros; if `extra` is empty one less than each diff is written there. As most
    are 0 then, their memory is not touched.
    """
    width = out_words.shape[1]
    many = len(extra) > 0
    most, begin = 0, 0
    for p in range(len(ends)):
        most = max(most, ends[p] - begin)
        begin = ends[p]
    hashes, row_hashes = np.empty(most, np.uint64), np.zeros(most, np.uint64)
    words = np.empty((most, width), np.int64)
    times, diffs = np.full(most, max(time, since)), np.ones(most, np.int64)
    order, spare = np.empty(most, np.int64), np.empty(most, np.int64)
    at = np.empty(1 << 16, np.int64)
    size, begin = 0, 0
    for p in range(len(ends)):
        rows = ends[p] - begin
        for i in range(rows):
            hashes[i] = out_hashes[begin + i]
            for k in range(width):
                words[i, k] = out_words[begin + i, k]
            if many:
                times[i], diffs[i] = max(extra[begin + i, 0], since), extra[begin + i, 1]
        begin = ends[p]
        # One bucket for each row, as hashes are uniform.
        bits = 1
        while bits < 16 and (1 << bits) < rows:
            bits += 1
        up, down = np.uint64(64 - shift), np.uint64(64 - bits)
        at[: 1 << bits] = 0
        for i in range(rows):
            at[(hashes[i] << up) >> down] += 1
        total = 0
        for bucket in range(1 << bits):
            here = at[bucket]
            at[bucket] = total
            total += here
        for i in range(rows):
            bucket = (hashes[i] << up) >> down
            order[at[bucket]] = i
            at[bucket] += 1
        start = 0
        for bucket in range(1 << bits):
            stop = at[bucket]
            if stop > start + 1:
                for k in range(start, stop):
                    row_hashes[order[k]] = hash_row(words, order[k], seed)
                if stop - start > SMALL:
                    _sort_bucket(order, start, stop, spare, (hashes, row_hashes, times))
                else:
                    for k in range(start + 1, stop):
                        i = order[k]
                        to = k
                        while to > start:
                            j = order[to - 1]
                            if hashes[j] != hashes[i]:
                                if hashes[j] < hashes[i]:
                                    break
                            elif row_hashes[j] != row_hashes[i]:
                                if row_hashes[j] < row_hashes[i]:
                                    break
                            elif times[j] <= times[i]:
                                break
                            order[to] = j
                            to -= 1
                        order[to] = i
            start = stop
        for k in range(rows):
            i = order[k]
            same = size > 0 and out_hashes[size - 1] == hashes[i]
            if same and many:
                same = out_times[size - 1] == times[i]
            word = 0
            while same and word < width:
                same = out_words[size - 1, word] == words[i, word]
                word += 1
            if same:
                out_diffs[size - 1] += diffs[i]
                continue
            if many and size > 0 and out_diffs[size - 1] == 0:
                size -= 1
            out_hashes[size] = hashes[i]
            for k in range(width):
                out_words[size, k] = words[i, k]
            if many:
                out_times[size], out_diffs[size] = times[i], diffs[i]
            size += 1
    if many and size > 0 and out_diffs[size - 1] == 0:
        size -= 1
    if not many:
        out_times[0] = max(time, since)
    return size
