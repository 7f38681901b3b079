"""Ordered keys: the rows of a key index in the order of some columns, from one value to another.

    PRIMARY KEY (a, b)      rows WHERE a = 1 AND b > 5, the first ten rows ORDER BY a, b

An ordered key shares the runs of the key index's arrangement and adds, for each run, the places of
its rows in the order of the columns: 8 bytes a row. A span is found in each run by bisection. The
updates of one row have one key, so what is read up to a key is all that its rows add up to. The
types of the columns are those whose data compare like their values (`sql/optimize/table_range.py`;
`compute/flow/in_order.py` does the same for indexes of a cluster).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from heapq import merge
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, TypeAlias
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows
from foreshore.compute.arrange.row_reader import Reader, UpdatesReader
from foreshore.compute.arrange.run import Ints, Run, Updates, concat
from foreshore.compute.keys.layout import KeyLayout
from foreshore.compute.keys.look_up import added_up
from foreshore.compute.keys.per_run import PerRun
from foreshore.compute.keys.secondary import BYTES
from foreshore.compute.span import Span, Values
from foreshore.datum import from_array
from foreshore.table_rows import Row
from foreshore.types import SqlType
from foreshore.update import Timestamp

Value: TypeAlias = tuple[tuple[int, object], ...]  # of the first columns; NULL comes last

NULL = (1, 0)
FEW_MERGED = 64  # updates that are looked at one by one, where rows were deleted
SLICE = 1_024  # of each run, in the first slice after these
MOST_MERGED = 4_000  # updates of one key, which are looked at one by one
MOST_READ = 16_000  # updates on the event loop


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """Updates, and the places of these in the order of the key's columns."""

    updates: Updates
    order: Ints
    layout: KeyLayout
    reader: UpdatesReader
    present: int  # how many of the first columns of the key have no NULL
    reads: tuple[Reader, ...]  # of the columns of the key, whose values compare as SQL's do

    @classmethod
    def of(cls, updates: Updates, layout: KeyLayout) -> "Sorted":
        """Sort updates; may take long."""
        reader = UpdatesReader(updates, [column.type for column in layout.columns])
        key = layout.key_of(updates.rows)
        present = sum(1 for _ in takewhile(lambda column: not column.null_count, key))
        reads = tuple(
            [
                _decimals(reader.columns[i]) if type.name == "numeric" else reader.columns[i]
                for i, type in zip(layout.constraint.columns, layout.types, strict=True)
            ]
        )
        return cls(updates, _order(key), layout, reader, present, reads)

    def value(self, place: int, width: int) -> Value:
        """Return the first columns of the key at a place of the order."""
        return self._value_at(self.order[place], width)

    def _value_at(self, at: int, width: int) -> Value:
        return tuple([_comparable(read(at)) for read in self.reads[:width]])

    def first(self, value: Value, *, after: bool) -> int:
        """Return the first place from which keys are `value` or greater, or come after it."""
        order: Any = self.order
        if len(value) > self.present:
            find, width = _bisect(after=after), len(value)
            return find(order, value, key=lambda at: self._value_at(at, width))
        if NULL in value:  # which comes after all that is there
            value, after = value[: value.index(NULL)], True
            if not value:
                return len(order)
        find, width = _bisect(after=after), len(value)
        wanted = tuple([datum for _, datum in value])
        reads = self.reads[:width]
        if width == 1:
            return find(order, wanted[0], key=reads[0])
        return find(order, wanted, key=lambda at: tuple([read(at) for read in reads]))

    def entries(
        self, begin: int, end: int, time: Timestamp, *, descending: bool
    ) -> "Iterator[tuple[Value, int, int, Sorted, int]]":
        """Yield the updates until `time` between two places of the order, in either direction."""
        width, reader = len(self.layout.types), self.reader
        places = self.order[begin:end]
        for at in map(int, places[::-1] if descending else places):
            if reader.times[at] <= time:
                yield (self._value_at(at, width), reader.row_hashes[at], reader.diffs[at], self, at)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SortedRun:
    """A run in the order of some columns."""

    run: Run
    sorted: Sorted

    def __post_init__(self) -> None:
        BYTES.inc(self.sorted.order.nbytes)
        finalize(self, BYTES.dec, self.sorted.order.nbytes)

    @classmethod
    def of(cls, run: Run, layout: KeyLayout) -> "SortedRun":
        """Sort the rows of a run; may take long."""
        return cls(run, Sorted.of(run.updates, layout))


class OrderedKey(PerRun[SortedRun]):
    """The rows of `arrangement` in the order of the columns of `layout`; of the event loop."""

    def __init__(self, layout: KeyLayout, arrangement: Arrangement) -> None:
        super().__init__(arrangement, partial(SortedRun.of, layout=layout))
        self.layout = layout
        self._loose: tuple[tuple[Updates, ...], Sorted] | None = None  # the tail, as it was last

    def view(self, own: Arrangement | None) -> "OrderedView | None":
        """Return all rows, with a transaction's own; None if large runs have to be sorted first."""
        runs = self.of_all()
        if runs is None:
            return None
        parts = [each.sorted for each in runs]
        if tail := self.arrangement.tail:
            if self._loose is None or self._loose[0] is not tail:
                self._loose = tail, Sorted.of(concat([*tail]), self.layout)
            parts.append(self._loose[1])
        if own is not None and (written := own.parts()):
            parts.append(Sorted.of(concat(written), self.layout))
        return OrderedView(self.layout, tuple(parts))


@dataclass(frozen=True, slots=True, eq=False)
class OrderedView:
    """The rows of a moment; may be read on any thread."""

    layout: KeyLayout
    parts: tuple[Sorted, ...]

    def count(self, span: Span) -> int:
        """Return about how many rows are in a span."""
        return sum(map(len, self._cursors(span)))

    def slices(self, span: Span, time: Timestamp, few: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows at `time` in a span, slice after slice in its direction, at least one.

        About `few` rows of each run are in the first slice, twice as many in each further one. If
        the span is not ordered, the first has all.
        """
        return self._slices(self._cursors(span), span, time, few)

    def _slices(
        self,
        cursors: "Sequence[_Cursor]",
        span: Span,
        time: Timestamp,
        few: int,
        most: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield what `slices` does; raises TooManyRows before it takes more than `most` updates."""
        width = len(self.layout.types)
        while True:
            cut = _cut(cursors, few, width, span) if span.is_ordered else None
            if most is not None:
                most -= sum([each.count(cut) for each in cursors])
                if most < 0:
                    raise TooManyRows
            taken = [part for each in cursors if len(part := each.take(cut))]
            yield self._rows(taken, time)
            if not any(map(len, cursors)):
                return
            few *= 2

    def rows(
        self, span: Span, used: Collection[int], time: Timestamp, most: int | None = None
    ) -> Iterator[Row]:
        """Return the rows at `time` in a span, in its direction, with the columns that are `used`.

        Raises TooManyRows if there are more than `most` updates, or, as they are read, if many are
        looked at, as rows were deleted.
        """
        cursors = [each for each in self._cursors(span) if len(each)]
        if most is not None and sum(map(len, cursors)) > most:
            raise TooManyRows
        return self._merged(cursors, span, used, time)

    def _merged(
        self,
        cursors: "Sequence[_Cursor]",
        span: Span,
        used: Collection[int],
        time: Timestamp,
    ) -> Iterator[Row]:
        if len(cursors) == 1 and cursors[0].part.reader.are_inserted(time):
            reads, places = cursors[0].part.reader.reads(used), cursors[0].places
            for at in map(int, places[::-1] if span.descending else places):
                yield tuple([read(at) for read in reads])
            return
        entries = merge(
            *(
                each.part.entries(each.begin, each.end, time, descending=span.descending)
                for each in cursors
            ),
            key=itemgetter(0),
            reverse=span.descending,
        )
        count = 0
        for value, same in groupby(entries, key=itemgetter(0)):
            sums: dict[int, int] = {}
            found: dict[int, tuple[Sorted, int]] = {}
            for _, row_hash, diff, part, at in same:
                count += 1
                if count > MOST_MERGED:
                    raise TooManyRows
                sums[row_hash] = sums.get(row_hash, 0) + diff
                found[row_hash] = part, at
            for row_hash, left in sums.items():
                part, at = found[row_hash]
                for _ in range(left):
                    yield part.reader.row(at)
            if count > FEW_MERGED:
                for each in cursors:
                    each.pass_by(value)
                yield from self._in_slices(cursors, span, used, time)
                return

    def _in_slices(
        self, cursors: "Sequence[_Cursor]", span: Span, used: Collection[int], time: Timestamp
    ) -> Iterator[Row]:
        """Yield the rows that cursors are at, as `rows` does, of many updates at once."""
        for rows in self._slices(cursors, span, time, SLICE, MOST_READ):
            order = _order(self.layout.key_of(rows))
            ordered = rows.take(pa.array(order[::-1] if span.descending else order))
            yield from zip(
                *(
                    from_array(array, column.type) if i in used else [None] * rows.num_rows
                    for i, (array, column) in enumerate(
                        zip(ordered.columns, self.layout.columns, strict=True)
                    )
                ),
                strict=True,
            )

    def _cursors(self, span: Span) -> "list[_Cursor]":
        low, high = _value_of(span.low), _value_of(span.high)
        return [_Cursor(part, span, low, high) for part in self.parts]

    def _rows(self, taken: list[Updates], time: Timestamp) -> pa.RecordBatch:
        past = [part.take(np.flatnonzero(part.times <= time)) for part in taken]
        if not past:
            return self.layout.nothing()
        updates = concat(past)
        every = np.arange(len(updates))
        return added_up(np.zeros(len(updates), np.int64), updates, every)[1]


class _Cursor:
    """The updates of one part that are still to be read: from `begin` to `end` of its order."""

    def __init__(self, part: Sorted, span: Span, low: Value, high: Value) -> None:
        self.part = part
        self._descending = span.descending
        self.begin = part.first(low, after=not span.low_inclusive) if low else 0
        end = part.first(high, after=span.high_inclusive) if high else len(part.order)
        self.end = max(self.begin, end)

    def __len__(self) -> int:
        return self.end - self.begin

    def pass_by(self, value: Value) -> None:
        """Go on behind the updates of a key."""
        if self._descending:
            self.end = max(min(self.end, self.part.first(value, after=False)), self.begin)
        else:
            self.begin = min(max(self.begin, self.part.first(value, after=True)), self.end)

    @property
    def places(self) -> Ints:
        """The places of the updates that are left."""
        return self.part.order[self.begin : self.end]

    def value(self, at: int, width: int) -> Value:
        """Return the key of the update that is so far on in the direction."""
        return self.part.value(self.end - 1 - at if self._descending else self.begin + at, width)

    def count(self, cut: Value | None) -> int:
        """Return how many updates there are up to `cut`."""
        begin, end = self._up_to(cut)
        return end - begin

    def take(self, cut: Value | None) -> Updates:
        """Return the updates up to `cut`, all without one, which are taken then."""
        begin, end = self._up_to(cut)
        if self._descending:
            self.end = begin
        else:
            self.begin = end
        return self.part.updates.take(self.part.order[begin:end])

    def _up_to(self, cut: Value | None) -> tuple[int, int]:
        begin, end = self.begin, self.end
        if cut is not None and self._descending:
            begin = min(max(self.part.first(cut, after=False), begin), end)
        elif cut is not None:
            end = max(min(self.part.first(cut, after=True), end), begin)
        return begin, end


def _cut(cursors: Sequence[_Cursor], few: int, width: int, span: Span) -> Value | None:
    """Return up to which key updates are taken, None for all."""
    ends = [each.value(few - 1, width) for each in cursors if len(each) > few]
    if not ends:
        return None
    return max(ends) if span.descending else min(ends)


def _bisect(*, after: bool) -> Callable[..., int]:
    return bisect_right if after else bisect_left


def _order(columns: Sequence[pa.Array]) -> Ints:
    if len(columns) == 1 and not columns[0].null_count and pa.types.is_integer(columns[0].type):
        return np.argsort(columns[0].to_numpy(), kind="stable")
    names = [str(i) for i in range(len(columns))]
    keys = [(name, "ascending") for name in names]
    places: Ints = pc.sort_indices(pa.table(list(columns), names), keys).to_numpy().astype(np.int64)
    return places


def _value_of(values: Values) -> Value:
    """Return the values of an end, to be compared with keys."""
    return tuple(_comparable(_number(each.value, each.type)) for each in values)


def _number(value: object, type: SqlType) -> object:
    if type.name != "numeric" or value is None:
        return value
    number = Decimal(str(value))
    return Decimal("Infinity") if number.is_nan() else number  # integers are less than both


def _decimals(read: Reader) -> Reader:
    def decimal(at: int) -> Any:
        datum = read(at)
        return None if datum is None else Decimal(str(datum))

    return decimal


def _comparable(datum: object) -> tuple[int, object]:
    return NULL if datum is None else (0, datum)
