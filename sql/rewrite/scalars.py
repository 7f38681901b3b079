"""Rewrite bound scalars at any depth of subqueries, counting boundaries crossed.

Subqueries in a scalar refer to the row of the query around them by `OuterColumn`, whose level grows
by one at each boundary: the relation of a subquery, the predicate of an `AnySubquery`, the right
side of a lateral join. `map_scalar` and `map_relation` pass each node to a function together with
that depth.
"""

from collections.abc import Callable, Iterator

import msgspec

from foreshore.expr.ir import (
    Aggregate,
    AnySubquery,
    Column,
    Exists,
    Filter,
    FlatMap,
    Join,
    JoinOn,
    Let,
    LocalGet,
    Map,
    OrderKey,
    OuterColumn,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    TopK,
    Window,
)
from foreshore.expr.scalars import scalars_of, with_scalars
from foreshore.expr.traversal import (
    inputs_of,
    operands_of,
    walk_relations,
    walk_scalars,
    with_inputs,
    with_operands,
)

# Given a node and its depth, returns its replacement, or None to map its operands instead.
Replace = Callable[[Scalar, int], Scalar | None]


def map_scalar(scalar: Scalar, replace: Replace, depth: int = 0) -> Scalar:
    """Return `scalar` with `replace` applied to each node, parents first."""
    new = replace(scalar, depth)
    if new is not None:
        return new
    match scalar:
        case Exists(relation=relation):
            return Exists(map_relation(relation, replace, depth + 1))
        case ScalarSubquery(relation=relation, type=type):
            return ScalarSubquery(map_relation(relation, replace, depth + 1), type)
        case AnySubquery(predicate=predicate, relation=relation):
            return AnySubquery(
                map_scalar(predicate, replace, depth + 1),
                map_relation(relation, replace, depth + 1),
            )
    operands = operands_of(scalar)
    if not operands:
        return scalar
    mapped = tuple(map_scalar(operand, replace, depth) for operand in operands)
    if all(a is b for a, b in zip(operands, mapped, strict=True)):
        return scalar
    return with_operands(scalar, mapped)


def map_relation(relation: Relation, replace: Replace, depth: int) -> Relation:
    """Return `relation` with `replace` applied to the nodes of each scalar."""

    def one(scalar: Scalar) -> Scalar:
        return map_scalar(scalar, replace, depth)

    def keys(order: tuple[OrderKey, ...]) -> tuple[OrderKey, ...]:
        return tuple(msgspec.structs.replace(key, expr=one(key.expr)) for key in order)

    def aggregate(a: Aggregate) -> Aggregate:
        return Aggregate(
            a.function,
            tuple(map(one, a.args)),
            a.type,
            a.distinct,
            None if a.filter is None else one(a.filter),
            keys(a.order_by),
        )

    if isinstance(relation, JoinOn):
        return JoinOn(
            map_relation(relation.left, replace, depth),
            map_relation(relation.right, replace, depth + relation.lateral),
            relation.kind,
            one(relation.on),
            relation.lateral,
        )
    inputs = inputs_of(relation)
    if inputs:
        relation = with_inputs(
            relation, tuple(map_relation(input, replace, depth) for input in inputs)
        )
    match relation:
        case Map(input=input, scalars=scalars):
            return Map(input, tuple(map(one, scalars)))
        case Filter(input=input, predicates=predicates):
            return Filter(input, tuple(map(one, predicates)))
        case FlatMap(input=input, function=function, args=args, columns=columns):
            return FlatMap(input, function, tuple(map(one, args)), columns)
        case Join(inputs=joined, equivalences=equivalences, null_safe=null_safe):
            return Join(joined, tuple(tuple(map(one, each)) for each in equivalences), null_safe)
        case Reduce(input=input, group_key=group_key, aggregates=aggregates):
            return Reduce(input, tuple(map(one, group_key)), tuple(map(aggregate, aggregates)))
        case TopK(input=input, group_key=group, order_key=order, limit=limit, offset=offset):
            return TopK(
                input,
                group,
                keys(order),
                None if limit is None else one(limit),
                None if offset is None else one(offset),
            )
        case Window():
            return with_scalars(relation, one)
        case _:
            return relation


def push_down(scalar: Scalar, levels: int = 1) -> Scalar:
    """Return `scalar` of some row as written `levels` boundaries further in."""

    def replace(node: Scalar, depth: int) -> Scalar | None:
        match node:
            case Column(index=index, type=type, nullable=nullable) if depth == 0:
                return OuterColumn(levels, index, type, nullable)
            case OuterColumn(level=level) if level >= depth:
                return msgspec.structs.replace(node, level=level + levels)
        return None

    return map_scalar(scalar, replace)


def lift(scalar: Scalar, levels: int) -> Scalar:
    """Return `scalar`, which uses no row nearer than `levels` boundaries out, as written there."""
    if not levels:
        return scalar

    def replace(node: Scalar, depth: int) -> Scalar | None:
        match node:
            case OuterColumn(level=level, index=index, type=type, nullable=nullable):
                if level - depth < levels:
                    return None  # a row within the scalar
                if level == levels and depth == 0:
                    return Column(index, type, nullable)
                return OuterColumn(level - levels, index, type, nullable)
        return None

    return map_scalar(scalar, replace)


def relations_within(relation: Relation) -> Iterator[Relation]:
    """Yield `relation` and all relations below it, subqueries included."""
    stack = [relation]
    while stack:
        for node in walk_relations(stack.pop()):
            yield node
            for scalar in scalars_of(node):
                stack += [
                    each.relation
                    for each in walk_scalars(scalar)
                    if isinstance(each, Exists | ScalarSubquery | AnySubquery)
                ]


def has_own_lets(relation: Relation) -> bool:
    """Return whether `relation` defines all locals that it reads."""
    nodes = list(relations_within(relation))
    within = {each.number for each in nodes if isinstance(each, Let | Recursive)}
    return all(each.number in within for each in nodes if isinstance(each, LocalGet))


def is_closed(relation: Relation) -> bool:
    """Return whether no scalar of `relation` uses an outer row."""
    closed = True

    def look(node: Scalar, depth: int) -> Scalar | None:
        nonlocal closed
        if isinstance(node, OuterColumn) and node.level > depth:
            closed = False
        return None

    map_relation(relation, look, 0)
    return closed


def uses_row(scalar: Scalar, levels: int = 1000) -> bool:
    """Return whether the scalar uses a column of the current row, or of up to `levels` rows out."""
    found = False

    def look(node: Scalar, depth: int) -> Scalar | None:
        nonlocal found
        if isinstance(node, Column):
            found = found or depth == 0
        elif isinstance(node, OuterColumn):
            found = found or 0 <= node.level - depth <= levels
        return None

    map_scalar(scalar, look)
    return found
