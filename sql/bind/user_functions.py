"""Calls of users' functions: the body takes the place of the call.

A body is bound at each call, over a scope that is the row of its parameters, and with the catalog
that the function's own statement sees; then the arguments take the places of the parameters. So a
plan has no call, and what a body may do is what the statement around it may do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal as OneOf
from typing import NamedTuple

from foreshore.errors import (
    AmbiguousFunction,
    DatabaseError,
    FeatureNotSupported,
    GroupingError,
    InvalidFunctionDefinition,
    StatementTooComplex,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.function import type_key
from foreshore.expr.functions.registry import NO_LITERAL, resolve_table
from foreshore.expr.functions.resolve import Candidate, choose
from foreshore.expr.ir import (
    TRUE,
    Aggregate,
    Call,
    Case,
    Column,
    Filter,
    JoinOn,
    Literal,
    Map,
    Or,
    Project,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
)
from foreshore.ids import GlobalId
from foreshore.sql import ast
from foreshore.sql.bind.arrays import is_array, make_array
from foreshore.sql.bind.binder import Binder, Clause
from foreshore.sql.bind.bound_query import ordered_relation
from foreshore.sql.bind.coerce import coerce, has_gained_shape, is_text_with_shape
from foreshore.sql.bind.order import RowOrder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.python_calls import bind_python, rows_of_array
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.bind.sets import UNIT
from foreshore.sql.bind.sql_functions import parameter_of
from foreshore.sql.bind.type_names import qualify_at
from foreshore.sql.bind.user_arguments import with_arguments
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.scalars import map_relation
from foreshore.sql_function import SqlFunction
from foreshore.types import (
    BOOL,
    INT4,
    VOID,
    ColumnType,
    SqlType,
    array_of,
    parts_of,
    record_of,
    shaped_array,
)

MAX_DEPTH = 32  # of functions within functions
MAX_CALLS = 1_000  # that one statement may have replaced


@dataclass(frozen=True, slots=True)
class UserCall:
    """A resolved call: the function, and the values of its parameters."""

    id: GlobalId
    function: SqlFunction
    values: tuple[Scalar, ...]
    at: int


@lru_cache(maxsize=1024)
def syntax_of(body: str, is_expression: bool) -> ast.Expression | ast.Query:
    """Return the syntax of a function's body; raises InvalidFunctionDefinition."""
    from foreshore.sql.parse.parse import parse, parse_expression

    if is_expression:
        return parse_expression(body)
    statements = parse(body)
    if len(statements) != 1:
        raise FeatureNotSupported("a function of several statements is not supported")
    tree = statements[0].ast
    if not isinstance(tree, ast.SelectStatement) or tree.as_of is not None:
        raise FeatureNotSupported("a function of other statements than a query is not supported")
    return tree.query


# --- resolution -------------------------------------------------------------------------------


def find_call(
    binder: Binder,
    expr: ast.FunctionCall,
    args: tuple[Scalar, ...],
    *,
    aggregate: bool = False,
) -> UserCall | None:
    """Return the user's function, or `aggregate`, that a call over `args` means, or None."""
    named = binder.planning.catalog.functions_named(expr.name)
    functions = [(id, each) for id, each in named if each.is_aggregate == aggregate]
    if not functions or expr.star or expr.distinct or expr.over is not None:
        return None
    spread = not expr.variadic  # whether a variadic function takes its array item by item
    types = tuple(map(type_of, args))
    fitting: dict[tuple[str, ...], list[tuple[GlobalId, SqlFunction, list[int]]]] = {}
    for id, function in functions:
        if expr.variadic and not function.variadic:
            continue
        places = _places(function, len(args), expr.names, spread=spread)
        if places is not None:
            patterns = tuple(_pattern(_taken(function, place, spread)) for place in places)
            fitting.setdefault(patterns, []).append((id, function, places))
    candidates = [Candidate(None, each, each) for each in fitting]  # type: ignore[arg-type]
    chosen = choose(expr.name[-1], tuple(map(_pattern, types)), candidates)
    if chosen is None:
        return None
    found = fitting[chosen.patterns]
    nearest = found[0][1].parts[:-1]
    found = [each for each in found if each[1].parts[:-1] == nearest]
    found = [each for each in found if not each[1].variadic] or found
    if len(found) > 1:
        raise AmbiguousFunction(
            f"function {expr.name[-1]}({', '.join(map(str, types))}) is not unique",
            hint="Could not choose a best candidate function. "
            "You might need to add explicit type casts.",
            position=expr.at + 1,
        )
    id, function, places = found[0]
    values = _values(binder, function, args, places, expr, spread=spread)
    binder.planning.depends_on.add(id)
    binder.planning.needs.add(id, "EXECUTE", by_caller=True)
    qualify_at(binder.planning, expr.at, expr.name, dotted(function.parts))
    return UserCall(id, function, values, expr.at)


def _pattern(type: SqlType) -> str:
    """Return the type by which a call is resolved; numerics are alike with and without a scale."""
    key = type_key(type)
    return key.replace("number", "numeric") if key.removesuffix("[]") == "number" else key


def _taken(function: SqlFunction, place: int, spread: bool) -> SqlType:
    """Return the type of an argument: an item's where an array is given item by item."""
    type = function.parameters[place].type
    if spread and function.variadic and place == len(function.parameters) - 1:
        assert type.element is not None, function
        return type.element
    return type


def _places(
    function: SqlFunction, count: int, names: tuple[str, ...], *, spread: bool
) -> list[int] | None:
    """Return the parameter of each argument; None if the function does not take them."""
    last = len(function.parameters) - 1
    if spread and function.variadic:
        return None if names or count <= last else [min(i, last) for i in range(count)]
    if count > len(function.parameters):
        return None
    places = list(range(count - len(names)))
    for name in names:
        place = next((i for i, p in enumerate(function.parameters) if p.name == name), None)
        if place is None or place in places:
            return None
        places.append(place)
    given = set(places)
    missing = (p for i, p in enumerate(function.parameters) if i not in given)
    return None if any(p.default is None for p in missing) else places


def _values(
    binder: Binder,
    function: SqlFunction,
    args: Sequence[Scalar],
    places: Sequence[int],
    expr: ast.FunctionCall,
    *,
    spread: bool,
) -> tuple[Scalar, ...]:
    """Return the value of each parameter, of its type."""
    if spread and function.variadic:
        return _spread_values(binder, function, args, expr)
    given = {place: (args[i], at_of(expr.args[i])) for i, place in enumerate(places)}
    values: list[Scalar] = []
    for place, parameter in enumerate(function.parameters):
        if place in given:
            scalar, at = given[place]
        else:
            assert parameter.default is not None
            syntax = syntax_of(parameter.default, True)
            assert not isinstance(syntax, ast.Query)
            scalar, at = binder.bind(syntax), expr.at
        type = parameter.type
        if (
            function.language == "sql"
            and type.element is not None
            and (type_of(scalar).name == "shaped" or is_text_with_shape(scalar))
        ):
            type = shaped_array(type.element)
        values += binder.coerced((scalar,), (type,), (at,))
    return tuple(values)


def _spread_values(
    binder: Binder,
    function: SqlFunction,
    args: Sequence[Scalar],
    expr: ast.FunctionCall,
) -> tuple[Scalar, ...]:
    """Return the value of each parameter: of the last one the array of all further arguments."""
    last = len(function.parameters) - 1
    values: list[Scalar] = []
    for i, scalar in enumerate(args):
        type = _taken(function, min(i, last), True)
        values += binder.coerced((scalar,), (type,), (at_of(expr.args[i]),))
    (element,) = parts_of(function.types[last])
    return *values[:last], make_array(tuple(values[last:]), element)


# --- bodies -----------------------------------------------------------------------------------


@contextmanager
def within(planning: Planning, call: UserCall) -> Iterator[Scope]:
    """Yield the scope of a function's parameters, where its body is bound."""
    function = call.function
    planning.function_calls += 1
    if planning.function_depth >= MAX_DEPTH or planning.function_calls > MAX_CALLS:
        raise StatementTooComplex("functions are nested too deeply", position=call.at + 1)
    before = (planning.catalog, planning.text, planning.in_function, planning.common_tables)
    kept = (planning.init_plans, planning.changes, len(planning.qualified))
    planning.catalog = planning.catalog.within(call.id)
    planning.text, planning.in_function, planning.common_tables = function.body, function.name, []
    planning.init_plans = planning.changes = None
    planning.function_depth += 1
    planning.needs.depth += 1
    try:
        scope = scope_of_parameters(function)
        for place, value in enumerate(call.values):
            if has_gained_shape(value, function.types[place]):
                scope.columns[place] = ColumnType(type_of(value))
        yield scope
    except DatabaseError as error:
        error.position = call.at + 1
        raise
    finally:
        planning.function_depth -= 1
        planning.needs.depth -= 1
        planning.catalog, planning.text, planning.in_function, planning.common_tables = before
        planning.init_plans, planning.changes, qualified = kept
        del planning.qualified[qualified:]


def scope_of_parameters(function: SqlFunction) -> Scope:
    """Return the row of a function's parameters, by their names and as `$1`, `$2`, ..."""
    named = tuple(Slot(each.name, i) for i, each in enumerate(function.parameters) if each.name)
    numbered = tuple(Slot(f"${i + 1}", i) for i in range(len(function.parameters)))
    return Scope(
        [ColumnType(type) for type in function.types],
        [Table(function.name, None, named)],
        [*named, *numbered],
        parameters=True,
    )


def bind_value(binder: Binder, call: UserCall) -> Scalar:
    """Return the value of a call of a function that returns one."""
    function = call.function
    if function.columns and not function.returns_set:
        raise FeatureNotSupported(
            f"function {function.name} of several columns is supported only in FROM",
            position=call.at + 1,
        )
    if function.language == "python":
        value = bind_python(binder, function, call.values, call.at)
        if not function.returns_set:
            return value
        rows = rows_of_array(binder.planning, function, value, call.at)
        return binder.add_set(rows, (value,), call.at)
    if function.returns_set:
        return _bind_set(binder, call)
    with within(binder.planning, call) as scope:
        body = value_of_body(binder.planning, function, scope)
    return with_arguments(
        function.name, _unless_null(function, body), call.values, binder.scope, call.at
    )


def value_of_body(planning: Planning, function: SqlFunction, scope: Scope) -> Scalar:
    """Return the value of a body over the columns of its parameters."""
    binder = planning.binding.expressions(planning, scope, Clause(f"function {function.name}"))
    syntax = syntax_of(function.body, function.is_expression)
    if not isinstance(syntax, ast.Query):
        return _as_result(planning, binder.bind(syntax), function.result)
    only = _only_expression(syntax)
    if only is not None:
        with suppress(GroupingError, FeatureNotSupported):
            return _as_result(planning, binder.bind(only), function.result)
    value = binder.bind(ast.Subquery("scalar", syntax, 0))
    if isinstance(value, ScalarSubquery) and not _has_one_row(value.relation):
        value = binder.bind(ast.Subquery("scalar", _first_row(syntax), 0))
    return _as_result(planning, value, function.result)


def _only_expression(query: ast.Query) -> ast.Expression | None:
    """Return the expression of `SELECT expression`, None for any other query."""
    select = query.body
    if query.ctes or query.order_by or query.limit or query.offset or query.locks:
        return None
    if not isinstance(select, ast.Select) or len(select.targets) != 1:
        return None
    clauses = (
        select.from_,
        select.where,
        select.group_by or select.groups_all,
        select.having,
        select.distinct,
    )
    if any(clauses) or select.qualify is not None or select.is_table:
        return None
    return select.targets[0].expr


def _first_row(query: ast.Query) -> ast.Query:
    """Return a query of the first row, which is the value of a function."""
    from msgspec.structs import replace

    if query.limit is None and not query.with_ties:
        return replace(query, limit=ast.Number("1", query.at))
    return ast.Query(query, query.at, limit=ast.Number("1", query.at))


def _has_one_row(relation: Relation) -> bool:
    """Return whether a query surely has one row: it is an aggregate without groups."""
    while isinstance(relation, Project | Map):
        relation = relation.input
    return relation == UNIT or (isinstance(relation, Reduce) and not relation.group_key)


def _as_result(planning: Planning, value: Scalar, result: SqlType) -> Scalar:
    if result == VOID:
        return Literal(None, VOID)
    found = coerce(planning, value, result, "assignment", 0)
    if found is None:
        raise InvalidFunctionDefinition(
            f"return type mismatch in function declared to return {result}",
            detail=f"Actual return type is {type_of(value)}.",
        )
    return found


def _unless_null(function: SqlFunction, body: Scalar) -> Scalar:
    """Return `body`, NULL without looking at it where a strict function has a NULL argument."""
    if not function.strict or not function.parameters:
        return body
    return Case(((_any_null(function), Literal(None, type_of(body))),), body, type_of(body))


def _any_null(function: SqlFunction) -> Scalar:
    tests = [Call("is_null", (Column(i, type),), BOOL) for i, type in enumerate(function.types)]
    return tests[0] if len(tests) == 1 else Or(tuple(tests))


# --- rows -------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The rows of a call in FROM, the names of their columns, their order and their alias."""

    relation: Relation
    names: tuple[str, ...]
    order: RowOrder
    alias: tuple[str, None]


def rows_in_from(binder: Binder, expr: ast.FunctionCall, alias: str | None) -> Rows | None:
    """Return the rows of a call in FROM of a function that returns rows, None for any other."""
    functions = binder.planning.catalog.functions_named(expr.name)
    if not any(_has_rows(function) for _, function in functions):
        return None
    call = find_call(binder, expr, tuple(binder.bind(arg) for arg in expr.args))
    if call is None or not _has_rows(call.function):
        return None
    function = call.function
    relation, order = _rows_of_call(binder.planning, call)
    names = tuple(name for name, _ in function.columns) or (alias or function.name,)
    return Rows(relation, names, order, (expr.name[-1], None))


def python_rows(binder: Binder, expr: ast.FunctionCall) -> tuple[SqlFunction, Scalar] | None:
    """Return a function in Python that is called, and the array of its rows.

    None for any other call.
    """
    functions = binder.planning.catalog.functions_named(expr.name)
    if not any(each.language == "python" and each.returns_set for _, each in functions):
        return None
    call = find_call(binder, expr, tuple(binder.bind(arg) for arg in expr.args))
    if call is None or call.function.language != "python" or not call.function.returns_set:
        return None
    return call.function, bind_python(binder, call.function, call.values, call.at)


def _has_rows(function: SqlFunction) -> bool:
    """Whether a function's body gives rows; those of one in Python are an array's items."""
    return function.language == "sql" and bool(function.returns_set or function.columns)


def _rows_of_call(planning: Planning, call: UserCall) -> tuple[Relation, RowOrder]:
    """Return the rows of a call: of its body, beside the row of its arguments."""
    function = call.function
    with within(planning, call) as scope:
        relation, order = rows_of_body(planning, function, scope)
    relation = _with_constants(relation, call.values)
    width = len(function.parameters)
    if not width and function.returns_set:
        return relation, order
    row: Relation = Map(UNIT, call.values) if width else UNIT
    if function.strict and width:
        row = Filter(row, (Call("not", (_any_null(function),), BOOL),))
    kind: OneOf["inner", "left"] = "inner" if function.returns_set else "left"
    joined = JoinOn(row, relation, kind, TRUE, scope.used)
    count = len(columns_of(relation))
    return Project(joined, tuple(range(width, width + count))), order


def _with_constants(relation: Relation, values: Sequence[Scalar]) -> Relation:
    """Return the rows of a body with the values that are constants in their places."""

    def constant(node: Scalar, depth: int) -> Scalar | None:
        index = parameter_of(node, depth)
        value = None if index is None else values[index]
        return value if isinstance(value, Literal) else None

    if not any(isinstance(value, Literal) for value in values):
        return relation
    return map_relation(relation, constant, 1)


def rows_of_body(
    planning: Planning, function: SqlFunction, scope: Scope
) -> tuple[Relation, RowOrder]:
    """Return the rows of a body, and their order, over the columns of its parameters.

    Further columns follow those of the rows if the order has such.
    """
    query = syntax_of(function.body, function.is_expression)
    if not isinstance(query, ast.Query):
        target = ast.Target(query, None, at_of(query))
        query = ast.Query(ast.Select(None, (target,), (), None, (), None, 0), 0)
    if not function.returns_set:
        query = _first_row(query)
    bound = planning.binding.query(planning, query, scope)
    relation, order = ordered_relation(bound)
    wanted = [type for _, type in function.columns] or [function.result]
    columns, count = columns_of(relation), len(bound.project)
    if count != len(wanted):
        raise InvalidFunctionDefinition(
            "return type mismatch in function declared to return "
            f"{'record' if function.columns else function.result}",
            detail="Final statement returns too "
            f"{'many' if count > len(wanted) else 'few'} columns.",
        )
    values = tuple(
        _as_result(planning, Column(i, column.type, column.nullable), type)
        for i, (column, type) in enumerate(zip(columns, wanted, strict=False))
    )
    if all(isinstance(value, Column) for value in values):
        return relation, order
    outputs, order = order.placed(range(len(columns), len(columns) + count))
    return Project(Map(relation, values), outputs), order


def _bind_set(binder: Binder, call: UserCall) -> Scalar:
    """Return the rows of a call in a select list: the items of an array of them.

    Several columns are a record. So is an array, as arrays of arrays would have one shape.
    """
    function, planning = call.function, binder.planning
    names = [name for name, _ in function.columns] or [function.name]
    with within(planning, call) as scope:
        relation, order = rows_of_body(planning, function, scope)
        columns = columns_of(relation)[: len(names)]
        values = tuple(Column(i, each.type, each.nullable) for i, each in enumerate(columns))
        types = [each.type for each in columns]
        is_scalar = len(types) == 1 and not is_array(types[0])
        row = record_of(names, types)
        value: Scalar = values[0] if is_scalar else Call("row(any)", values, row)
        of = array_of(type_of(value))
        gathered = Aggregate("array_agg", (value,), of, order_by=order.keys)
        rows = ScalarSubquery(Reduce(relation, (), (gathered,)), of)
        items = Call("coalesce", (rows, Literal((), of)), of)
    array = with_arguments(
        function.name, _unless_null(function, items), call.values, binder.scope, call.at
    )
    found = resolve_table("unnest", (type_of(array),), (NO_LITERAL,))
    made = binder.add_set(found, (array,), call.at)
    if is_scalar or len(types) > 1:
        return made
    return Call("column(anyrecord,int4)", (made, Literal(0, INT4)), types[0])
