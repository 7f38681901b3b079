"""Window functions over the rows of a partition, as functions of the tuples of their arguments."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from itertools import chain
from typing import Any, NamedTuple

from foreshore.calendar import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)
from foreshore.compute.rows.aggregates import finish_of, joined
from foreshore.compute.rows.ordering import SortKey
from foreshore.compute.rows.source import NotCompiled, TooMany
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Frame, FrameBound, OrderKey, WindowFunction
from foreshore.expr.windows import aggregate_of
from foreshore.types import NUMERIC_DIGITS, Datum, SqlType

MOST_FRAMED = 20_000  # rows of all different frames of a partition
_DAY = 86_400_000_000  # microseconds
_WIDE = Context(prec=4 * NUMERIC_DIGITS)
_INFINITE_TIMESTAMPS = (TIMESTAMP_MINUS_INFINITY, TIMESTAMP_INFINITY)
_INFINITE_DATES = (DATE_MINUS_INFINITY, DATE_INFINITY)

Entry = tuple[Datum, ...] | None  # the arguments for a row; None if the filter leaves it out
Offsets = Sequence[Datum]  # of the start and the end of a frame; None for one without an offset


class Peers(NamedTuple):
    """The groups of rows that are equal in the order: the number of each row's, where each begins.

    After the starts of all groups comes the number of rows. With them are the values of the order's
    first key.
    """

    numbers: Sequence[int]
    starts: Sequence[int]
    keys: Sequence[Datum]


Values = Callable[[Sequence[Entry], Peers, Offsets], Sequence[Datum]]
Places = Callable[[Frame, Peers, Datum], Sequence[int]]  # for each row; the last is the offset


def windowed(
    width: int,
    order: Sequence[SortKey],
    order_key: Sequence[OrderKey],
    sort: Callable[[list[Any]], None],
    functions: Sequence[WindowFunction],
) -> Callable[[list[Any], Sequence[Offsets]], list[tuple[Datum, ...]]]:
    """Return the function that appends the values of `functions` to the rows of a partition.

    A row has `width` columns, the keys of its `order`, and the entries of the functions. For each
    function the offsets of its frame are given. Raises NotCompiled.
    """
    first = width + len(order)
    values = [_values_of(function, order_key) for function in functions]

    def append(rows: list[Any], offsets: Sequence[Offsets]) -> list[tuple[Datum, ...]]:
        sort(rows)
        peers = _peers(rows, order, [row[width] for row in rows] if order else ())
        found = [
            of([row[first + number] for row in rows], peers, offsets[number])
            for number, of in enumerate(values)
        ]
        more = zip(*found, strict=True)
        return [(*row[:width], *each) for row, each in zip(rows, more, strict=True)]

    return append


def _peers(rows: Sequence[Any], order: Sequence[SortKey], keys: Sequence[Datum]) -> Peers:
    numbers: list[int] = []
    starts: list[int] = []
    for place, row in enumerate(rows):
        is_peer = place > 0 and all([key.of(rows[place - 1]) == key.of(row) for key in order])
        if not is_peer:
            starts.append(place)
        numbers.append(len(starts) - 1)
    return Peers(numbers, (*starts, len(rows)), keys)


def _values_of(function: WindowFunction, order: Sequence[OrderKey]) -> Values:
    frame = function.frame
    match function.function:
        case "row_number":
            return lambda entries, *_: range(1, len(entries) + 1)
        case "rank":
            return lambda _, peers, __: [peers.starts[number] + 1 for number in peers.numbers]
        case "dense_rank":
            return lambda _, peers, __: [number + 1 for number in peers.numbers]
        case "lag":
            return lambda entries, *_: _shifted(entries, -1)
        case "lead":
            return lambda entries, *_: _shifted(entries, 1)
        case "last_known":
            return lambda entries, *_: _last_known(entries)
        case "last_value":
            return _of_frames(frame, order, lambda entries, at, rows: _value(entries, rows[-1:]))
        case "nth_value":
            return _of_frames(frame, order, _nth)
    finish = _LISTED.get(function.function) or finish_of(aggregate_of(function))

    def aggregated(entries: Sequence[Entry], at: int, rows: Sequence[int]) -> Datum:
        return finish([entry for i in rows if (entry := entries[i]) is not None])

    return _of_frames(frame, order, aggregated)


# Aggregates of the entries in the order of the rows.
_LISTED: dict[str, Callable[[Sequence[Any]], Datum]] = {
    "array_agg": lambda entries: tuple([entry[0] for entry in entries]) if entries else None,
    "string_agg": lambda entries: joined([entry for entry in entries if entry[0] is not None]),
}


def _shifted(entries: Sequence[Entry], sign: int) -> list[Datum]:
    """Return the value of the row as many rows away as each entry says, or its default."""
    found: list[Datum] = []
    for at, entry in enumerate(entries):
        _, rows, default = entry or (None, None, None)
        if rows is None:
            found.append(None)
            continue
        place = at + sign * int(str(rows))
        other = entries[place] if 0 <= place < len(entries) else None
        found.append(default if other is None else other[0])
    return found


def _last_known(entries: Sequence[Entry]) -> list[Datum]:
    found: list[Datum] = []
    for entry in entries:
        is_known = entry is not None and entry[0] is not None
        found.append(entry[0] if entry is not None and is_known else found[-1] if found else None)
    return found


# --- frames --------------------------------------------------------------------------------


def _of_frames(
    frame: Frame,
    order: Sequence[OrderKey],
    value: Callable[[Sequence[Entry], int, Sequence[int]], Datum],
) -> Values:
    """Return the function from the rows of each frame, by their places, to its value.

    Rows with the same frame have the same value, unless it is an `nth_value`.
    """
    starts = _places_of(frame, frame.start, order, is_start=True)
    ends = _places_of(frame, frame.end, order, is_start=False)

    def values(entries: Sequence[Entry], peers: Peers, offsets: Offsets) -> list[Datum]:
        begins, stops = starts(frame, peers, offsets[0]), ends(frame, peers, offsets[1])
        found: list[Datum] = []
        known: dict[tuple[int, ...], Datum] = {}
        framed = 0
        for at, (begin, stop) in enumerate(zip(begins, stops, strict=True)):
            end = max(stop, begin)
            key = begin, end, *((at,) if frame.exclude != "nothing" or value is _nth else ())
            if key not in known:
                framed += end - begin
                if framed > MOST_FRAMED:
                    raise TooMany
                known[key] = value(entries, at, _kept(frame, peers, at, begin, end))
            found.append(known[key])
        return found

    return values


def _places_of(
    frame: Frame, bound: FrameBound | None, order: Sequence[OrderKey], *, is_start: bool
) -> Places:
    if frame.unit == "range" and bound is not None and bound.offset is not None:
        return _by_distance(bound, order[0], is_start=is_start)
    return _starts if is_start else _ends


def _distance(bound: FrameBound | None, offset: Datum) -> int:
    """Return an offset as it is added to a place; raises ValueError for NULL and negative ones."""
    if bound is None or bound.offset is None:
        return 0
    distance = int(str(offset))
    if distance < 0:
        raise ValueError
    return -distance if bound.side == "preceding" else distance


def _starts(frame: Frame, peers: Peers, offset: Datum) -> Sequence[int]:
    """Return the place of the first row of each row's frame."""
    count = len(peers.numbers)
    distance = _distance(frame.start, offset)
    if frame.start is None:
        return [0] * count
    if frame.unit == "rows":
        return [min(max(at + distance, 0), count) for at in range(count)]
    last = len(peers.starts) - 1
    return [peers.starts[min(max(group + distance, 0), last)] for group in peers.numbers]


def _ends(frame: Frame, peers: Peers, offset: Datum) -> Sequence[int]:
    """Return the place after the last row of each row's frame."""
    count = len(peers.numbers)
    distance = _distance(frame.end, offset) + 1
    if frame.end is None:
        return [count] * count
    if frame.unit == "rows":
        return [min(max(at + distance, 0), count) for at in range(count)]
    last = len(peers.starts) - 1
    return [peers.starts[min(max(group + distance, 0), last)] for group in peers.numbers]


def _by_distance(bound: FrameBound, key: OrderKey, *, is_start: bool) -> Places:
    """Return what finds an end of frames at a distance from the value of the order's only key.

    Where the value is NULL, the peers are the end.
    """
    number = _number_of(type_of(key.expr))
    sign = -1 if bound.side == "preceding" else 1
    find = bisect_left if is_start else bisect_right

    def places(_: Frame, peers: Peers, offset: Datum) -> Sequence[int]:
        distance = sign * number(offset)
        values = [None if each is None else number(each) for each in peers.keys]
        if key.descending:
            values = [None if each is None else -each for each in values]
        known = [each for each in values if each is not None]
        before = 0 if values[0] is not None else len(values) - len(known)  # NULL comes first
        return [
            peers.starts[group + (not is_start)]
            if each is None
            else before + find(known, each + distance)
            for each, group in zip(values, peers.numbers, strict=True)
        ]

    return places


def _number_of(type: SqlType) -> Callable[[Any], Any]:
    """Return the function from values of an order's key, and distances from these, to numbers.

    It raises TooMany for what is no finite number. Raises NotCompiled.
    """
    match type.name:
        case "int2" | "int4" | "int8":
            return int
        case "numeric":
            return _units
        case "float4" | "float8":
            return _finite
        case "timestamp" | "timestamptz":
            return lambda datum: _micros(datum, 1, _INFINITE_TIMESTAMPS)
        case "date":
            return lambda datum: _micros(datum, _DAY, _INFINITE_DATES)
        case _:
            raise NotCompiled(f"distances of {type.name}")


def _units(numeric: Any) -> int:
    """Return a numeric as a whole number of units of the smallest scale that one may have."""
    return int(_WIDE.scaleb(_finite(Decimal(str(numeric))), NUMERIC_DIGITS))


def _finite(number: Any) -> Any:
    if not math.isfinite(number):
        raise TooMany
    return number


def _micros(datum: Any, unit: int, infinite: Sequence[int]) -> int:
    """Return a moment, or the length of an interval without months, which differ."""
    if not isinstance(datum, tuple):
        if datum in infinite:
            raise TooMany
        return int(datum * unit)
    months, days, micros = datum
    if months:
        raise TooMany
    return int(days * _DAY + micros)


def _kept(frame: Frame, peers: Peers, at: int, begin: int, end: int) -> Sequence[int]:
    """Return the places of a frame without those that it excludes."""
    if frame.exclude == "nothing":
        return range(begin, end)
    first, last = at, at + 1
    if frame.exclude != "current row":
        group = peers.numbers[at]
        first, last = peers.starts[group], peers.starts[group + 1]
    own = (at,) if frame.exclude == "ties" and begin <= at < end else ()
    before, after = range(begin, min(end, first)), range(max(begin, last), end)
    return [*chain(before, own, after)]


def _value(entries: Sequence[Entry], rows: Sequence[int]) -> Datum:
    """Return the value of the first of some rows; NULL if there is none."""
    entry = entries[rows[0]] if rows else None
    return None if entry is None else entry[0]


def _nth(entries: Sequence[Entry], at: int, rows: Sequence[int]) -> Datum:
    """Return the value of the row of a frame whose number is given for the row."""
    number = (entries[at] or (None, None))[1]
    if number is None:
        return None
    place = int(str(number)) - 1
    if place < 0:
        raise ValueError
    return _value(entries, rows[place : place + 1])
