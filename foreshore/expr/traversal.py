"""Traversal of expressions: direct inputs and operands, replacing them, walking all below."""

from collections.abc import Iterator

import msgspec

from foreshore.expr.ir import (
    And,
    AnySubquery,
    Call,
    Case,
    Constant,
    ErrorOf,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    LocalGet,
    Once,
    Or,
    Recursive,
    Relation,
    Scalar,
    Union,
)
from foreshore.ids import GlobalId
from foreshore.interruptible import REQUESTS, safepoint


def inputs_of(relation: Relation) -> tuple[Relation, ...]:
    """Return the direct inputs of `relation` (not those within its scalars)."""
    if REQUESTS:
        safepoint()
    match relation:
        case Join(inputs=inputs) | Union(inputs=inputs):
            return inputs
        case Let(value=value, body=body):
            return (value, body)
        case LetRec(values=values, body=body):
            return (*values, body)
        case JoinOn(left=left, right=right):
            return (left, right)
        case Recursive(base=base, step=step):
            return (base, step)
        case Constant() | Get() | LocalGet():
            return ()
        case _:
            return (relation.input,)


def with_inputs(relation: Relation, inputs: tuple[Relation, ...]) -> Relation:
    """Return `relation` with its inputs replaced, as many as `inputs_of` returns."""
    match relation:
        case Join() | Union():
            return msgspec.structs.replace(relation, inputs=inputs)
        case Let():
            return Let(relation.number, *inputs)
        case LetRec():
            return msgspec.structs.replace(relation, values=inputs[:-1], body=inputs[-1])
        case JoinOn():
            return msgspec.structs.replace(relation, left=inputs[0], right=inputs[1])
        case Recursive():
            return msgspec.structs.replace(relation, base=inputs[0], step=inputs[1])
        case Constant() | Get() | LocalGet():
            return relation
        case _:
            return msgspec.structs.replace(relation, input=inputs[0])


def operands_of(scalar: Scalar) -> tuple[Scalar, ...]:
    """Return the direct operands of `scalar` (nothing within a subquery's relation)."""
    if REQUESTS:
        safepoint()
    match scalar:
        case Call(args=args) | And(args=args) | Or(args=args):
            return args
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case ErrorOf(expr=expr) | Once(expr=expr):
            return (expr,)
        case AnySubquery(predicate=predicate):
            return (predicate,)
        case _:
            return ()


def with_operands(scalar: Scalar, operands: tuple[Scalar, ...]) -> Scalar:
    """Return `scalar` with its operands replaced, as many as `operands_of` returns."""
    match scalar:
        case Call() | And() | Or():
            return msgspec.structs.replace(scalar, args=operands)
        case Case():
            pairs = tuple(zip(operands[:-1:2], operands[1:-1:2], strict=True))
            return Case(pairs, operands[-1], scalar.type)
        case ErrorOf():
            return ErrorOf(operands[0])
        case Once():
            return Once(operands[0], scalar.type)
        case AnySubquery():
            return AnySubquery(operands[0], scalar.relation)
        case _:
            return scalar


def walk_relations(relation: Relation) -> Iterator[Relation]:
    """Yield `relation` and everything below it, parents first."""
    stack = [relation]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(inputs_of(node)))


def walk_scalars(scalar: Scalar) -> Iterator[Scalar]:
    """Yield `scalar` and everything below it, parents first."""
    stack = [scalar]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(operands_of(node)))


def sources_of(relation: Relation) -> frozenset[GlobalId]:
    """Return the ids of the collections that a lowered relation reads."""
    return frozenset(node.id for node in walk_relations(relation) if isinstance(node, Get))
