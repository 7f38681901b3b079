"""The rows of several collections as they are now, kept to compute something anew from them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, concat
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.spine import Mark, Spine
from foreshore.update import Timestamp


class Contents:
    """Rows of some layouts, by the places of these."""

    def __init__(self, layouts: Sequence[Layout], context: Context) -> None:
        self._context = context
        self._spines = [
            context.own(
                Spine(
                    [np.arange(layout.words)],
                    np.zeros(layout.words, np.int64),
                    context.interner,
                    context.seed,
                )
            )
            for layout in layouts
        ]
        self._marks: list[Mark] | None = None

    def count(self, places: range) -> int:
        """Return the number of updates at some places, at once."""
        return sum(len(self._spines[place]) for place in places)

    def insert(self, place: int, updates: Batch) -> None:
        """Stage updates, whose rows may have further words: a shared collection may get more."""
        if self._marks is None:
            self._marks = [spine.mark() for spine in self._spines]
        spine = self._spines[place]
        if updates.width > spine.width:
            updates = replace(updates, words=np.ascontiguousarray(updates.words[:, : spine.width]))
        spine.insert(updates)

    def rows(self, place: int, time: Timestamp) -> Batch:
        """Return all rows, with what is staged, as updates at a time."""
        spine = self._spines[place]
        parts = [*(run.updates() for run in spine.runs), spine.tail.contents()]
        found = concat(parts, spine.width)
        at_once = Batch(found.words, np.full(len(found), time, np.int64), found.diffs)
        return consolidated(at_once, self._context.seed)

    def commit(self) -> None:
        """Keep what was staged."""
        self._marks = None

    def restore(self) -> None:
        """Forget what was staged."""
        if self._marks is not None:
            for spine, mark in zip(self._spines, self._marks, strict=True):
                spine.restore(mark)
            self._marks = None

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of each arrangement."""
        for spine in self._spines:
            yield spine.size("rows")

    def save(self, to: Writer) -> None:
        """Write all rows."""
        for place, spine in enumerate(self._spines):
            spine.save(to.part(place))

    def load(self, saved: Reader) -> None:
        """Take saved rows over."""
        for place, spine in enumerate(self._spines):
            spine.load(saved.part(place))
