"""Reductions: one row for each group, of its key and its aggregates.

Sums and counts are kept in a table, minima and maxima are the first of ordered rows. Each kind
gives its words for every point at which a group changes; together they are the output's rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words
from foreshore.compute.flow.bulk import Bulk
from foreshore.compute.flow.float_sums import Comoments, FloatSums
from foreshore.compute.flow.kernels import groups, rows
from foreshore.compute.flow.layout import Layout, Place
from foreshore.compute.flow.operators.closed_groups import ClosedGroups, Kept
from foreshore.compute.flow.operators.folded import Folded
from foreshore.compute.flow.operators.grouping import grouped, points_of, sorted_groups
from foreshore.compute.flow.operators.listed import Listed
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.operators.rows import put_null
from foreshore.compute.flow.operators.staged import StagedRows, changes_at
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.sorter import partitioned
from foreshore.compute.flow.sums import Points, SumTable

SORTED_GROUPS = 1 << 15  # groups from which on it pays to sort them first


@dataclass(frozen=True, slots=True)
class SumOf:
    """A count or a sum: where it is among the sums, and its column of the output.

    The count of what is summed comes first; a sum of nothing is NULL.
    """

    kind: OneOf["rows", "count", "sum"]
    at: int
    place: Place
    floats: FloatSums | Comoments | None = None

    @property
    def plan(self) -> tuple[int, ...]:
        """Return how `put_sums` writes it; the words of floats are there already."""
        mask, bit = divmod(max(self.place.bit, 0), 64)
        width = 0 if self.floats is not None else self.place.width
        return int(self.kind == "sum"), self.at, self.place.word, width, mask, bit


class Sums:
    """Counts and sums over the contributions that a program makes of each row."""

    def __init__(self, program: Program, table: SumTable, sums: Sequence[SumOf]) -> None:
        self.program = program
        self.table = table
        self.sums = tuple(sums)
        self._floats = [each for each in self.sums if each.floats is not None]
        self._plan = np.array([each.plan for each in self.sums], np.int64).reshape(-1, 6)

    def put(
        self, points: Points, order: Ints, hashes: Hashes, updates: Batch, words: Words
    ) -> Ints:
        """Write the words of these aggregates for each point; return the rows of each group."""
        sums = self.table.at(points, order, hashes, updates)
        for each in self._floats:
            assert each.floats is not None
            each.floats.put(points, order, updates, sums, words[:, each.place.word])
        groups.put_sums(sums, self._plan, words)
        return sums[:, 0]

    def begin(self, points: Points, begin: int, words: Words) -> Ints:
        """Do the same with given sums, none of which are of floats.

        They are the words of `points` from `begin` on.
        """
        self.table.stage(points, begin)
        plan = self._plan.copy()
        plan[:, 1] += begin
        groups.put_sums(points.words, plan, words)
        return points.words[:, begin]

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of the sums."""
        size = self.table.size("sums")
        outliers = sum(each.floats.nbytes for each in self.sums if each.floats is not None)
        yield replace(size, bytes=size.bytes + outliers)

    def save(self, to: Writer) -> None:
        """Write the sums, and the outliers of floats."""
        self.table.save(to.part("table"))
        for number, each in enumerate(self.sums):
            if each.floats is not None:
                each.floats.save(to.part(number))

    def load(self, saved: Reader) -> None:
        """Take these over."""
        self.table.load(saved.part("table"))
        for number, each in enumerate(self.sums):
            if each.floats is not None:
                each.floats.load(saved.part(number))

    def commit(self) -> None:
        """Keep what was staged."""
        self.table.commit()
        for each in self.sums:
            if each.floats is not None:
                each.floats.commit()

    def restore(self) -> None:
        """Forget what was staged."""
        self.table.restore()
        for each in self.sums:
            if each.floats is not None:
                each.floats.restore()


@dataclass(frozen=True, slots=True)
class End:
    """A minimum, or a maximum if `is_last`, of ordered values: its column of the output."""

    place: Place
    is_last: bool


class Extremes(StagedRows):
    """The least and the greatest value of each group: the first and the last of ordered rows.

    If the input is `monotonic`, no others are kept.
    """

    def __init__(
        self,
        program: Program,
        spine: OrderedSpine,
        value: int,
        ends: Sequence[End],
        context: Context,
        *,
        monotonic: bool = False,
    ) -> None:
        super().__init__(spine)
        self._program = program
        self._value = value  # the value's first word in the spine's rows
        self._ends = tuple(ends)
        self._context = context
        self.monotonic = monotonic

    def put(self, points: Points, count: Ints, input: Batch, words: Words) -> None:
        """Write the words of these aggregates for each point, given the input's updates.

        `count` is how many rows a group has: where it has none, none are looked for.
        """
        updates, seed = self._program.run(input, self._context), self._context.seed
        if self.monotonic:
            self._stage_growing(updates, seed)
        else:
            self._stage(updates)
        both = self._spine.ends(
            points,
            count,
            first=any(not end.is_last for end in self._ends),
            last=any(end.is_last for end in self._ends),
        )
        if self.monotonic:
            found = np.concatenate([numbers for numbers, _ in both])
            rows = np.concatenate([there for _, there in both])
            self._keep(changes_at(points, found, rows, np.ones(len(found), np.int64), seed))
        for end in self._ends:
            found, there = both[end.is_last]
            null = np.ones(len(points), np.bool_)
            null[found] = False
            for k in range(end.place.width):
                words[found, end.place.word + k] = there[:, self._value + k]
            if end.place.bit >= 0:  # else a group without a value is not there
                put_null(words, null, end.place)


class Distinct:
    """Counts and sums of distinct values of each group.

    `program` makes the key and the values of each row; how often each is there is in `counts`. What
    appears or disappears is turned into contributions.
    """

    def __init__(
        self, program: Program, counts: SumTable, sums: Sums, key: int, context: Context
    ) -> None:
        self._program = program
        self._counts = counts
        self._sums = sums
        self._key = key
        self._context = context

    def put(self, points: Points, input: Batch, words: Words, window: Window) -> None:
        """Write the words of these aggregates for each point, given the input's updates."""
        found = self._program.run(input, self._context)
        order, hashes = grouped(found, found.width, self._context.seed)
        changed = points_of(order, hashes, found, found.width, window)
        there = self._counts.at(changed, order, hashes, found)[:, 0] > 0
        values = found.words[changed.rows]
        found = Batch(*groups.changes(values, there.astype(np.int64), changed.times, changed.first))
        updates = self._sums.program.run(found, self._context)
        order, hashes = sorted_groups(updates, self._key, self._context.seed)
        self._sums.put(points, order, hashes, updates, words)

    @property
    def by_group(self) -> tuple[Kept, ...]:
        """Return what is kept by groups."""
        return (self._counts, self._sums.table)

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of the counts of values, and of their sums."""
        yield self._counts.size("counts")
        yield from self._sums.sizes()

    def save(self, to: Writer) -> None:
        """Write the counts of values, and their sums."""
        self._counts.save(to.part("counts"))
        self._sums.save(to.part("sums"))

    def load(self, saved: Reader) -> None:
        """Take these over."""
        self._counts.load(saved.part("counts"))
        self._sums.load(saved.part("sums"))

    def commit(self) -> None:
        """Keep what was staged."""
        self._counts.commit()
        self._sums.commit()

    def restore(self) -> None:
        """Forget what was staged."""
        self._counts.restore()
        self._sums.restore()


class Reduce(ClosedGroups):
    """A reduction; `key` is the layout of the key, with which the output's rows begin."""

    def __init__(
        self,
        input: int,
        layout: Layout,
        key: Layout,
        sums: Sums,
        ordered: Sequence[Extremes | Listed | Folded],
        distinct: Sequence[Distinct],
        context: Context,
        bulk: Bulk | None,
        *,
        always: bool,
    ) -> None:
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self.key = key
        self.bulk = bulk
        self._key = key.words
        self._sums = sums
        self._ordered = tuple(ordered)
        self._distinct = tuple(distinct)
        self._context = context
        self._always = always  # a group without a key is there without rows
        self._begun = not always
        self._beginning = False

    @property
    def is_monotonic(self) -> bool:
        """Whether of minima and maxima only the present ones are kept."""
        return any(isinstance(each, Extremes) and each.monotonic for each in self._ordered)

    @property
    def is_distinct(self) -> bool:
        """Whether its rows are the keys that are there, and nothing else."""
        return self.layout.words == self._key and not self._parts and not self._always

    def keys(self, updates: Batch) -> Batch:
        """Return the keys of updates of the input."""
        found = self._sums.program.run(updates, self._context)
        if found.width == self._key:
            return found
        return Batch(np.ascontiguousarray(found.words[:, : self._key]), found.times, found.diffs)

    @property
    def has_lists(self) -> bool:
        """Whether it has aggregates that read all values of a changed group."""
        return any(isinstance(each, Listed) for each in self._ordered)

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the groups."""
        updates = self._sums.program.run(inputs[0], self._context)
        if not self._begun:
            updates = self._with_beginning(updates, window)
        arrange = sorted_groups if self._distinct else grouped  # all streams in one order
        order, hashes = arrange(updates, self._key, self._context.seed)
        points = points_of(order, hashes, updates, self._key, window)
        words = np.zeros((len(points), self.layout.words), np.int64)
        words[:, : self._key] = updates.words[points.rows, : self._key]
        count = self._sums.put(points, order, hashes, updates, words)
        for each in self._ordered:
            each.put(points, count, inputs[0], words)
        for distinct in self._distinct:
            distinct.put(points, inputs[0], words, window)
        return self._changes(points, count, words)

    def begin(self, found: Words, window: Window) -> Batch:
        """Return the first output, given all groups: the words of the key, then of the sums."""
        key, seed, count = self._key, np.uint64(self._context.seed), len(found)
        if count >= SORTED_GROUPS:  # then they are written into the table in the order of its slots
            hashes, found = partitioned(found, np.arange(key), seed)
        else:
            hashes = np.empty(count, np.uint64)
            rows.hash_keys(found, key, seed, hashes)
        times = np.full(count, window.lower)
        points = Points(np.arange(count), times, np.ones(count, np.bool_), hashes, found)
        self._beginning = self._always
        words = np.zeros((count, self.layout.words), np.int64)
        words[:, :key] = found[:, :key]
        there = self._sums.begin(points, key, words) > 0
        output = Batch(words, times, np.ones(count, np.int64))
        return output if self._always or there.all() else output.take(there)

    def _changes(self, points: Points, count: Ints, words: Words) -> Batch:
        """Return the changes of the groups, given the rows of each at each point."""
        exists = (count > 0).astype(np.int64)
        if self._always:
            exists[:] = 1
            if self._beginning:
                exists[points.first] = 0
        return Batch(*groups.changes(words, exists, points.times, points.first))

    def _with_beginning(self, updates: Batch, window: Window) -> Batch:
        """Return the updates with one of diff 0, by which the group appears for the first time."""
        self._beginning = True
        one = np.zeros((1, updates.width), np.int64)
        return Batch(
            np.concatenate([one, updates.words]),
            np.concatenate([[window.lower], updates.times]),
            np.concatenate([[0], updates.diffs]),
        )

    @property
    def _parts(self) -> tuple[Extremes | Listed | Folded | Distinct, ...]:
        return (*self._ordered, *self._distinct)

    def commit(self) -> None:
        """Keep what was staged."""
        self._begun = self._begun or self._beginning
        self._beginning = False
        self._sums.commit()
        for part in self._parts:
            part.commit()

    @property
    def by_group(self) -> tuple[Kept, ...]:
        """Return what is kept by groups."""
        parts = [kept for part in self._parts for kept in part.by_group]
        return (self._sums.table, *parts)

    def restore(self) -> None:
        """Forget what was staged."""
        self._beginning = False
        self._sums.restore()
        for part in self._parts:
            part.restore()

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of each arrangement."""
        for part in (self._sums, *self._parts):
            yield from part.sizes()

    def save(self, to: Writer) -> None:
        """Write the state of all aggregates."""
        to.numbers("begun", self._begun)
        for number, part in enumerate((self._sums, *self._parts)):
            part.save(to.part(number))

    def load(self, saved: Reader) -> None:
        """Take it over."""
        (begun,) = saved.numbers("begun")
        self._begun = bool(begun)
        for number, part in enumerate((self._sums, *self._parts)):
            part.load(saved.part(number))
