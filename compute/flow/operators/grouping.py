"""Common parts of grouping operators: sorting updates by group and finding the points of change."""

import numpy as np

from foreshore.compute.flow.batch import Batch, Hashes, Ints, concat
from foreshore.compute.flow.kernels import equal, groups, rows
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.sums import Points

MANY = 1 << 13  # updates from which on those that may be equal are looked for first
_NO_BYTES = np.zeros(0, np.uint8)
_NO_INTS = np.zeros(0, np.int64)


def grouped(updates: Batch, key: int, seed: int) -> tuple[Ints, Hashes]:
    """Return an order of updates by their first `key` words and time, and the hashes of these."""
    hashes = np.empty(len(updates), np.uint64)
    rows.hash_keys(updates.words, key, np.uint64(seed), hashes)
    return _in_groups(updates, key, hashes), hashes


def _in_groups(updates: Batch, key: int, hashes: Hashes) -> Ints:
    """Return an order of updates by their first `key` words and time, given the hashes of these.

    Many of one time are sorted by their hashes, which is faster, and puts groups in the order of
    the slots of a table of sums.
    """
    words, times = updates.words, updates.times
    if len(updates) >= MANY and (times == times[0]).all():
        in_order, places = rows.sort_hashes(hashes)
        if groups.are_groups(in_order, places, words, key):
            by_hash: Ints = places.astype(np.int64)
            return by_hash
    order: Ints = groups.group_rows(hashes, words, times, key)
    return order


def sorted_groups(updates: Batch, key: int, seed: int) -> tuple[Ints, Hashes]:
    """Return what `grouped` does, with the groups in an order that any updates have in common."""
    hashes = np.empty(len(updates), np.uint64)
    rows.hash_keys(updates.words, key, np.uint64(seed), hashes)
    texts = np.zeros(key, np.int64)
    order = rows.sort_updates(
        hashes, updates.words, updates.times, texts, key, _NO_BYTES, _NO_INTS, _NO_INTS
    )
    return order, hashes


def points_of(order: Ints, hashes: Hashes, updates: Batch, key: int, window: Window) -> Points:
    """Return the points at which groups change in a window."""
    found = groups.find_points(order, hashes, updates.words, updates.times, key, window.lower - 1)
    return Points(found[0], found[1], found[2], hashes, updates.words)


def consolidated(batch: Batch, seed: int) -> Batch:
    """Return updates with equal ones added up, in any order.

    Of many updates only those that may have an equal one are compared.
    """
    hashes = np.empty(len(batch), np.uint64)
    rows.hash_keys(batch.words, batch.width, np.uint64(seed), hashes)
    if len(batch) < MANY:
        return _added_up(batch, hashes)
    places = equal.may_have_equal(hashes)
    if 2 * len(places) > len(batch):
        return _added_up(batch, hashes)
    found = _added_up(batch.take(places), hashes[places])
    alone = batch.diffs != 0
    if len(found) == len(places) and alone.all():
        return batch
    alone[places] = False
    return concat((batch.take(alone), found), batch.width)


def _added_up(batch: Batch, hashes: Hashes) -> Batch:
    """Return updates with equal ones added up, given the hashes of all words."""
    order = _in_groups(batch, batch.width, hashes)
    _, words, times, diffs = rows.gather_consolidated(
        order, hashes, batch.words, batch.times, batch.diffs, np.int64(-(1 << 63))
    )
    return Batch(words, times, diffs)
