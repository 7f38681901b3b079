"""Linear plans over no stored rows, evaluated batch by batch as somebody takes the batches.

    select g, repeat('x', 100) from generate_series(1, 1000000000) g

needs the memory of one batch, however many rows it has. A series of integers is made in pieces.
Every node cuts its input so that what it makes of a piece has about the size that the reader's
`Pace` says. Nothing is computed ahead: the generator stands still between two batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from foreshore.compute.linear import Rows, applied, elements_of, flat
from foreshore.compute.local.linear import Collections, checked_values, has_deletions, is_linear
from foreshore.datum import to_array
from foreshore.errors import OutOfMemory
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.cost import (
    LIGHT,
    MOST,
    cost_of,
    cost_of_relation,
    grows,
    is_series_of_integers,
    size_of,
    takes_long_for_a_row,
)
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    OrderKey,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.ids import GlobalId
from foreshore.query_memory import room
from foreshore.rows import table_of

MOST_ROWS = 1 << 16  # of a piece
FIRST_BYTES = 32 << 10  # of the first batch, so that few rows are there soon
LEAST_BYTES = 16 << 10
MOST_BYTES = 1 << 20
FEW_ROWS = 64  # of a piece of unknown size
LITERALS = 1024  # rows that become columns at once
FIXED = 16  # the size that is assumed for a value that no call makes long

Check = Callable[[], None]


class Pace:
    """The size of the next batches, in bytes, which their reader may change between two."""

    def __init__(self, size: int = FIRST_BYTES, most: int | None = None) -> None:
        self.size = size
        self.most = most  # that a single row may take, None is any size


@lru_cache(64)  # few, as a plan may have long arrays
def can_stream(relation: Relation) -> bool:
    """Whether `relation` is linear, and none of its steps takes long for a row."""
    return (
        is_linear(relation)
        and not takes_long_for_a_row(relation)
        and not has_deletions(relation)
        and all(
            cost_of_relation(node.value)[1] <= LIGHT
            for node in walk_relations(relation)
            if isinstance(node, Let)
        )
    )


def is_series(relation: Relation) -> bool:
    """Whether all rows of `relation`, which can be streamed, are of series, made in pieces."""
    nodes = [node for node in walk_relations(relation) if isinstance(node, FlatMap)]
    return all(_series_of(node) is not None for node in nodes) and can_stream(relation)


def comes_in_order(relation: Relation, order: Sequence[OrderKey]) -> bool:
    """Whether `streamed` yields the rows in `order`: by the numbers that a series gives them."""
    if len(order) != 1 or order[0].descending or not isinstance(order[0].expr, Column):
        return not order
    column = order[0].expr.index
    while isinstance(relation, Map | Filter | Project):
        if isinstance(relation, Project):
            column = relation.outputs[column]
        relation = relation.input
    match relation:
        case FlatMap(input=Join(inputs=()), is_numbered=True, columns=columns):
            return column == len(columns) - 1
        case _:
            return False


def streamed(
    relation: Relation, collections: Collections, pace: Pace, check: Check = lambda: None
) -> Iterator[pa.Table]:
    """Yield the rows of `relation`, with `__diff`, over the rows of `collections`: at least once.

    What is yielded may have no rows: its reader has a chance to do something else. `check` is
    called now and then and raises if the query was cancelled. Raises the least error of the first
    batch in which a row fails.
    """
    given = {key: Rows.of_table(rows, 1) for key, rows in collections.items()}
    batches = _Streamed(given, pace, check).of(relation)
    yielded = False
    while True:
        with room(pace.most):
            rows = next(batches, None)
        if rows is None:
            break
        yielded = True
        yield table_of(rows.columns, rows.along[0])
    if not yielded:
        nothing = [pa.array([], to_array([], c.type).type) for c in columns_of(relation)]
        yield table_of(nothing, pa.array([], pa.int64()))


class _Streamed:
    def __init__(self, given: Mapping[GlobalId | int, Rows], pace: Pace, check: Check) -> None:
        self._given = dict(given)
        self._pace = pace
        self._check = check

    def of(self, relation: Relation) -> Iterator[Rows]:
        """Yield the rows of `relation`; pieces without rows may be left out."""
        match relation:
            case Constant(rows=given, columns=types):
                for start in range(0, len(given), LITERALS):
                    part = given[start : start + LITERALS]
                    arrays = [
                        to_array([row[i] for row, _ in part], t.type) for i, t in enumerate(types)
                    ]
                    diffs = pa.array([diff for _, diff in part], pa.int64())
                    yield Rows(tuple(arrays), (diffs,), len(part))
            case Join(inputs=()):
                yield Rows((), (pa.array([1], pa.int64()),), 1)
            case Get(id=id):
                yield self._given[id]
            case LocalGet(number=number):
                yield self._given[number]
            case Let(number=number, value=value, body=body):
                self._given[number] = _whole(list(self.of(value)), value)
                yield from self.of(body)
            case Union(inputs=inputs):
                for each in inputs:
                    yield from self.of(each)
            case Map() | Filter() | Project():
                yield from self._applied(relation)
            case FlatMap():
                for rows in self.of(relation.input):
                    yield from self._elements(relation, rows)
            case _:
                raise AssertionError(f"{type(relation).__name__} is not linear")

    def _applied(self, node: Map | Filter | Project) -> Iterator[Rows]:
        pieces = _Pieces(node, self._pace)
        for rows in self.of(node.input):
            start = 0
            while start < rows.count:
                self._check()
                part = _slice(rows, start, pieces.count)
                try:
                    made = applied(node, part, checked_values)
                except OutOfMemory:
                    if part.count == 1:
                        raise
                    pieces.count = (part.count + 1) // 2
                    continue
                start += part.count
                pieces.adapt(part.count, made)
                yield made

    def _elements(self, node: FlatMap, rows: Rows) -> Iterator[Rows]:
        """Yield rows, each with its elements."""
        series = _series_of(node)
        if series is not None:
            yield from self._series(node, series, rows)
            return
        count = 1 if any(map(grows, node.arrays)) else FEW_ROWS
        for start in range(0, rows.count, count):
            self._check()
            part = _slice(rows, start, count)
            parents, added = elements_of(node, part.columns, part.count, checked_values)
            whole = sum(column.nbytes for column in part.columns) // max(part.count, 1)
            step = max(1, min(MOST_ROWS, self._pace.size // max(whole, 16)))
            for begin in range(0, len(parents), step):
                chosen = part.take(pa.array(parents[begin : begin + step]))
                columns = (*chosen.columns, *(each.slice(begin, step) for each in added))
                yield Rows(columns, chosen.along, chosen.count)

    def _series(self, node: FlatMap, series: Call, rows: Rows) -> Iterator[Rows]:
        """Yield rows, each with the numbers of its series, a few at a time."""
        bounds = [checked_values(each, rows.columns, rows.count) for each in series.args]
        element = type_of(series).element
        assert element is not None
        arrow = to_array([], element).type
        rows_of_bounds = zip(*(each.to_pylist() for each in bounds), strict=True)
        for place, (first, last, *steps) in enumerate(rows_of_bounds):
            if first is None or last is None or None in steps:
                continue
            step = steps[0] if steps else 1
            if step == 0:
                elements_of(node, _slice(rows, place, 1).columns, 1, checked_values)  # raises
            total = max(0, (last - first) // step + 1)
            row = _slice(rows, place, 1)
            width = sum(column.nbytes for column in row.columns) + 16
            done = 0
            while done < total:
                self._check()
                size = max(1, min(MOST_ROWS, self._pace.size // width, total - done))
                begin = first + done * step
                numbers = np.arange(size, dtype=np.int64) * step + begin if size > 1 else [begin]
                repeated = row.take(pa.array(np.zeros(size, np.int64)))
                columns = [pa.array(numbers, pa.int64()).cast(arrow)]
                if node.is_numbered:
                    columns.append(pa.array(np.arange(done + 1, done + size + 1)))
                yield Rows((*repeated.columns, *columns), repeated.along, size)
                done += size


class _Pieces:
    """Of how many rows of its input a node makes about as much as a batch shall have."""

    def __init__(self, node: Map | Filter | Project, pace: Pace) -> None:
        self._pace = pace
        self._is_wide = isinstance(node, Map)  # it adds columns
        scalars = [] if isinstance(node, Project) else list(scalars_of(node))
        growing = [cost_of(each) for each in scalars if grows(each)]
        literals = sum(max(FIXED, _literal_bytes(each)) for each in scalars)
        self._size = sum(max(each.size, each.dearest) for each in growing) + literals
        self._grows = bool(growing) or literals > LIGHT
        if self._size >= MOST:
            self.count = FEW_ROWS
        elif self._grows:
            self.count = self._most()
        else:
            self.count = max(self._most(), FEW_ROWS)

    def _most(self) -> int:
        return max(1, min(self._pace.size // max(self._size, 1), MOST_ROWS))

    def adapt(self, count: int, made: Rows) -> None:
        """Choose the size of the next piece, after one of `count` rows became `made`."""
        if self._is_wide:
            size = sum(column.nbytes for column in made.columns)
            wanted = count * self._pace.size // max(size, 1)
        else:
            wanted = MOST_ROWS
        most = self._most() if self._grows and self._size < MOST else MOST_ROWS
        self.count = max(1, min(wanted, 4 * count, most))


def _literal_bytes(scalar: Scalar) -> int:
    """Return the size of the literals in `scalar`, which a value may have."""
    return sum(size_of(e.value) for e in walk_scalars(scalar) if isinstance(e, Literal))


def _series_of(node: FlatMap) -> Call | None:
    """Return the only array of `node` if it is a series of integers."""
    if len(node.arrays) != 1:
        return None
    (array,) = node.arrays
    return array if isinstance(array, Call) and is_series_of_integers(array) else None


def _slice(rows: Rows, start: int, count: int) -> Rows:
    if start == 0 and count >= rows.count:
        return rows
    count = min(count, rows.count - start)
    columns = tuple(column.slice(start, count) for column in rows.columns)
    return Rows(columns, tuple(array.slice(start, count) for array in rows.along), count)


def _whole(parts: Sequence[Rows], relation: Relation) -> Rows:
    """Return the rows of `relation`, made in parts, as one."""
    if len(parts) == 1:
        return parts[0]
    columns = [to_array([], column.type) for column in columns_of(relation)]
    joined = [
        flat(pa.chunked_array([part.columns[i] for part in parts], empty.type))
        for i, empty in enumerate(columns)
    ]
    along = flat(pa.chunked_array([part.along[0] for part in parts], pa.int64()))
    return Rows(tuple(joined), (along,), sum(part.count for part in parts))
