"""Fold constants and derive non-nullability from the leaves up.

Results are rebuilt in the plain form (`build`), so that a FALSE removes the relation below it. A
predicate that rejects the NULLs of an outer join's padding turns it into an inner join.
"""

from collections.abc import Sequence

import pyarrow as pa

from foreshore.datum import from_array, to_array
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import may_fold, outcome
from foreshore.expr.ir import (
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.scalars import with_scalars
from foreshore.expr.split import Test
from foreshore.expr.traversal import inputs_of
from foreshore.sql.optimize import build
from foreshore.sql.optimize.nullability import Nullable, may_be_null, nullable_above
from foreshore.sql.optimize.scalars import conjunction, replace_columns, substitute
from foreshore.sql.optimize.simplify import simplify
from foreshore.types import ColumnType

MAX_VALUES = 1000  # more constant values than this are left to an engine
FEW_ROWS = 16  # rows up to which values are computed one by one


def fold(relation: Relation, fallible: Test) -> Relation:
    """Return `relation` in the plain form with simplified scalars."""
    return _Fold(fallible).fold(relation)[0]


class _Fold:
    def __init__(self, fallible: Test) -> None:
        self.fallible = fallible
        self.locals: dict[int, Nullable] = {}

    def fold(self, relation: Relation) -> tuple[Relation, Nullable]:
        """Return `relation` folded, and which of its columns are nullable."""
        if isinstance(relation, Let):
            value, nullable = self.fold(relation.value)
            self.locals[relation.number] = nullable
            body, of_body = self.fold(relation.body)
            return Let(relation.number, value, body), of_body
        folded = [self.fold(input) for input in inputs_of(relation)]
        below = [nullable for _, nullable in folded]
        node, nullable = self.scalars(relation, below)
        return self.rebuild(node, [input for input, _ in folded]), nullable

    def scalars(self, node: Relation, below: list[Nullable]) -> tuple[Relation, Nullable]:
        """Simplify the scalars of `node`; return also which of its columns are nullable."""
        if isinstance(node, Map):
            columns = list(below[0])
            scalars = []
            for scalar in node.scalars:
                scalars.append(self.scalar(scalar, columns))
                columns.append(may_be_null(scalars[-1], columns))
            return Map(node.input, tuple(scalars)), tuple(columns)
        row = tuple(may for each in below for may in each)
        node = with_scalars(node, lambda scalar: self.scalar(scalar, row))
        nullable = nullable_above(node, below, self.locals)
        if isinstance(node, Join):
            safe = tuple(
                position
                for position in node.null_safe
                if all(may_be_null(s, row) for s in node.equivalences[position])
            )
            return Join(node.inputs, node.equivalences, safe), nullable
        return node, nullable

    def scalar(self, scalar: Scalar, nullable: Sequence[bool]) -> Scalar:
        noted = replace_columns(scalar, lambda c: Column(c.index, c.type, nullable[c.index]))
        return simplify(noted, nullable, self.fallible)

    def rebuild(self, node: Relation, inputs: list[Relation]) -> Relation:
        """Return `node` over `inputs` in the plain form."""
        match node:
            case Map(scalars=scalars):
                known = self.of_constant(inputs[0], scalars)
                return known or build.map_(inputs[0], scalars)
            case Filter(predicates=predicates):
                known = self.of_constant(inputs[0], (conjunction(predicates),))
                if known is not None:
                    return _true_rows(known)
                return build.filter_(inputs[0], predicates, self.fallible)
            case Project(outputs=outputs):
                return build.project(inputs[0], outputs)
            case FlatMap(function=function, args=args, columns=columns):
                return build.flat_map(inputs[0], function, args, columns)
            case Join(equivalences=equivalences, null_safe=null_safe):
                return build.join(inputs, equivalences, null_safe, self.fallible)
            case Reduce(group_key=group_key, aggregates=aggregates):
                return build.reduce_(inputs[0], group_key, aggregates)
            case TopK(group_key=group, order_key=order, limit=limit, offset=offset):
                return build.top_k(inputs[0], group, order, limit, offset)
            case Window(partition=partition, order_key=order, functions=functions):
                return build.window(inputs[0], partition, order, functions)
            case Negate():
                return build.negate(inputs[0])
            case Threshold():
                return build.threshold(inputs[0])
            case Union():
                return build.union(inputs)
            case LocalGet(number=number, columns=columns):
                return _with_nullability(node, columns, self.locals.get(number))
            case Constant() | Get():
                return node
            case Let() | TemporalFilter() | JoinOn() | LetRec() | Recursive():
                raise AssertionError(f"not here: {node}")

    def of_constant(self, input: Relation, scalars: Sequence[Scalar]) -> Constant | None:
        """Return Map(input, scalars) if `input` is constant and all values can be computed."""
        if not isinstance(input, Constant) or len(input.rows) * len(scalars) > MAX_VALUES:
            return None
        if len(input.rows) > FEW_ROWS:
            return _computed(input, scalars)
        rows = []
        for row, count in input.rows:
            literals: list[Scalar] = [
                Literal(datum, column.type)
                for datum, column in zip(row, input.columns, strict=True)
            ]
            for scalar in scalars:
                literals.append(simplify(substitute(scalar, literals), (), self.fallible))
                if not isinstance(literals[-1], Literal):
                    return None
            rows.append((tuple(s.value for s in literals if isinstance(s, Literal)), count))
        types = tuple(ColumnType(type_of(scalar)) for scalar in scalars)
        return Constant(tuple(rows), (*input.columns, *types))


def _computed(input: Constant, scalars: Sequence[Scalar]) -> Constant | None:
    """Return Map(input, scalars) by kernels; None if a scalar is no pure function, or fails."""
    count = len(input.rows)
    data = list(zip(*(row for row, _ in input.rows), strict=True))
    arrays = [to_array(each, column.type) for each, column in zip(data, input.columns, strict=True)]
    added = []
    for scalar in scalars:
        if not may_fold(replace_columns(scalar, lambda column: Literal(None, column.type)), count):
            return None
        values, errors = outcome(scalar, arrays, count)
        if errors is not None:
            return None
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        arrays.append(values)
        added.append(from_array(values, type_of(scalar)))
    rows = zip(*data, *added, strict=True) if added else zip(*data, strict=True)
    types = tuple(ColumnType(type_of(scalar)) for scalar in scalars)
    counts = [each for _, each in input.rows]
    return Constant(tuple(zip(rows, counts, strict=True)), (*input.columns, *types))


def _true_rows(tested: Constant) -> Constant:
    """Return the rows whose last column is TRUE, without that column."""
    kept = tuple((row[:-1], count) for row, count in tested.rows if row[-1] is True)
    return Constant(kept, tested.columns[:-1])


def _with_nullability(
    node: LocalGet, columns: tuple[ColumnType, ...], nullable: Nullable | None
) -> LocalGet:
    if nullable is None:
        return node
    noted = tuple(ColumnType(c.type, may) for c, may in zip(columns, nullable, strict=True))
    return LocalGet(node.number, noted)
