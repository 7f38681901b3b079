"""Kernels that read the rows of groups in order, from one end on, over several runs at once.

First `locate` finds the groups in each run. The others pass the rows of all runs in order. A row is
passed once for all points of its group: it is there at a point as often as the diffs at the times
up to the point's come to.
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.memory import compare_rows_at, same_words_at, word_at
from foreshore.compute.flow.kernels.probing import closer, first_from
from foreshore.compute.flow.kernels.rows import same_words


@kernel
def locate(visited, point_rows, wanted, keys, width, hashes, words, times, diffs, r,
           begins, ends, arrays):  # fmt: skip
    """Set where groups begin and end in run `r`, and the addresses of the run's arrays.

    `visited` are the first points of the groups. It is fast if they are in order of the hashes.
    """
    arrays[r, 0], arrays[r, 1] = words.ctypes.data, times.ctypes.data
    arrays[r, 2] = diffs.ctypes.data
    count = len(hashes)
    near = 0
    for g in range(len(visited)):
        row = point_rows[visited[g]]
        hash = wanted[row]
        near = closer(hashes, hash, closer(hashes, hash, near))
        begin = first_from(hashes, hash, near)
        near = min(begin, count - 1)
        while (
            begin < count
            and hashes[begin] == hash
            and not same_words(keys, row, words, begin, width)
        ):
            begin += 1  # another group has the same hash, which is rare
        end = begin
        if begin < count and hashes[begin] == hash:
            end = count
            if hash != np.uint64(0xFFFFFFFFFFFFFFFF):
                end = first_from(hashes, hash + np.uint64(1), begin)
            if not same_words(keys, row, words, end - 1, width):
                end = begin
                while same_words(keys, row, words, end, width):
                    end += 1
        begins[g, r], ends[g, r] = begin, end


@inlined
def longest(visited, point_first):
    """Return the greatest number of points of a group."""
    most = 0
    for g in range(len(visited)):
        end = visited[g] + 1
        while end < len(point_first) and not point_first[end]:
            end += 1
        most = max(most, end - visited[g])
    return most


@inlined
def start_group(begins, ends, g, sign, at, active):
    """Set the place of the first row of a group in each run, the last one if `sign` is -1.

    Returns in how many runs there are some, which are in `active`.
    """
    count = 0
    for r in range(begins.shape[1]):
        if begins[g, r] < ends[g, r]:
            at[r] = begins[g, r] if sign > 0 else ends[g, r] - 1
            active[count] = r
            count += 1
    return count


@inlined
def next_run(active, count, at, sign, arrays, texts, arena, starts, lengths):
    """Return the run with the next row in order, the first of `active` if there are equal ones."""
    found = active[0]
    if count > 1:
        size = 8 * len(texts)
        address = arrays[found, 0] + size * at[found]
        for a in range(1, count):
            r = active[a]
            other = arrays[r, 0] + size * at[r]
            if sign * compare_rows_at(other, address, texts, arena, starts, lengths) < 0:
                found, address = r, other
    return found


@inlined
def pass_row(
    row, begins, ends, g, active, count, at, sign, arrays, words, point_times, first, points, added
):
    """Pass the row at the address `row` in all runs; return how many of these have more rows.

    What it has got between a point of the group and the one before is added to `added`.
    """
    size = 8 * words
    a = 0
    while a < count:
        r = active[a]
        place = at[r]
        end = ends[g, r] if sign > 0 else begins[g, r] - 1
        while place != end and same_words_at(row, arrays[r, 0] + size * place, words):
            time = word_at(arrays[r, 1] + 8 * place)
            q = 0
            while q < points and point_times[first + q] < time:
                q += 1
            if q < points:
                added[q] += word_at(arrays[r, 2] + 8 * place)
            place += sign
        at[r] = place
        if place == end:
            count -= 1
            active[a] = active[count]
        else:
            a += 1
    return count


@kernel
def changed_first_rows(
    visited, point_times, point_first, begins, ends, arrays, texts, arena, starts, lengths,
    offset, limit, points, runs, places, diffs,
):  # fmt: skip
    """Write how the rows of each group from `offset` on, at most `limit`, change between points.

    Of each change the point, the run, the place there and the diff are written, if they fit.
    Returns how many there are. A row whose diffs are negative together is not there.
    """
    size = 0
    at, active = np.empty(begins.shape[1], np.int64), np.empty(begins.shape[1], np.int64)
    most = longest(visited, point_first)
    added, skipped, taken = (
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
    )
    for g in range(len(visited)):
        first = visited[g]
        of_group = 1
        while first + of_group < len(point_first) and not point_first[first + of_group]:
            of_group += 1
        skipped[:of_group] = 0
        taken[:of_group] = 0
        open = of_group if limit > 0 else 0
        count = start_group(begins, ends, g, 1, at, active)
        while open > 0 and count > 0:
            run = next_run(active, count, at, 1, arrays, texts, arena, starts, lengths)
            place = at[run]
            count = pass_row(
                arrays[run, 0] + 8 * len(texts) * place, begins, ends, g, active, count, at, 1,
                arrays, len(texts), point_times, first, of_group, added,
            )  # fmt: skip
            total, before = 0, 0
            for q in range(of_group):
                total += added[q]
                added[q] = 0
                here = 0
                if total > 0 and taken[q] < limit:
                    passed = min(total, offset - skipped[q])
                    skipped[q] += passed
                    here = min(total - passed, limit - taken[q])
                    taken[q] += here
                    if taken[q] == limit:
                        open -= 1
                if q > 0 and here != before:
                    if size < len(points):
                        points[size], runs[size], places[size] = first + q, run, place
                        diffs[size] = here - before
                    size += 1
                before = here
    return size


@kernel
def group_ends(
    visited, point_times, point_first, counts, with_first, with_last,
    begins, ends, arrays, texts, arena, starts, lengths, runs, places,
):  # fmt: skip
    """Set the run and the place of the first and of the last row of each point's group.

    They are in columns 0 and 1 of `runs` and `places`; the run is -1 if there is none, as where
    `counts` is 0, or if nobody asks for that end.
    """
    at, active = np.empty(begins.shape[1], np.int64), np.empty(begins.shape[1], np.int64)
    added = np.zeros(longest(visited, point_first), np.int64)
    runs[:] = -1
    for g in range(len(visited)):
        first = visited[g]
        of_group, there = 0, 0
        while of_group == 0 or (
            first + of_group < len(point_first) and not point_first[first + of_group]
        ):
            there += counts[first + of_group] > 0
            of_group += 1
        for end in range(2):
            if not (with_last if end else with_first):
                continue
            sign = -1 if end else 1
            open = there
            count = start_group(begins, ends, g, sign, at, active)
            while open > 0 and count > 0:
                run = next_run(active, count, at, sign, arrays, texts, arena, starts, lengths)
                place = at[run]
                count = pass_row(
                    arrays[run, 0] + 8 * len(texts) * place, begins, ends, g, active, count, at,
                    sign, arrays, len(texts), point_times, first, of_group, added,
                )  # fmt: skip
                total = 0
                for q in range(of_group):
                    total += added[q]
                    added[q] = 0
                    if total > 0 and runs[first + q, end] < 0 and counts[first + q] > 0:
                        runs[first + q, end], places[first + q, end] = run, place
                        open -= 1
