"""Default names of output columns, as PostgreSQL's FigureColname chooses them."""

from foreshore.sql import ast

UNNAMED = "?column?"


def column_name(expr: ast.Expression) -> str:
    """Return the name of an output column without an alias."""
    name, _ = _name_and_strength(expr)
    return name if name is not None else UNNAMED


def _name_and_strength(expr: ast.Expression) -> tuple[str | None, int]:
    """Return a name and its strength: 2 of a column or function, 1 of a type, 0 of nothing."""
    match expr:
        case ast.ColumnRef(parts=parts):
            return parts[-1], 2
        case ast.FunctionCall(name=name):
            return name[-1], 2
        case ast.Special(kind=kind):
            return kind, 2
        case ast.SqlValue(name=name):
            return name, 2
        case ast.Field(name=name) if name is not None:
            return name, 2
        case ast.Subscript(arg=arg) | ast.Collate(arg=arg):
            return _name_and_strength(arg)
        case ast.CastTo(arg=arg, type=type):
            name, strength = _name_and_strength(arg)
            return (name, strength) if strength > 1 else (type.name[-1], 1)
        case ast.CaseWhen(otherwise=otherwise):
            name, strength = (None, 0) if otherwise is None else _name_and_strength(otherwise)
            return (name, strength) if strength > 1 else ("case", 1)
        case ast.GroupingCall():
            return "grouping", 2
        case ast.ArrayOf(kind=kind):
            return kind, 2
        case ast.Row():
            return "row", 2
        case ast.Subquery(kind="exists"):
            return "exists", 2
        case ast.Subquery(kind="array" | "list" | "map" as kind):
            return kind, 2
        case ast.Subquery(kind="scalar", query=query):
            return _of_query(query)
        case _:
            return None, 0


def _of_query(query: ast.Query) -> tuple[str | None, int]:
    body = query.body
    while isinstance(body, ast.Query):
        body = body.body
    if isinstance(body, ast.SetOperation):
        first = body.inputs[0]
        return _of_query(first) if isinstance(first, ast.Query) else _of_body(first)
    return _of_body(body)


def _of_body(
    body: "ast.Select | ast.Values | ast.SetOperation | ast.Query",
) -> tuple[str | None, int]:
    if isinstance(body, ast.Select) and body.targets:
        target = body.targets[0]
        return target.alias if target.alias is not None else column_name(target.expr), 2
    if isinstance(body, ast.Values):
        return "column1", 2
    return None, 0


def function_name(call: ast.Expression) -> str:
    """Return the default alias of a function in FROM."""
    return call.name if isinstance(call, ast.SqlValue) else "column1"
