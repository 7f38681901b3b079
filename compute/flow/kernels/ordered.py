"""Kernels over several runs at once: the rows of a group in order, as of a time."""

import numpy as np

from foreshore.compute.flow.kernels.jit import kernel
from foreshore.compute.flow.kernels.probing import first_at, same_words
from foreshore.compute.flow.kernels.rows import compare_rows

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
