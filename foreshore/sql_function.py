"""Functions of CREATE FUNCTION: a signature, and a query, an expression, or a module of Python.

A call of one in SQL is replaced by the body when it is bound (`sql/bind/user_functions.py`), so
that every engine runs it, and a maintained view over it is one like any other. One in Python is a
call in plans (`foreshore/python_functions/`).
"""

from dataclasses import dataclass, replace
from typing import Literal as OneOf

from foreshore.python_functions.handler import Handler
from foreshore.types import SqlType

Mode = OneOf["IN", "OUT", "INOUT", "VARIADIC", "TABLE"]
Language = OneOf["sql", "python"]
Volatility = OneOf["immutable", "stable", "volatile"]


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """A parameter; `name` is empty if it has none, `default` is the text of an expression."""

    name: str
    type: SqlType
    default: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionArgument:
    """A parameter, or a column of the result, as a signature shows it."""

    mode: Mode
    name: str
    type: SqlType
    default: str | None = None


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function with its full name. `columns` are those of RETURNS TABLE and of OUT parameters.

    The last parameter of a `variadic` one is the array of further arguments.
    `body` is the text of a query, or of the expression after RETURN if it `is_expression`, or of a
    module in Python. That of an aggregate is an expression over `$1`, the array of a group's
    values, which are of its only parameter's type. `handler` is what a module defines for it.
    """

    parts: tuple[str, ...]
    parameters: tuple[FunctionParameter, ...]
    result: SqlType  # of a value, or of a row's only column
    columns: tuple[tuple[str, SqlType], ...]
    returns_set: bool
    strict: bool
    volatility: Volatility
    body: str
    is_expression: bool
    variadic: bool = False
    language: Language = "sql"
    is_aggregate: bool = False
    handler: Handler | None = None

    @property
    def arguments(self) -> tuple[FunctionArgument, ...]:
        """Return the parameters and columns in an order that declares both as they are."""
        mode: Mode = "TABLE" if self.returns_set else "OUT"
        columns = [FunctionArgument(mode, name, type) for name, type in self.columns]
        left = [FunctionArgument("IN", each.name, each.type, each.default)
                for each in self.parameters]  # fmt: skip
        if self.variadic:
            left[-1] = replace(left[-1], mode="VARIADIC")
        if self.returns_set:
            return (*left, *columns)
        both = [name for name, _ in self.columns if name and name in [e.name for e in left]]
        found: list[FunctionArgument] = []
        for column in columns:
            ahead = [each.name for each in left]  # INOUT alone has one name on both sides
            end = ahead.index(both[0]) if both else len(left)
            found += left[:end]
            del left[:end]
            if both and column.name == both[0]:
                found.append(replace(left.pop(0), mode="INOUT"))
                del both[0]
            else:
                found.append(column)
        return (*found, *left)

    @property
    def name(self) -> str:
        """Return the name without qualifiers."""
        return self.parts[-1]

    @property
    def types(self) -> tuple[SqlType, ...]:
        """Return the types of the parameters."""
        return tuple(each.type for each in self.parameters)
