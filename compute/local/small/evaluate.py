"""Evaluates lowered plans over few rows: `evaluate_small`.

An engine takes milliseconds to begin; a few rows are done before. What is not known here, or has an
error in the data, raises NotSmall, and an engine evaluates the whole plan.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import result_schema
from foreshore.compute.finish import places_in_order
from foreshore.compute.linear import Rows, applied, elements_of
from foreshore.compute.local.small.join import FEW_CALLS, Values, join
from foreshore.compute.local.small.reduce import reduce
from foreshore.compute.local.small.rows import (
    NotSmall,
    SmallRows,
    added_up,
    canonical,
    codes_of,
    consolidated,
    require_countable,
    require_few,
)
from foreshore.datum import to_array
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.cost import cost_of, has_growing_call, is_given, is_heavy
from foreshore.expr.equality import has_one_form
from foreshore.expr.ir import (
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations
from foreshore.types import INT8, is_float

_KNOWN = (
    Constant, Filter, FlatMap, Get, Join, Let, LocalGet, Map, Negate, Project, Reduce, Threshold,
    TopK, Union,
)  # fmt: skip
_AGGREGATES = frozenset(["count", "sum", "min", "max", "sum_float", "array_agg", "string_agg"])
MOST_NODES = 200
MOST_SIZE = 1 << 13  # of a value, as estimated
MOST_POSITION = 1 << 62

Contents = Callable[[Get], SmallRows]


def is_small_plan(relation: Relation) -> bool:
    """Whether `evaluate_small` knows all parts of a plan, and none may take long.

    It does not look at long values, which would take long to hash.
    """
    for number, node in enumerate(walk_relations(relation)):
        if not isinstance(node, _KNOWN) or number == MOST_NODES:
            return False
        if isinstance(node, Reduce) and any(a.function not in _AGGREGATES for a in node.aggregates):
            return False
        scalars = list(scalars_of(node))
        if isinstance(node, FlatMap) and node.input == Join(()):  # its arrays are rows
            scalars = [each for each in node.arrays if not is_given(each)]
        if any(cost_of(scalar).size > MOST_SIZE for scalar in scalars):
            return False
    return not has_growing_call(relation) and not is_heavy(relation)


is_known_small_plan = lru_cache(64)(is_small_plan)  # few, as a plan may have long arrays


def evaluate_small(
    relation: Relation,
    contents: Contents,
    check: Callable[[], None] = lambda: None,
    few_calls: int = FEW_CALLS,
) -> pa.Table:
    """Return the rows of a lowered plan, with multiplicities; raises NotSmall.

    `contents` returns the rows of a collection, each with a positive multiplicity. `check` is
    called now and then, and raises if the query has been cancelled. Calls over values that may be
    long are made for at most `few_calls` rows.
    """
    try:
        rows = _Evaluation(contents, Values(check, few_calls), check).run(relation)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        raise NotSmall(str(error)) from error
    if (rows.diffs < 1).any():
        rows = consolidated(rows)
        if (rows.diffs < 0).any():
            raise NotSmall("a negative multiplicity")
    arrays = [*rows.columns, pa.array(rows.diffs)]
    return pa.Table.from_arrays(arrays, schema=result_schema(columns_of(relation)))


class _Evaluation:
    def __init__(self, contents: Contents, values: Values, check: Callable[[], None]) -> None:
        self._contents = contents
        self._locals: dict[int, SmallRows] = {}
        self._check = check
        self._values = values

    def run(self, relation: Relation) -> SmallRows:
        """Return the rows of a plan."""
        self._check()
        match relation:
            case Constant(rows=given, columns=types):
                given_columns = [
                    to_array([row[i] for row, _ in given], t.type) for i, t in enumerate(types)
                ]
                return SmallRows(tuple(given_columns), np.array([d for _, d in given], np.int64))
            case Get():
                return self._contents(relation)
            case LocalGet(number=number):
                return self._locals[number]
            case Let(number=number, value=value, body=body):
                self._locals[number] = self.run(value)
                return self.run(body)
            case Join(inputs=()):
                return SmallRows((), np.ones(1, np.int64))
            case Join(inputs=inputs):
                return join(relation, [self.run(input) for input in inputs], self._values)
            case Union(inputs=inputs):
                return _union([self.run(input) for input in inputs])
            case Negate(input=input):
                rows = self.run(input)
                return SmallRows(rows.columns, -rows.diffs)
            case Threshold(input=input):
                rows = self.run(input)
                equal = map(canonical, rows.columns, (c.type for c in columns_of(relation)))
                rows = consolidated(SmallRows(tuple(equal), rows.diffs))
                return rows.take(rows.diffs > 0)
            case Reduce(input=input):
                return reduce(relation, self._positive(input), self._values)
            case TopK(input=input):
                return self._top_k(relation, self._positive(input))
            case Map() | Filter() | Project() | FlatMap():
                return self._linear(relation, self.run(relation.input))
            case _:
                raise NotSmall(type(relation).__name__)

    def _positive(self, relation: Relation) -> SmallRows:
        """Return rows without negative multiplicities."""
        rows = self.run(relation)
        if not (rows.diffs < 1).any():
            return rows
        rows = consolidated(rows)
        return rows.take(rows.diffs > 0)

    def _linear(self, node: Map | Filter | Project | FlatMap, rows: SmallRows) -> SmallRows:
        """Return the rows of a linear node.

        A row that fails may cancel with another, as those of outer joins without a partner do.
        """
        try:
            return self._computed(node, rows)
        except NotSmall:
            if not (rows.diffs < 1).any():
                raise
            return self._computed(node, consolidated(rows))

    def _computed(self, node: Map | Filter | Project | FlatMap, rows: SmallRows) -> SmallRows:
        if isinstance(node, FlatMap):
            parents, added = elements_of(node, rows.columns, rows.count, self._values)
            repeated = rows.take(parents)
            return SmallRows((*repeated.columns, *added), repeated.diffs)
        found = applied(node, Rows(rows.columns, (pa.array(rows.diffs),), rows.count), self._values)
        return SmallRows(found.columns, found.along[0].to_numpy())

    def _top_k(self, node: TopK, rows: SmallRows) -> SmallRows:
        """Return the rows of each group between two positions."""
        types = [column.type for column in columns_of(node)]
        limit, offset = self._bound(node.limit), min(self._bound(node.offset) or 0, MOST_POSITION)
        if not rows.count:
            return rows
        groups = codes_of(
            [canonical(rows.columns[i], types[i]) for i in node.group_key], rows.count
        )
        if limit is not None and not offset and added_up(groups, rows.diffs)[1].max() <= limit:
            return rows
        if not all(has_one_form(type) or is_float(type) for type in types):
            raise NotSmall("equal values have an order of their own")
        floats = [c for c, t in zip(rows.columns, types, strict=True) if is_float(t)]
        if any(map(_has_negative_zero, floats)):
            raise NotSmall("equal values that differ")
        keys = [self._values(key.expr, rows.columns, rows.count) for key in node.order_key]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(groups), *keys, *rows.columns],
            names=[""] * (1 + len(keys) + len(rows.columns)),
        )
        order = [OrderKey(Column(0, INT8))]
        for number, key in enumerate(node.order_key):
            column = Column(1 + number, type_of(key.expr))
            order.append(OrderKey(column, key.descending, key.nulls_first))
        order += [OrderKey(Column(1 + len(keys) + i, type)) for i, type in enumerate(types)]
        places = np.asarray(places_in_order(batch, tuple(order)))
        diffs = rows.diffs[places]
        ends = np.cumsum(diffs)
        new = np.concatenate([[True], np.diff(groups[places]) != 0])
        before = np.maximum.accumulate(np.where(new, ends - diffs, 0))
        ends = ends - before
        stop = ends if limit is None else np.minimum(ends, min(offset + limit, MOST_POSITION))
        taken = stop - np.maximum(ends - diffs, offset)
        kept = taken > 0
        found = rows.take(places[kept])
        return SmallRows(found.columns, taken[kept])

    def _bound(self, bound: Scalar | None) -> int | None:
        """Return LIMIT or OFFSET as a number, None if there is none."""
        if bound is None:
            return None
        value: int | None = self._values(bound, (), 1)[0].as_py()
        return value


def _union(parts: list[SmallRows]) -> SmallRows:
    size = sum(column.nbytes for part in parts for column in part.columns)
    require_few(sum(part.count for part in parts), size)
    require_countable(np.concatenate([part.diffs for part in parts]).astype(np.float64))
    columns = tuple(
        pa.concat_arrays(list(each)) for each in zip(*(part.columns for part in parts), strict=True)
    )
    return SmallRows(columns, np.concatenate([part.diffs for part in parts]))


def _has_negative_zero(column: pa.Array) -> bool:
    values = column.fill_null(1.0).to_numpy(zero_copy_only=False)
    return bool(((values == 0) & np.signbit(values)).any())
