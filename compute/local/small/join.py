"""Joins of few rows: one input after the other, by equal codes of the equivalences."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from foreshore.compute.linear import flat
from foreshore.compute.local.small.rows import Ints, NotSmall, SmallRows, canonical, codes_of
from foreshore.expr.ir import Join, Scalar, columns_of, type_of
from foreshore.expr.split import columns_used, shift
from foreshore.types import SqlType, arrow_type, numeric_of_scale

MOST_PAIRS = 200_000


def join(node: Join, inputs: Sequence[SmallRows], values: "Values") -> SmallRows:
    """Return the join of its inputs' rows; raises NotSmall if there are too many."""
    return _Join(node, inputs, values).run()


class Values:
    """Computes scalars over rows; raises NotSmall where one fails."""

    def __call__(self, scalar: Scalar, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """Return the values of a scalar."""
        from foreshore.expr.evaluate import outcome

        found, failed = outcome(scalar, columns, rows)
        if failed is not None and failed.null_count < rows:
            raise NotSmall("a scalar fails")
        return flat(found)


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
        for codes in self._codes:
            others = [i for i in codes if i in places]
            if number not in codes or not others:
                continue
            size = 1 + max((int(c.max()) for c in codes.values() if len(c)), default=0)
            left = left * size + codes[others[0]][places[others[0]]]
            right = right * size + codes[number][mine]
            both = np.unique(np.concatenate([left, right]), return_inverse=True)[1]
            left, right = both[:count], both[count:]
        at, to = pairs(left, right)
        return {**{i: each[at] for i, each in places.items()}, number: mine[to]}


def pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of places with equal values; raises NotSmall if there are too many."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts = ordered.searchsorted(left)
    counts = ordered.searchsorted(left, "right") - starts
    total = int(counts.sum())
    if total > MOST_PAIRS:
        raise NotSmall("too many pairs")
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
