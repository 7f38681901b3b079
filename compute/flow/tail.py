"""Tails: the newest updates of a spine, in order of arrival."""

from collections.abc import Sequence

import numpy as np

from foreshore.compute.flow.batch import Batch, Hashes
from foreshore.compute.flow.kernels import probing


class Chains:
    """The updates of a tail by one key: chains of those whose hashes end alike."""

    def __init__(self, room: int) -> None:
        self.heads = np.full(max(2 * room, 16), -1, np.int64)
        self.following = np.empty(room, np.int64)
        self.hashes = np.empty(room, np.uint64)

    def append(self, used: int, hashes: Hashes) -> None:
        """Add the updates from place `used` on."""
        probing.append_to_tail(self.heads, self.following, self.hashes, used, hashes)

    def cut(self, used: int, kept: int) -> None:
        """Remove the updates from place `kept` on."""
        probing.cut_tail(self.heads, self.following, self.hashes, used, kept)


class Tail:
    """Updates in order of arrival, chained by each key."""

    def __init__(self, width: int, keys: int, room: int) -> None:
        self.used = 0
        self.words = np.empty((room, width), np.int64)
        self.times = np.empty(room, np.int64)
        self.diffs = np.empty(room, np.int64)
        self.chains = [Chains(room) for _ in range(keys)]

    @property
    def room(self) -> int:
        """Return how many updates it can hold."""
        return len(self.times)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return self.room * (8 * self.words.shape[1] + 16 + 32 * len(self.chains))

    def append(self, hashes: Sequence[Hashes], batch: Batch) -> None:
        """Add updates, for which there is room, with the hashes of each key."""
        used, end = self.used, self.used + len(batch)
        self.words[used:end] = batch.words
        self.times[used:end] = batch.times
        self.diffs[used:end] = batch.diffs
        for chains, each in zip(self.chains, hashes, strict=True):
            chains.append(used, each)
        self.used = end

    def cut(self, kept: int) -> None:
        """Remove the updates beyond the first `kept`."""
        for chains in self.chains:
            chains.cut(self.used, kept)
        self.used = kept

    def contents(self) -> Batch:
        """Return the updates."""
        used = self.used
        return Batch(self.words[:used], self.times[:used], self.diffs[:used])

    def hashes(self) -> list[Hashes]:
        """Return the hashes of the updates by each key."""
        return [chains.hashes[: self.used] for chains in self.chains]
