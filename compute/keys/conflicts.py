"""Which existing rows the rows of an INSERT ... ON CONFLICT meet, by the key indexes of a table."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from foreshore.compute.arrange.key import hash_columns
from foreshore.compute.arrange.run import Ints
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.own_rows import OwnRows

Arbiter = tuple[KeyIndex, OwnRows]  # an index, and what the transaction has written

NONE = -1


def existing_rows(
    arbiters: Sequence[Arbiter], proposed: pa.RecordBatch, time: int
) -> tuple[Ints, pa.RecordBatch]:
    """Return the existing rows, and for each proposed row the place of the one with its key."""
    there = np.full(proposed.num_rows, NONE)
    found: list[pa.RecordBatch] = []
    for index, own in arbiters:
        known = max(time, index.arrangement.since)  # at which its rows are the same
        places, rows = index.find(index.layout.key_of(proposed), known, own)
        start = sum(each.num_rows for each in found)
        at = np.arange(start, start + rows.num_rows)
        free = there[places] == NONE
        there[places[free]] = at[free]
        found.append(rows)
    if not found:
        return there, proposed.slice(0, 0)
    return there, pa.concat_batches(found)


def first_of_each_key(arbiters: Sequence[Arbiter], rows: pa.RecordBatch) -> Ints:
    """Return the places of rows that share no key with one before among them."""
    every = np.arange(rows.num_rows)
    columns = [index.layout.hashes_of_rows(rows) for index, _ in arbiters]
    unique = [len(np.unique(hashes)) == len(hashes) for hashes in columns]
    if all(unique):
        return every
    if len(columns) == 1:
        return np.sort(np.unique(columns[0], return_index=True)[1])
    seen: list[set[int]] = [set() for _ in columns]
    kept = []
    for row, keys in enumerate(zip(*(hashes.tolist() for hashes in columns), strict=True)):
        if not any(key in each for key, each in zip(keys, seen, strict=True)):
            kept.append(row)
            for key, each in zip(keys, seen, strict=True):
                each.add(key)
    return np.array(kept)


def repeated(existing: pa.RecordBatch, there: Ints, places: Ints) -> bool:
    """Whether two proposed rows meet one existing row that the first, of `places`, updates.

    `there` are the places of the existing rows that the proposed rows meet.
    """
    meeting = np.flatnonzero(there != NONE)
    met = existing.take(pa.array(there[meeting]))
    _, groups = np.unique(hash_columns(met.columns, None, len(meeting)), return_inverse=True)
    last = np.zeros(len(meeting), np.int64)  # place at which the row of a group is met
    np.maximum.at(last, groups, meeting)
    return bool((last[groups[np.searchsorted(meeting, places)]] > places).any())
