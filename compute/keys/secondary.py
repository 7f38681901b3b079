"""Secondary keys: the rows of a key index by other columns, such as a prefix of its key.

    PRIMARY KEY (a, b), INDEX (c)      rows WHERE a = 1, rows WHERE c IN (2, 3)

A secondary key shares the runs of the key index's arrangement and adds the places of its rows, in
the order of the hashes of the columns: 8 bytes a row. A place is packed into the low bits of the
hash, so they sort together, and a match is only likely: whoever looks up compares the values.

A run's places are computed when the key is first used, of large runs on a thread (`prepare`), and
with each merge. They are never changed. A view of the key, made on the event loop, may be read on
any thread.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from weakref import finalize

import numpy as np
from prometheus_client import Gauge

from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows, spread
from foreshore.compute.arrange.key import Words
from foreshore.compute.arrange.row_reader import UpdatesReader
from foreshore.compute.arrange.run import Ints, Run, Updates
from foreshore.compute.keys.layout import KeyLayout
from foreshore.compute.keys.per_run import PerRun
from foreshore.table_rows import Row
from foreshore.update import Timestamp

AT_ONCE = 64  # places that are looked at while fewer rows may be wanted
MOST_ADDED = 4_000  # updates under one hash that are looked at one by one
MOST_CHECKED = 1_000  # rows that are looked for by their keys, one by one
FEW_HASHES = 8  # hashes up to which a tail is compared with one after the other

BYTES = Gauge("foreshore_secondary_keys_bytes", "Memory of the secondary keys of tables.")

Matches = Iterator[tuple[Updates, Ints, Ints]]
Found: TypeAlias = tuple[UpdatesReader, Ints]  # places in updates
# The key of a row and what that is now; it raises TooManyRows if it has changed since a time.
Current: TypeAlias = Callable[[Row, Timestamp], tuple[Row, Row | None]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class HashedRun:
    """A run, and its rows' places in the low bits of their hashes, sorted."""

    run: Run
    packed: Words
    reader: UpdatesReader

    def __post_init__(self) -> None:
        BYTES.inc(self.packed.nbytes)
        finalize(self, BYTES.dec, self.packed.nbytes)

    @classmethod
    def of(cls, run: Run, layout: KeyLayout) -> "HashedRun":
        """Hash and sort the rows of a run; may take long."""
        hashes = layout.hashes(layout.key_of(run.updates.rows))
        packed = hashes & ~_mask(len(run)) | np.arange(len(run), dtype=np.uint64)
        packed.sort()
        return cls(run, packed, _reader(run.updates, layout))

    def under(self, hash: int) -> Ints:
        """Return the places in the run of rows that probably have one hash."""
        mask = int(_mask(len(self.run)))
        low, high = np.uint64(hash & ~mask), np.uint64(hash | mask)
        places = self.packed[
            self.packed.searchsorted(low) : self.packed.searchsorted(high, "right")
        ]
        return (places & np.uint64(mask)).astype(np.int64)

    def matching(self, hashes: Words) -> tuple[Ints, Ints]:
        """Return positions in `hashes`, and in the run, of rows that probably have them."""
        mask = _mask(len(self.run))
        order = np.argsort(hashes, kind="stable")  # nearby rows are found at once
        wanted = hashes[order]
        starts = self.packed.searchsorted(wanted & ~mask)
        counts = self.packed.searchsorted(wanted | mask, "right") - starts
        total = int(counts.sum())
        if not total:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        offsets = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        found = self.packed[np.repeat(starts, counts) + offsets] & mask
        return np.repeat(order, counts), found.astype(np.int64)


def _reader(updates: Updates, layout: KeyLayout) -> UpdatesReader:
    return UpdatesReader(updates, [column.type for column in layout.columns])


def _mask(rows: int) -> np.uint64:
    """Return the bits that the places in a run take."""
    return np.uint64((1 << max(rows - 1, 1).bit_length()) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class SecondaryView:
    """The rows of a moment; immutable."""

    runs: tuple[HashedRun, ...]
    tail: tuple[Updates, ...]
    tail_hashes: Words

    @property
    def rows(self) -> int:
        """The number of updates."""
        return sum(len(each.run) for each in self.runs) + len(self.tail_hashes)

    def under(self, hashes: Sequence[int], layout: KeyLayout) -> list[Found]:
        """Return the places of updates that probably have one of some hashes, each place once."""
        found: list[Found] = []
        wanted = np.array(hashes, np.uint64)
        for each in self.runs:
            if len(hashes) == 1:
                places = each.under(hashes[0])
            else:
                places = np.unique(each.matching(wanted)[1])
            if len(places):
                found.append((each.reader, places))
        if len(hashes) == 1:
            at = np.flatnonzero(self.tail_hashes == wanted)
        else:
            at = np.flatnonzero(np.isin(self.tail_hashes, wanted))
        for part, lo, hi, start in spread(self.tail, at) if len(at) else ():
            found.append((_reader(part, layout), at[lo:hi] - start))
        return found

    def parts(self) -> list[Updates]:
        """Return all updates."""
        return [*(each.run.updates for each in self.runs), *self.tail]

    def matching(self, hashes: Words) -> Matches:
        """Yield updates, positions in `hashes`, and places of updates that probably have them."""
        for each in self.runs:
            places, at = each.matching(hashes)
            if len(at):
                yield each.run.updates, places, at
        places, at = _in_tail(self.tail_hashes, hashes)
        for part, lo, hi, start in spread(self.tail, at):
            yield part, places[lo:hi], at[lo:hi] - start


def _in_tail(tail: Words, hashes: Words) -> tuple[Ints, Ints]:
    """Return positions in `hashes` and, in order, in `tail` of equal hashes."""
    if not len(tail) or not len(hashes):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if len(hashes) <= FEW_HASHES:
        pairs = [(i, np.flatnonzero(tail == hash)) for i, hash in enumerate(hashes)]
        places = np.concatenate([np.full(len(at), i) for i, at in pairs])
        found = np.concatenate([at for _, at in pairs])
    else:
        order = np.argsort(hashes, kind="stable")
        wanted = hashes[order]
        starts = wanted.searchsorted(tail)
        counts = wanted.searchsorted(tail, "right") - starts
        offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        found = np.repeat(np.arange(len(tail)), counts)
        return order[np.repeat(starts, counts) + offsets], found
    sorting = np.argsort(found, kind="stable")
    return places[sorting], found[sorting]


def rows_under(
    views: Sequence[SecondaryView],
    layout: KeyLayout,
    used: Collection[int],
    current: Current | None,
    keys: Sequence[Row],
    time: Timestamp,
) -> tuple[int, Iterator[Row]]:
    """Return about how many rows there are at `time` with one of `keys` of `layout`, and these.

    They are what all `views` add up to, with the columns that are `used`. The keys' values are
    equal in Python if they are in SQL. Of many, some of which were deleted, each is looked for
    once more by `current`; without it TooManyRows is raised.
    """
    hashes = [layout.hash(key) for key in keys]
    found = [each for view in views for each in view.under(hashes, layout)] if hashes else []
    count = sum([len(places) for _, places in found])
    columns, wanted = layout.constraint.columns, frozenset(keys)
    if not all([_are_inserted(*each, time) for each in found]):
        if count > MOST_ADDED and current is not None:
            return count, _current_rows(found, columns, wanted, current, time)
        found = _added_up(found, time)
    return count, _rows_with(found, columns, used, wanted)


def _current_rows(
    found: Sequence[Found],
    columns: Sequence[int],
    keys: frozenset[Row],
    current: Current,
    time: Timestamp,
) -> Iterator[Row]:
    """Yield the rows with one of `keys` in `columns` among those that were once at places.

    Raises TooManyRows if it looks for many.
    """
    seen: set[Row] = set()
    for reader, places in found:
        for start in range(0, len(places), AT_ONCE):
            for at in places[start : start + AT_ONCE].tolist():
                key, row = current(reader.row(at), time)
                if key in seen:
                    continue
                if len(seen) == MOST_CHECKED:
                    raise TooManyRows
                seen.add(key)
                if row is not None and tuple([row[i] for i in columns]) in keys:
                    yield row


def _rows_with(
    found: Sequence[Found], columns: Sequence[int], used: Collection[int], keys: frozenset[Row]
) -> Iterator[Row]:
    """Yield the rows at places that have one of `keys` in `columns`."""
    for reader, places in found:
        reads = reader.reads(used)
        of_key = [reader.columns[i] for i in columns]
        for start in range(0, len(places), AT_ONCE):
            for at in places[start : start + AT_ONCE].tolist():
                if tuple([read(at) for read in of_key]) in keys:
                    yield tuple([read(at) for read in reads])


def _are_inserted(reader: UpdatesReader, places: Ints, time: Timestamp) -> bool:
    """Whether the updates at places insert rows, and none after `time`."""
    if reader.are_inserted(time):
        return True
    updates = reader.updates
    return bool((updates.diffs[places] > 0).all() and (updates.times[places] <= time).all())


def _added_up(found: Sequence[Found], time: Timestamp) -> list[Found]:
    """Return the places of the rows that are left, as some were deleted or come later.

    Raises TooManyRows if there are many.
    """
    if sum([len(places) for _, places in found]) > MOST_ADDED:
        raise TooManyRows
    sums: dict[int, int] = {}
    last: dict[int, tuple[UpdatesReader, int]] = {}
    for reader, places in found:
        for at in places.tolist():
            if reader.times[at] <= time:
                row_hash = reader.row_hashes[at]
                sums[row_hash] = sums.get(row_hash, 0) + reader.diffs[at]
                last[row_hash] = reader, at
    return [
        (last[row_hash][0], np.full(left, last[row_hash][1]))
        for row_hash, left in sums.items()
        if left > 0
    ]


class SecondaryKey(PerRun[HashedRun]):
    """The rows of `arrangement` by the columns of `layout`; owned by the event loop."""

    def __init__(self, layout: KeyLayout, arrangement: Arrangement) -> None:
        super().__init__(arrangement, partial(HashedRun.of, layout=layout))
        self.layout = layout
        self._tail: tuple[Updates, ...] = ()
        self._tail_hashes: tuple[Words, ...] = ()

    def view(self) -> SecondaryView | None:
        """Return all rows; None if large runs have to be hashed first."""
        runs = self.of_all()
        if runs is None:
            return None
        tail = self.arrangement.tail
        if tail is not self._tail:
            self._hash_tail(tail)
        hashes = self._tail_hashes
        return SecondaryView(
            runs, tail, np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
        )

    def _hash_tail(self, tail: tuple[Updates, ...]) -> None:
        known = len(self._tail)
        if not (known <= len(tail) and all(a is b for a, b in zip(self._tail, tail, strict=False))):
            known = 0
        new = [self.layout.hashes(self.layout.key_of(part.rows)) for part in tail[known:]]
        self._tail_hashes = (*self._tail_hashes[:known], *new)
        self._tail = tail
