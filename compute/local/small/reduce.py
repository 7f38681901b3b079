"""Groups and aggregates of few rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.bulk.exact import sum_float
from foreshore.compute.finish import places_in_order
from foreshore.compute.local.small.join import Values
from foreshore.compute.local.small.rows import (
    Ints,
    NotSmall,
    SmallRows,
    canonical,
    codes_of,
    starts_of,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.decimals import magnitude, pack, unscaled, widen
from foreshore.expr.ir import Aggregate, Column, OrderKey, Reduce
from foreshore.types import arrow_type


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
    for arg in args[:1] if aggregate.function != "count" else args:
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


def _sum_float(arg: pa.Array, places: Ints, diffs: Ints, groups: _Groups) -> pa.Array:
    """Return the sums of floats, each rounded once."""
    floats = arg.take(pa.array(places)).cast(pa.float64()).to_numpy(zero_copy_only=False)
    entries: list[list[tuple[float, int]]] = [[] for _ in range(groups.count)]
    for group, x, d in zip(
        groups.of_row[places].tolist(), floats.tolist(), diffs.tolist(), strict=True
    ):
        entries[group].append((x, d))
    return pa.array([sum_float(each) if each else None for each in entries], pa.float64())


def mask_of(column: pa.Array) -> Any:
    """Return where a boolean column is TRUE."""
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)
