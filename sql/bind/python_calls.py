"""Functions in Python: what CREATE FUNCTION checks of one, and its calls in plans.

A call is one of the plan, by a key that has the whole definition (`foreshore/python_functions/`).
Arguments and results of most types are sent as they are. Others are cast to text, and the result
from text, so that their values are checked and written as everywhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from foreshore.errors import FeatureNotSupported, InvalidFunctionDefinition
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import NO_LITERAL, ResolvedTable, resolve_table
from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.python_functions.definition import (
    PythonFunction,
    function_of,
    is_python,
    key_of,
    kind_of,
    record_sent,
    sent_type,
)
from foreshore.python_functions.handler import handler_of
from foreshore.sql.bind.coerce import cast
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.record_columns import columns_of_record
from foreshore.sql_function import SqlFunction
from foreshore.types import BOOL, VOID, SqlType, array_of

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

HINT = (
    "Declare it IMMUTABLE if it returns the same for the same arguments at any time. For one that"
    " does not, keep its results: CREATE SOURCE ... FROM PYTHON ... OVER a relation."
)
# Clauses that are evaluated for rows on their way into a table, where nothing may take long.
_REFUSED = frozenset(
    (
        "DEFAULT expressions",
        "check constraints",
        "column generation expressions",
        "policy expressions",
    )
)


def check_python(function: SqlFunction) -> None:
    """Raise an error if the source or the types of a function in Python are not supported."""
    if function.columns and not function.returns_set:
        raise FeatureNotSupported(
            "functions with several OUT parameters are not supported in Python",
            hint="Declare it as RETURNS TABLE (...).",
        )
    if function.result == VOID:
        raise FeatureNotSupported("RETURNS void is not supported in Python")


def with_handler(function: SqlFunction) -> SqlFunction:
    """Return a function with what its source, if that is a module, defines for it.

    Raises what `handler_of` raises. Unless the source is known, this takes long.
    """
    if function.language != "python":
        return function
    found = handler_of(function.body, function.name, len(function.parameters))
    return replace(function, handler=found)


def check_same_handler(before: SqlFunction, after: SqlFunction) -> None:
    """Raise InvalidFunctionDefinition if a source means another function by another name.

    Unless the source is known, this takes long.
    """
    if with_handler(after).handler != before.handler:
        raise InvalidFunctionDefinition(
            f'function "{before.name}" cannot be renamed to "{after.name}", because its source'
            " defines another function of that name"
        )


def python_function(function: SqlFunction) -> PythonFunction:
    """Return what hosts need to know of a function."""
    handler = function.handler
    assert handler is not None, function
    return PythonFunction(
        handler.name,  # which ALTER FUNCTION ... RENAME leaves as it is
        function.body,
        tuple(map(kind_of, function.types)),
        "" if function.columns else kind_of(_returned(function)),
        handler.vectorized,
        function.strict,
        function.volatility,
        tuple((name, kind_of(type)) for name, type in function.columns),
        handler.retracts,
    )


def _returned(function: SqlFunction) -> SqlType:
    """Return the type of what a call returns: an array of the rows, if it returns a set."""
    return array_of(function.result) if function.returns_set else function.result


def bind_python(
    binder: "Binder", function: SqlFunction, values: Sequence[Scalar], at: int
) -> Scalar:
    """Return a call of a function over values of its parameters' types.

    The value is the array of its rows if it returns a set.
    """
    planning = binder.planning
    if binder.clause.name in _REFUSED:
        raise FeatureNotSupported(
            f"functions in Python are not supported in {binder.clause.name}", position=at + 1
        )
    if planning.maintained and function.volatility != "immutable":
        raise _not_immutable(function.name, "a view that is maintained", at)
    args = tuple(
        cast(planning, value, sent_type(type), at)
        for value, type in zip(values, function.types, strict=True)
    )
    result = _returned(function)
    meant = python_function(function)
    sent = array_of(record_sent(meant.columns)) if meant.columns else sent_type(result)
    # One without parameters has an argument that it does not get, for the number of rows.
    call = Call(key_of(meant), args or (Literal(True, BOOL),), sent)
    return call if meant.columns else cast(planning, call, result, at)


def rows_of_array(
    planning: Planning, function: SqlFunction, value: Scalar, at: int
) -> ResolvedTable:
    """Return the table function that gives the rows of an array that a call returns."""
    found = resolve_table("unnest", (type_of(value),), (NO_LITERAL,))
    if not function.columns:
        return found
    record = Column(len(found.arg_types), found.element.type)
    outputs = tuple(
        cast(planning, column, type, at)
        for column, (_, type) in zip(columns_of_record(record), function.columns, strict=True)
    )
    return replace(found, names=tuple(name for name, _ in function.columns), outputs=outputs)


def refuse_not_immutable(scalar: Scalar, what: str) -> None:
    """Raise an error if a scalar calls a function in Python that is not declared IMMUTABLE."""
    for part in walk_scalars(scalar):
        if isinstance(part, Call) and is_python(part.function):
            function = function_of(part.function)
            if function.volatility != "immutable":
                raise _not_immutable(function.name, what, -1)


def refuse_python(scalar: Scalar, what: str, at: int) -> None:
    """Raise an error if a scalar calls a function in Python."""
    if any(isinstance(part, Call) and is_python(part.function) for part in walk_scalars(scalar)):
        raise FeatureNotSupported(
            f"functions in Python are not supported in {what}",
            hint="Index a view that has the function's result as a column.",
            position=at + 1,
        )


def _not_immutable(name: str, what: str, at: int) -> FeatureNotSupported:
    return FeatureNotSupported(
        f'function "{name}" cannot be used in {what}, because it is not declared IMMUTABLE',
        hint=HINT,
        position=at + 1 if at >= 0 else None,
    )
