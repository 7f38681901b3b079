"""Scalars of single rows: compiled once, evaluated on datums in place of columns.

`compiled` does for one row what `foreshore.expr.evaluate.outcome` does for columns. Single-value
columns are the largest cost of a statement about one row. So functions that declare `one` are
called on datums directly; all other scalars are evaluated by the kernels, over single-value
columns. `row_steps` does the same for a relation that is Map, Filter and Project.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import call, itemgetter
from typing import Any

from foreshore.datum import from_array, to_array
from foreshore.errors import DataError, UserError
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.registry import scalar_function, signature
from foreshore.expr.functions.rows import OF_A_ROW, Failure, text_of, unchanged
from foreshore.expr.ir import (
    And,
    Call,
    Column,
    Filter,
    Get,
    Literal,
    Map,
    Or,
    Project,
    Relation,
    Scalar,
)
from foreshore.expr.traversal import walk_scalars
from foreshore.types import Datum

Cell = Callable[[Sequence[Datum]], Datum]
Step = Callable[[list[Datum]], list[Datum] | None]  # from a row to the next; None: filtered out


def compiled(scalar: Scalar) -> Cell:
    """Return a function that computes `scalar`, of columns and literals, from a row's datums.

    The function raises DataError where `scalar` fails.
    """
    match scalar:
        case Literal(value=value):
            return lambda row: value
        case Column(index=index):
            pick: Callable[[Any], Datum] = itemgetter(index)
            return pick
        case And(args=args):
            return _junction([compiled(arg) for arg in args], False)
        case Or(args=args):
            return _junction([compiled(arg) for arg in args], True)
        case Call(function=key, args=args):
            types, function = signature(scalar), scalar_function(key)
            compute = function.one(types) if function.strict and function.one else None
            if compute is unchanged:
                return compiled(args[0])
            if compute is not None:
                only = function.only_error(types)
                return _called(compute, [compiled(arg) for arg in args], only)
    return _by_kernels(scalar)


def _called(compute: Callable[..., Datum], args: Sequence[Cell], only: str | None) -> Cell:
    def cell(row: Sequence[Datum]) -> Datum:
        data = [*map(call, args, repeat(row))]
        if None in data:
            return None
        try:
            return compute(*data)
        except (*OF_A_ROW, Failure, UserError) as fault:
            raise DataError.parse(only or text_of(fault)) from fault

    return cell


def _junction(args: Sequence[Cell], decisive: bool) -> Cell:
    """Return AND or OR: a `decisive` value decides regardless of errors; then the first error."""

    def cell(row: Sequence[Datum]) -> Datum:
        failed: DataError | None = None
        result: Datum = not decisive
        for arg in args:
            try:
                value = arg(row)
            except DataError as error:
                failed = failed or error
                continue
            if value is decisive:
                return decisive
            if value is None:
                result = None
        if failed is not None:
            raise failed
        return result

    return cell


def _by_kernels(scalar: Scalar) -> Cell:
    used = {each.index: each.type for each in walk_scalars(scalar) if isinstance(each, Column)}
    result = type_of(scalar)

    def cell(row: Sequence[Datum]) -> Datum:
        columns = {index: to_array([row[index]], type) for index, type in used.items()}
        values, errors = outcome(scalar, columns, 1)
        if errors is not None and errors.null_count == 0:
            raise DataError.parse(errors[0].as_py())
        return from_array(values, result)[0]

    return cell


def row_steps(relation: Relation, cell: Callable[[Scalar], Cell], first: int) -> list[Step]:
    """Return the steps that `relation`, Map, Filter and Project over a Get, does to one row.

    The row's columns come after `first` others, which are kept; `cell` compiles scalars over all.
    """
    match relation:
        case Get():
            return []
        case Map(input=input, scalars=scalars):
            return [*row_steps(input, cell, first), _mapping(list(map(cell, scalars)))]
        case Filter(input=input, predicates=predicates):
            whole = cell(predicates[0] if len(predicates) == 1 else And(predicates))
            steps = row_steps(input, cell, first)
            return [*steps, lambda row: row if whole(row) is True else None]
        case Project(input=input, outputs=outputs):
            places = [*range(first), *(first + i for i in outputs)]
            return [*row_steps(input, cell, first), projecting(places)]
        case _:
            raise AssertionError(f"not about one row: {relation}")


def _mapping(cells: Sequence[Cell]) -> Step:
    def step(row: list[Datum]) -> list[Datum]:
        for cell in cells:
            row.append(cell(row))
        return row

    return step


def projecting(places: Sequence[int]) -> Step:
    """Return the step that takes columns at `places`."""
    return lambda row: [row[i] for i in places]
