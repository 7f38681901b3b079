"""Pull up correlation by equality: compute a subquery once for all rows, not once per key.

    (SELECT max(x) FROM u WHERE u.b = t.a AND u.c > 0)     for each row of t
    Reduce(Filter(u, c > 0), [b], [max(x)])                once, to be joined on t.a = u.b

If a subquery depends on the outer row only by such equalities, it needs no keys from there. Each
equality becomes a column of the subquery (a *pulled* column, after all others), by which aggregates
and TopK group, and then an equality of a join. The subquery is then also computed for values that
no outer row has, so nothing in it may fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    Call,
    Column,
    Filter,
    FlatMap,
    Join,
    JoinOn,
    Let,
    Map,
    Negate,
    OuterColumn,
    Project,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import Test, can_fail, columns_used, shift
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.sql.lower.outer_columns import Scopes, has_subquery, may_fail_within
from foreshore.sql.optimize.scalars import conjuncts, remap


@dataclass(frozen=True)
class PulledUp:
    """A relation without outer references, and the values that its last columns must equal.

    `outer` are scalars over the row around the subquery: its columns are `Column`s in them, columns
    of rows further out `OuterColumn`s from level 1.
    """

    relation: Relation
    outer: tuple[Scalar, ...]


@dataclass(frozen=True)
class EquiCondition:
    """A join condition taken apart; scalars of the right side are over its own columns."""

    pairs: tuple[tuple[Scalar, Scalar], ...]
    left: tuple[Scalar, ...]
    right: tuple[Scalar, ...]


def pull(relation: Relation, scopes: Scopes, fallible: Test) -> PulledUp | None:
    """Return `relation` with its correlation pulled up, or None if it is not by equality."""
    pulled = _Pull(scopes, fallible).pull(relation)
    if pulled is None or not pulled.outer or may_fail_within(pulled.relation, fallible):
        return None
    return pulled


def equi_condition(on: Scalar, left_width: int, fallible: Test) -> EquiCondition | None:
    """Return `on`, without outer columns, split into equalities and single-side tests.

    Returns None if it contains anything else.
    """
    pairs: list[tuple[Scalar, Scalar]] = []
    left: list[Scalar] = []
    right: list[Scalar] = []
    for predicate in conjuncts([on]):
        if has_subquery(predicate) or can_fail(predicate, fallible):
            return None
        match predicate, _side(predicate, left_width):
            case _, "left":
                left.append(predicate)
            case _, "right":
                right.append(shift(predicate, -left_width))
            case Call(function="eq", args=(a, b)), _ if type_of(a) == type_of(b):
                match _side(a, left_width), _side(b, left_width):
                    case "left", "right":
                        pairs.append((a, shift(b, -left_width)))
                    case "right", "left":
                        pairs.append((b, shift(a, -left_width)))
                    case _:
                        return None
            case _:
                return None
    return EquiCondition(tuple(pairs), tuple(left), tuple(right)) if pairs else None


def _side(scalar: Scalar, left_width: int) -> OneOf["left", "right", "both", "none"]:
    """Return the side whose columns `scalar` uses."""
    used = columns_used(scalar)
    if not used:
        return "none"
    if max(used) < left_width:
        return "left"
    return "right" if min(used) >= left_width else "both"


@dataclass(frozen=True)
class _Pull:
    scopes: Scopes
    fallible: Test

    def pull(self, relation: Relation) -> PulledUp | None:
        """Return `relation` with its pulled columns after its own."""
        if not self.scopes.of_relation(relation):
            return PulledUp(relation, ())
        match relation:
            case Filter(input=input, predicates=predicates):
                return self.filter(self.pull(input), len(columns_of(input)), predicates)
            case JoinOn(kind="inner", lateral=False, left=left, right=right, on=on):
                product = self.product((left, right))
                return self.filter(product, len(columns_of(relation)), (on,))
            case JoinOn(kind="left", lateral=False):
                return self.left_join(relation)
            case Join(inputs=inputs, equivalences=()):
                return self.product(inputs)
            case Let(number=number, value=value, body=body):
                inner = None if self.scopes.of_relation(value) else self.pull(body)
                return inner and PulledUp(Let(number, value, inner.relation), inner.outer)
            case Union(inputs=inputs):
                each = [self.pull(input) for input in inputs]
                first, *rest = each
                if first is None or any(p is None or p.outer != first.outer for p in rest):
                    return None
                return PulledUp(Union(tuple(p.relation for p in each if p)), first.outer)
            case (
                Map()
                | Project()
                | FlatMap()
                | Reduce()
                | TopK()
                | Window()
                | Negate()
                | Threshold()
            ):
                if not all(map(self.is_local, scalars_of(relation))):
                    return None
                below = self.pull(relation.input)
                return below and PulledUp(self.over(relation, below), below.outer)
            case _:
                return None

    def is_local(self, scalar: Scalar) -> bool:
        """Return whether `scalar` uses only its own row."""
        return not has_subquery(scalar) and all(
            level == 0 for level, _ in self.scopes.of_scalar(scalar)
        )

    def over(
        self,
        node: Map | Project | FlatMap | Reduce | TopK | Window | Negate | Threshold,
        below: PulledUp,
    ) -> Relation:
        """Return `node` over its pulled-up input, with the pulled columns last."""
        count = len(below.outer)
        width = len(columns_of(node.input))
        kept = range(width, width + count)
        types = columns_of(below.relation)
        match node:
            case Negate():
                return Negate(below.relation)
            case Threshold():
                return Threshold(below.relation)
            case Project(outputs=outputs):
                return Project(below.relation, (*outputs, *kept))
            case TopK(group_key=group, order_key=order, limit=limit, offset=offset):
                return TopK(below.relation, (*group, *kept), order, limit, offset)
            case Window(partition=partition, order_key=order, functions=functions):
                made = range(width + count, width + count + len(functions))
                ranked = Window(below.relation, (*partition, *kept), order, functions)
                return Project(ranked, (*range(width), *made, *kept))
            case Map(scalars=scalars):
                made = range(width + count, width + count + len(scalars))
                places = (*range(width), *made)
                moved = tuple(remap(scalar, places) for scalar in scalars)
                return Project(Map(below.relation, moved), (*places, *kept))
            case FlatMap(function=function, args=args, columns=columns):
                made = range(width + count, width + count + len(columns))
                mapped = FlatMap(below.relation, function, args, columns)
                return Project(mapped, (*range(width), *made, *kept))
            case Reduce(group_key=group_key, aggregates=aggregates):
                pulled = tuple(Column(i, types[i].type, types[i].nullable) for i in kept)
                reduced = Reduce(below.relation, (*group_key, *pulled), aggregates)
                keys = len(group_key)
                total = keys + count + len(aggregates)
                places = (*range(keys), *range(keys + count, total), *range(keys, keys + count))
                return Project(reduced, places)

    def filter(
        self, below: PulledUp | None, width: int, predicates: Sequence[Scalar]
    ) -> PulledUp | None:
        """Separate the equalities with the outer row from `predicates`."""
        if below is None:
            return None
        local: list[Scalar] = []
        inner: list[Scalar] = []
        outer: list[Scalar] = []
        for predicate in conjuncts(predicates):
            if has_subquery(predicate):
                return None
            if self.is_local(predicate):
                local.append(predicate)
                continue
            sides = self.equality(predicate)
            if sides is None:
                return None
            inner.append(sides[0])
            outer.append(sides[1])
        relation = Filter(below.relation, tuple(local)) if local else below.relation
        if inner:
            relation = Map(relation, tuple(inner))
        return PulledUp(relation, (*below.outer, *outer))

    def equality(self, predicate: Scalar) -> tuple[Scalar, Scalar] | None:
        """Return the inner and the outer side of an equality between the two rows."""
        match predicate:
            case Call(function="eq", args=(a, b)) if type_of(a) == type_of(b):
                for ours, theirs in ((a, b), (b, a)):
                    levels = {level for level, _ in self.scopes.of_scalar(theirs)}
                    own = {level for level, _ in self.scopes.of_scalar(ours)}
                    if own == {0} and levels and 0 not in levels:
                        if can_fail(predicate, self.fallible):
                            return None
                        return ours, _one_level_out(theirs)
        return None

    def product(self, inputs: Sequence[Relation]) -> PulledUp | None:
        """Return the product; the pulled columns of the inputs follow all others."""
        parts: list[Relation] = []
        outer: list[Scalar] = []
        own: list[int] = []
        pulled: list[int] = []
        start = 0
        for input in inputs:
            part = self.pull(input)
            if part is None:
                return None
            width = len(columns_of(input))
            own += range(start, start + width)
            pulled += range(start + width, start + width + len(part.outer))
            start += width + len(part.outer)
            parts.append(part.relation)
            outer += part.outer
        return PulledUp(Project(Join(tuple(parts)), (*own, *pulled)), tuple(outer))

    def left_join(self, join: JoinOn) -> PulledUp | None:
        """Pull up from the preserved side; the other side and the condition must be local."""
        if self.scopes.of_relation(join.right) or not self.is_local(join.on):
            return None
        left = self.pull(join.left)
        if left is None:
            return None
        width, count = len(columns_of(join.left)), len(left.outer)
        total = width + len(columns_of(join.right))
        places = (*range(width), *range(width + count, total + count))
        joined = JoinOn(left.relation, join.right, "left", remap(join.on, places))
        return PulledUp(Project(joined, (*places, *range(width, width + count))), left.outer)


def _one_level_out(scalar: Scalar) -> Scalar:
    """Return a scalar of outer rows as seen from the row around the subquery."""
    if isinstance(scalar, OuterColumn):
        if scalar.level == 1:
            return Column(scalar.index, scalar.type, scalar.nullable)
        return OuterColumn(scalar.level - 1, scalar.index, scalar.type, scalar.nullable)
    operands = operands_of(scalar)
    return with_operands(scalar, tuple(map(_one_level_out, operands))) if operands else scalar
