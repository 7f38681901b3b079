"""Kernels of ranks (`flow/ranks.py`): which round of a recursion a row is first found in.

Rows have numbers. A row's *entries* are a chained list of (rank, count, next): in how many ways it
follows from rows of that rank. A row that follows from rows of rank r, and of none below, has rank
r + 1.
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.rows import same_words

NEVER = 1 << 62  # the rank of a row that is not there
USED, FREE = 0, 1  # the number of entries that were ever used, and the first that is free


@kernel
def find_rows(words, hashes, table, known_words, known_hashes, count):
    """Return the numbers of rows, and how many rows are known with those that are added.

    There is room for all of them.
    """
    width = words.shape[1]
    mask = np.uint64(len(table) - 1)
    found = np.empty(len(words), np.int64)
    for i in range(len(words)):
        slot = hashes[i] & mask
        while True:
            row = table[slot]
            if row < 0:
                row = count
                table[slot] = row
                known_hashes[row] = hashes[i]
                for k in range(width):
                    known_words[row, k] = words[i, k]
                count += 1
                break
            if known_hashes[row] == hashes[i] and same_words(known_words, row, words, i, width):
                break
            slot = (slot + np.uint64(1)) & mask
        found[i] = row
    return found, count


@kernel
def fill_table(hashes, count, table):
    """Put the numbers of all rows into an empty table."""
    mask = np.uint64(len(table) - 1)
    for row in range(count):
        slot = hashes[row] & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = row


@kernel
def add_counts(rows, ranks, diffs, heads, entries, counters):
    """Add to the counts of rows' entries; there is room for an entry for each."""
    for i in range(len(rows)):
        row, rank = rows[i], ranks[i]
        at, before = heads[row], np.int64(-1)
        while at >= 0 and entries[at, 0] != rank:
            before = at
            at = entries[at, 2]
        if at < 0:
            at = counters[FREE]
            if at >= 0:
                counters[FREE] = entries[at, 2]
            else:
                at = counters[USED]
                counters[USED] += 1
            entries[at, 0] = rank
            entries[at, 1] = diffs[i]
            entries[at, 2] = heads[row]
            heads[row] = at
            continue
        entries[at, 1] += diffs[i]
        if entries[at, 1] == 0:
            if before < 0:
                heads[row] = entries[at, 2]
            else:
                entries[before, 2] = entries[at, 2]
            entries[at, 2] = counters[FREE]
            counters[FREE] = at


@inlined
def _rank_of(row, heads, entries):
    """Return the rank that a row's entries give it."""
    least = np.int64(NEVER)
    at = heads[row]
    while at >= 0:
        if entries[at, 1] > 0 and entries[at, 0] < least:
            least = entries[at, 0]
        at = entries[at, 2]
    return least + 1 if least < NEVER else least


@kernel
def find_unsettled(rows, ranks, heads, entries, stamps, stamp):
    """Return the rows, each once, whose entries give them another rank than `ranks`.

    With each comes the round in which it is settled: that of the lower one of its two ranks.
    """
    found = np.empty(len(rows), np.int64)
    rounds = np.empty(len(rows), np.int64)
    size = 0
    for i in range(len(rows)):
        row = rows[i]
        if stamps[row] == stamp:
            continue
        stamps[row] = stamp
        rank = _rank_of(row, heads, entries)
        if rank != ranks[row]:
            found[size] = row
            rounds[size] = min(rank, ranks[row])
            size += 1
    return found[:size], rounds[:size]


@kernel
def settle(rows, round, limit, ranks, heads, entries, words):
    """Give rows their ranks as far as a round decides them.

    Return the changes of rows of ranks below `limit`, as words, ranks and diffs; the rows whose
    rank changed, with that of before; and the rows that a later round decides, with that round.
    """
    most = len(rows)
    width = words.shape[1]
    out = np.empty((2 * most, width), np.int64)
    out_ranks = np.empty(2 * most, np.int64)
    out_diffs = np.empty(2 * most, np.int64)
    changed = np.empty(most, np.int64)
    old_ranks = np.empty(most, np.int64)
    later = np.empty(most, np.int64)
    rounds = np.empty(most, np.int64)
    size = count = waiting = 0
    for i in range(most):
        row = rows[i]
        old, new = ranks[row], _rank_of(row, heads, entries)
        if old == new:
            continue
        if min(old, new) > round:
            later[waiting], rounds[waiting] = row, min(old, new)
            waiting += 1
            continue
        changed[count], old_ranks[count] = row, old
        count += 1
        if old < limit:
            for k in range(width):
                out[size, k] = words[row, k]
            out_ranks[size], out_diffs[size] = old, -1
            size += 1
        if new > round:
            ranks[row] = NEVER
            if new < NEVER:
                later[waiting], rounds[waiting] = row, new
                waiting += 1
            continue
        ranks[row] = new
        if new < limit:
            for k in range(width):
                out[size, k] = words[row, k]
            out_ranks[size], out_diffs[size] = new, 1
            size += 1
    return (
        out[:size], out_ranks[:size], out_diffs[:size],
        changed[:count], old_ranks[:count], later[:waiting], rounds[:waiting],
    )  # fmt: skip


@kernel
def entries_of(rows, heads, entries, rank):
    """Return the places in `rows` and the counts of their entries of a rank, of all if it is -1.

    The ranks come with them.
    """
    total = 0
    for i in range(len(rows)):
        at = heads[rows[i]]
        while at >= 0:
            total += rank < 0 or entries[at, 0] == rank
            at = entries[at, 2]
    places = np.empty(total, np.int64)
    found = np.empty(total, np.int64)
    counts = np.empty(total, np.int64)
    size = 0
    for i in range(len(rows)):
        at = heads[rows[i]]
        while at >= 0:
            if rank < 0 or entries[at, 0] == rank:
                places[size], found[size], counts[size] = i, entries[at, 0], entries[at, 1]
                size += 1
            at = entries[at, 2]
    return places, found, counts
