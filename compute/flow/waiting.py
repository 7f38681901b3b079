"""Updates of the future, in the order of their times.

They are kept in runs, each sorted by time, whose sizes grow geometrically. What is released is the
beginning of each run. An update and its opposite cancel when their runs are merged.
"""

from dataclasses import dataclass

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, concat
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class _Run:
    """Updates in the order of their times; those before `begin` have been released."""

    updates: Batch
    begin: int = 0

    def __len__(self) -> int:
        return len(self.updates) - self.begin

    def place(self, upper: Timestamp) -> int:
        """Return the place of the first update at or beyond `upper`."""
        return max(self.begin, int(np.searchsorted(self.updates.times, upper)))


class Waiting:
    """Updates that wait for their times. What is added and released is staged until `commit`."""

    def __init__(self, width: int, seed: int) -> None:
        self._width = width
        self._seed = seed
        self._runs: tuple[_Run, ...] = ()  # oldest first
        self._staged: tuple[_Run, ...] | None = None

    def due(self, upper: Timestamp) -> int:
        """Return the number of updates before `upper`."""
        return sum(run.place(upper) - run.begin for run in self._runs)

    def first(self) -> Timestamp | None:
        """Return the time of the earliest update, None if there is none."""
        return min((int(r.updates.times[r.begin]) for r in self._runs if len(r)), default=None)

    def release(self, upper: Timestamp) -> Batch:
        """Return the updates before `upper`, which then wait no longer."""
        parts, kept = [], []
        for run in self._runs if self._staged is None else self._staged:
            place = run.place(upper)
            if place > run.begin:
                parts.append(run.updates.take(slice(run.begin, place)))
            if place < len(run.updates):
                kept.append(_Run(run.updates, place))
        self._staged = tuple(kept)
        return concat(parts, self._width)

    def add(self, updates: Batch) -> None:
        """Add updates that are to wait."""
        if len(updates):
            before = self._runs if self._staged is None else self._staged
            self._staged = (*before, _Run(_in_order(updates)))

    def commit(self) -> None:
        """Keep what was staged."""
        if self._staged is not None:
            self._runs, self._staged = self._staged, None

    def restore(self) -> None:
        """Forget what was staged."""
        self._staged = None

    def save(self, to: Writer) -> None:
        """Write all that waits."""
        to.numbers("runs", len(self._runs))
        for number, run in enumerate(self._runs):
            updates = run.updates.take(slice(run.begin, None))
            for name in ("words", "times", "diffs"):
                to.array(f"{number}.{name}", getattr(updates, name))

    def load(self, saved: Reader) -> None:
        """Take over what waits."""
        (count,) = saved.numbers("runs")
        self._runs = tuple(
            _Run(
                Batch(
                    saved.array(f"{number}.words", self._width),
                    saved.array(f"{number}.times"),
                    saved.array(f"{number}.diffs"),
                )
            )
            for number in range(count)
        )

    def compact(self, since: Timestamp) -> None:
        """Forget nothing: all that waits is of the future."""

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return self._mergeable() is not None

    def maintain(self) -> bool:
        """Merge two runs of similar sizes; return whether there is more to do."""
        place = self._mergeable()
        if place is None:
            return False
        pair = self._runs[place : place + 2]
        parts = [run.updates.take(slice(run.begin, None)) for run in pair]
        merged = consolidated(concat(parts, self._width), self._seed)
        run = (_Run(_in_order(merged)),) if len(merged) else ()
        self._runs = (*self._runs[:place], *run, *self._runs[place + 2 :])
        return self._mergeable() is not None

    def _mergeable(self) -> int | None:
        """Return the place of the newest run that is not twice as large as the next one."""
        for place in reversed(range(len(self._runs) - 1)):
            if len(self._runs[place]) <= 2 * len(self._runs[place + 1]):
                return place
        return None

    def size(self) -> ArrangementSize:
        """Return the size of what waits."""
        runs = self._runs
        held = sum(each.updates.words.nbytes + 16 * len(each.updates) for each in runs)
        return ArrangementSize("scheduled rows", sum(map(len, runs)), len(runs), held)


def _in_order(updates: Batch) -> Batch:
    return updates.take(np.argsort(updates.times, kind="stable"))
