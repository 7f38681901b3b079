"""Functions of CREATE FUNCTION ... LANGUAGE SQL: a signature, and a query or an expression.

A call is replaced by the body when it is bound (`sql/bind/user_functions.py`), so that every engine
runs it, and a maintained view over it is one like any other.
"""

from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.types import SqlType

Volatility = OneOf["immutable", "stable", "volatile"]


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """A parameter; `name` is empty if it has none, `default` is the text of an expression."""

    name: str
    type: SqlType
    default: str | None = None


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function with its full name. `columns` are those of RETURNS TABLE and of OUT parameters.

    The last parameter of a `variadic` one is the array of further arguments.
    `body` is the text of a query, or of the expression after RETURN if it `is_expression`.
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

    @property
    def name(self) -> str:
        """Return the name without qualifiers."""
        return self.parts[-1]

    @property
    def types(self) -> tuple[SqlType, ...]:
        """Return the types of the parameters."""
        return tuple(each.type for each in self.parameters)
