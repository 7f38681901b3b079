"""Window functions: rows with values that depend on the other rows of their partition.

The rows of a partition are kept in order. Where a partition changes, the rows that the change
reaches are read as of each point of change, before and after; those whose values changed are put
out. For functions that run from the partition's first row on, sums over the whole partition are
kept: without the sums over the rows that are read, they are those over the rows before them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, Words, empty
from foreshore.compute.flow.convert import nulls_at
from foreshore.compute.flow.frame_values import Before, Rows, before_of, put_value
from foreshore.compute.flow.kernels import partition_rows
from foreshore.compute.flow.kernels import rows as row_kernels
from foreshore.compute.flow.layout import Layout, Place
from foreshore.compute.flow.operators.closed_groups import Kept
from foreshore.compute.flow.operators.grouping import consolidated, points_of, sorted_groups
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.operators.peer_groups import PeerGroups
from foreshore.compute.flow.operators.staged import StagedRows
from foreshore.compute.flow.ordered import OrderedSpine, Region
from foreshore.compute.flow.partitions import Part, Partitions
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.reach import Reach
from foreshore.compute.flow.sums import Points, SumTable
from foreshore.expr.ir import WindowFunction

WHOLE_LEAST = 1_000  # changes from which on partitions may be read as a whole
FIRST_NEAR = 16  # rows on each side of a change among which known values are first looked for
WHOLE_SHARE = 2  # the part of them between changes from which on they are: 1 / WHOLE_SHARE
ALL: Any = slice(None)
Frames = Callable[[Rows], list[Part]]


@dataclass(frozen=True, slots=True)
class Computed:
    """A function: the places of its arguments and filter, its frames, and its column.

    `total` is where its count, and then its sum, are among the sums over the partition; -1 if it
    does not run from the first row on.
    """

    function: WindowFunction
    args: tuple[Place, ...]
    filter: Place | None
    frames: Frames
    place: Place
    total: int


@dataclass(frozen=True, slots=True)
class RowParts:
    """Where the parts of a row of the spine begin, after its key."""

    peers: int  # the end of the words of the order's keys
    row: int
    args: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over partitions, and the program that makes the contributions of rows."""

    program: Program
    table: SumTable


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The rows read at each point: which of them may have changed, and sums over partitions."""

    points: Ints
    words: Words
    changed: Any
    rows: Ints | None = None  # what tells the rows of a partition apart, at all points
    sums: Ints | None = None
    groups: Ints | None = None  # of peers, of each point's partition


class WindowFunctions(StagedRows):
    """The rows of partitions with the values of window functions.

    `program` makes the key, the words that order the rows, the row and the functions' arguments.
    Without `reach` a change reaches the whole partition.
    """

    def __init__(
        self,
        input: int,
        layout: Layout,
        program: Program,
        spine: OrderedSpine,
        parts: RowParts,
        functions: Sequence[Computed],
        reach: Reach | None,
        totals: Totals | None,
        peer_groups: PeerGroups | None,
        context: Context,
    ) -> None:
        super().__init__(spine)
        self.inputs: tuple[int, ...] = (input,)
        self.layout = layout
        self.reach = reach
        self._program = program
        self._parts = parts
        self._functions = tuple(functions)
        self._totals = totals
        self._peer_groups = peer_groups
        self._context = context

    @property
    def has_peer_groups(self) -> bool:
        """Whether groups of peers are counted."""
        return self._peer_groups is not None

    @property
    def has_totals(self) -> bool:
        """Whether sums over partitions are kept."""
        return self._totals is not None

    @property
    def by_group(self) -> tuple[Kept, ...]:
        """Return what is kept by partitions."""
        totals = () if self._totals is None else (self._totals.table,)
        peers = () if self._peer_groups is None else self._peer_groups.by_group
        return (self._spine, *totals, *peers)

    def step(self, window: Window, inputs: Sequence[Batch]) -> Batch:
        """Return the changes of the rows and of their values."""
        updates = self._program.run(inputs[0], self._context)
        if not len(updates):
            return empty(self.layout.words)
        key = self._spine.key
        order, hashes = sorted_groups(updates, key, self._context.seed)
        points = points_of(order, hashes, updates, key, window)
        sums = peer_groups = None
        if self._peer_groups is not None:
            peer_groups = self._peer_groups.at(points, inputs[0], window)
        if self._totals is not None:
            given = self._totals.program.run(inputs[0], self._context)
            sums = self._totals.table.at(points, order, hashes, given)
        is_new = not self._spine.runs
        self._stage(updates)
        if is_new or self.reach is None or self._reaches_most(points, updates):
            read = self._whole(points)
        else:
            read = replace(self._near(points, updates), sums=sums, groups=peer_groups)
        values = self._values(read, len(points))
        if read.rows is not None:
            return self._differences(points, read, read.rows, values)
        found = read.points
        here = ~points.first[found] & read.changed
        gone = ~points.last[found] & read.changed
        times = np.concatenate([points.times[found[here]], points.times[found[gone] + 1]])
        diffs = np.ones(len(times), np.int64)
        diffs[np.count_nonzero(here) :] = -1
        changed = Batch(np.concatenate([values[here], values[gone]]), times, diffs)
        return consolidated(changed, self._context.seed)

    @staticmethod
    def _differences(points: Points, read: _Read, rows: Ints, values: Words) -> Batch:
        """Return the changes from point to point of the rows that the changes reach."""
        found = read.points
        if read.changed is not ALL:
            found, rows, values = (each[read.changed] for each in (found, rows, values))
        return Batch(*partition_rows.differences(found, rows, values, points.times, points.first))

    # --- rows

    def _reaches_most(self, points: Points, updates: Batch) -> bool:
        """Whether reading the partitions as a whole costs less than what many changes reach."""
        if self.reach is None or self.reach.to_end or len(updates) < WHOLE_LEAST:
            return False
        lows, highs = self._changed(points, updates)
        between, rows = self._spine.extent(points, lows, highs)
        return WHOLE_SHARE * between >= rows

    def _whole(self, points: Points) -> _Read:
        """Return all rows of the points' partitions."""
        key = self._spine.key
        read = self._spine.following(points, points.rows, key, 0)
        return _Read(read.points, read.words, ALL, read.rows)

    def _near(self, points: Points, updates: Batch) -> _Read:
        """Return the rows that the changes of each partition reach, and those they depend on."""
        reach = self.reach
        assert reach is not None
        lows, highs = self._changed(points, updates)
        near = 2 * reach.rows
        low_words = self._parts.peers if reach.peers else self._spine.width
        if reach.known:
            return self._near_known(points, lows, highs, reach)
        if reach.to_end:
            following = self._spine.following(points, lows, low_words, near)
            found, changed = following.points, ALL
            if reach.rows:
                number = np.arange(len(found)) - np.searchsorted(found, found)
                changed = number >= (following.before - reach.rows)[found]
            return _Read(found, following.words, changed, following.rows)
        region = Region(lows, highs, low_words, near, near)
        read = self._spine.rows_near(points, region)
        found, words = _repeated(read.points, read.words, read.counts)
        number = np.arange(len(found)) - np.searchsorted(found, found)  # among those of its point
        changed = number >= (read.begins - reach.rows)[found]
        changed &= number < (read.begins + read.ends + reach.rows)[found]
        return _Read(found, words, changed)

    def _near_known(self, points: Points, lows: Ints, highs: Ints, reach: Reach) -> _Read:
        """Return the rows near the changes, up to known values, or the ends, on both sides."""
        near = max(2 * reach.rows, FIRST_NEAR)
        while True:
            region = Region(lows, highs, self._spine.width, near, near)
            read = self._spine.rows_near(points, region)
            found, words = _repeated(read.points, read.words, read.counts)
            number = np.arange(len(found)) - np.searchsorted(found, found)
            begins, ends = read.begins - reach.rows, read.begins + read.ends
            before, after = number < begins[found], number >= ends[found]
            beyond = np.bincount(found[after], minlength=len(points))
            enough = (read.begins < near) | self._known_at(before, found, words, len(points))
            enough &= (beyond < near) | self._known_at(after, found, words, len(points))
            if enough.all():
                return _Read(found, words, ~before)
            near *= 4

    def _known_at(self, rows: Any, found: Ints, words: Words, points: int) -> Any:
        """Return for which points some of `rows` have a value, for each function that needs it."""
        known = np.ones(points, np.bool_)
        args = words[:, self._parts.args :]
        for each in self._functions:
            if each.function.function == "last_known":
                null = nulls_at(args, each.args[0])
                there = rows if null is None else rows & ~null
                known &= np.bincount(found[there], minlength=points) > 0
        return known

    def _changed(self, points: Points, updates: Batch) -> tuple[Ints, Ints]:
        """Return for each point the first and the last row of its group that changed."""
        spine, key = self._spine, self._spine.key
        interner = self._context.interner
        order = row_kernels.sort_updates(
            points.hashes, updates.words, updates.times, spine.texts, key,
            interner.arena, interner.starts, interner.lengths,
        )  # fmt: skip
        keys = updates.words[order, :key]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        starts = np.flatnonzero(begins)
        group = np.cumsum(points.first) - 1
        ends = np.append(starts[1:], len(order)) - 1
        return order[starts][group], order[ends][group]

    # --- values

    def _values(self, read: _Read, points: int) -> Words:
        """Return the output's rows, given those of partitions in order."""
        parts, words, found = self._parts, read.words, read.points
        before = np.zeros(points, np.int64)
        if read.sums is not None:
            before = read.sums[:, 0] - np.bincount(found, minlength=points)
        keys = words[:, self._spine.key : parts.peers]
        partitions = Partitions.of(found, keys, before, read.groups)
        result = np.zeros((len(words), self.layout.words), np.int64)
        result[:, : parts.args - parts.row] = words[:, parts.row : parts.args]
        if not len(words):
            return result
        # A slice of one row has another layout than one of several.
        args = np.ascontiguousarray(words[:, parts.args :])
        rows = Rows(args, partitions, self._context.interner)
        frames: dict[object, list[Part]] = {}
        for each in self._functions:
            frame = each.function.frame
            if frame not in frames:
                frames[frame] = each.frames(rows)
            put_value(
                each.function, rows, each.args, each.filter, frames[frame], result, each.place,
                _before(each, rows, read),
            )  # fmt: skip
        return result

    def commit(self) -> None:
        """Keep what was staged."""
        super().commit()
        if self._totals is not None:
            self._totals.table.commit()
        if self._peer_groups is not None:
            self._peer_groups.commit()

    def restore(self) -> None:
        """Forget what was staged."""
        if self._totals is not None:
            self._totals.table.restore()
        if self._peer_groups is not None:
            self._peer_groups.restore()
        super().restore()

    def save(self, to: Writer) -> None:
        """Write the ordered rows, and the sums."""
        super().save(to)
        if self._totals is not None:
            self._totals.table.save(to.part("totals"))
        if self._peer_groups is not None:
            self._peer_groups.save(to.part("peers"))

    def load(self, saved: Reader) -> None:
        """Take these over."""
        super().load(saved)
        if self._totals is not None:
            self._totals.table.load(saved.part("totals"))
        if self._peer_groups is not None:
            self._peer_groups.load(saved.part("peers"))

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of the ordered rows, and of the sums."""
        yield from super().sizes()
        if self._totals is not None:
            yield self._totals.table.size("sums")
        if self._peer_groups is not None:
            yield from self._peer_groups.sizes()


def _repeated(found: Ints, words: Words, counts: Ints) -> tuple[Ints, Words]:
    """Return rows, each as often as its multiplicity says."""
    if (counts == 1).all():
        return found, words
    return np.repeat(found, counts), np.repeat(words, counts, axis=0)


def _before(each: Computed, rows: Rows, read: _Read) -> Before | None:
    """Return what a running function had over the rows before those that were read."""
    if each.total < 0 or read.sums is None:
        return None
    at = each.total
    total = read.sums[:, at + 1 : at + 3] if each.function.function == "sum" else None
    return before_of(rows, each.args, each.filter, read.points, read.sums[:, at], total)
