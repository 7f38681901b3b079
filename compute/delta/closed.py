"""Rows of traces that can be forgotten, because watermarks have closed their windows.

A view that emits on window close reads relations with watermarks, and most of its traces have a
column whose values close: no later change joins, or is in a group, with a row whose value is below
the watermarks. `closing_columns` finds these columns, `Greatest` follows the watermarks by the
changes of the inputs, and the engine drops closed rows when it next consolidates the contents.

After a start the watermarks begin with those of new rows. These are at most the delay below the
true ones, so rows are kept a little longer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.calendar import TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY
from foreshore.expr.bounded_columns import BoundedColumns, Bounds
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Filter,
    Join,
    LocalGet,
    Reduce,
    Relation,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.traversal import walk_relations
from foreshore.expr.watermarks import Closing, closing_of, watermarked
from foreshore.ids import GlobalId
from foreshore.types import SqlType
from foreshore.update import DIFF

if TYPE_CHECKING:
    from foreshore.compute.delta.differentiate import Trace

_TIMES = ("timestamp", "timestamptz")
_MONTH = 31 * 86_400_000_000  # at most
_INFINITE = pa.array((TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY), pa.int64())

Marks = frozenset[tuple[GlobalId, int]]  # relations, each with a distance from its greatest time


@dataclass(frozen=True, slots=True)
class ClosingColumn:
    """A column of a trace's contents whose rows close.

    A row is closed if its value, plus the distance, is at most the greatest time of each relation.
    """

    trace: int
    column: int
    type: SqlType
    marks: Marks


@dataclass(frozen=True, slots=True)
class Closed:
    """Rows of a table whose value in the column `c{column}` is at most `through` are closed."""

    column: int
    type: SqlType
    through: int


class Greatest:
    """The greatest times of relations, by the changes that came; in microseconds since 1970."""

    def __init__(self, columns: Mapping[GlobalId, int]) -> None:
        self._columns = dict(columns)
        self._known: dict[GlobalId, int] = {}

    def follow(self, updates: Mapping[GlobalId, pa.Table]) -> None:
        """Follow the changes of a step."""
        for id, column in self._columns.items():
            if id not in updates:
                continue
            new = updates[id].filter(pc.greater(updates[id][DIFF], 0))
            times = new.column(column).cast(pa.int64())
            times = times.filter(pc.invert(pc.is_in(times, _INFINITE)))
            found = pc.max(times).as_py()
            if found is not None:
                self._known[id] = max(found, self._known.get(id, found))

    def through(self, marks: Marks) -> int | None:
        """Return the greatest value that is closed, None if none is known to be."""
        if not all(id in self._known for id, _ in marks):
            return None
        return min(self._known[id] - distance for id, distance in marks)


def watermark_columns(relation: Relation) -> dict[GlobalId, int]:
    """Return the columns of the watermarks that close windows of a view, by their relations."""
    closing = _closing_in(relation)
    marks = () if closing is None else map(watermarked, closing[1].watermarks)
    gets = [mark[0] for mark in marks if mark is not None]
    return {get.id: get.watermark.column for get in gets if get.watermark is not None}


def closing_columns(
    relation: Relation,
    traces: Sequence["Trace"],
    outputs: Sequence[Relation],
    inputs_of: Callable[[Relation], Sequence[Relation]],
) -> tuple[ClosingColumn, ...]:
    """Return a column of each trace whose rows close, given the view and its traces.

    `inputs_of` returns the bodies of the traces from which a watermark is computed.
    """
    closing = _closing_in(relation)
    if closing is None:
        return ()
    return tuple(_Finder(*closing, traces, outputs, inputs_of).found())


def _closing_in(relation: Relation) -> tuple[Filter, Closing] | None:
    """Return the filter of final rows of a view, None if there is not exactly one."""
    found = []
    for node in walk_relations(relation):
        closing = closing_of(node)
        if closing is not None and all(map(watermarked, closing.watermarks)):
            assert isinstance(node, Filter)
            found.append((node, closing))
    return found[0] if len(found) == 1 else None


class _Finder:
    def __init__(
        self,
        filter: Filter,
        closing: Closing,
        traces: Sequence["Trace"],
        outputs: Sequence[Relation],
        inputs_of: Callable[[Relation], Sequence[Relation]],
    ) -> None:
        self._filter = filter
        self._closing = closing
        self._traces = traces
        self._outputs = outputs
        self._bounded = BoundedColumns()
        self._inputs_of = [*map(inputs_of, closing.watermarks)]
        self._watermarks = [mark for mark in map(watermarked, closing.watermarks) if mark]
        self._ids = {get.id for get, _ in self._watermarks}

    def found(self) -> Iterator[ClosingColumn]:
        """Yield a column of each trace whose rows close."""
        for trace in self._traces:
            self._bounded.bind(trace.number, self._bounded.of(trace.body))
        for output in self._outputs:
            self._bounded.of(output)
        uses: dict[int, list[Mapping[int, Marks]]] = {}
        for body in (*(trace.body for trace in self._traces), *self._outputs):
            for number, columns in self._uses(body):
                uses.setdefault(number, []).append(columns)
        for trace in self._traces:
            common = uses.get(trace.number, []) if trace.kept else []
            if not common:
                continue
            for column in sorted(set.intersection(*(set(each) for each in common))):
                type = trace.columns[column].type
                if type.name in _TIMES:
                    marks = frozenset[tuple[GlobalId, int]]().union(*(u[column] for u in common))
                    yield ClosingColumn(trace.number, column, type, marks)
                    break

    def _uses(self, body: Relation) -> Iterator[tuple[int, Mapping[int, Marks]]]:
        """Yield the traces that joins and groups read, with the columns whose rows close there."""
        seen = set()
        for node in walk_relations(body):
            match node:
                case Filter(input=Join(inputs=inputs) as join) if self._is_final(node):
                    seen.add(join)
                    yield from self._uses_of_closing(inputs)
                case Join(inputs=inputs) as join if join not in seen:
                    yield from self._uses_of_join(join)
                case Reduce(input=LocalGet(number=number), group_key=key):
                    yield number, self._closing_keys(number, key)
                case TopK(input=LocalGet(number=number), group_key=group):
                    yield number, self._closing_of(number, group)
                case Window(input=LocalGet(number=number), partition=group):
                    yield number, self._closing_of(number, group)
                case Threshold(input=LocalGet(number=number) as input):
                    yield number, self._closing_of(number, range(len(columns_of(input))))

    def _is_final(self, node: Filter) -> bool:
        """Whether a filter over traces is that of the final rows."""
        return (
            node.predicates == self._filter.predicates
            and isinstance(node.input, Join)
            and not node.input.equivalences
            and len(node.input.inputs) == 1 + len(self._watermarks)
        )

    def _uses_of_closing(
        self, inputs: Sequence[Relation]
    ) -> Iterator[tuple[int, Mapping[int, Marks]]]:
        """Yield the rows, which are closed when they were put out, and the watermarks."""
        rows, *marks = inputs
        assert isinstance(rows, LocalGet)
        later = int(not self._closing.inclusive)
        distances = frozenset(
            (get.id, get.watermark.delay + earlier + later)
            for get, earlier in self._watermarks
            if get.watermark is not None
        )
        yield rows.number, {self._closing.column: distances}
        for mark in marks:
            assert isinstance(mark, LocalGet)
            yield mark.number, {}

    def _uses_of_join(self, join: Join) -> Iterator[tuple[int, Mapping[int, Marks]]]:
        """Yield the inputs: a row with a closed value finds no partners that are still to come."""
        bounded, first = self._bounded.closing_in(join), 0
        for input in join.inputs:
            width = len(columns_of(input))
            if isinstance(input, LocalGet):
                own = {i: bounded[first + i] for i in range(width) if first + i in bounded}
                yield input.number, self._marked(own)
            first += width

    def _closing_keys(self, number: int, key: Sequence[object]) -> Mapping[int, Marks]:
        """Return the columns of a reduction's key whose groups close, in the trace's contents."""
        trace = self._traces[number]
        if not key:
            return self._times_below_greatest(number)
        places = {
            (i if trace.sums is not None else scalar.index): scalar.index
            for i, scalar in enumerate(key)
            if isinstance(scalar, Column)
        }
        bounded = self._bounded.bound(number)
        return self._marked({at: bounded[i] for at, i in places.items() if i in bounded})

    def _times_below_greatest(self, number: int) -> Mapping[int, Marks]:
        """Return the times of which the greatest is a watermark: those below it are not read."""
        for (get, _), bodies in zip(self._watermarks, self._inputs_of, strict=True):
            body = self._traces[number].body
            if body in bodies and not any(isinstance(n, Union) for n in walk_relations(body)):
                return {0: frozenset(((get.id, 1),))}
        return {}

    def _closing_of(self, number: int, columns: Sequence[int]) -> Mapping[int, Marks]:
        bounded = self._bounded.bound(number)
        return self._marked({i: bounded[i] for i in columns if i in bounded})

    def _marked(self, bounded: Mapping[int, Bounds]) -> Mapping[int, Marks]:
        """Return the columns with the distances from the greatest times at which they close."""
        return {
            column: frozenset(
                (
                    each.get.id,
                    each.first
                    + each.months * _MONTH
                    + each.micros
                    + each.inclusive
                    + (each.get.watermark.delay if each.get.watermark is not None else 0),
                )
                for each in bounds
            )
            for column, bounds in bounded.items()
            if bounds and all(each.get.id in self._ids for each in bounds)
        }
