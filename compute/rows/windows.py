"""Window functions over the rows of a partition, as functions of the tuples of their arguments."""

from collections.abc import Callable, Sequence
from typing import Any

from foreshore.compute.rows.aggregates import finish_of
from foreshore.compute.rows.ordering import SortKey
from foreshore.compute.rows.source import NotCompiled, TooMany
from foreshore.expr.ir import Frame, WindowFunction
from foreshore.expr.windows import aggregate_of
from foreshore.types import Datum

MOST_RUNNING = 200  # rows of a partition whose frames grow from row to row

Entry = tuple[Datum, ...] | None  # the arguments for a row; None if the filter leaves it out
Values = Callable[[Sequence[Entry], Sequence[int]], Sequence[Datum]]
# From the entries of rows in order, and the place of each one's first peer, its values.


def windowed(
    width: int,
    order: Sequence[SortKey],
    sort: Callable[[list[Any]], None],
    functions: Sequence[WindowFunction],
) -> Callable[[list[Any]], list[tuple[Datum, ...]]]:
    """Return the function that appends the values of `functions` to the rows of a partition.

    A row has `width` columns, the keys of its `order`, and the entries of the functions. Raises
    NotCompiled.
    """
    first = width + len(order)
    values = [_values_of(function) for function in functions]

    def append(rows: list[Any]) -> list[tuple[Datum, ...]]:
        sort(rows)
        firsts: list[int] = []
        for place, row in enumerate(rows):
            is_peer = place > 0 and all([key.of(rows[place - 1]) == key.of(row) for key in order])
            firsts.append(firsts[-1] if is_peer else place)
        found = [
            of([row[first + number] for row in rows], firsts) for number, of in enumerate(values)
        ]
        more = zip(*found, strict=True)
        return [(*row[:width], *each) for row, each in zip(rows, more, strict=True)]

    return append


def _values_of(function: WindowFunction) -> Values:
    match function.function:
        case "row_number":
            return lambda entries, _: range(1, len(entries) + 1)
        case "rank":
            return lambda _, firsts: [first + 1 for first in firsts]
        case "dense_rank":
            return _dense_ranks
        case "lag":
            return lambda entries, _: _shifted(entries, -1)
        case "lead":
            return lambda entries, _: _shifted(entries, 1)
        case "array_agg" | "string_agg" | "nth_value" | "last_known":
            raise NotCompiled(function.function)
    ends = _ends_of(function.frame)
    if function.function == "last_value":
        return lambda entries, firsts: [_last(entries, end) for end in ends(firsts)]
    finish = finish_of(aggregate_of(function))

    def aggregates(entries: Sequence[Entry], firsts: Sequence[int]) -> list[Datum]:
        found: dict[int, Datum] = {}
        wanted = ends(firsts)
        if len(entries) > MOST_RUNNING and wanted[0] < len(entries):
            raise TooMany
        for end in wanted:
            if end not in found:
                found[end] = finish([entry for entry in entries[:end] if entry is not None])
        return [found[end] for end in wanted]

    return aggregates


def _dense_ranks(_: Sequence[Entry], firsts: Sequence[int]) -> list[Datum]:
    ranks: dict[int, int] = {}
    return [ranks.setdefault(first, len(ranks) + 1) for first in firsts]


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


def _last(entries: Sequence[Entry], end: int) -> Datum:
    entry = entries[end - 1]
    return None if entry is None else entry[0]


def _ends_of(frame: Frame) -> Callable[[Sequence[int]], list[int]]:
    """Return the function from first peers to the ends of frames, which begin with a partition."""
    if frame.start is not None or frame.exclude != "nothing":
        raise NotCompiled("frame")
    if frame.end is None:
        return lambda firsts: [len(firsts)] * len(firsts)
    if frame.end.side != "current" or frame.end.offset is not None:
        raise NotCompiled("frame")
    return _own_ends if frame.unit == "rows" else _ends_of_peers


def _own_ends(firsts: Sequence[int]) -> list[int]:
    return [*range(1, len(firsts) + 1)]


def _ends_of_peers(firsts: Sequence[int]) -> list[int]:
    ends: list[int] = []
    for place in range(len(firsts) - 1, -1, -1):
        is_last = place + 1 == len(firsts) or firsts[place + 1] != firsts[place]
        ends.append(place + 1 if is_last else ends[-1])
    return ends[::-1]
