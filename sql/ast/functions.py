"""Syntax of CREATE, ALTER and DROP FUNCTION."""

from typing import Literal as OneOf

from foreshore.role_options import RoleName
from foreshore.sql.ast.expressions import Syntax, TypeName
from foreshore.sql.ast.query import TableRef


class ParameterDefinition(Syntax):
    """A parameter of a function; `out` parameters are columns of the result.

    An INOUT parameter is `out` and `given`. The array of a VARIADIC one holds further arguments.
    """

    name: str
    type: TypeName
    default: str | None
    default_at: int
    out: bool = False
    given: bool = True
    variadic: bool = False


class CreateFunctionStatement(Syntax):
    """CREATE FUNCTION; `returns` is None for RETURNS TABLE and where OUT parameters tell it.

    `body` is a query, or the expression after RETURN, at the offset `body_at` of the statement; it
    is at no offset if it was given as a string.
    """

    name: TableRef
    parameters: tuple[ParameterDefinition, ...]
    returns: TypeName | None
    columns: tuple[tuple[str, TypeName], ...]
    returns_set: bool
    strict: bool
    volatility: OneOf["immutable", "stable", "volatile"]
    body: str
    body_at: int | None
    is_expression: bool
    or_replace: bool
    language: OneOf["sql", "python"] = "sql"
    is_aggregate: bool = False  # `body` is an expression over $1, the array of a group's values


class FunctionName(Syntax):
    """The name of a function, with the types of its parameters if they are given."""

    name: TableRef
    types: tuple[TypeName, ...] | None


class DropFunctionStatement(Syntax):
    """DROP FUNCTION."""

    functions: tuple[FunctionName, ...]
    if_exists: bool
    cascade: bool


class AlterFunctionStatement(Syntax):
    """ALTER FUNCTION and COMMENT ON FUNCTION.

    `value` is the name, schema or comment. Of the attributes, those
    that are None stay.
    """

    function: FunctionName
    action: OneOf["rename", "owner", "schema", "attributes", "comment"]
    value: str | None = None
    strict: bool | None = None
    volatility: OneOf["immutable", "stable", "volatile"] | None = None
    role: RoleName | None = None
