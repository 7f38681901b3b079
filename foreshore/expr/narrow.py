"""Declares the digits that numbers of collections have, so that fewer calls can overflow.

    narrowed(sum(a * b), {u1: (9, 7)})     the same plan over numeric(9, 2) and numeric(7, 2)

Only the declared precision of types changes; `foreshore.expr.bounds` draws the conclusions. Counts
of what is never NULL become counts of rows, which cost less.
"""

from collections.abc import Mapping, Sequence

import msgspec

from foreshore.expr.bounds import bound_of, is_arithmetic, never_overflows
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.parts import unit_of
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Case,
    Column,
    Get,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    Union,
    count_all,
)
from foreshore.expr.scalars import bind_scalar, with_scalars
from foreshore.expr.split import is_null
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.types import NUMERIC_DIGITS, ColumnType

Digits = Mapping[GlobalId, Sequence[int | None]]  # of each column of a collection, if known


def narrowed(relation: Relation, digits: Digits) -> Relation:
    """Return a lowered plan over collections whose numerics have no more than so many digits."""
    return _Narrowing(digits).run(relation)


class _Narrowing:
    def __init__(self, digits: Digits) -> None:
        self._digits = digits
        self._bound: dict[int, tuple[ColumnType, ...]] = {}

    def run(self, relation: Relation) -> Relation:
        """Return a plan with narrower types."""
        match relation:
            case Get(id=id, columns=columns) if id in self._digits:
                return msgspec.structs.replace(
                    relation, columns=tuple(map(_narrow, columns, self._digits[id]))
                )
            case LocalGet(number=number) if number in self._bound:
                return msgspec.structs.replace(relation, columns=self._bound[number])
            case Let(number=number, value=value, body=body):
                value = self.run(value)
                self._bound[number] = tuple(columns_of(value))
                return Let(number, value, self.run(body))
            case Union() | Recursive() | LetRec():  # the types of one input are those of all
                return relation
        inputs = tuple(map(self.run, inputs_of(relation)))
        if inputs == inputs_of(relation):
            return relation
        read = [column for input in inputs for column in columns_of(input)]
        types = [column.type for column in read]

        def typed(scalar: Scalar) -> Scalar | None:
            match scalar:
                case Column(index=index, nullable=nullable) if index < len(types):
                    return Column(index, types[index], nullable)
                case Call(function="high_part(numeric)" | "low_part(numeric)", args=(arg,)):
                    return _part(scalar, bind_scalar(arg, typed), read)
            return None

        found = with_scalars(
            with_inputs(relation, inputs), lambda scalar: bind_scalar(scalar, typed)
        )
        if isinstance(found, Map):
            found = msgspec.structs.replace(found, scalars=tuple(map(_declared, found.scalars)))
        if isinstance(found, Reduce):
            counted = tuple(_counted(each, read) for each in found.aggregates)
            found = msgspec.structs.replace(found, aggregates=counted)
        return found


def _counted(aggregate: Aggregate, columns: Sequence[ColumnType]) -> Aggregate:
    """Return a count of what is never NULL as one of rows; other aggregates as they are."""
    match aggregate:
        case Aggregate(function="count", args=(arg,), distinct=False, filter=None):
            return count_all() if _is_never_null(arg, columns) else aggregate
    return aggregate


def _is_never_null(scalar: Scalar, columns: Sequence[ColumnType]) -> bool:
    """Whether a scalar surely has a value, and does not fail."""
    match scalar:
        case Column(index=index):
            return index < len(columns) and not columns[index].nullable
        case Literal(value=value):
            return value is not None
        case Call(args=args) if never_overflows(scalar):
            return all(_is_never_null(arg, columns) for arg in args)
        case _:
            return False


def _declared(scalar: Scalar) -> Scalar:
    """Return a computed number with as many digits as its operands allow."""
    if not isinstance(scalar, Call) or not is_arithmetic(scalar):
        return scalar
    bound = bound_of(scalar)
    digits = len(str(bound))
    if bound is None or digits >= (scalar.type.length or NUMERIC_DIGITS):
        return scalar
    return msgspec.structs.replace(scalar, type=msgspec.structs.replace(scalar.type, length=digits))


def _part(call: Call, arg: Scalar, columns: Sequence[ColumnType]) -> Scalar:
    """Return a part of a number (`functions/parts.py`): a small one is its own low part."""
    scale = type_of(arg).scale or 0
    bound = bound_of(arg)
    if bound is None or bound >= unit_of(scale) * 10**scale:
        return Call(call.function, (arg,), call.type)
    if call.function == "low_part(numeric)":
        return arg
    nothing = Literal("0", call.type)
    if _is_never_null(arg, columns):
        return nothing
    return Case(((is_null(arg), Literal(None, call.type)),), nothing, call.type)


def _narrow(column: ColumnType, digits: int | None) -> ColumnType:
    type = column.type
    if digits is None or type.name != "numeric" or (type.length or digits + 1) <= digits:
        return column
    return ColumnType(msgspec.structs.replace(type, length=digits), column.nullable)
