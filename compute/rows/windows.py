"""Window functions over the rows of a partition, as functions of the tuples of their arguments."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from foreshore.compute.rows.aggregates import finish_of
from foreshore.compute.rows.ordering import SortKey
from foreshore.compute.rows.source import NotCompiled, TooMany
from foreshore.expr.ir import Frame, FrameBound, WindowFunction
from foreshore.expr.windows import aggregate_of
from foreshore.types import Datum

MOST_FRAMED = 20_000  # rows of all different frames of a partition

Entry = tuple[Datum, ...] | None  # the arguments for a row; None if the filter leaves it out
Offsets = Sequence[Datum]  # of the start and the end of a frame; None for one without an offset


class Peers(NamedTuple):
    """The groups of rows that are equal in the order: the number of each row's, where each begins.

    After the starts of all groups comes the number of rows.
    """

    numbers: Sequence[int]
    starts: Sequence[int]


Values = Callable[[Sequence[Entry], Peers, Offsets], Sequence[Datum]]


def windowed(
    width: int,
    order: Sequence[SortKey],
    sort: Callable[[list[Any]], None],
    functions: Sequence[WindowFunction],
) -> Callable[[list[Any], Sequence[Offsets]], list[tuple[Datum, ...]]]:
    """Return the function that appends the values of `functions` to the rows of a partition.

    A row has `width` columns, the keys of its `order`, and the entries of the functions. For each
    function the offsets of its frame are given. Raises NotCompiled.
    """
    first = width + len(order)
    values = [_values_of(function) for function in functions]

    def append(rows: list[Any], offsets: Sequence[Offsets]) -> list[tuple[Datum, ...]]:
        sort(rows)
        peers = _peers(rows, order)
        found = [
            of([row[first + number] for row in rows], peers, offsets[number])
            for number, of in enumerate(values)
        ]
        more = zip(*found, strict=True)
        return [(*row[:width], *each) for row, each in zip(rows, more, strict=True)]

    return append


def _peers(rows: Sequence[Any], order: Sequence[SortKey]) -> Peers:
    numbers: list[int] = []
    starts: list[int] = []
    for place, row in enumerate(rows):
        is_peer = place > 0 and all([key.of(rows[place - 1]) == key.of(row) for key in order])
        if not is_peer:
            starts.append(place)
        numbers.append(len(starts) - 1)
    return Peers(numbers, (*starts, len(rows)))


def _values_of(function: WindowFunction) -> Values:
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
        case "array_agg" | "string_agg":
            raise NotCompiled(function.function)
        case "last_value":
            return _of_frames(function.frame, lambda entries, at, rows: _value(entries, rows[-1:]))
        case "nth_value":
            return _of_frames(function.frame, _nth)
    finish = finish_of(aggregate_of(function))

    def aggregated(entries: Sequence[Entry], at: int, rows: Sequence[int]) -> Datum:
        return finish([entry for i in rows if (entry := entries[i]) is not None])

    return _of_frames(function.frame, aggregated)


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
    frame: Frame, value: Callable[[Sequence[Entry], int, Sequence[int]], Datum]
) -> Values:
    """Return the function from the rows of each frame, by their places, to its value.

    Rows with the same frame have the same value, unless it is an `nth_value`.
    """
    if frame.unit == "range" and any(e is not None and e.offset for e in (frame.start, frame.end)):
        raise NotCompiled("a distance from a value")

    def values(entries: Sequence[Entry], peers: Peers, offsets: Offsets) -> list[Datum]:
        before, after = map(_distance, (frame.start, frame.end), offsets)
        found: list[Datum] = []
        known: dict[tuple[int, ...], Datum] = {}
        framed = 0
        for at in range(len(entries)):
            begin = _start(frame, before, peers, at)
            end = max(_end(frame, after, peers, at), begin)
            key = begin, end, *((at,) if frame.exclude != "nothing" or value is _nth else ())
            if key not in known:
                framed += end - begin
                if framed > MOST_FRAMED:
                    raise TooMany
                known[key] = value(entries, at, _kept(frame, peers, at, begin, end))
            found.append(known[key])
        return found

    return values


def _distance(bound: FrameBound | None, offset: Datum) -> int:
    """Return an offset as it is added to a place; raises ValueError for NULL and negative ones."""
    if bound is None or bound.offset is None:
        return 0
    distance = int(str(offset))
    if distance < 0:
        raise ValueError
    return -distance if bound.side == "preceding" else distance


def _start(frame: Frame, distance: int, peers: Peers, at: int) -> int:
    """Return the place of the first row of a frame."""
    if frame.start is None:
        return 0
    if frame.unit == "rows":
        return min(max(at + distance, 0), len(peers.numbers))
    group = peers.numbers[at] + distance
    return peers.starts[min(max(group, 0), len(peers.starts) - 1)]


def _end(frame: Frame, distance: int, peers: Peers, at: int) -> int:
    """Return the place after the last row of a frame."""
    if frame.end is None:
        return len(peers.numbers)
    if frame.unit == "rows":
        return min(max(at + distance + 1, 0), len(peers.numbers))
    group = peers.numbers[at] + distance + 1
    return peers.starts[min(max(group, 0), len(peers.starts) - 1)]


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
