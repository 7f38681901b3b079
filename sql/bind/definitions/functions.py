"""Bind CREATE, ALTER and DROP FUNCTION.

A function is kept as one form of its statement, with a body of SQL words in which all names are
full: `RETURN expression`, or `BEGIN ATOMIC query; END`.
"""

from dataclasses import replace

from foreshore.errors import (
    FeatureNotSupported,
    InvalidFunctionDefinition,
)
from foreshore.expr.columns import type_of
from foreshore.item_view import Name
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.python_calls import check_python, with_handler
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.bind.user_functions import (
    rows_of_body,
    scope_of_parameters,
    syntax_of,
    value_of_body,
)
from foreshore.sql.bind.widths import check_parameters
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import AlterFunction, CreateFunction, DropFunction
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.text_edits import apply_edits
from foreshore.sql_function import FunctionParameter, SqlFunction
from foreshore.types import NUMBER, SqlType, array_of, without_modifiers, written_type


def bind_create_function(
    planning: Planning, statement: ast.CreateFunctionStatement
) -> CreateFunction:
    """Return the plan of CREATE FUNCTION."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    planning.in_view = planning.defining = True  # without parameters of the statement
    if statement.is_aggregate:
        return _create_aggregate(planning, statement, name)
    parameters = [_parameter(planning, each) for each in statement.parameters if each.given]
    check_parameters(len(statement.parameters), defined=planning.defined)
    _check_parameters(statement, parameters)
    result, columns = _result(planning, statement)
    function = SqlFunction(
        name.parts,
        tuple(parameters),
        result,
        columns,
        statement.returns_set,
        statement.strict,
        statement.volatility,
        _body_of(statement),
        statement.is_expression,
        any(each.variadic for each in statement.parameters),
        statement.language,
    )
    if function.language == "python":
        check_python(function)
        if not planning.defined:  # what is kept has its handler beside its statement
            function = with_handler(function)
    else:
        function = replace(function, body=_checked_body(planning, function))
    sql = written_function(function)
    return CreateFunction(name, function, frozenset(planning.depends_on), statement.or_replace, sql)


def _create_aggregate(
    planning: Planning, statement: ast.CreateFunctionStatement, name: Name
) -> CreateFunction:
    """Return the plan of CREATE AGGREGATE, whose result is that of its FINALFUNC."""
    (parameter,) = statement.parameters
    item = _type(planning, parameter.type)
    over = FunctionParameter("", array_of(item))
    function = SqlFunction(
        name.parts, (over,), item, (), False, False, "immutable", statement.body, True
    )
    function = replace(function, result=_bare(_type_of_body(planning, function)))
    function = replace(
        function,
        body=_checked_body(planning, function),
        parameters=(FunctionParameter(parameter.name, item),),
        is_aggregate=True,
    )
    sql = written_function(function)
    return CreateFunction(name, function, frozenset(planning.depends_on), statement.or_replace, sql)


def _body_of(statement: ast.CreateFunctionStatement) -> str:
    if statement.language == "python" or statement.body_at is not None:
        return statement.body
    return statement.body.strip().rstrip(";").strip()


def _parameter(planning: Planning, each: ast.ParameterDefinition) -> FunctionParameter:
    type = _type(planning, each.type)
    if each.default is None:
        return FunctionParameter(each.name, type)
    text, before = planning.text, len(planning.qualified)
    planning.text = each.default
    try:
        syntax = syntax_of(each.default, True)
        assert not isinstance(syntax, ast.Query)
        binder = ExpressionBinder(planning, Scope(), Clause("DEFAULT expressions"))
        value = binder.bind(syntax)
        if coerce(planning, value, type, "implicit", 0) is None:
            raise InvalidFunctionDefinition(
                f"argument of DEFAULT must be type {type}", position=each.default_at + 1
            )
        default = apply_edits(each.default, set(planning.qualified[before:]))
    finally:
        planning.text = text
        del planning.qualified[before:]
    return FunctionParameter(each.name, type, default)


def _type(planning: Planning, name: ast.TypeName) -> SqlType:
    if name.name and name.name[-1].startswith("any") and len(name.name) == 1:
        raise FeatureNotSupported(
            f"functions of type {name.name[-1]} are not supported", position=name.at + 1
        )
    before = len(planning.qualified)
    type = type_of_name(name, planning)
    del planning.qualified[before:]
    return _bare(type)


def _bare(type: SqlType) -> SqlType:
    """Return a type without its modifiers, which functions do not keep."""
    if type.element is not None:
        return array_of(_bare(type.element))
    return NUMBER if type.name == "numeric" else without_modifiers(type)


def _check_parameters(
    statement: ast.CreateFunctionStatement, parameters: list[FunctionParameter]
) -> None:
    taken = [each.name for each in statement.parameters if each.given and each.name]
    results = [each.name for each in statement.parameters if each.out and each.name]
    results += [name for name, _ in statement.columns]
    for names in (taken, results):
        for place, name in enumerate(names):
            if name in names[:place]:
                raise InvalidFunctionDefinition(f'parameter name "{name}" used more than once')
    variadic = [each for each in statement.parameters if each.variadic]
    given = [each for each in statement.parameters if each.given]
    if variadic and (given[-1] is not variadic[0] or len(variadic) > 1):
        raise InvalidFunctionDefinition("VARIADIC parameter must be the last input parameter")
    if variadic and parameters[-1].type.element is None:
        raise InvalidFunctionDefinition("VARIADIC parameter must be an array")
    defaults = [each.default is not None for each in parameters]
    if defaults != sorted(defaults):
        raise InvalidFunctionDefinition(
            "input parameters after one with a default value must also have defaults"
        )


def _result(
    planning: Planning, statement: ast.CreateFunctionStatement
) -> tuple[SqlType, tuple[tuple[str, SqlType], ...]]:
    """Return the type of a value, and the columns of a row if there are such."""
    out = [each for each in statement.parameters if each.out]
    columns = [(name, _type(planning, type)) for name, type in statement.columns]
    columns += [
        (each.name or f"column{place}", _type(planning, each.type))
        for place, each in enumerate(out, 1)
    ]
    if columns:
        only = len(columns) == 1 and not statement.columns
        return columns[0][1], () if only else tuple(columns)
    if statement.returns is None:
        raise InvalidFunctionDefinition("function result type must be specified")
    word = statement.returns.name[-1] if statement.returns.name else ""
    if word in ("record", "trigger", "event_trigger"):
        raise FeatureNotSupported(
            f"RETURNS {word} is not supported", position=statement.returns.at + 1
        )
    return _type_or_row(planning, statement.returns)


def _type_or_row(
    planning: Planning, name: ast.TypeName
) -> tuple[SqlType, tuple[tuple[str, SqlType], ...]]:
    """Return a type, or the columns of a composite or of a relation's rows."""
    from foreshore.errors import UndefinedObject

    try:
        type = _type(planning, name)
    except UndefinedObject:
        with located(name.at):
            item = planning.catalog.resolve_item(name.name)
        planning.depends_on.add(item.id)
        pairs = zip(item.desc.names, item.desc.columns, strict=True)
        columns = tuple((each, _bare(column.type)) for each, column in pairs)
        return columns[0][1], columns if len(columns) > 1 else ()
    if type.name == "record" and type.members:
        return type, tuple((member.name, _bare(member.type)) for member in type.members)
    return type, ()


def _type_of_body(planning: Planning, function: SqlFunction) -> SqlType:
    """Return the type of an expression over parameters."""
    text, before = planning.text, len(planning.qualified)
    planning.text, planning.in_function = function.body, function.name
    try:
        syntax = syntax_of(function.body, True)
        assert not isinstance(syntax, ast.Query)
        binder = ExpressionBinder(planning, scope_of_parameters(function), Clause("aggregates"))
        return type_of(binder.bind(syntax))
    finally:
        planning.text, planning.in_function = text, ""
        del planning.qualified[before:]


def _checked_body(planning: Planning, function: SqlFunction) -> str:
    """Return the body with full names; raises if it cannot be bound."""
    body = function.body
    syntax_of(body, function.is_expression)
    text, before = planning.text, len(planning.qualified)
    planning.text, planning.in_function, planning.keeps_text = body, function.name, True
    try:
        scope = scope_of_parameters(function)
        if function.returns_set or function.columns:
            rows_of_body(planning, function, scope)
        else:
            value_of_body(planning, function, scope)
        return apply_edits(body, set(planning.qualified[before:]))
    finally:
        planning.text, planning.in_function = text, ""
        del planning.qualified[before:]


def written_function(function: SqlFunction) -> str:
    """Return the statement as it is kept."""
    parameters = ", ".join(
        " ".join(
            filter(
                None,
                (
                    "" if each.mode == "IN" else each.mode,
                    quote_identifier(each.name) if each.name else "",
                    written_type(each.type),
                    f"DEFAULT {each.default}" if each.default is not None else "",
                ),
            )
        )
        for each in function.arguments
        if each.mode != "TABLE"
    )
    if function.is_aggregate:
        return written_aggregate(dotted(function.parts), parameters, function)
    columns = [f"{quote_identifier(name)} {written_type(type)}" for name, type in function.columns]
    sql = f"CREATE FUNCTION {dotted(function.parts)}({parameters})"
    if columns and function.returns_set:
        sql += f" RETURNS TABLE({', '.join(columns)})"
    elif not columns:
        sql += (
            " RETURNS " + ("SETOF " if function.returns_set else "") + written_type(function.result)
        )
    sql += f" LANGUAGE {function.language} {function.volatility.upper()}"
    sql += " STRICT" if function.strict else ""
    if function.language == "python":
        body = function.body.replace("'", "''")
        return f"{sql} AS '{body}'"
    if function.is_expression:
        return f"{sql} RETURN {function.body}"
    return f"{sql} BEGIN ATOMIC {function.body}; END"


def written_aggregate(name: str, parameters: str, function: SqlFunction) -> str:
    """Return CREATE AGGREGATE of a function."""
    final = function.body.removesuffix("($1)")
    state = written_type(array_of(function.types[0]))
    return (
        f"CREATE AGGREGATE {name}({parameters})"
        f" (SFUNC = array_append, STYPE = {state}, FINALFUNC = {final})"
    )


def bind_drop_function(planning: Planning, statement: ast.DropFunctionStatement) -> DropFunction:
    """Return the plan of DROP FUNCTION."""
    functions = tuple(
        (each.name.name, types_of_name(planning, each)) for each in statement.functions
    )
    return DropFunction(functions, statement.if_exists, statement.cascade)


def types_of_name(planning: Planning, name: ast.FunctionName) -> tuple[SqlType, ...] | None:
    """Return the types that follow a function's name, None if there are none."""
    return None if name.types is None else tuple(_type(planning, type) for type in name.types)


def bind_alter_function(planning: Planning, statement: ast.AlterFunctionStatement) -> AlterFunction:
    """Return the plan of ALTER FUNCTION or COMMENT ON FUNCTION."""
    of = statement.function
    return AlterFunction(
        of.name.name,
        None if of.types is None else tuple(_type(planning, type) for type in of.types),
        statement.action,
        statement.value,
        statement.strict,
        statement.volatility,
        statement.role,
    )
