"""Find the columns of outer rows that an expression uses, at any depth.

A *reference* `(level, column)` is an `OuterColumn` as seen from where the expression stands: level
1 is the row around a relation. For a scalar there is also level 0, its own row.
"""

from collections.abc import Callable

from foreshore.expr.ir import (
    AnySubquery,
    Call,
    Column,
    Exists,
    Filter,
    JoinOn,
    Literal,
    LocalGet,
    Map,
    OuterColumn,
    Project,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    TopK,
)
from foreshore.expr.scalars import scalars_of, with_scalars
from foreshore.expr.split import Test
from foreshore.expr.traversal import (
    inputs_of,
    operands_of,
    walk_relations,
    with_inputs,
    with_operands,
)

Reference = tuple[int, int]
References = frozenset[Reference]
NONE: References = frozenset()


class Scopes:
    """Compute and cache the outer references of expressions, which are needed at every level."""

    def __init__(self) -> None:
        self._relations: dict[int, References] = {}
        self._kept: list[Relation] = []  # so that no id is used again

    def of_relation(self, relation: Relation) -> References:
        """Return the references of `relation` to rows around it; levels start at 1."""
        found = self._relations.get(id(relation))
        if found is None:
            found = self._find(relation)
            self._relations[id(relation)] = found
            self._kept.append(relation)
        return found

    def _find(self, relation: Relation) -> References:
        result: set[Reference] = set()
        for scalar in scalars_of(relation):
            result |= {(level, i) for level, i in self.of_scalar(scalar) if level}
        for input in inputs_of(relation):
            inner = self.of_relation(input)
            if isinstance(relation, JoinOn) and relation.lateral and input is relation.right:
                inner = _out(inner)
                inner = frozenset((level, i) for level, i in inner if level)
            result |= inner
        return frozenset(result) or NONE

    def of_scalar(self, scalar: Scalar) -> References:
        """Return the references of `scalar`; those to its own row have level 0."""
        match scalar:
            case Column(index=index):
                return frozenset({(0, index)})
            case OuterColumn(level=level, index=index):
                return frozenset({(level, index)})
            case Exists(relation=relation) | ScalarSubquery(relation=relation):
                return _out(self.of_relation(relation))
            case AnySubquery(predicate=predicate, relation=relation):
                inside = frozenset((level, i) for level, i in self.of_scalar(predicate) if level)
                return _out(inside | self.of_relation(relation))
            case _:
                result: set[Reference] = set()
                for operand in operands_of(scalar):
                    result |= self.of_scalar(operand)
                return frozenset(result) or NONE


def _out(references: References) -> References:
    """Return `references` as seen from one level further out."""
    return frozenset((level - 1, column) for level, column in references) or NONE


def has_subquery(scalar: Scalar) -> bool:
    """Return whether `scalar` contains a subquery."""
    stack = [scalar]
    while stack:
        node = stack.pop()
        if isinstance(node, Exists | ScalarSubquery | AnySubquery):
            return True
        stack.extend(operands_of(node))
    return False


def substitute(body: Relation, number: int, value: Relation) -> Relation:
    """Return `body` with `value`, adjusted for its depth, in place of `LocalGet(number)`."""

    def replace(node: Relation, depth: int) -> Relation:
        if isinstance(node, LocalGet) and node.number == number:
            return _moved_inward(value, depth)
        return node

    return _rewrite(body, 0, replace, lambda scalar, depth: scalar)


def _moved_inward(relation: Relation, by: int) -> Relation:
    """Return `relation` as written `by` levels further in."""

    def replace(scalar: OuterColumn, depth: int) -> Scalar:
        if scalar.level <= depth:
            return scalar
        return OuterColumn(scalar.level + by, scalar.index, scalar.type, scalar.nullable)

    return _rewrite(relation, 0, lambda node, depth: node, replace) if by else relation


def _rewrite(
    relation: Relation,
    depth: int,
    leaf: Callable[[Relation, int], Relation],
    outer: Callable[[OuterColumn, int], Scalar],
) -> Relation:
    """Return `relation` with leaves and outer columns replaced; callbacks receive the depth."""

    def scalar(node: Scalar) -> Scalar:
        match node:
            case OuterColumn():
                return outer(node, depth)
            case Exists(relation=inner):
                return Exists(_rewrite(inner, depth + 1, leaf, outer))
            case ScalarSubquery(relation=inner, type=type):
                return ScalarSubquery(_rewrite(inner, depth + 1, leaf, outer), type)
            case AnySubquery(predicate=predicate, relation=inner):
                tested = _rewrite(Filter(inner, (predicate,)), depth + 1, leaf, outer)
                assert isinstance(tested, Filter)
                return AnySubquery(tested.predicates[0], tested.input)
            case _:
                operands = operands_of(node)
                return with_operands(node, tuple(map(scalar, operands))) if operands else node

    inputs = inputs_of(relation)
    if not inputs:
        return leaf(relation, depth)
    lateral = isinstance(relation, JoinOn) and relation.lateral
    rewritten = tuple(
        _rewrite(input, depth + (lateral and i == 1), leaf, outer) for i, input in enumerate(inputs)
    )
    return with_scalars(with_inputs(relation, rewritten), scalar)


def may_fail_within(relation: Relation, fallible: Test) -> bool:
    """Return whether evaluating `relation`, subqueries included, may raise an error."""
    relations = [relation]
    while relations:
        for node in walk_relations(relations.pop()):
            stack = list(scalars_of(node))
            while stack:
                part = stack.pop()
                match part:
                    case Call() if fallible(part):
                        return True
                    case ScalarSubquery(relation=inner):
                        if not at_most_one_row(inner):
                            return True
                        relations.append(inner)
                    case Exists(relation=inner) | AnySubquery(relation=inner):
                        relations.append(inner)
                stack.extend(operands_of(part))
    return False


def at_most_one_row(relation: Relation) -> bool:
    """Return whether `relation` has at most one row by its form."""
    while True:
        match relation:
            case Map(input=input) | Project(input=input):
                relation = input
            case Reduce(group_key=key):
                return not key
            case TopK(group_key=(), limit=Literal(value=int(limit))):
                return limit <= 1
            case _:
                return False
