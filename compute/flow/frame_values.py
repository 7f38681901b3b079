"""The values of window functions over rows in order within partitions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.flow.batch import Ints, Words
from foreshore.compute.flow.convert import column_at, nulls_at, words_of_values
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import frames
from foreshore.compute.flow.layout import Place
from foreshore.compute.flow.operators.rows import put_null
from foreshore.compute.flow.partitions import Part, Partitions
from foreshore.compute.render.framed import FloatComoments, FloatSums
from foreshore.datum import from_array, to_array
from foreshore.expr.ir import WindowFunction
from foreshore.types import Datum


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of partitions: the words of the functions' arguments, and their peers."""

    words: Words
    partitions: Partitions
    interner: Interner

    def null(self, place: Place) -> Any:
        """Return where an argument is NULL."""
        null = nulls_at(self.words, place)
        return np.zeros(len(self.words), np.bool_) if null is None else null

    def data(self, place: Place) -> list[Datum]:
        """Return the values of an argument."""
        return from_array(column_at(self.words, place, self.interner), place.type)


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """A running count, by row, and a sum by partition, over the rows before those that are here.

    The sum is of 128 bits: its low and high words.
    """

    count: Ints
    low: Ints
    high: Ints


def before_of(
    rows: Rows,
    args: Sequence[Place],
    filter: Place | None,
    partition: Ints,
    count: Ints,
    total: Words | None,
) -> Before:
    """Return what is before the rows here, given the count and the sum of each whole partition."""
    counted = _counted(rows, filter)
    for arg in args:
        counted = counted & ~rows.null(arg)
    counts = (count - np.bincount(partition[counted], minlength=len(count)))[partition]
    if total is None:
        none = np.zeros(len(count), np.int64)
        return Before(counts, none, none)
    low, high = total[:, 0].copy(), total[:, 1].copy()
    (arg,) = args
    frames.subtract_rows(rows.words, arg.word, arg.width, counted, partition, low, high)
    return Before(counts, low, high)


def _counted(rows: Rows, filter: Place | None) -> Any:
    """Return which rows a filter lets through."""
    if filter is None:
        return np.ones(len(rows.words), np.bool_)
    return (rows.words[:, filter.word] != 0) & ~rows.null(filter)


def put_value(
    function: WindowFunction,
    rows: Rows,
    args: Sequence[Place],
    filter: Place | None,
    parts: Sequence[Part],
    words: Words,
    place: Place,
    before: Before | None,
) -> None:
    """Write the words of a function's values for each row, given the parts of its frames.

    `before` is for a running function what it had over the rows before those that are here.
    """
    partitions = rows.partitions
    match function.function:
        case "row_number":
            words[:, place.word] = partitions.numbers()
        case "rank":
            words[:, place.word] = partitions.ranks()
        case "dense_rank":
            words[:, place.word] = partitions.dense_ranks()
        case "lag" | "lead":
            _put_neighbours(function.function, rows, args, words, place)
        case "last_known":
            known = np.where(rows.null(args[0]), -1, partitions.rows)
            at = np.maximum.accumulate(known)
            _put_from(rows, args[0], np.where(at < partitions.start, -1, at), words, place)
        case "nth_value":
            n = rows.words[:, args[1].word] - 1
            n[rows.null(args[1])] = -1
            _put_from(rows, args[0], _nth(parts, n), words, place)
        case "last_value":
            _put_from(rows, args[0], _last(parts), words, place)
        case _:
            counted = _counted(rows, filter)
            _put_aggregate(function, rows, args, counted, parts, words, place, before)


# --- rows -----------------------------------------------------------------------------------


def _put_from(rows: Rows, source: Place, at: Ints, words: Words, place: Place) -> None:
    """Write the argument of the row `at`, NULL where that is -1."""
    null = at < 0
    at = np.where(null, 0, at)
    for k in range(place.width):
        words[:, place.word + k] = rows.words[at, source.word + k]
    put_null(words, null | rows.null(source)[at], place)


def _put_neighbours(
    name: str, rows: Rows, args: Sequence[Place], words: Words, place: Place
) -> None:
    value, far, default = args
    partitions = rows.partitions
    distance = rows.words[:, far.word]
    most = np.int64(len(rows.words) + 1)
    distance = np.clip(distance, -most, most)
    at = partitions.rows - distance if name == "lag" else partitions.rows + distance
    inside = (partitions.start <= at) & (at < partitions.end)
    at = np.where(inside, at, 0)
    null = np.where(inside, rows.null(value)[at], rows.null(default)) | rows.null(far)
    for k in range(place.width):
        found = rows.words[at, value.word + k]
        words[:, place.word + k] = np.where(inside, found, rows.words[:, default.word + k])
    put_null(words, null, place)


def _nth(parts: Sequence[Part], n: Ints) -> Ints:
    """Return the row with number `n`, from 0, of each frame; -1 if there is none."""
    found = np.full(len(n), -1, np.int64)
    for low, high in parts:
        here = (n >= 0) & (n < high - low) & (found < 0)
        found = np.where(here, low + n, found)
        n = np.where(found < 0, n - (high - low), n)
    return found


def _last(parts: Sequence[Part]) -> Ints:
    """Return the last row of each frame; -1 if there is none."""
    found = np.full(len(parts[0][0]), -1, np.int64)
    for low, high in parts:
        found = np.where(high > low, high - 1, found)
    return found


# --- aggregates -------------------------------------------------------------------------------


def _put_aggregate(
    function: WindowFunction,
    rows: Rows,
    args: Sequence[Place],
    counted: Any,
    parts: Sequence[Part],
    words: Words,
    place: Place,
    before: Before | None,
) -> None:
    core = function.function
    if core not in ("array_agg", "string_agg"):
        for arg in args:
            counted = counted & ~rows.null(arg)
    elif core == "string_agg":
        counted = counted & ~rows.null(args[0])
    count = _over(parts, _prefix(counted.astype(np.int64)))
    if before is not None:
        count += before.count
    if core == "count":
        words[:, place.word] = count
        return
    empty = count == 0
    match core:
        case "sum":
            _put_sums(rows, args[0], counted, parts, words, place, before)
        case "min" | "max":
            _put_extremes(core, rows, args[0], counted, parts, words, place)
        case "sum_float":
            sums = FloatSums(_masked(rows.data(args[0]), counted))
            _put_data(rows, list(map(sums.over, _ranges(parts))), words, place)
        case "comoment_float":
            moments = FloatComoments(*(_masked(rows.data(arg), counted) for arg in args))
            _put_data(rows, list(map(moments.over, _ranges(parts))), words, place)
        case _:
            entries = list(zip(*(rows.data(arg) for arg in args), strict=True))
            _put_data(rows, _listed(_LISTED[core], entries, counted, parts), words, place)
    put_null(words, empty, place)


def _prefix(values: Ints) -> Ints:
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def _over(parts: Sequence[Part], prefix: Ints) -> Ints:
    """Return the sum over each frame, given sums from the first row on."""
    total = np.zeros(len(parts[0][0]), np.int64)
    for low, high in parts:
        total += prefix[high] - prefix[low]
    return total


def _put_sums(
    rows: Rows,
    arg: Place,
    counted: Any,
    parts: Sequence[Part],
    words: Words,
    place: Place,
    before: Before | None,
) -> None:
    """Write sums of integers of 64 or 128 bits, in 128 bits."""
    partition = rows.partitions.partition
    if before is None:
        low = high = np.zeros(int(partition[-1]) + 1, np.int64)
    else:
        low, high = before.low, before.high
    firsts, ends = map(np.stack, zip(*parts, strict=True))
    frames.put_sums(
        rows.words, arg.word, arg.width, counted, firsts, ends,
        partition, low, high, words, place.word, place.width,
    )  # fmt: skip


def _put_extremes(
    core: str,
    rows: Rows,
    arg: Place,
    counted: Any,
    parts: Sequence[Part],
    words: Words,
    place: Place,
) -> None:
    """Write the least or the greatest value of each frame, by the ranks of values."""
    ranks = pc.rank(column_at(rows.words, arg, rows.interner), tiebreaker="dense")
    order = ranks.to_numpy().astype(np.int64)
    none = np.int64(len(order) + 1)
    if core == "max":
        order = none - order
    order = np.where(counted, order, none)
    holder = np.zeros(len(order) + 2, np.int64)
    holder[order] = np.arange(len(order))
    least = np.full(len(order), none, np.int64)
    levels = _levels(order)
    for low, high in parts:
        least = np.minimum(least, _least(levels, low, high, none))
    at = holder[least]
    for k in range(place.width):
        words[:, place.word + k] = rows.words[at, arg.word + k]


def _levels(values: Ints) -> list[Ints]:
    """Return the least of each 1, 2, 4, ... values."""
    levels = [values]
    width = 1
    while 2 * width <= len(values):
        last = levels[-1]
        count = len(values) - 2 * width + 1
        levels.append(np.minimum(last[:count], last[width : width + count]))
        width *= 2
    return levels


def _least(levels: Sequence[Ints], low: Ints, high: Ints, none: np.int64) -> Ints:
    """Return the least of the values of each range, `none` of an empty one."""
    found = np.full(len(low), none, np.int64)
    length = high - low
    level = np.zeros(len(low), np.int64)
    some = length > 0
    level[some] = np.floor(np.log2(length[some])).astype(np.int64)
    for k, values in enumerate(levels):
        here = some & (level == k)
        if here.any():
            found[here] = np.minimum(values[low[here]], values[high[here] - (1 << k)])
    return found


def _masked(values: Sequence[Any], counted: Any) -> list[Any]:
    return [value if counts else None for value, counts in zip(values, counted, strict=True)]


def _ranges(parts: Sequence[Part]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield the parts of each frame."""
    each = (zip(low.tolist(), high.tolist(), strict=True) for low, high in parts)
    return zip(*each, strict=True)


def _listed(
    compute: Callable[[list[Any]], Datum],
    entries: Sequence[Any],
    counted: Any,
    parts: Sequence[Part],
) -> list[Datum]:
    """Return a function of the entries of each frame; equal neighbouring frames share it."""
    counts = counted.tolist()
    found: list[Datum] = []
    last: Any = None
    for ranges in _ranges(parts):
        if ranges != last:
            kept = [entries[i] for low, high in ranges for i in range(low, high) if counts[i]]
            value = compute(kept) if kept else None
            last = ranges
        found.append(value)
    return found


def _text(entries: list[Any]) -> Datum:
    parts: list[str] = []
    for value, delimiter in entries:
        parts += [str(delimiter or "") if parts else "", str(value)]
    return "".join(parts)


_LISTED: dict[str, Callable[[list[Any]], Datum]] = {
    "array_agg": lambda entries: tuple(value for (value,) in entries),
    "string_agg": _text,
}


def _put_data(rows: Rows, values: Sequence[Datum], words: Words, place: Place) -> None:
    column: pa.Array = to_array(list(values), place.type)
    for k, part in enumerate(words_of_values(column, place.type, "row", rows.interner)):
        words[:, place.word + k] = part
