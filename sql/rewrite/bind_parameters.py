"""Parameter binding: replaces parameters and session values in a plan by literals.

A prepared plan has no arguments and no times. Before it runs, each `Parameter` becomes its argument
and each `Environment` its value: the transaction's `now()`, the time of the read as `mz_now()`, the
current user. Plans without either are not changed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from foreshore.datum import from_array
from foreshore.errors import DataError, InvalidParameterValue
from foreshore.expr.block import Block
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import constant, outcome
from foreshore.expr.ir import (
    Arguments,
    Call,
    Column,
    Environment,
    Get,
    Literal,
    Once,
    Parameter,
    Relation,
    Scalar,
    TopK,
)
from foreshore.expr.scalars import Replace, bind_scalar, scalars_of, with_scalars
from foreshore.expr.traversal import inputs_of, walk_relations, walk_scalars, with_inputs
from foreshore.types import Datum

SessionValue = Callable[[str], Datum]  # by the names in `Environment` scalars


def is_open(relation: Relation) -> bool:
    """Whether `relation` has parameters or session values to be bound."""
    return any(
        is_open_scalar(scalar) for node in walk_relations(relation) for scalar in scalars_of(node)
    )


def is_open_scalar(scalar: Scalar) -> bool:
    """Whether `scalar` has parameters, session values or constants to be bound."""
    return any(
        isinstance(each, Parameter | Arguments | Environment | Once)
        for each in walk_scalars(scalar)
    )


def environment_names(relation: Relation) -> frozenset[str]:
    """Return the names of the session values in `relation`."""
    return frozenset(
        each.name
        for node in walk_relations(relation)
        for scalar in scalars_of(node)
        for each in walk_scalars(scalar)
        if isinstance(each, Environment)
    )


@dataclass(frozen=True, slots=True)
class Givens:
    """Arguments and session values as the first columns of a row."""

    parameters: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, scalars: Iterable[Scalar]) -> "Givens":
        """Return those that `scalars` use."""
        leaves = [each for scalar in scalars for each in walk_scalars(scalar)]
        return cls(
            max(map(_last_parameter, leaves), default=0),
            tuple(sorted({each.name for each in leaves if isinstance(each, Environment)})),
        )

    def __len__(self) -> int:
        """Return the number of columns."""
        return self.parameters + len(self.names)

    def placed(self, scalar: Scalar) -> Scalar:
        """Return `scalar` as a scalar over a row of these columns, then the columns it used."""

        def replace(scalar: Scalar) -> Scalar | None:
            match scalar:
                case Column(index=index, type=type, nullable=nullable):
                    return Column(len(self) + index, type, nullable)
                case Parameter(number=number, type=type):
                    return Column(number - 1, type)
                case Arguments(numbers=numbers, type=type):
                    assert type.element is not None
                    items = tuple(Column(number - 1, type.element) for number in numbers)
                    return Call("array", items, type)
                case Environment(name=name, type=type):
                    return Column(self.parameters + self.names.index(name), type)
                case _:
                    return None

        return bind_scalar(scalar, replace)

    def values(self, args: Sequence[Datum], session_value: SessionValue | None) -> list[Datum]:
        """Return the values of the columns; without names no session value is needed."""
        found = list(args[: self.parameters])
        return [*found, *map(session_value, self.names)] if session_value is not None else found


def _last_parameter(scalar: Scalar) -> int:
    """Return the greatest number of a parameter in a scalar without operands; 0 without any."""
    match scalar:
        case Parameter(number=number):
            return number
        case Arguments(numbers=numbers):
            return max(numbers)
        case _:
            return 0


def parameter_bindings(args: Sequence[Datum], session_value: SessionValue) -> Replace:
    """Return what replaces parameters by `args`, and `Environment` scalars by session values.

    It computes what is computed once, and raises its error.
    """
    return _Bindings(args, session_value)


class _Bindings:
    """Arguments, session values and constants; no closure, which would hold itself."""

    def __init__(self, args: Sequence[Datum], session_value: SessionValue) -> None:
        self._args, self._session_value = args, session_value
        self._computed: dict[Scalar, Literal] = {}

    def __call__(self, scalar: Scalar) -> Scalar | None:
        match scalar:
            case Parameter(number=number, type=type):
                return Literal(self._args[number - 1], type)
            case Arguments(numbers=numbers, type=type):
                return Literal(tuple([self._args[number - 1] for number in numbers]), type)
            case Environment(name=name, type=type):
                return Literal(self._session_value(name), type)
            case Once(expr=expr):
                found = self._computed.get(scalar)
                if found is None:
                    found = self._computed[scalar] = _value_of(bind_scalar(expr, self))
                return found
            case _:
                return None


def _value_of(scalar: Scalar) -> Literal:
    """Return the value of a scalar without columns; raises its error."""
    values, errors = outcome(scalar, (), 1)
    if errors is not None:
        raise DataError.parse(errors[0].as_py())
    type = type_of(scalar)
    return Literal(from_array(values, type)[0], type)


def bind_relation(relation: Relation, replace: Replace) -> Relation:
    """Return `relation` with all its scalars bound; see `bind_scalar`."""
    if isinstance(relation, Get):
        return relation
    inputs = inputs_of(relation)
    below = tuple(bind_relation(input, replace) for input in inputs)
    if any(a is not b for a, b in zip(inputs, below, strict=True)):
        relation = with_inputs(relation, below)
    bound = {id(scalar): bind_scalar(scalar, replace) for scalar in scalars_of(relation)}
    if all(id(scalar) == before for before, scalar in bound.items()):
        return relation
    changed = with_scalars(relation, lambda scalar: bound[id(scalar)])
    if isinstance(changed, TopK):
        _check_count(changed.limit, "LIMIT", "2201W")
        _check_count(changed.offset, "OFFSET", "2201X")
    return changed


def _check_count(scalar: Scalar | None, clause: str, sqlstate: str) -> None:
    """Raise InvalidParameterValue if a number of rows is negative."""
    if scalar is None or any(isinstance(each, Column) for each in walk_scalars(scalar)):
        return
    found = constant(scalar)
    number = found.value if isinstance(found, Literal) else None
    if isinstance(number, int) and number < 0:
        raise InvalidParameterValue(f"{clause} must not be negative", sqlstate=sqlstate)


def bind_block(block: Block, replace: Replace) -> Block:
    """Return `block` with all its scalars bound; see `bind_scalar`."""
    return block.with_relations(partial(bind_relation, replace=replace))
