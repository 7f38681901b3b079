"""The rows of a mirror, of which the contents last read are kept for the next read of the whole.

Each change adds a part to the arrangement's tail. A read of the whole adds up what was read before
and the parts that came since, in place of all parts.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from foreshore.compute.arrange.arrangement import State, check_cost, repeated
from foreshore.compute.arrange.run import Run, Updates, concat
from foreshore.compute.arrange.table_index import TableIndex
from foreshore.update import Timestamp

MOST = 4096  # rows that are kept


@dataclass(frozen=True, slots=True, eq=False)
class _Contents:
    """The rows at `time`: what `runs` and the parts of the tail up to `end` add up to."""

    runs: tuple[Run, ...]
    parts: int  # of the tail
    end: Updates | None  # the last of them
    time: Timestamp
    rows: Updates

    def since(self, state: State, time: Timestamp) -> list[Updates] | None:
        """Return the contents and the parts that came since; None if they are not of `state`."""
        if state.runs is not self.runs or time < self.time or len(state.tail) < self.parts:
            return None
        if self.parts and state.tail[self.parts - 1] is not self.end:
            return None
        return [self.rows, *state.tail[self.parts :]]


class MirroredRows(TableIndex):
    """An index that is read on the event loop, again and again as a whole."""

    _last: _Contents | None = None

    def scan(self, time: Timestamp, most: int | None = None) -> pa.RecordBatch:
        """Return all rows at `time`, each as often as its multiplicity.

        Raises TooManyRows as `look_up` does.
        """
        state = self._readable(time)
        parts = None if self._last is None else self._last.since(state, time)
        if parts is None:
            parts = [*(run.updates for run in state.runs), *state.tail]
        if not parts or any(len(part) and part.times.max() > time for part in parts):
            return super().scan(time, most)
        if most is not None:
            check_cost(parts, most)
        rows = concat(parts)
        counts = self._counts(rows)
        if counts is not None:
            kept = np.flatnonzero(counts)
            rows = rows.take(kept, counts[kept])
        if len(rows) <= MOST:
            end = state.tail[-1] if state.tail else None
            self._last = _Contents(state.runs, len(state.tail), end, time, rows)
        return rows.rows if counts is None or rows.diffs.max(initial=1) == 1 else repeated(rows)

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the numbers of updates, runs and bytes."""
        updates, runs, bytes = super().size
        return updates, runs, bytes + (0 if self._last is None else self._last.rows.nbytes)
