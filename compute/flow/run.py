"""Runs: sorted updates that nobody changes, and indexes of them by other keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshore.compute.checkpoint.state import SavedArrays
from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words
from foreshore.compute.flow.kernels import rows
from foreshore.compute.flow.shared import Shared

FEW = 1 << 14  # times or diffs that are kept one by one even if they are the same

Places = npt.NDArray[np.int32]


class Index(Shared):
    """The hashes of a run's rows by another key, sorted, and their places.

    They are computed when they are read for the first time: by `key`, places of words. Any thread
    may read them.
    """

    def __init__(self, words: Words, key: Ints, seed: np.uint64) -> None:
        self._words = words
        self._key = key
        self._seed = seed
        self._made: tuple[Hashes, Places] | None = None
        self._lock = Lock()

    @classmethod
    def of(
        cls, words: Words, key: Ints, seed: np.uint64, hashes: Hashes, places: Places
    ) -> "Index":
        """Return an index with given hashes and places."""
        index = cls(words, key, seed)
        index._made = hashes, places
        return index

    @property
    def is_made(self) -> bool:
        """Whether it has been computed."""
        return self._made is not None

    @property
    def hashes(self) -> Hashes:
        """Return the sorted hashes."""
        return self._parts()[0]

    @property
    def places(self) -> Places:
        """Return the place in the run for each hash."""
        return self._parts()[1]

    def _parts(self) -> tuple[Hashes, Places]:
        made = self._made
        if made is None:
            with self._lock:
                made = self._made
                if made is None:
                    hashes = np.empty(len(self._words), np.uint64)
                    rows.hash_places(self._words, self._key, self._seed, hashes)
                    made = self._made = rows.sort_hashes(hashes)
        return made

    def back(self, words: Words, made: tuple[Hashes, Places] | None) -> None:
        """Use other memory with the same contents, also of what was computed, if that is given."""
        self._words = words
        if made is not None:
            self._made = made

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        made = self._made
        return 0 if made is None else made[0].nbytes + made[1].nbytes


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Run(Shared):
    """Sorted and consolidated updates, with an index for each key but the first.

    Times and diffs may be of length 1 if they are the same for all.
    """

    hashes: Hashes
    words: Words
    times: Ints
    diffs: Ints
    indexes: tuple[Index, ...] = ()

    @classmethod
    def of(cls, saved: SavedArrays, keys: Sequence[Ints], seed: np.uint64) -> "Run":
        """Return a saved run; indexes that are not there are made when they are read."""
        words = saved.array("words")
        indexes: list[Index] = []
        for number, key in enumerate(keys[1:]):
            name = f"index{number}"
            if saved.has(f"{name}.hashes"):
                hashes, places = saved.array(f"{name}.hashes"), saved.array(f"{name}.places")
                indexes.append(Index.of(words, key, seed, hashes, places))
            else:
                indexes.append(Index(words, key, seed))
        times, diffs = saved.array("times"), saved.array("diffs")
        return cls(saved.array("hashes"), words, times, diffs, tuple(indexes))

    def arrays(self) -> dict[str, Any]:
        """Return the arrays by name, with those of the indexes that are there."""
        found: dict[str, Any] = {
            "hashes": self.hashes, "words": self.words, "times": self.times, "diffs": self.diffs
        }  # fmt: skip
        for number, index in enumerate(self.indexes):
            if index.is_made:
                found[f"index{number}.hashes"] = index.hashes
                found[f"index{number}.places"] = index.places
        return found

    def indexes_made(self) -> int:
        """Return the number of indexes that are there."""
        return sum(index.is_made for index in self.indexes)

    def __len__(self) -> int:
        """Return the number of updates."""
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        own = self.hashes.nbytes + self.words.nbytes + self.times.nbytes + self.diffs.nbytes
        return own + sum(index.nbytes for index in self.indexes)

    def back(self, saved: SavedArrays) -> None:
        """Use the arrays of a file in which the run was saved, which have the same contents.

        Other threads may read meanwhile: it does not matter which ones they find.
        """
        for name in ("hashes", "words", "times", "diffs"):
            assert saved.array(name).shape == getattr(self, name).shape, name
        for name in ("hashes", "words", "times", "diffs"):
            object.__setattr__(self, name, saved.array(name))
        for number, index in enumerate(self.indexes):
            name = f"index{number}"
            made = None
            if saved.has(f"{name}.hashes"):
                made = saved.array(f"{name}.hashes"), saved.array(f"{name}.places")
            index.back(self.words, made)

    def updates(self) -> Batch:
        """Return the updates in order.

        Their arrays are contiguous and writable: kernels are compiled for such.
        """
        count = len(self)
        times, diffs = (
            each if len(each) == count else np.full(count, each[0], np.int64)
            for each in (self.times, self.diffs)
        )
        return Batch(self.words, times, diffs)


def one_if_same(values: Ints) -> Ints:
    """Return one value if all are the same, which is smaller and faster to read."""
    if len(values) > FEW and values[0] == values[-1] and (values == values[0]).all():
        return values[:1].copy()
    return values
