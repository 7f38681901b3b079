"""Joins of few rows: one input after the other, by equal codes of the equivalences."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod

import numpy as np
import pyarrow as pa

from foreshore.compute.linear import flat
from foreshore.compute.local.small.rows import (
    MOST_CODES,
    Ints,
    NotSmall,
    SmallRows,
    canonical,
    codes_of,
    require_countable,
    require_few,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.cost import is_demanding
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Call, Join, Scalar
from foreshore.expr.split import columns_used, shift
from foreshore.expr.traversal import walk_scalars
from foreshore.types import SqlType, arrow_type, numeric_of_scale

FEW_CALLS = 10_000  # rows for which calls over long values are computed here
FEW_SEARCHES = 2_000  # and those that look at their arguments many times


def join(node: Join, inputs: Sequence[SmallRows], values: "Values") -> SmallRows:
    """Return the join of its inputs' rows; raises NotSmall if there are too many."""
    return _Join(node, inputs, values).run()


class Values:
    """Computes scalars over rows; raises NotSmall where one fails, or would take long.

    `check` raises if the query has been cancelled.
    """

    def __init__(self, check: Callable[[], None], few_calls: int = FEW_CALLS) -> None:
        self._check = check
        self._few_calls = few_calls
        self._few_searches = few_calls * FEW_SEARCHES // FEW_CALLS

    def __call__(self, scalar: Scalar, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """Return the values of a scalar."""
        self._check()
        few = self._few_searches
        if rows > few and (rows > self._few_calls or is_searching(scalar)) and is_long(scalar):
            raise NotSmall("calls over many rows")
        found, failed = outcome(scalar, columns, rows)
        if failed is not None and failed.null_count < rows:
            raise NotSmall("a scalar fails")
        values = flat(found)
        require_few(rows, values.nbytes)
        return values


@lru_cache(4096)
def is_long(scalar: Scalar) -> bool:
    """Whether a scalar calls functions of values that may be long."""
    return any(
        isinstance(part, Call) and any(kind_is_long(type_of(arg)) for arg in part.args)
        for part in walk_scalars(scalar)
    )


def kind_is_long(type: SqlType) -> bool:
    """Whether values of a type have no bounded length."""
    arrow = arrow_type(type)
    return bool(pa.types.is_nested(arrow) or pa.types.is_string(arrow) or pa.types.is_binary(arrow))


@lru_cache(4096)
def is_searching(scalar: Scalar) -> bool:
    """Whether a scalar calls a function that may look at its arguments many times."""
    return any(
        isinstance(part, Call) and is_demanding(part.function) for part in walk_scalars(scalar)
    )


class _Join:
    def __init__(self, node: Join, inputs: Sequence[SmallRows], values: Values) -> None:
        widths = [len(columns_of(input)) for input in node.inputs]
        self._starts = np.concatenate([[0], np.cumsum(widths)])
        self._inputs = list(inputs)
        self._values = values
        self._codes: list[dict[int, Ints]] = []  # of each equivalence, by input; -1 for NULL
        for number, equivalence in enumerate(node.equivalences):
            self._codes.append(self._codes_of(equivalence, number in node.null_safe))

    def _codes_of(self, equivalence: Sequence[Scalar], null_safe: bool) -> dict[int, Ints]:
        """Return the codes of an equivalence; rows with different ones have an impossible code."""
        owners = [self._owner(scalar) for scalar in equivalence]
        types = [type_of(scalar) for scalar in equivalence]
        common = _common(types)
        columns = []
        for owner, scalar in zip(owners, equivalence, strict=True):
            rows = self._inputs[owner]
            over = shift(scalar, -int(self._starts[owner])) if columns_used(scalar) else scalar
            column = self._values(over, rows.columns, rows.count)
            columns.append(canonical(_cast(column, common), common))
        together = pa.concat_arrays(columns)
        codes = codes_of([together], len(together))
        if not null_safe and together.null_count:
            codes = np.where(together.is_null().to_numpy(zero_copy_only=False), -1, codes)
        ends = np.cumsum([len(column) for column in columns])
        found: dict[int, Ints] = {}
        for owner, part in zip(owners, np.split(codes, ends[:-1]), strict=True):
            before = found.get(owner)
            found[owner] = part if before is None else np.where(before == part, part, -1)
        return found

    def _owner(self, scalar: Scalar) -> int:
        used = columns_used(scalar)
        return int(np.searchsorted(self._starts, min(used), "right")) - 1 if used else 0

    def run(self) -> SmallRows:
        """Return the joined rows, in the columns of all inputs."""
        places = {0: self._kept(0)}
        left = set(range(1, len(self._inputs)))
        while left:
            linked = [i for i in left if any(i in c and places.keys() & c for c in self._codes)]
            number = min(linked or left)
            left.remove(number)
            places = self._joined(places, number)
        columns: list[pa.Array] = []
        copies = [self._inputs[n].diffs[places[n]].astype(np.float64) for n in places]
        require_countable(prod(copies, start=np.ones(len(places[0]))))
        diffs = np.ones(len(places[0]), np.int64)
        for number, rows in enumerate(self._inputs):
            found = rows.take(places[number])
            columns += found.columns
            diffs = diffs * found.diffs
        return SmallRows(tuple(columns), diffs)

    def _kept(self, number: int) -> Ints:
        """Return the places of an input's rows that can be joined at all."""
        kept = np.ones(self._inputs[number].count, np.bool_)
        for codes in self._codes:
            if number in codes:
                kept &= codes[number] >= 0
        return np.flatnonzero(kept)

    def _joined(self, places: Mapping[int, Ints], number: int) -> dict[int, Ints]:
        """Return the places of all inputs' rows, joined with one more input."""
        mine = self._kept(number)
        count = len(next(iter(places.values())))
        left, right = np.zeros(count, np.int64), np.zeros(len(mine), np.int64)
        most = 1  # all numbers are below it
        for codes in self._codes:
            others = [i for i in codes if i in places]
            if number not in codes or not others:
                continue
            size = 1 + max((int(c.max()) for c in codes.values() if len(c)), default=0)
            if most * size >= MOST_CODES:
                values, both = np.unique(np.concatenate([left, right]), return_inverse=True)
                left, right, most = both[:count], both[count:], len(values)
            left = left * size + codes[others[0]][places[others[0]]]
            right = right * size + codes[number][mine]
            most *= size
        at, to = pairs(left, right)
        return {**{i: each[at] for i, each in places.items()}, number: mine[to]}


def pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of places with equal values; raises NotSmall if there are too many."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts = ordered.searchsorted(left)
    counts = ordered.searchsorted(left, "right") - starts
    total = int(counts.sum())
    require_few(total, 0)
    at = np.repeat(np.arange(len(left)), counts)
    offsets = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return at, order[np.repeat(starts, counts) + offsets]


def _common(types: Sequence[SqlType]) -> SqlType:
    """Return the type in which values of these types compare: that of the largest scale."""
    if types[0].name != "numeric":
        return types[0]
    return numeric_of_scale(max(type.scale or 0 for type in types))


def _cast(column: pa.Array, type: SqlType) -> pa.Array:
    wanted = arrow_type(type)
    if column.type == wanted:
        return column
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:  # more digits than the scale has room for
        raise NotSmall(str(error)) from error
