"""Aggregates in Python that take values back, found in a plan.

In plans such an aggregate is a call over the array of a group's values, for which an engine needs
all of them. Where nothing else uses the array, the reduction keeps a state for each group instead:

    Map (spread(#1))                       Map (outcome of #1)
      Reduce by (#0): array_agg(#2)          Reduce by (#0): Fold spread(#2)
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from foreshore.compute.flow.linear_chain import LINEAR, linear_chain
from foreshore.expr import ir
from foreshore.expr.ir import TRUE, Aggregate, Call, Column, Scalar
from foreshore.expr.scalars import scalars_of, with_scalars
from foreshore.expr.split import can_fail, columns_used
from foreshore.expr.traversal import inputs_of, operands_of, with_inputs, with_operands
from foreshore.python_functions.definition import function_of, is_python, key_of
from foreshore.types import BYTEA

_CASTS = ("cast_array(anyarray)", "assign_array(anyarray)")


class Fold(Aggregate, frozen=True, cache_hash=True):
    """An aggregate with a state for each group; its value are packed outcomes, as bytes.

    `call` is the call in Python over the array of values, which is `Column(0)`.
    """

    call: Scalar = TRUE


def with_folds(relation: ir.Relation) -> ir.Relation:
    """Return a plan with a `Fold` for each aggregate that can be one."""
    if isinstance(relation, LINEAR):
        chain, base = linear_chain(relation)
        if isinstance(base, ir.Reduce):
            folded = _folded(chain, base)
            if folded is not None:
                return folded
    inputs = inputs_of(relation)
    found = tuple(map(with_folds, inputs))
    return relation if found == inputs else with_inputs(relation, found)


def _folded(chain: Sequence[ir.Relation], reduce: ir.Reduce) -> ir.Relation | None:
    """Return a chain over a reduction with folds, None if there are none."""
    aggregates = list(reduce.aggregates)
    width = len(reduce.group_key)
    for number, aggregate in enumerate(aggregates):
        is_plain = aggregate.function == "array_agg" and not aggregate.distinct
        if not is_plain or aggregate.order_by:
            continue
        outcome = _in_chain(chain, width + number)
        if outcome is not None:
            chain, call = outcome
            aggregates[number] = Fold(
                "array_agg", aggregate.args, BYTEA, filter=aggregate.filter, call=call
            )
    if aggregates == list(reduce.aggregates):
        return None
    found: ir.Relation = msgspec.structs.replace(
        reduce, input=with_folds(reduce.input), aggregates=tuple(aggregates)
    )
    for node in chain:
        found = with_inputs(node, (found,))
    return found


def _in_chain(
    chain: Sequence[ir.Relation], column: int
) -> tuple[tuple[ir.Relation, ...], Call] | None:
    """Return a chain over the outcomes in place of a column of arrays, and the call over these.

    None if the arrays are used otherwise, or are not dropped in the end.
    """
    found: list[ir.Relation] = []
    calls: set[Call] = set()
    at: int | None = column
    for node in chain:
        if isinstance(node, ir.Project):
            places = [i for i, output in enumerate(node.outputs) if output == at]
            if at is not None and len(places) > 1:
                return None
            at = places[0] if places and at is not None else None
        elif at is not None and isinstance(node, ir.Map | ir.Filter):
            node = with_scalars(node, partial(_replaced, at=at, calls=calls))
            if any(at in columns_used(_without_outcomes(each)) for each in scalars_of(node)):
                return None
        found.append(node)
    if at is not None or len(calls) != 1:
        return None
    return tuple(found), calls.pop()


def _replaced(scalar: Scalar, at: int, calls: set[Call]) -> Scalar:
    """Return a scalar with calls over a column replaced by outcomes; add the calls to `calls`."""
    call = _call_over(scalar, at)
    if call is not None:
        assert isinstance(scalar, Call)
        calls.add(call)
        function = msgspec.structs.replace(function_of(call.function), step="outcome")
        return Call(key_of(function), (Column(at, BYTEA),), scalar.type)
    operands = operands_of(scalar)
    found = tuple(_replaced(each, at, calls) for each in operands)
    return scalar if found == operands else with_operands(scalar, found)


def _call_over(scalar: Scalar, at: int) -> Call | None:
    """Return a call of an aggregate that takes values back, if it is over a column's arrays."""
    if not (isinstance(scalar, Call) and is_python(scalar.function) and len(scalar.args) == 1):
        return None
    function = function_of(scalar.function)
    if not function.retracts or function.step:
        return None
    over = _over_first(scalar.args[0], at)
    if over is None or can_fail(over):
        return None
    return Call(scalar.function, (over,), scalar.type)


def _over_first(scalar: Scalar, at: int) -> Scalar | None:
    """Return a column, or casts of its elements, with `Column(0)` in its place."""
    if isinstance(scalar, Column) and scalar.index == at:
        return Column(0, scalar.type)
    if isinstance(scalar, Call) and scalar.function in _CASTS:
        inner = _over_first(scalar.args[0], at)
        return None if inner is None else Call(scalar.function, (inner,), scalar.type)
    return None


def _is_outcome(function: str) -> bool:
    return is_python(function) and function_of(function).step == "outcome"


def _without_outcomes(scalar: Scalar) -> Scalar:
    """Return a scalar with outcomes replaced by a literal."""
    if isinstance(scalar, Call) and _is_outcome(scalar.function):
        return TRUE
    operands = operands_of(scalar)
    found = tuple(map(_without_outcomes, operands))
    return scalar if found == operands else with_operands(scalar, found)
