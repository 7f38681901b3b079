"""Push predicates down to their columns' source; equalities between inputs become joins.

    Filter(Join(a, b), a.x = b.y AND a.z > 1)   Join(Filter(a, z > 1), b) on x = y

A predicate that may fail is not pushed down, because it would be evaluated for rows that other
predicates had removed. The one exception is an equality without which a join would be a product:
like PostgreSQL's hash joins, it is evaluated for every row of each side.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import assert_never

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    Call,
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
    Once,
    Parameter,
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
from foreshore.expr.split import NEVER_TRUE, Test, can_fail, columns_used, is_not_null, shift
from foreshore.sql.optimize import build
from foreshore.sql.optimize.scalars import MAX_NODES, conjuncts, remap, size_of, substitute
from foreshore.types import BOOL


def push_predicates(relation: Relation, fallible: Test) -> Relation:
    """Return `relation` with its predicates pushed down as far as possible."""
    return _Pushdown(fallible).push(relation, [])


class _Pushdown:
    def __init__(self, fallible: Test) -> None:
        self.fallible = fallible
        self.negated: dict[int, bool] = {}  # whether each local, by number, is negated

    def push(self, relation: Relation, predicates: list[Scalar]) -> Relation:
        """Return Filter(relation, predicates), none of which can fail."""
        match relation:
            case Filter(input=input, predicates=own):
                parts = conjuncts(own)
                free = [p for p in parts if not can_fail(p, self.fallible)]
                filter_in_place = [p for p in parts if can_fail(p, self.fallible)]
                filtered = self.push(input, [*free, *predicates])
                return self.filter_in_place(filtered, filter_in_place)
            case Map(input=input, scalars=scalars):
                return self.push_through_map(input, scalars, predicates)
            case Project(input=input, outputs=outputs):
                moved = [remap(predicate, outputs) for predicate in predicates]
                return build.project(self.push(input, moved), outputs)
            case FlatMap(input=input, function=function, args=args, columns=columns):
                below, above = _divide(predicates, range(len(columns_of(input))))
                result = build.flat_map(self.push(input, below), function, args, columns)
                return self.above(result, above)
            case Join():
                return self.push_into_join(relation, predicates)
            case Reduce(input=input, group_key=group_key, aggregates=aggregates):
                keys = [i for i, key in enumerate(group_key) if not can_fail(key, self.fallible)]
                below, above = _divide(predicates, keys)
                moved = [substitute(predicate, group_key) for predicate in below]
                result = build.reduce_(self.push(input, moved), group_key, aggregates)
                return self.above(result, above)
            case TopK(input=input, group_key=group_key):
                below, above = _divide(predicates, group_key)
                result = build.top_k(
                    self.push(input, below),
                    group_key,
                    relation.order_key,
                    relation.limit,
                    relation.offset,
                )
                return self.above(result, above)
            case Window(input=input, partition=partition):
                below, above = _divide(predicates, partition)
                pushed = self.push(input, below)
                result = build.window(pushed, partition, relation.order_key, relation.functions)
                return self.above(result, above)
            case Negate(input=input):
                return build.negate(self.push(input, predicates))
            case Threshold(input=input):
                return build.threshold(self.push(input, predicates))
            case Union(inputs=inputs):
                return build.union([self.push(input, predicates) for input in inputs])
            case Let(number=number, value=value, body=body):
                pushed = self.push(value, [])
                self.negated[number] = self.is_negated(pushed)
                return Let(number, pushed, self.push(body, predicates))
            case Constant() | Get() | LocalGet():
                return self.above(relation, predicates)
            case TemporalFilter() | JoinOn() | LetRec() | Recursive():
                raise AssertionError(f"not lowered: {relation}")
            case _:
                assert_never(relation)

    def above(self, relation: Relation, predicates: Sequence[Scalar]) -> Relation:
        return build.filter_(relation, predicates, self.fallible)

    def filter_in_place(self, relation: Relation, predicates: list[Scalar]) -> Relation:
        """Return Filter(relation, predicates) without pushing the predicates, which may fail.

        They are pushed into the inputs of a Union only, whose rows are exactly the Union's.
        """
        match relation:
            case Union(inputs=inputs) if not any(map(self.is_negated, inputs)):
                return build.union([self.filter_in_place(input, predicates) for input in inputs])
        return self.connect(build.filter_(relation, predicates, self.fallible))

    def is_negated(self, relation: Relation) -> bool:
        """Return whether `relation` consists of rows to be removed."""
        while isinstance(relation, Project | Map | Filter):
            relation = relation.input
        match relation:
            case Negate():
                return True
            case LocalGet(number=number):
                return self.negated.get(number, False)
            case Constant(rows=rows):
                return any(count < 0 for _, count in rows)
            case _:
                return False

    def push_through_map(
        self, input: Relation, scalars: tuple[Scalar, ...], predicates: list[Scalar]
    ) -> Relation:
        """Substitute a Map's definitions into predicates if they cannot fail."""
        width = len(columns_of(input))
        definitions: list[Scalar | None] = [None] * width
        sound = [True] * width
        for scalar in scalars:
            used = columns_used(scalar)
            sound.append(all(sound[i] for i in used) and not can_fail(scalar, self.fallible))
            definitions.append(substitute(scalar, definitions) if sound[-1] else scalar)
        below: list[Scalar] = []
        above: list[Scalar] = []
        if _has_no_row(input):
            # The predicate exists for its errors; no value computed beside it may suppress them.
            predicates = [p for p in predicates if max(columns_used(p), default=-1) < width]
        for predicate in predicates:
            moved = predicate
            if all(sound[i] for i in columns_used(predicate)):
                moved = substitute(predicate, definitions)
            stays = moved is predicate and max(columns_used(predicate), default=-1) >= width
            if stays or size_of(moved) > MAX_NODES:
                above.append(predicate)
            else:
                below.append(moved)
        return self.above(build.map_(self.push(input, below), scalars), above)

    def push_into_join(self, join: Join, predicates: list[Scalar]) -> Relation:
        """Give each input its predicates and move equalities between inputs into the join."""
        widths = [len(columns_of(input)) for input in join.inputs]
        ends = list(accumulate(widths))
        each: list[list[Scalar]] = [[] for _ in join.inputs]
        classes: list[tuple[Scalar, ...]] = list(join.equivalences)
        above: list[Scalar] = []
        fixed: list[tuple[Scalar, Scalar]] = []
        for predicate in predicates:
            owner = build.owner_of(predicate, ends)
            if owner is None:
                sides = self.equality(predicate, ends)
                if sides is None:
                    above.append(predicate)
                else:
                    classes.append(sides)
            elif join.inputs:
                number = max(owner, 0)
                each[number].append(shift(predicate, widths[number] - ends[number]))
                fixed += _constant_equality(predicate)
            else:
                above.append(predicate)
        for scalar, value in fixed:
            for equivalence in classes:
                if scalar in equivalence:
                    for other in equivalence:
                        side = build.owner_of(other, ends)
                        if other == scalar or side is None or can_fail(other, self.fallible):
                            continue
                        moved = shift(other, widths[side] - ends[side])
                        each[side].append(Call("eq", (moved, value), BOOL))
        for position, equivalence in enumerate(classes):
            for scalar in equivalence if position not in join.null_safe else ():
                side = build.owner_of(scalar, ends)
                if isinstance(scalar, Column) and side is not None:
                    moved = shift(scalar, widths[side] - ends[side])
                    if isinstance(moved, Column) and _is_null_padding(
                        join.inputs[side], moved.index
                    ):
                        each[side].append(is_not_null(moved))  # the NULL padding never matches
        inputs = [
            self.push(input, list(dict.fromkeys(own)))
            for input, own in zip(join.inputs, each, strict=True)
        ]
        return self.above(build.join(inputs, classes, join.null_safe, self.fallible), above)

    def equality(self, predicate: Scalar, ends: Sequence[int]) -> tuple[Scalar, ...] | None:
        """Return the sides of an equality between two inputs, otherwise None."""
        match predicate:
            case Call(function="eq", args=(a, b)) if type_of(a) == type_of(b):
                owners = (build.owner_of(a, ends), build.owner_of(b, ends))
                if None in owners or -1 in owners:
                    return None
                return (a, b)
            case _:
                return None

    def connect(self, relation: Relation) -> Relation:
        """Move a failing equality into the join below if its sides are otherwise unconnected."""
        if not isinstance(relation, Filter) or not isinstance(relation.input, Join):
            return relation
        join = relation.input
        ends = list(accumulate(len(columns_of(input)) for input in join.inputs))
        groups = list(range(len(join.inputs)))

        def link(equivalence: Sequence[Scalar]) -> bool:
            """Connect the inputs; return whether some were not connected before."""
            owners = {build.owner_of(scalar, ends) for scalar in equivalence}
            found = {groups[o] for o in owners if o is not None and o >= 0}
            for i, group in enumerate(groups):
                if group in found:
                    groups[i] = min(found)
            return len(found) > 1

        for equivalence in join.equivalences:
            link(equivalence)
        classes: list[tuple[Scalar, ...]] = list(join.equivalences)
        rest: list[Scalar] = []
        for predicate in relation.predicates:
            sides = self.equality(predicate, ends)
            if sides is not None and link(sides):
                classes.append(sides)
            else:
                rest.append(predicate)
        if len(classes) == len(join.equivalences):
            return relation
        joined = build.join(join.inputs, classes, join.null_safe, self.fallible)
        return build.filter_(joined, rest, self.fallible)


def _has_no_row(relation: Relation) -> bool:
    """Return whether each row of `relation` fails or is dropped (`single_row_check`)."""
    while isinstance(relation, Project):
        relation = relation.input
    return isinstance(relation, Filter) and any(
        isinstance(p, Call) and p.function in NEVER_TRUE for p in relation.predicates
    )


def _is_null_padding(relation: Relation, column: int) -> bool:
    """Return whether an input of a Union has only NULLs in `column`, as outer-join padding has."""
    match relation:
        case Project(input=input, outputs=outputs):
            return _is_null_padding(input, outputs[column])
        case Filter(input=input):
            return _is_null_padding(input, column)
        case Map(input=input):
            return column < len(columns_of(input)) and _is_null_padding(input, column)
        case Union(inputs=inputs):
            return any(
                _is_null_in(input, column) or _is_null_padding(input, column) for input in inputs
            )
        case _:
            return False


def _is_null_in(relation: Relation, column: int) -> bool:
    match relation:
        case Project(input=input, outputs=outputs):
            return _is_null_in(input, outputs[column])
        case Filter(input=input):
            return _is_null_in(input, column)
        case Map(input=input, scalars=scalars):
            width = len(columns_of(input))
            if column < width:
                return _is_null_in(input, column)
            scalar = scalars[column - width]
            return isinstance(scalar, Literal) and scalar.value is None
        case _:
            return False


def _divide(
    predicates: Sequence[Scalar], columns: Sequence[int]
) -> tuple[list[Scalar], list[Scalar]]:
    """Return the predicates that use only `columns`, at least one, and the others."""
    allowed = frozenset(columns)
    below: list[Scalar] = []
    above: list[Scalar] = []
    for predicate in predicates:
        used = columns_used(predicate)
        (below if used and used <= allowed else above).append(predicate)
    return below, above


def _constant_equality(predicate: Scalar) -> list[tuple[Scalar, Scalar]]:
    """Return the scalar that `predicate` equates to a constant, and the constant."""
    match predicate:
        case Call(function="eq", args=(a, (Literal() | Parameter() | Once()) as value)):
            return [(a, value)]
        case Call(function="eq", args=((Literal() | Parameter() | Once()) as value, a)):
            return [(a, value)]
        case _:
            return []
