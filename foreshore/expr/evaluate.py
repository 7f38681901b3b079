"""Evaluates scalars over Arrow columns with the registry's kernels.

    evaluate(scalar, columns, rows)   values, if nothing can fail or failures are split off
    outcome(scalar, columns, rows)    values and errors
    fold(scalar)                      the same scalar with its constant parts computed

A value is NULL wherever it has an error. An error counts only if the guards let the row through: in
branches of Case whose conditions select the row, in And without a FALSE operand, in Or without a
TRUE one, and in coalesce's arguments if all earlier ones are NULL. Guarded parts that may fail or
are expensive are evaluated only over the rows that reach them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import datum
from foreshore.errors import StatementTooComplex
from foreshore.expr.columns import type_of
from foreshore.expr.constant_lists import compared_with_list, is_constant_list
from foreshore.expr.cost import LIGHT, OVERHEAD, cost_of, is_light
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.function import ScalarFunction, Signature
from foreshore.expr.functions.registry import may_fail, scalar_function, signature
from foreshore.expr.ir import And, Call, Case, Column, ErrorOf, Literal, Once, Or, Scalar
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.types import arrow_type

Errors: TypeAlias = pa.Array | None
MOST_FOLDED = 2 * LIGHT  # units of a statement's constants: about twenty milliseconds
NOTABLE = LIGHT >> 7  # units below which a constant is not counted: a tenth of a millisecond
NO_TEXT = pa.scalar(None, pa.string())

_left: ContextVar[list[int] | None] = ContextVar("units left for folding", default=None)


def evaluate(scalar: Scalar, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the value of `scalar` for each of `rows` rows; NULL where it fails.

    `columns` are arrays, or chunked arrays, of physical form.
    """
    return _Evaluation(columns, rows).run(scalar)[0]


def outcome(scalar: Scalar, columns: "Columns", rows: int) -> tuple[pa.Array, pa.Array | None]:
    """Return the values, and the errors (texts of `data_error`), None if no row fails."""
    return _Evaluation(columns, rows).run(scalar)


@lru_cache(65_536)
def fallible(scalar: Scalar) -> bool:
    """Whether evaluating `scalar` may fail for some row."""
    if isinstance(scalar, ErrorOf | Once):
        return False
    return may_fail(scalar) or any(map(fallible, operands_of(scalar)))


@lru_cache(65_536)
def _plan(call: Call) -> tuple[ScalarFunction, Signature]:
    return scalar_function(call.function), signature(call)


class Columns(Protocol):
    """The columns that an evaluation needs."""

    def __getitem__(self, index: int, /) -> pa.Array: ...


class _Evaluation:
    def __init__(self, columns: Columns, rows: int) -> None:
        self.columns = columns
        self.rows = rows

    def run(self, scalar: Scalar) -> tuple[pa.Array, Errors]:
        match scalar:
            case Column(index=index):
                column = self.columns[index]
                if isinstance(column, pa.ChunkedArray):
                    column = column.combine_chunks()
                    if isinstance(column, pa.ChunkedArray):
                        column = column.chunk(0)
                return column, None
            case Literal(value=value, type=type):
                return datum.repeat(value, type, self.rows), None
            case Call():
                return self.call(scalar)
            case And(args=args):
                return self.junction(args, False)
            case Or(args=args):
                return self.junction(args, True)
            case Case():
                return self.case(scalar)
            case Once(expr=expr):
                return self.run(expr)
            case ErrorOf(expr=expr):
                if not fallible(expr):
                    return pa.nulls(self.rows, pa.string()), None
                errors = self.run(expr)[1]
                return pa.nulls(self.rows, pa.string()) if errors is None else errors, None
            case _:
                raise AssertionError(f"cannot be evaluated: {scalar}")

    def call(self, call: Call) -> tuple[pa.Array, Errors]:
        if call.function == "coalesce":
            return self.coalesce(call)
        if is_constant_list(call):
            operand, failed = self.run(call.args[0])
            found = compared_with_list(call, operand)
            if failed is not None:
                found = pc.if_else(failed.is_null(), found, pa.scalar(None, pa.bool_()))
            return found, failed
        if self.rows > 1 and call.args and _is_constant(call):
            return self.repeated(call)
        function, types = _plan(call)
        errors: Errors = None
        arrays = []
        for arg in call.args:
            values, failed = self.run(arg)
            arrays.append(values)
            errors = (
                failed if errors is None else errors if failed is None else _first(errors, failed)
            )
        if not arrays:
            values, _ = apply(function, types, ())
            return (values if self.rows == 1 else pa.repeat(values[0], self.rows)), None
        values, failed = apply(function, types, arrays)
        if errors is None:
            return values, failed
        if not function.strict:
            values = pc.if_else(errors.is_null(), values, pa.scalar(None, values.type))
        return values, errors if failed is None else _first(errors, failed)

    def repeated(self, call: Call) -> tuple[pa.Array, Errors]:
        """Return the value of a call without columns, which is computed once."""
        values, errors = _Evaluation((), 1).run(call)
        failed = None if errors is None else pa.repeat(errors[0], self.rows)
        return pa.repeat(values[0], self.rows), failed

    def junction(self, args: Sequence[Scalar], decisive: bool) -> tuple[pa.Array, Errors]:
        combine = pc.or_kleene if decisive else pc.and_kleene
        result: pa.Array = None
        errors: Errors = None
        for arg in args:
            values, failed = self.run(arg)
            result = values if result is None else combine(result, values)
            if failed is not None:
                errors = failed if errors is None else _first(errors, failed)
        if result is None:
            return datum.repeat(not decisive, type_of(And(())), self.rows), None
        if errors is not None:
            # A decided row has no error; other rows with an error have no value.
            decided = pc.equal(result, decisive).fill_null(False)
            errors = _none_if_empty(pc.if_else(decided, NO_TEXT, errors))
            if errors is not None:
                result = pc.if_else(errors.is_null(), result, pa.scalar(None, pa.bool_()))
        return result, errors

    def coalesce(self, call: Call) -> tuple[pa.Array, Errors]:
        branches = [(Call("is_not_null", (arg,), type_of(And(()))), arg) for arg in call.args[:-1]]
        if not any(map(fallible, call.args)):
            arrays = [self.run(arg)[0] for arg in call.args]
            return scalar_function("coalesce").kernel(signature(call), *arrays), None
        return self.case(Case(tuple(branches), call.args[-1], call.type))

    def case(self, case: Case) -> tuple[pa.Array, Errors]:
        values, errors = self.run(case.otherwise) if not fallible(case) else (None, None)
        if values is not None:
            for condition, branch in reversed(case.branches):
                chosen = self.run(condition)[0]
                values = pc.if_else(chosen.fill_null(False), self.run(branch)[0], values)
            return values, errors
        return self.guarded(case)

    def guarded(self, case: Case) -> tuple[pa.Array, Errors]:
        """Evaluate each part over the rows that reach it, and combine the results."""
        remaining = np.arange(self.rows)
        pieces: list[pa.Array] = []
        failures: list[pa.Array] = []
        order: list[np.ndarray] = []

        def take(scalar: Scalar, where: np.ndarray) -> tuple[pa.Array, pa.Array]:
            part = self.at(where)
            values, failed = part.run(scalar)
            return values, pa.nulls(len(where), pa.string()) if failed is None else failed

        def settle(where: np.ndarray, values: pa.Array, failed: pa.Array) -> None:
            if len(where):
                order.append(where)
                pieces.append(values)
                failures.append(failed)

        arrow = arrow_type(case.type)
        for condition, branch in case.branches:
            if not len(remaining):
                break
            chosen, failed = take(condition, remaining)
            broken = failed.is_valid().to_numpy(zero_copy_only=False)
            if broken.any():
                lost = pa.array(np.flatnonzero(broken))
                settle(remaining[broken], pa.nulls(len(lost), arrow), failed.take(lost))
            holds = chosen.fill_null(False).to_numpy(zero_copy_only=False) & ~broken
            if holds.any():
                settle(remaining[holds], *take(branch, remaining[holds]))
            remaining = remaining[~holds & ~broken]
        if len(remaining):
            settle(remaining, *take(case.otherwise, remaining))
        if not order:
            return pa.nulls(0, arrow), None
        back = pa.array(np.argsort(np.concatenate(order), kind="stable"))
        values = pa.concat_arrays([p.cast(arrow) if p.type != arrow else p for p in pieces])
        return values.take(back), _none_if_empty(pa.concat_arrays(failures).take(back))

    def at(self, where: np.ndarray) -> "_Evaluation":
        """Return the evaluation over only the rows at `where`."""
        if len(where) == self.rows:
            return self
        indices = pa.array(where)
        return _Evaluation(_Taken(self.columns, indices), len(where))


class _Taken:
    """Columns at some rows, computed on access."""

    def __init__(self, columns: Columns, indices: pa.Array) -> None:
        self.columns = columns
        self.indices = indices
        self.taken: dict[int, pa.Array] = {}

    def __getitem__(self, index: int) -> pa.Array:
        if index not in self.taken:
            self.taken[index] = self.columns[index].take(self.indices)
        return self.taken[index]


def _first(errors: pa.Array, others: pa.Array) -> pa.Array:
    return pc.if_else(errors.is_valid(), errors, others)


def _none_if_empty(errors: pa.Array) -> Errors:
    return None if errors.null_count == len(errors) else errors


def is_constant(scalar: Scalar) -> bool:
    """Whether `scalar` depends only on literals and is cheap enough to be folded."""
    return _is_constant(scalar) and is_light(scalar)


@contextmanager
def folding_little() -> Iterator[None]:
    """Bound the cost of all that `may_fold` lets be folded in the body, or in the one around it."""
    if _left.get() is not None:
        yield
        return
    token = _left.set([MOST_FOLDED])
    try:
        yield
    finally:
        _left.reset(token)


def may_fold(scalar: Scalar, rows: int = 1) -> bool:
    """Whether `scalar` is constant, and its cost for `rows` fits into what is left for a statement.

    Constants that cost next to nothing always fit: the length of the text bounds their number.
    """
    if not _is_constant(scalar):
        return False
    cost = cost_of(scalar)
    if cost.total + OVERHEAD * cost.calls > LIGHT:
        return False
    left = _left.get()
    if left is None or cost.total <= NOTABLE:
        return True
    if cost.total * rows > left[0]:
        return False
    left[0] -= cost.total * rows
    return True


@lru_cache(65_536)
def _is_constant(scalar: Scalar) -> bool:
    match scalar:
        case Literal():
            return True
        case Call(function=key, args=args):
            return scalar_function(key).volatility == "immutable" and all(map(_is_constant, args))
        case And() | Or() | Case() | ErrorOf() | Once():
            return all(map(_is_constant, operands_of(scalar)))
        case _:
            return False


def constant(scalar: Scalar) -> Literal | str:
    """Return the value of a constant scalar, or its error's text; it has to be light."""
    if not is_light(scalar):
        raise StatementTooComplex("constant expression takes too long to evaluate")
    values, errors = outcome(scalar, (), 1)
    if errors is not None:
        return str(errors[0].as_py())
    type = type_of(scalar)
    return Literal(datum.from_array(values, type)[0], type)


def fold(scalar: Scalar) -> Scalar:
    """Return `scalar` with its constant parts computed, except those that fail."""
    operands = operands_of(scalar)
    if operands:
        folded = tuple(map(fold, operands))
        if folded != operands:
            scalar = with_operands(scalar, folded)
    if isinstance(scalar, Literal) or not is_constant(scalar):
        return scalar
    value = constant(scalar)
    return scalar if isinstance(value, str) else value
