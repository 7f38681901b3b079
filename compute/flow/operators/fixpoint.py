"""Recursion that only adds rows, one round after the other, and is linear in what it adds to.

    value = distinct(rows of the inputs + rows that follow from one row of the value each)

The rank of a row is the round that finds it first (`flow/ranks.py`). Ranks say which rows each
round has. So one set of operators and of rows serves all rounds (`flow/round.py`), and a change
costs as much as the ranks that it changes:

    inputs at a time     what follows from their changes, with the rows that are there, counts
    round by round       rows whose counts give them another rank change; what follows counts

The rest of the recursions have operators for each iteration (`loop.py`).

A change of many rows may change most ranks. Then all are computed anew from the inputs: as soon as
a change of `ANEW_LEAST` rows or more has gone through more than 1 / `ANEW_SHARE` of the rows that
go through all rounds.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, concat, empty
from foreshore.compute.flow.contents import Contents
from foreshore.compute.flow.errors import ErrorOutput
from foreshore.compute.flow.layout import Layout, layout_of
from foreshore.compute.flow.operators.loop import (
    ANEW_LEAST,
    CHECKED_BYTES,
    LEAST_ROWS,
    MOST_ROWS,
    TooManyRows,
)
from foreshore.compute.flow.operators.operator import Linear, Window
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.ranks import FIRST, Ranks
from foreshore.compute.flow.round import Round, ranks_of
from foreshore.errors import data_error
from foreshore.ids import GlobalId
from foreshore.types import INT8, TEXT, ColumnType
from foreshore.update import Timestamp

ANEW_SHARE = 4
FAILURES = layout_of((ColumnType(INT8, False), ColumnType(TEXT, False)))  # port and text


class Fixpoint:
    """The value of a recursion. Its output is empty: `LoopValue` gives the value.

    `inputs` are the operators of the collections `given`, of which the round reads. `last` puts the
    keys of the value's rows in its layout. If rounds may reach the limit and it `fails`, that is an
    error, for each row of the last round.
    """

    def __init__(
        self,
        inputs: Sequence[int],
        given: Sequence[GlobalId],
        layout: Layout,
        round: Round,
        last: Sequence[Linear],
        ranks: Ranks,
        errors: ErrorOutput,
        limit: int,
        port: int,
        context: Context,
        inner: Context,
        *,
        fails: bool,
    ) -> None:
        self.inputs: tuple[int, ...] = tuple(inputs)
        self.layout = layout
        self.values: list[Batch] = [empty(layout.words)]
        self._given = tuple(given)
        self._round = round
        self._last = tuple(last)
        self._ranks = ranks
        self._errors = errors
        self._limit = limit
        self._port = port
        self._context = context
        self._inner = inner
        self._fails = fails
        # Errors of rows of the value, which are others if it is computed anew.
        self._failed = Contents([FAILURES], context) if errors.can_fail else None
        self._begun = self._stepped = False
        self._work = self._staged_work = 0  # rows that go through all rounds

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Compute the changes of the value in a window."""
        nothing = empty(self.layout.words)
        self.values = [nothing]
        self._stepped = not self._begun or any(map(len, inputs))
        if not self._stepped:
            return nothing
        self._staged_work = self._work
        self._round.begin(window, dict(zip(self._given, inputs, strict=True)))
        times = self._round.times
        if not self._begun:
            times = sorted({window.lower, *times})
        most = self._most(self._round.changed()) if self._begun and len(times) == 1 else None
        found = [
            self._changes_at(before + 1, time, most)
            for before, time in pairwise([window.lower - 1, *times])
        ]
        self.values = [concat(found, self.layout.words)]
        self._context.fail(self._port, self._errors.step(window, self._inner))
        return nothing

    def _most(self, changed: int) -> int | None:
        """Return how many rows a change may go through before all is computed anew."""
        return self._work // ANEW_SHARE if changed >= ANEW_LEAST else None

    def _changes_at(self, since: Timestamp, time: Timestamp, most: int | None) -> Batch:
        """Return the changes of the value at a time, which may take `most` rows if it is given.

        Those of the inputs are all from `since` on.
        """
        is_first = not self._staged_work
        anew = most is not None and self._round.changed() >= most
        noted = self._inner.failures()
        self._note(noted)
        if not anew:
            counted = self._round.of_inputs(since, time, alone=is_first)
            self._count(counted)
            anew = not self._rounds(time, len(counted), most)
        if anew:
            self._inner.failures()
            self._note(noted)
            self._take_failures_back(time)
            self._ranks.begin_anew()
            self._round.forget()
            self._count(self._round.of_inputs(since, time, alone=True))
            self._staged_work = 0
            self._rounds(time, 0, None)
        self._round.keep(anew=anew)
        self._keep_failures(time)
        changes, at_last = self._ranks.changes()
        if at_last and self._fails:
            self._note_unsettled(time, at_last)
        changes = Batch(changes.words, changes.times + time, changes.diffs)
        for operator in self._last:
            changes = operator.step(Window(time, time + 1), [changes])
        return changes

    def _count(self, found: Batch) -> None:
        self._ranks.count(found.words, ranks_of(found), found.diffs)

    def _rounds(self, time: Timestamp, work: int, most: int | None) -> bool:
        """Settle the ranks of all rows; return False if it takes more than `most` rows to do so."""
        rows = made = checked = 0
        while self._ranks.next_round is not None:
            changed = self._ranks.settle()
            rows += max(LEAST_ROWS, len(changed))
            if rows > MOST_ROWS:
                raise TooManyRows
            self._context.check()
            if len(changed):
                found = self._round.of_rows(changed, time)
                work += len(changed) + len(found)
                made += changed.nbytes + found.nbytes
                if made - checked > CHECKED_BYTES:
                    self._context.check_made(made)
                    checked = made
                self._count(found)
            if most is not None and work > most:
                return False
        self._staged_work = max(self._staged_work, work)
        return True

    # --- errors

    def _note(self, failures: Mapping[int, Sequence[Batch]]) -> None:
        for port, parts in failures.items():
            for each in parts:
                self._inner.fail(port, each)

    def _take_failures_back(self, time: Timestamp) -> None:
        """Note that the errors of the value's rows before are gone."""
        if self._failed is not None:
            before = self._failed.rows(0, time).negated()
            self._failed.insert(0, before)
            for port in np.unique(before.words[:, 0]).tolist():
                here = before.take(before.words[:, 0] == port)
                text = np.ascontiguousarray(here.words[:, 1:])
                self._inner.fail(port, Batch(text, here.times, here.diffs))

    def _keep_failures(self, time: Timestamp) -> None:
        """Give the errors of rows of the value the time at which the rows came or went."""
        for port, parts in self._inner.failures().items():
            updates = concat(parts, 1)
            late = updates.times >= FIRST
            self._inner.fail(port, updates.take(~late))
            found = updates.take(late)
            found = Batch(found.words, np.full(len(found), time, np.int64), found.diffs)
            self._inner.fail(port, found)
            assert self._failed is not None
            ports = np.full((len(found), 1), port, np.int64)
            words: Ints = np.concatenate([ports, found.words], axis=1)
            self._failed.insert(0, Batch(words, found.times, found.diffs))

    def _note_unsettled(self, time: Timestamp, rows: int) -> None:
        text = data_error("54000", f"recursion did not converge within {self._limit} iterations")
        number = self._context.interner.number(text.encode())
        one = np.ones(1, np.int64)
        self._context.fail(self._port, Batch(one[:, None] * number, one * time, one * rows))

    # --- the end of a step

    def commit(self) -> None:
        """Keep what the last step staged."""
        if not self._stepped:
            return
        self._stepped, self._begun = False, True
        self._work = self._staged_work
        self.values = [empty(self.layout.words)]
        self._round.commit()
        self._ranks.commit()
        self._errors.commit()
        if self._failed is not None:
            self._failed.commit()

    def restore(self) -> None:
        """Return to the state before the last step."""
        self.values = [empty(self.layout.words)]
        if not self._stepped:
            return
        self._stepped = False
        self._inner.failures()
        self._round.restore()
        self._ranks.restore()
        self._errors.restore()
        if self._failed is not None:
            self._failed.restore()

    def compact(self, since: Timestamp) -> None:
        """Do nothing: times are ranks, which stay."""

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return any(kept.maintenance_due for kept in self._inner.kept)

    def maintain(self) -> bool:
        """Do a slice of merging; return whether there is more to do."""
        return any([kept.maintain() for kept in self._inner.kept])

    def save(self, to: Writer) -> None:
        """Write the rows with their ranks, and what is looked up."""
        to.numbers("work", self._work)
        self._round.save(to.part("round"))
        self._ranks.save(to.part("ranks"))
        self._errors.save(to.part("errors"))
        if self._failed is not None:
            self._failed.save(to.part("failed"))

    def load(self, saved: Reader) -> None:
        """Take that over."""
        (self._work,) = saved.numbers("work")
        self._begun = True
        self._round.load(saved.part("round"))
        self._ranks.load(saved.part("ranks"))
        self._errors.load(saved.part("errors"))
        if self._failed is not None:
            self._failed.load(saved.part("failed"))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of all arrangements."""
        yield from self._ranks.sizes()
        yield from self._round.sizes()
        yield from self._errors.sizes()
