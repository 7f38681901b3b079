"""Signatures and definitions of users' functions, as PostgreSQL writes them."""

from foreshore.expr.functions.text import quote_ident as quoted
from foreshore.sql_function import FunctionArgument, SqlFunction
from foreshore.types import SqlType


def arguments_of(function: SqlFunction) -> str:
    """Return the parameters with their defaults, as pg_get_function_arguments does."""
    return ", ".join(_argument(each) for each in function.arguments if each.mode != "TABLE")


def _argument(argument: FunctionArgument) -> str:
    mode = "" if argument.mode == "IN" else f"{argument.mode} "
    default = "" if argument.default is None else f" DEFAULT {argument.default}"
    return mode + _named(argument.name, argument.type) + default


def _named(name: str, type: SqlType) -> str:
    return f"{quoted(name)} {type}" if name else str(type)


def result_of(function: SqlFunction) -> str:
    """Return the type of the result, as pg_get_function_result does."""
    if not function.columns:
        return f"SETOF {function.result}" if function.returns_set else str(function.result)
    if not function.returns_set:
        return "record" if len(function.columns) > 1 else str(function.columns[0][1])
    return f"TABLE({', '.join(_named(name, type) for name, type in function.columns)})"


def definition_of(schema: str, name: str, function: SqlFunction) -> str:
    """Return the statement that creates the function, as pg_get_functiondef does."""
    if function.is_aggregate:
        (type,) = function.types
        return (
            f"CREATE AGGREGATE {quoted(schema)}.{quoted(name)}({arguments_of(function)})\n"
            f" (SFUNC = array_append, STYPE = {type}[],"
            f" FINALFUNC = {function.body.removesuffix('($1)')})\n"
        )
    flags = [] if function.volatility == "volatile" else [function.volatility.upper()]
    flags += ["STRICT"] if function.strict else []
    if function.is_expression:
        body = f"RETURN {function.body}"
    else:
        tag = "$function$"
        while tag in function.body:
            tag = f"$x{tag[1:]}"
        body = f"AS {tag}{function.body}{tag}"
    lines = (
        f"CREATE OR REPLACE FUNCTION {quoted(schema)}.{quoted(name)}({arguments_of(function)})",
        f" RETURNS {result_of(function)}",
        f" LANGUAGE {function.language}",
        *([f" {' '.join(flags)}"] if flags else ()),
        body,
        "",
    )
    return "\n".join(lines)
