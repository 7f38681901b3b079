"""The scalars directly in a relational operator, and the nodes of a scalar: replaces them."""

from collections.abc import Callable, Iterator

import msgspec

from foreshore.expr.columns import type_of
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Filter,
    FlatMap,
    Frame,
    FrameBound,
    Join,
    JoinOn,
    Literal,
    Map,
    OrderKey,
    Reduce,
    Relation,
    Scalar,
    TopK,
    Window,
    WindowFunction,
)
from foreshore.expr.traversal import operands_of, with_operands

Replace = Callable[[Scalar], Scalar | None]


def scalars_of(relation: Relation) -> Iterator[Scalar]:
    """Yield the scalars directly in `relation`, including those of its aggregates."""
    match relation:
        case Map(scalars=scalars):
            yield from scalars
        case Filter(predicates=predicates):
            yield from predicates
        case FlatMap(args=args):
            yield from args
        case Join(equivalences=equivalences):
            for equivalence in equivalences:
                yield from equivalence
        case Reduce(group_key=group_key, aggregates=aggregates):
            yield from group_key
            for aggregate in aggregates:
                yield from aggregate.args
                yield from (key.expr for key in aggregate.order_by)
                if aggregate.filter is not None:
                    yield aggregate.filter
        case TopK(order_key=order_key, limit=limit, offset=offset):
            yield from (key.expr for key in order_key)
            yield from (bound for bound in (limit, offset) if bound is not None)
        case Window(order_key=order_key, functions=functions):
            yield from (key.expr for key in order_key)
            for function in functions:
                yield from function.args
                if function.filter is not None:
                    yield function.filter
                yield from frame_offsets(function)
        case JoinOn(on=on):
            yield on
        case _:
            return


def with_scalars(relation: Relation, change: Callable[[Scalar], Scalar]) -> Relation:
    """Return `relation` with `change` applied to each scalar directly in it."""
    match relation:
        case Map(input=input, scalars=scalars):
            return Map(input, tuple(map(change, scalars)))
        case Filter(input=input, predicates=predicates):
            return Filter(input, tuple(map(change, predicates)))
        case FlatMap(args=args):
            return msgspec.structs.replace(relation, args=tuple(map(change, args)))
        case Join(equivalences=equivalences):
            changed = tuple(tuple(map(change, equivalence)) for equivalence in equivalences)
            return msgspec.structs.replace(relation, equivalences=changed)
        case Reduce(input=input, group_key=group_key, aggregates=aggregates):
            changed_aggregates = tuple(_changed_aggregate(a, change) for a in aggregates)
            return Reduce(input, tuple(map(change, group_key)), changed_aggregates)
        case TopK(order_key=order_key, limit=limit, offset=offset):
            return msgspec.structs.replace(
                relation,
                order_key=tuple(_changed_key(key, change) for key in order_key),
                limit=None if limit is None else change(limit),
                offset=None if offset is None else change(offset),
            )
        case Window(order_key=order_key, functions=functions):
            return msgspec.structs.replace(
                relation,
                order_key=tuple(_changed_key(key, change) for key in order_key),
                functions=tuple(_changed_function(function, change) for function in functions),
            )
        case JoinOn(on=on):
            return msgspec.structs.replace(relation, on=change(on))
        case _:
            return relation


def _changed_key(key: OrderKey, change: Callable[[Scalar], Scalar]) -> OrderKey:
    return OrderKey(change(key.expr), key.descending, key.nulls_first)


def _changed_aggregate(aggregate: Aggregate, change: Callable[[Scalar], Scalar]) -> Aggregate:
    return msgspec.structs.replace(
        aggregate,
        args=tuple(map(change, aggregate.args)),
        filter=None if aggregate.filter is None else change(aggregate.filter),
        order_by=tuple(_changed_key(key, change) for key in aggregate.order_by),
    )


def _changed_function(
    function: WindowFunction, change: Callable[[Scalar], Scalar]
) -> WindowFunction:
    return msgspec.structs.replace(
        function,
        args=tuple(map(change, function.args)),
        filter=None if function.filter is None else change(function.filter),
        frame=with_frame_offsets(function.frame, change),
    )


def frame_offsets(function: WindowFunction) -> Iterator[Scalar]:
    """Yield the offsets of the frame of a window function."""
    for bound in (function.frame.start, function.frame.end):
        if bound is not None and bound.offset is not None:
            yield bound.offset


def with_frame_offsets(frame: Frame, change: Callable[[Scalar], Scalar]) -> Frame:
    """Return `frame` with `change` applied to its offsets."""

    def changed(bound: FrameBound | None) -> FrameBound | None:
        if bound is None or bound.offset is None:
            return bound
        return FrameBound(bound.side, change(bound.offset))

    return msgspec.structs.replace(frame, start=changed(frame.start), end=changed(frame.end))


_WIDENINGS = frozenset([("int2", "int4"), ("int2", "int8"), ("int4", "int8")])


def bind_scalar(scalar: Scalar, replace: Replace) -> Scalar:
    """Return `scalar` with the nodes for which `replace` returns a scalar replaced by that."""
    new = replace(scalar)
    if new is not None:
        return new
    operands = operands_of(scalar)
    bound = tuple(bind_scalar(operand, replace) for operand in operands)
    if all(a is b for a, b in zip(operands, bound, strict=True)):
        return scalar
    return _widened(with_operands(scalar, bound))


def _widened(scalar: Scalar) -> Scalar:
    """Return a cast of a literal array to wider integers as a literal.

    Drivers send integers as narrow as they fit, and an array that is not a literal would be cast
    for each row.
    """
    if not isinstance(scalar, Call) or scalar.function != "cast_array(anyarray)":
        return scalar
    (array,) = scalar.args
    before, after = type_of(array).element, scalar.type.element
    if not isinstance(array, Literal) or before is None or after is None:
        return scalar
    is_wider = (before.name, after.name) in _WIDENINGS
    return Literal(array.value, scalar.type) if is_wider else scalar
