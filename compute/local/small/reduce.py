"""Groups and aggregates of few rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.compute.finish import places_in_order
from foreshore.compute.local.small.join import Values
from foreshore.compute.local.small.rows import (
    Ints,
    NotSmall,
    SmallRows,
    canonical,
    codes_of,
    require_few,
    size_at,
    starts_of,
)
from foreshore.compute.render.exact import sum_float
from foreshore.expr.columns import type_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.functions.decimals import magnitude, pack, unscaled, widen
from foreshore.expr.ir import Aggregate, Column, OrderKey, Reduce
from foreshore.types import INT8, array_of, arrow_type


def reduce(node: Reduce, rows: SmallRows, values: Values) -> SmallRows:
    """Return one row for each group of rows, of which none has a negative multiplicity."""
    keys = [
        canonical(values(key, rows.columns, rows.count), type_of(key)) for key in node.group_key
    ]
    groups = _Groups.of(keys, rows)
    columns = [key.take(pa.array(groups.firsts)) for key in keys]
    for aggregate in node.aggregates:
        columns.append(_aggregate(aggregate, rows, groups, values))
    return SmallRows(tuple(columns), np.ones(groups.count, np.int64))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The group of each row, and the first row of each group; without a key there is one group."""

    of_row: Ints
    firsts: Ints
    count: int

    @classmethod
    def of(cls, keys: Sequence[pa.Array], rows: SmallRows) -> "_Groups":
        """Return the groups of rows that agree in `keys`."""
        if not keys:
            return cls(np.zeros(rows.count, np.int64), np.zeros(0, np.int64), 1)
        codes = codes_of(keys, rows.count)
        firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)[1:]
        return cls(numbers.astype(np.int64, copy=False), firsts, len(firsts))

    def added(self, places: Ints, numbers: Any) -> Any:
        """Return the sum of numbers of rows at `places` for each group, 0 for none."""
        sums = np.zeros(self.count, numbers.dtype)
        np.add.at(sums, self.of_row[places], numbers)
        return sums


def _aggregate(aggregate: Aggregate, rows: SmallRows, groups: _Groups, values: Values) -> pa.Array:
    """Return the aggregate of each group."""
    args = [values(arg, rows.columns, rows.count) for arg in aggregate.args]
    counted = rows.diffs > 0
    if aggregate.filter is not None:
        passed = values(aggregate.filter, rows.columns, rows.count)
        counted &= passed.fill_null(False).to_numpy(zero_copy_only=False)
    skipping = {"count": args, "array_agg": []}.get(aggregate.function, args[:1])
    for arg in skipping:
        if arg.null_count:
            counted &= arg.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(counted)
    diffs = rows.diffs[places]
    if aggregate.distinct and args:
        places = _distinct(aggregate, args, groups, places)
        diffs = np.ones(len(places), np.int64)
    present = groups.added(places, diffs) > 0
    match aggregate.function:
        case "count":
            return pa.array(groups.added(places, diffs), pa.int64())
        case "sum":
            return _sum(aggregate, args[0], places, diffs, groups, present)
        case "min" | "max":
            return _extreme(aggregate, args[0], places, groups, present)
        case "sum_float":
            return _sum_float(args[0], places, diffs, groups)
        case "array_agg":
            return _listed(aggregate, args, rows, places, diffs, groups, values)
        case "string_agg":
            lists = _listed(aggregate, args, rows, places, diffs, groups, values)
            delimiters = _listed(aggregate, args, rows, places, diffs, groups, values, 1)
            pairs = zip(lists.to_pylist(), delimiters.to_pylist(), strict=True)
            return pa.array([_joined(*pair) for pair in pairs], arrow_type(aggregate.type))
        case _:
            raise NotSmall(aggregate.function)


def _distinct(
    aggregate: Aggregate, args: Sequence[pa.Array], groups: _Groups, places: Ints
) -> Ints:
    """Return the first of the places of equal arguments in each group."""
    types = [type_of(arg) for arg in aggregate.args]
    taken = [
        canonical(arg.take(pa.array(places)), type) for arg, type in zip(args, types, strict=True)
    ]
    codes = codes_of([pa.array(groups.of_row[places]), *taken], len(places))
    return places[np.unique(codes, return_index=True)[1]]


def _sum(
    aggregate: Aggregate,
    arg: pa.Array,
    places: Ints,
    diffs: Ints,
    groups: _Groups,
    present: Any,
) -> pa.Array:
    """Return the sums of integers or numerics; raises NotSmall for one with too many digits."""
    numbers = unscaled(arg.take(pa.array(places)))
    most = magnitude(numbers) * magnitude(diffs) * max(len(places), 1)
    numbers, diffs = widen(max(most, 1), numbers, diffs)
    sums = groups.added(places, numbers * diffs)
    packed, failed = pack(sums, pa.array(present), aggregate.type.scale or 0)
    if failed is not None:
        raise NotSmall("a sum has too many digits")
    return packed


def _extreme(
    aggregate: Aggregate, arg: pa.Array, places: Ints, groups: _Groups, present: Any
) -> pa.Array:
    """Return the least or greatest value of each group."""
    type = type_of(aggregate.args[0])
    found = canonical(arg.take(pa.array(places)), type)
    numbers = groups.of_row[places]
    batch = pa.RecordBatch.from_arrays([pa.array(numbers), found], names=["g", "v"])
    order = places_in_order(batch, (OrderKey(Column(1, type), aggregate.function == "max"),))
    order = order[np.argsort(numbers[order], kind="stable")]
    at = np.zeros(groups.count, np.int64)
    if len(order):
        starts = starts_of(numbers[order])
        at[numbers[order][starts]] = order[starts]
    indices = pa.array(at, mask=~present)
    return found.take(indices).cast(arrow_type(aggregate.type))


def _listed(
    aggregate: Aggregate,
    args: Sequence[pa.Array],
    rows: SmallRows,
    places: Ints,
    diffs: Ints,
    groups: _Groups,
    values: Values,
    number: int = 0,
) -> pa.Array:
    """Return one of the arguments at `places` as a list for each group, NULL if there are none.

    Rows of one list are in the aggregate's order, then in that of all arguments.
    """
    taken = [arg.take(pa.array(places)) for arg in args]
    columns = [pa.array(groups.of_row[places])]
    keys = [OrderKey(Column(0, INT8))]
    for key in aggregate.order_by:
        computed = values(key.expr, rows.columns, rows.count).take(pa.array(places))
        column = Column(len(columns), type_of(key.expr))
        keys.append(OrderKey(column, key.descending, key.nulls_first))
        columns.append(computed)
    for arg, found in zip(aggregate.args, taken, strict=True):
        if not has_one_form(type_of(arg)):
            raise NotSmall("equal values have an order of their own")
        keys.append(OrderKey(Column(len(columns), type_of(arg))))
        columns.append(found)
    batch = pa.RecordBatch.from_arrays(columns, names=[""] * len(columns))
    order = np.asarray(places_in_order(batch, tuple(keys)), np.int64)
    require_few(int(diffs.sum()), 0)
    order = np.repeat(order, diffs[order])
    numbers = groups.of_row[places][order]
    require_few(len(order), size_at(taken[number], order))
    counts = np.bincount(numbers, minlength=groups.count)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    found = taken[number].take(pa.array(order))
    lists = pa.ListArray.from_arrays(pa.array(ends), found, mask=pa.array(counts == 0))
    return lists.cast(arrow_type(array_of(type_of(aggregate.args[number]))))


def _joined(texts: Sequence[str] | None, delimiters: Sequence[str | None]) -> str | None:
    """Return texts with the delimiter of each but the first before it."""
    if texts is None:
        return None
    parts = [texts[0]]
    for text, delimiter in zip(texts[1:], delimiters[1:], strict=True):
        parts += (delimiter or "", text)
    return "".join(parts)


def _sum_float(arg: pa.Array, places: Ints, diffs: Ints, groups: _Groups) -> pa.Array:
    """Return the sums of floats, each rounded once."""
    floats = arg.take(pa.array(places)).cast(pa.float64()).to_numpy(zero_copy_only=False)
    entries: list[list[tuple[float, int]]] = [[] for _ in range(groups.count)]
    for group, x, d in zip(
        groups.of_row[places].tolist(), floats.tolist(), diffs.tolist(), strict=True
    ):
        entries[group].append((x, d))
    return pa.array([sum_float(each) if each else None for each in entries], pa.float64())
