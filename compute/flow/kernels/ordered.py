"""Kernels over several runs at once: the rows of a group in order, as of a time."""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.probing import first_at
from foreshore.compute.flow.kernels.rows import compare_rows, same_words

MOST_RUNS = 8


@kernel
def live_rows(
    point_rows, point_times, wanted, keys, width, run_hashes, run_words, run_times, run_diffs,
    texts, arena, starts, lengths, offset, limit,
):  # fmt: skip
    """Return the rows of each point's group from `offset` on, at most `limit`, in order.

    The runs are `MOST_RUNS`, some of them empty. Returns for each row its point, its run, its place
    there and how often it is taken. A negative multiplicity counts as none.
    """
    size = 0
    room = len(point_rows) + 16
    points = np.empty(room, np.int64)
    runs = np.empty(room, np.int64)
    places = np.empty(room, np.int64)
    counts = np.empty(room, np.int64)
    at = np.empty(MOST_RUNS, np.int64)
    for p in range(len(point_rows)):
        row = point_rows[p]
        hash = wanted[row]
        for r in range(MOST_RUNS):
            place = first_at(run_hashes[r], hash)
            while (
                place < len(run_hashes[r])
                and run_hashes[r][place] == hash
                and not same_words(keys, row, run_words[r], place, width)
            ):
                place += 1
            at[r] = place
        skipped, taken = 0, 0
        while taken < limit:
            least = -1
            for r in range(MOST_RUNS):
                place = at[r]
                if (
                    place >= len(run_hashes[r])
                    or run_hashes[r][place] != hash
                    or not same_words(keys, row, run_words[r], place, width)
                ):
                    continue
                if least < 0 or (
                    compare_rows(
                        run_words[r], place, run_words[least], at[least],
                        texts, arena, starts, lengths,
                    ) < 0
                ):  # fmt: skip
                    least = r
            if least < 0:
                break
            found = at[least]
            total = 0
            for r in range(MOST_RUNS):
                while (
                    at[r] < len(run_hashes[r])
                    and run_hashes[r][at[r]] == hash
                    and same_words(run_words[least], found, run_words[r], at[r], len(texts))
                ):
                    if run_times[r][at[r]] <= point_times[p]:
                        total += run_diffs[r][at[r]]
                    at[r] += 1
            if total <= 0:
                continue
            passed = min(total, offset - skipped)
            skipped += passed
            total = min(total - passed, limit - taken)
            if total <= 0:
                continue
            taken += total
            if size == len(points):
                room = 2 * size
                more = np.empty(room, np.int64)
                more[:size] = points
                points = more
                more = np.empty(room, np.int64)
                more[:size] = runs
                runs = more
                more = np.empty(room, np.int64)
                more[:size] = places
                places = more
                more = np.empty(room, np.int64)
                more[:size] = counts
                counts = more
            points[size], runs[size], places[size], counts[size] = p, least, found, total
            size += 1
    return points[:size], runs[:size], places[:size], counts[:size]


@inlined
def place_of(hashes, words, hash, bounds, row, texts, arena, starts, lengths, beyond):
    """Return the first place in a run that is not before a row of `bounds`, or beyond it.

    Rows are compared by as many words as there are `texts`.
    """
    low = first_at(hashes, hash)
    high = len(hashes)
    if hash != np.uint64(0xFFFFFFFFFFFFFFFF):
        high = first_at(hashes, hash + np.uint64(1))
    while low < high:
        middle = (low + high) >> 1
        order = compare_rows(words, middle, bounds, row, texts, arena, starts, lengths)
        if order < 0 or (beyond and order == 0):
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def end_of(hashes, words, hash, keys, row, width, begin):
    """Return the place after the last row of a group, which begins at `begin` or before it."""
    high = len(hashes)
    if hash != np.uint64(0xFFFFFFFFFFFFFFFF):
        high = first_at(hashes, hash + np.uint64(1))
    if begin >= high or same_words(words, high - 1, keys, row, width):
        return high
    while begin < high and same_words(words, begin, keys, row, width):
        begin += 1  # other groups have the same hash, which is rare
    return begin


@inlined
def next_run(
    keys, row, width, hash, run_hashes, run_words, at, sign, texts, arena, starts, lengths
):
    """Return the run with the next row of a group in order, the last one if `sign` is -1; or -1."""
    found = -1
    for r in range(MOST_RUNS):
        place = at[r]
        if (
            place < 0
            or place >= len(run_hashes[r])
            or run_hashes[r][place] != hash
            or not same_words(keys, row, run_words[r], place, width)
        ):
            continue
        if found < 0 or (
            sign * compare_rows(
                run_words[r], place, run_words[found], at[found], texts, arena, starts, lengths
            ) < 0
        ):  # fmt: skip
            found = r
    return found


@inlined
def pass_row(least, hash, run_hashes, run_words, run_times, run_diffs, at, sign, time, width):
    """Move all runs past the row at which `least` is; return its multiplicity at a time."""
    found = at[least]
    total = 0
    for r in range(MOST_RUNS):
        while (
            0 <= at[r] < len(run_hashes[r])
            and run_hashes[r][at[r]] == hash
            and same_words(run_words[least], found, run_words[r], at[r], width)
        ):
            if run_times[r][at[r]] <= time:
                total += run_diffs[r][at[r]]
            at[r] += sign
    return total


@kernel
def rows_near(
    point_rows, point_times, wanted, keys, width, lows, highs, low_words, before, after,
    run_hashes, run_words, run_times, run_diffs, texts, arena, starts, lengths,
    points, runs, places, counts, begins, ends,
):  # fmt: skip
    """Write the rows of each point's group that are near rows `lows` to `highs` of `keys`.

    They are those from `low_words` words of the first of these rows to the last one, with at least
    `before` rows before them, of which the first has all its peers in `low_words`, and `after` rows
    after them, or all if it is negative. Returns how many there are; if that is more than fits, the
    caller has to make room. `begins` and `ends` are how many rows come before the first, and from
    there up to the last of them.
    """
    size = 0
    at = np.empty(MOST_RUNS, np.int64)
    for p in range(len(point_rows)):
        row, time = point_rows[p], point_times[p]
        hash = wanted[row]
        for r in range(MOST_RUNS):
            at[r] = place_of(
                run_hashes[r], run_words[r], hash, keys, lows[p], texts[:low_words],
                arena, starts, lengths, False,
            ) - 1  # fmt: skip
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
                last, hash, run_hashes, run_words, run_times, run_diffs, at, -1, time, len(texts)
            )
            if total > 0:
                taken += total
                first_run, first_place = last, place
        begins[p] = taken
        for r in range(MOST_RUNS):
            at[r] += 1
        inside, beyond = 0, 0
        while True:
            least = next_run(
                keys, row, width, hash, run_hashes, run_words, at, 1,
                texts, arena, starts, lengths,
            )  # fmt: skip
            if least < 0:
                break
            found = at[least]
            is_beyond = (
                after >= 0
                and compare_rows(
                    run_words[least], found, keys, highs[p], texts, arena, starts, lengths
                ) > 0
            )  # fmt: skip
            if is_beyond and beyond >= after:
                break
            total = pass_row(
                least, hash, run_hashes, run_words, run_times, run_diffs, at, 1, time, len(texts)
            )
            if total <= 0:
                continue
            if is_beyond:
                beyond += total
            else:
                inside += total
            if size < len(points):
                points[size], runs[size], places[size], counts[size] = p, least, found, total
            size += 1
        ends[p] = inside
    return size
