"""Merging runs: two neighbours become one, a slice at a time, to spread the work over ticks.

A merge works through both runs from the least key hash to the greatest. Each slice takes the
updates of both in the next interval of hashes, moves times to `since`, and adds up equal ones. The
runs stay unchanged and readable until the merge is complete and its result replaces them.
"""

import numpy as np

from foreshore.compute.arrange.run import Run, Updates, concat, sort_and_consolidate
from foreshore.update import Timestamp


class Merge:
    """An unfinished merge of `newer` and `older`, neighbours in time."""

    def __init__(self, newer: Run, older: Run, since: Timestamp) -> None:
        assert older.upper == newer.lower, (older.upper, newer.lower)
        self.newer = newer
        self.older = older
        self.since = since
        self._positions = (0, 0)
        self._done: list[Updates] = []

    def work(self, budget: int) -> Run | None:
        """Merge about `budget` more updates; return the result when all are merged."""
        runs = (self.newer, self.older)
        ends = tuple(
            self._slice_end(run, start, budget)
            for run, start in zip(runs, self._positions, strict=True)
        )
        # the lesser of the hashes that the budget reaches; both runs are merged up to it
        bounds = [
            run.updates.key_hashes[end]
            for run, end in zip(runs, ends, strict=True)
            if end < len(run)
        ]
        if bounds:
            bound = min(bounds)
            ends = tuple(int(run.updates.key_hashes.searchsorted(bound)) for run in runs)
        parts = [
            run.updates.slice(start, end)
            for run, start, end in zip(runs, self._positions, ends, strict=True)
            if start < end
        ]
        if parts:
            self._done.append(sort_and_consolidate(concat(parts), self.since))
        self._positions = (ends[0], ends[1])
        if bounds:
            return None
        merged = concat(self._done) if self._done else self.newer.updates.slice(0, 0)
        return Run.of(merged, self.older.lower, self.newer.upper, self.since)

    def result(self) -> Run:
        """Merge all that is left; return the result."""
        while True:
            run = self.work(1 << 20)
            if run is not None:
                return run

    @staticmethod
    def _slice_end(run: Run, start: int, budget: int) -> int:
        """Return where a slice from `start` may end: between two hashes, beyond `start`."""
        hashes = run.updates.key_hashes
        end = start + budget
        if end >= len(hashes):
            return len(hashes)
        first = int(hashes.searchsorted(hashes[end]))
        if first > start:
            return first
        return int(np.searchsorted(hashes, hashes[end], "right"))
