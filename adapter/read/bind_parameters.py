"""Arguments and environment put into a plan: what it says of the session becomes literals.

A prepared plan is untimed and without arguments. To run it, `Parameter` becomes the argument,
`Environment` what the adapter knows: the transaction's `now()`, the time of the read as
`mz_now()`, who asks. Plans without any of these are left as they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from foreshore.errors import InternalError
from foreshore.expr.ir import (
    Column,
    Environment,
    Filter,
    FlatMap,
    Join,
    Literal,
    Map,
    OrderKey,
    Parameter,
    Reduce,
    Relation,
    Scalar,
    TopK,
    inputs_of,
    operands_of,
    walk_relations,
    walk_scalars,
    with_inputs,
    with_operands,
)
from foreshore.expr.scalars import scalars_of
from foreshore.types import Datum

Replace = Callable[[Scalar], Scalar | None]


def is_open(relation: Relation) -> bool:
    """Whether something has to be put in before `relation` can run."""
    return any(
        is_open_scalar(scalar) for node in walk_relations(relation) for scalar in scalars_of(node)
    )


def is_open_scalar(scalar: Scalar) -> bool:
    """Whether something has to be put in before `scalar` has a value."""
    return any(isinstance(each, Parameter | Environment) for each in walk_scalars(scalar))


def environment_names(relation: Relation) -> frozenset[str]:
    """Return what `relation` asks of the environment."""
    return frozenset(
        each.name
        for node in walk_relations(relation)
        for scalar in scalars_of(node)
        for each in walk_scalars(scalar)
        if isinstance(each, Environment)
    )


@dataclass(frozen=True, slots=True)
class Givens:
    """Arguments, and what is asked of the environment, as the first columns of a row."""

    parameters: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, scalars: Iterable[Scalar]) -> "Givens":
        """Return those that `scalars` ask for."""
        leaves = [each for scalar in scalars for each in walk_scalars(scalar)]
        return cls(
            max([each.number for each in leaves if isinstance(each, Parameter)], default=0),
            tuple(sorted({each.name for each in leaves if isinstance(each, Environment)})),
        )

    def __len__(self) -> int:
        """Return how many columns they are."""
        return self.parameters + len(self.names)

    def placed(self, scalar: Scalar) -> Scalar:
        """Return `scalar` over a row of these and then the columns that it was over."""

        def replace(scalar: Scalar) -> Scalar | None:
            match scalar:
                case Column(index=index, type=type, nullable=nullable):
                    return Column(len(self) + index, type, nullable)
                case Parameter(number=number, type=type):
                    return Column(number - 1, type)
                case Environment(name=name, type=type):
                    return Column(self.parameters + self.names.index(name), type)
                case _:
                    return None

        return bind_scalar(scalar, replace)

    def values(
        self, args: Sequence[Datum], environment: Mapping[str, Callable[[], Datum]]
    ) -> list[Datum]:
        """Return the row of these."""
        found = list(args[: self.parameters])
        for name in self.names:
            if name not in environment:
                raise InternalError(f"nothing is known of {name} here")
            found.append(environment[name]())
        return found


def parameter_bindings(
    args: Sequence[Datum], environment: Mapping[str, Callable[[], Datum]]
) -> Replace:
    """Return what replaces parameters by `args` and the environment's names by their values."""

    def replace(scalar: Scalar) -> Scalar | None:
        match scalar:
            case Parameter(number=number, type=type):
                return Literal(args[number - 1], type)
            case Environment(name=name, type=type):
                if name not in environment:
                    raise InternalError(f"nothing is known of {name} here")
                return Literal(environment[name](), type)
            case _:
                return None

    return replace


def bind_scalar(scalar: Scalar, replace: Replace) -> Scalar:
    """Return `scalar` with what `replace` gives in place of its leaves."""
    new = replace(scalar)
    if new is not None:
        return new
    operands = operands_of(scalar)
    if not operands:
        return scalar
    bind_peek = tuple(bind_scalar(operand, replace) for operand in operands)
    if all(a is b for a, b in zip(operands, bind_peek, strict=True)):
        return scalar
    return with_operands(scalar, bind_peek)


def bind_relation(relation: Relation, replace: Replace, *, every: bool = False) -> Relation:
    """Return `relation` with what `replace` gives in place of its scalars' leaves.

    Looked at are the scalars that are open, or `every` one.
    """

    def scalars(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        return tuple(bind_scalar(value, replace) for value in values)

    def keys(values: tuple[OrderKey, ...]) -> tuple[OrderKey, ...]:
        return tuple(
            msgspec.structs.replace(key, expr=bind_scalar(key.expr, replace)) for key in values
        )

    below = inputs_of(relation)
    bind_peek = tuple(bind_relation(input, replace, every=every) for input in below)
    if any(a is not b for a, b in zip(below, bind_peek, strict=True)):
        relation = with_inputs(relation, bind_peek)
    if not every and not any(is_open_scalar(scalar) for scalar in scalars_of(relation)):
        return relation
    match relation:
        case Map(input=input, scalars=values):
            return Map(input, scalars(values))
        case Filter(input=input, predicates=predicates):
            return Filter(input, scalars(predicates))
        case FlatMap(args=args):
            return msgspec.structs.replace(relation, args=scalars(args))
        case Join(equivalences=equivalences):
            return msgspec.structs.replace(relation, equivalences=tuple(map(scalars, equivalences)))
        case Reduce(input=input, group_key=group_key, aggregates=aggregates):
            return Reduce(
                input,
                scalars(group_key),
                tuple(
                    msgspec.structs.replace(
                        aggregate,
                        args=scalars(aggregate.args),
                        order_by=keys(aggregate.order_by),
                        filter=aggregate.filter and bind_scalar(aggregate.filter, replace),
                    )
                    for aggregate in aggregates
                ),
            )
        case TopK(order_key=order_key, limit=limit, offset=offset):
            return msgspec.structs.replace(
                relation,
                order_key=keys(order_key),
                limit=limit and bind_scalar(limit, replace),
                offset=offset and bind_scalar(offset, replace),
            )
        case _ if every:
            return relation
        case _:
            raise InternalError(f"arguments in {type(relation).__name__}")
