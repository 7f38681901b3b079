"""Kernels that read the rows of groups from some row on, at all points of a group together.

The runs of an ordered spine are merged once for each group; then every point takes its rows from
the merged order. So reading costs little more than copying.
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.ordered import MOST_RUNS, end_of, next_run, pass_row, place_of
from foreshore.compute.flow.kernels.probing import first_at
from foreshore.compute.flow.kernels.rows import compare_rows, same_words


@kernel
def find_extents(
    point_rows, point_times, point_first, wanted, keys, width, lows, low_words, before, whole,
    run_hashes, run_words, run_times, run_diffs, texts, arena, starts, lengths,
    begins, middles, ends,
):  # fmt: skip
    """Set for each group and run the places of the rows to be read; return how many they may be.

    `middles` are the places of the first row that is not before row `lows` of `keys` in `low_words`
    words; from `begins` on there are `before` rows more at each point, of which the first has all
    its peers. If `whole`, all rows of the group are read.
    """
    most, group, points = 0, -1, 0
    at = np.empty(MOST_RUNS, np.int64)
    for p in range(len(point_rows)):
        row, time = point_rows[p], point_times[p]
        hash = wanted[row]
        if point_first[p]:
            group += 1
            points = 0
            for r in range(MOST_RUNS):
                if whole:
                    middle = first_at(run_hashes[r], hash)
                    while (
                        middle < len(run_hashes[r])
                        and run_hashes[r][middle] == hash
                        and not same_words(keys, row, run_words[r], middle, width)
                    ):
                        middle += 1
                else:
                    middle = place_of(
                        run_hashes[r], run_words[r], hash, keys, lows[p], texts[:low_words],
                        arena, starts, lengths, False,
                    )  # fmt: skip
                middles[group, r] = middle
                begins[group, r] = middle
                ends[group, r] = end_of(run_hashes[r], run_words[r], hash, keys, row, width, middle)
        points += 1
        if before > 0 and not whole:
            for r in range(MOST_RUNS):
                at[r] = middles[group, r] - 1
            taken, first_run, first_place = 0, -1, 0
            while True:
                last = next_run(
                    keys, row, width, hash, run_hashes, run_words, at, -1,
                    texts, arena, starts, lengths,
                )  # fmt: skip
                if last < 0:
                    break
                if taken >= before and (
                    first_run < 0
                    or low_words == len(texts)
                    or not same_words(
                        run_words[last], at[last], run_words[first_run], first_place, low_words
                    )
                ):
                    break
                place = at[last]
                total = pass_row(
                    last, hash, run_hashes, run_words, run_times, run_diffs, at, -1, time,
                    len(texts),
                )  # fmt: skip
                if total > 0:
                    taken += total
                    first_run, first_place = last, place
            for r in range(MOST_RUNS):
                begins[group, r] = min(begins[group, r], at[r] + 1)
        if p + 1 == len(point_rows) or point_first[p + 1]:
            for r in range(MOST_RUNS):
                most += points * (ends[group, r] - begins[group, r])
    return most


@inlined
def _merge_group(
    group, begins, ends, run_words, texts, arena, starts, lengths, at, merged, places, fresh
):
    """Write the updates of a group in order: run, place, and whether a row begins; return how many.

    The run with the least row is copied as far as its rows are not after those of all others.
    """
    size = 0
    active = 0
    for r in range(MOST_RUNS):
        at[r] = begins[group, r]
        if at[r] < ends[group, r]:
            active += 1
    width = len(texts)
    while active > 0:
        least, other = -1, -1
        for r in range(MOST_RUNS):
            if at[r] >= ends[group, r]:
                continue
            if least < 0 or (
                compare_rows(
                    run_words[r], at[r], run_words[least], at[least], texts, arena, starts, lengths
                ) < 0
            ):  # fmt: skip
                other = least
                least = r
            elif other < 0 or (
                compare_rows(
                    run_words[r], at[r], run_words[other], at[other], texts, arena, starts, lengths
                ) < 0
            ):  # fmt: skip
                other = r
        stop = ends[group, least]
        if other >= 0:
            low, step = at[least] + 1, 1
            high = low
            while high < stop and (
                compare_rows(
                    run_words[least], high, run_words[other], at[other],
                    texts, arena, starts, lengths,
                ) <= 0
            ):  # fmt: skip
                low = high + 1
                high += step
                step *= 2
            high = min(high, stop)
            while low < high:
                middle = (low + high) >> 1
                if (
                    compare_rows(
                        run_words[least], middle, run_words[other], at[other],
                        texts, arena, starts, lengths,
                    ) <= 0
                ):  # fmt: skip
                    low = middle + 1
                else:
                    high = middle
            stop = low
        first = at[least]
        merged[size] = least
        places[size] = first
        fresh[size] = size == 0 or not same_words(
            run_words[merged[size - 1]], places[size - 1], run_words[least], first, width
        )
        size += 1
        for place in range(first + 1, stop):
            merged[size] = least
            places[size] = place
            fresh[size] = not same_words(
                run_words[least], place - 1, run_words[least], place, width
            )
            size += 1
        at[least] = stop
        if stop == ends[group, least]:
            active -= 1
    return size


@kernel
def take_rows(
    point_times, point_first, begins, middles, ends, longest,
    run_words, run_times, run_diffs, texts, arena, starts, lengths,
    points, rows, counts, words, before,
):  # fmt: skip
    """Write the rows of each point: its number, the row's in the group, multiplicity, and words.

    `before` is set to how many rows of each point are before the middle. Returns how many there
    are.
    """
    at = np.empty(MOST_RUNS, np.int64)
    merged = np.empty(longest, np.int64)
    places = np.empty(longest, np.int64)
    fresh = np.empty(longest, np.bool_)
    width = len(texts)
    size, group, length = 0, -1, 0
    for p in range(len(point_times)):
        if point_first[p]:
            group += 1
            length = _merge_group(
                group, begins, ends, run_words, texts, arena, starts, lengths,
                at, merged, places, fresh,
            )  # fmt: skip
        time = point_times[p]
        before[p] = 0
        i = 0
        while i < length:
            run, place = merged[i], places[i]
            number, total = i, np.int64(0)
            while True:
                if run_times[merged[i]][places[i]] <= time:
                    total += run_diffs[merged[i]][places[i]]
                i += 1
                if i == length or fresh[i]:
                    break
            if total > 0:
                points[size], rows[size], counts[size] = p, number, total
                from_words = run_words[run]
                for k in range(width):
                    words[size, k] = from_words[place, k]
                if place < middles[group, run]:
                    before[p] += total
                size += 1
    return size


@kernel
def differences(points, rows, values, times, first):
    """Return the changes from point to point: updates of `values`, those of rows in order.

    `rows` tells the rows of a group apart. A row with the same values at both points gives none.
    """
    count, width = values.shape
    out = np.empty((2 * count, width), np.int64)
    out_times = np.empty(2 * count, np.int64)
    out_diffs = np.empty(2 * count, np.int64)
    size = 0
    old, old_end, at = 0, 0, 0
    for p in range(len(times)):
        begin = at
        while at < count and points[at] == p:
            at += 1
        if not first[p]:
            i, j = old, begin
            while i < old_end or j < at:
                take_old = i < old_end and (j == at or rows[i] <= rows[j])
                take_new = j < at and (i == old_end or rows[j] <= rows[i])
                if take_old and take_new and same_words(values, i, values, j, width):
                    i += 1
                    j += 1
                    continue
                if take_old:
                    for k in range(width):
                        out[size, k] = values[i, k]
                    out_times[size], out_diffs[size] = times[p], -1
                    size += 1
                    i += 1
                if take_new:
                    for k in range(width):
                        out[size, k] = values[j, k]
                    out_times[size], out_diffs[size] = times[p], 1
                    size += 1
                    j += 1
        old, old_end = begin, at
    return out[:size], out_times[:size], out_diffs[:size]
