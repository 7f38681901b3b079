"""Secondary keys: the rows of a key index by other columns, such as a prefix of its key.

    PRIMARY KEY (a, b), INDEX (c)      rows WHERE a = 1, rows WHERE c IN (2, 3)

A secondary key shares the runs of the key index's arrangement and adds the places of its rows, in
the order of the hashes of the columns: 8 bytes a row. A place is packed into the low bits of the
hash, so they sort together, and a match is only likely: whoever looks up compares the values.

A run's places are computed when the key is first used, of large runs on a thread (`prepare`), and
with each merge. They are never changed. A view of the key, made on the event loop, may be read on
any thread.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from weakref import finalize

import numpy as np
from prometheus_client import Gauge

from foreshore import blocking
from foreshore.compute.arrange.arrangement import Arrangement, spread
from foreshore.compute.arrange.key import Words
from foreshore.compute.arrange.run import Ints, Run, Updates
from foreshore.compute.keys.layout import KeyLayout

LARGE = 65_536  # rows above which hashing and sorting them do not belong on the event loop
FEW_HASHES = 8  # hashes up to which a tail is compared with one after the other

BYTES = Gauge("compute_secondary_keys_bytes", "Memory of the secondary keys of tables.")

Matches = Iterator[tuple[Updates, Ints, Ints]]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class HashedRun:
    """A run, and its rows' places in the low bits of their hashes, sorted."""

    run: Run
    packed: Words

    def __post_init__(self) -> None:
        BYTES.inc(self.packed.nbytes)
        finalize(self, BYTES.dec, self.packed.nbytes)

    @classmethod
    def of(cls, run: Run, layout: KeyLayout) -> "HashedRun":
        """Hash and sort the rows of a run; may take long."""
        hashes = layout.hashes(layout.key_of(run.updates.rows))
        packed = hashes & ~_mask(len(run)) | np.arange(len(run), dtype=np.uint64)
        packed.sort()
        return cls(run, packed)

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


class SecondaryKey:
    """The rows of `arrangement` by the columns of `layout`; owned by the event loop."""

    def __init__(self, layout: KeyLayout, arrangement: Arrangement) -> None:
        self.layout = layout
        self._arrangement = arrangement
        self._runs: tuple[HashedRun, ...] = ()
        self._tail: tuple[Updates, ...] = ()
        self._tail_hashes: tuple[Words, ...] = ()
        self._preparing = asyncio.Lock()

    def add(self, hashed: HashedRun) -> None:
        """Add a run, if the arrangement has it still, and forget those that it has no more."""
        runs = self._arrangement.runs
        kept = [each for each in self._runs if each.run in runs and each.run is not hashed.run]
        self._runs = (*kept, *([hashed] if hashed.run in runs else []))

    async def prepare(self, executor: Executor) -> None:
        """Hash the large runs on a thread."""
        async with self._preparing:
            while large := [run for run in self._missing() if len(run) > LARGE]:
                run = large[0]
                self.add(await blocking.run(executor, partial(HashedRun.of, run, self.layout)))

    def view(self) -> SecondaryView | None:
        """Return all rows; None if large runs have to be hashed first."""
        missing = self._missing()
        if any(len(run) > LARGE for run in missing):
            return None
        for run in missing:
            self.add(HashedRun.of(run, self.layout))
        runs, tail = self._arrangement.runs, self._arrangement.tail
        if len(self._runs) > len(runs):
            self._runs = tuple(each for each in self._runs if each.run in runs)
        assert len(self._runs) == len(runs), self._arrangement.name
        if tail is not self._tail:
            self._hash_tail(tail)
        hashes = self._tail_hashes
        return SecondaryView(
            self._runs, tail, np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
        )

    def _missing(self) -> Sequence[Run]:
        """Return the runs that are not hashed yet."""
        known = [each.run for each in self._runs]
        return [run for run in self._arrangement.runs if run not in known]

    def _hash_tail(self, tail: tuple[Updates, ...]) -> None:
        known = len(self._tail)
        if not (known <= len(tail) and all(a is b for a, b in zip(self._tail, tail, strict=False))):
            known = 0
        new = [self.layout.hashes(self.layout.key_of(part.rows)) for part in tail[known:]]
        self._tail_hashes = (*self._tail_hashes[:known], *new)
        self._tail = tail
