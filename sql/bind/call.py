"""Bind calls: resolve the name of a function.

In this order: values of the session (`now()`, `current_user`, ...), aggregates, functions that are
queries over the catalog (`sql_functions`), table functions, scalar functions of the registry, and
finally a type's name as a cast of one argument.
"""

from collections.abc import Callable, Sequence

import msgspec

from foreshore.errors import (
    FeatureNotSupported,
    SyntaxError_,
    UndefinedFunction,
    WrongObjectType,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.acls import ACLEXPLODE
from foreshore.expr.functions.aggregates import is_aggregate
from foreshore.expr.functions.extracted_rows import REPEAT
from foreshore.expr.functions.ordered_sets import is_ordered_set
from foreshore.expr.functions.registry import (
    NO_LITERAL,
    function_exists,
    resolve_table,
    scalar_function,
)
from foreshore.expr.functions.system import (
    ADVISORY,
    FORGET_LEFTOVER,
    LISTENING,
    NOTIFY,
    RANDOM,
    RANDOM_UUID,
    SIGNALS,
)
from foreshore.expr.functions.tables import is_table_function
from foreshore.expr.functions.unicode_forms import FORMS
from foreshore.expr.functions.windows import is_window_function
from foreshore.expr.ir import Call, Case, Environment, Literal, Scalar
from foreshore.expr.split import columns_used
from foreshore.sql import ast
from foreshore.sql.bind import sequence_calls
from foreshore.sql.bind.aggregate_call import bind_aggregate
from foreshore.sql.bind.argument_names import by_place
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.coerce import cast, coerce
from foreshore.sql.bind.json_records import bind_records, returns_records
from foreshore.sql.bind.near_functions import (
    ENVIRONMENT,
    SESSION_FUNCTIONS,
    hint_for,
    is_builtin_function,
    undefined_function,
)
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.row_json import bind_arguments, takes_rows
from foreshore.sql.bind.row_values import RowValue
from foreshore.sql.bind.sql_functions import (
    SqlFunction,
    find_sql_function,
    function_named,
    inline,
)
from foreshore.sql.bind.user_aggregates import bind_user_aggregate
from foreshore.sql.bind.user_functions import bind_value, find_call
from foreshore.sql.bind.variadic import over_array, spread
from foreshore.sql.bind.widths import check_arguments
from foreshore.sql.bind.window_call import bind_window_call, require_over
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.types import (
    BOOL,
    DATE,
    INT8,
    NAME,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    TIMETZ,
    TYPES,
    SqlType,
    array_of,
)

_SCHEMAS = frozenset(
    ("pg_catalog", "mz_catalog", "mz_internal", "mz_introspection", "information_schema")
)

_SQL_VALUE_CASTS = {
    "current_date": DATE,
    "current_timestamp": TIMESTAMPTZ,
    "localtimestamp": TIMESTAMP,
    "localtime": TIME_OF_DAY,
    "current_time": TIMETZ,
}


def environment(binder: Binder, value: Environment, at: int) -> Scalar:
    """Return a value of the session; rejected in maintained objects."""
    if binder.planning.maintained and value.name != "mz_now":
        raise FeatureNotSupported(
            f"{value.name.split(':')[0]} cannot be used in a view that is maintained, "
            "because its value depends on the time or the session",
            hint="In a condition mz_now() is the time, which moves rows in and out of a view."
            if value.type == TIMESTAMPTZ
            else None,
            position=at + 1,
        )
    return value


def bind_sql_value(binder: Binder, expr: ast.SqlValue) -> Scalar:
    """Return CURRENT_DATE, CURRENT_USER, ..."""
    target = _SQL_VALUE_CASTS.get(expr.name)
    if target is None:
        return environment(binder, ENVIRONMENT[expr.name], expr.at)
    now = environment(binder, ENVIRONMENT["now"], expr.at)
    if expr.precision is not None:
        target = SqlType(target.name, min(expr.precision, 6))
    return cast(binder.planning, now, target, expr.at)


def listening(binder: Binder, args: Sequence[Scalar], at: int) -> tuple[Scalar, ...]:
    """Return the argument of pg_listening_channels, which is written without."""
    if args:
        raise undefined_function(LISTENING, list(map(type_of, args)), at)
    return (environment(binder, Environment(LISTENING, array_of(TEXT)), at),)


def with_hidden_arguments(
    binder: Binder, name: str, args: tuple[Scalar, ...], offsets: tuple[int, ...], at: int
) -> tuple[tuple[Scalar, ...], tuple[int, ...]]:
    """Return the arguments of a table function, and their places, with those nobody writes."""
    if name == LISTENING:
        args = listening(binder, args, at)
    elif name == ACLEXPLODE:
        args = _with_roles(binder.planning, args)
    elif name == REPEAT:
        if len(args) != 1:
            raise undefined_function(name, list(map(type_of, args)), at)
        args = (Literal(1, INT8), binder.call("_count_of_rows", args, at, offsets))
    else:
        return args, offsets
    return args, (at,) * len(args)


def _merge_action(binder: Binder, expr: ast.FunctionCall) -> Scalar:
    if binder.clause.merge_action is None:
        raise SyntaxError_(
            "MERGE_ACTION() can only be used in the RETURNING list of a MERGE command",
            position=expr.at + 1,
        )
    return binder.clause.merge_action


def bind_call(binder: Binder, expr: ast.FunctionCall) -> Scalar:
    """Return the scalar of a call."""
    check_arguments(len(expr.args), expr.at, defined=binder.planning.defined)
    if expr.variadic:
        expr = spread(expr)
    name = expr.name[-1]
    aggregate = _user_aggregate(binder, expr)
    if aggregate is not None:
        return aggregate
    if len(expr.name) > 1 and expr.name[-2] not in _SCHEMAS:
        user = _user_call(binder, expr)
        if user is not None:
            return user
        types = [type_of(binder.bind(arg)) for arg in expr.args]
        raise undefined_function(".".join(expr.name), types, expr.at)
    if name in sequence_calls.FUNCTIONS:
        return sequence_calls.bind_sequence_call(binder, expr)
    if expr.over is not None and (expr.within_group is not None or is_ordered_set(name)):
        raise FeatureNotSupported(
            f"OVER is not supported for ordered-set aggregate {name}", position=expr.at + 1
        )
    if expr.over is not None:
        return bind_window_call(binder, name, expr)
    if expr.within_group is not None or is_ordered_set(name):
        return _within_group(binder, name, expr)
    if is_window_function(name):
        raise require_over(binder, name, expr)
    if is_aggregate(name):
        return bind_aggregate(binder, name, expr)
    if expr.star or expr.distinct or expr.order_by or expr.filter is not None:
        return _not_an_aggregate(binder, name, expr)
    if not expr.args and name in ENVIRONMENT:
        return environment(binder, ENVIRONMENT[name], expr.at)
    if not expr.args and name == "merge_action":
        return _merge_action(binder, expr)
    if expr.names:
        return _named_arguments(binder, expr)
    if not is_builtin_function(name):
        user = _user_call(binder, expr)
        if user is not None:
            return user
    if expr.variadic:
        return over_array(binder, expr)
    if returns_records(expr):
        return bind_records(binder, expr)
    if name == "pg_typeof" and len(expr.args) == 1:
        row_type = _name_of_row_type(binder, expr.args[0])
        if row_type is not None:
            return Literal(row_type, TEXT)
    if takes_rows(name):
        args, is_result = bind_arguments(binder, name, expr.args)
        if is_result:
            return args[0]
    else:
        args = tuple(binder.bind(arg) for arg in with_normal_form(name, expr.args))
    offsets = tuple(at_of(arg) for arg in expr.args)
    session = _SESSION_FUNCTIONS.get(name)
    if session is not None:
        return session(binder, name, args, expr.at)
    body = find_sql_function(name, tuple(map(type_of, args)))
    if body is not None:
        return _bind_sql_function(binder, body, args, offsets, expr.at)
    if is_table_function(name):
        args, offsets = with_hidden_arguments(binder, name, args, offsets, expr.at)
        literals = tuple(a.value if isinstance(a, Literal) else NO_LITERAL for a in args)
        with located(expr.at):
            found = resolve_table(name, tuple(map(type_of, args)), literals)
        args = binder.coerced(args, found.arg_types, offsets)
        return binder.add_set(*binder.planning.zone.applied_to_set(found, args), expr.at)
    type = _type_called(name) if len(args) == 1 else None
    if type is not None and not function_exists(name):
        return cast(binder.planning, args[0], type, expr.at)
    try:
        call = binder.call(name, args, expr.at, offsets)
    except UndefinedFunction as error:
        user = _user_call(binder, expr)
        if user is not None:
            return user
        if type is None:
            error.hint = hint_for(name)
            raise
        return cast(binder.planning, args[0], type, expr.at)
    if isinstance(call, Call) and scalar_function(call.function).volatility == "volatile":
        _refuse_in_definition(binder, name, call, expr.at)
        return msgspec.structs.replace(call, number=binder.planning.new_call())
    return call


def _named_arguments(binder: Binder, expr: ast.FunctionCall) -> Scalar:
    """Return a call with arguments that are given by their names."""
    user = _user_call(binder, expr)
    if user is not None:
        return user
    placed = by_place(expr)
    if placed is not None:
        return bind_call(binder, placed)
    types = [str(type_of(binder.bind(arg))) for arg in expr.args]
    first = len(types) - len(expr.names)
    for place, name in enumerate(expr.names, first):
        types[place] = f"{name} => {types[place]}"
    raise UndefinedFunction(
        f"function {'.'.join(expr.name)}({', '.join(types)}) does not exist",
        hint="No function matches the given name and argument types. "
        "You might need to add explicit type casts.",
        position=expr.at + 1,
    )


def _user_aggregate(binder: Binder, expr: ast.FunctionCall) -> Scalar | None:
    """Return the value of a call of a user's aggregate; those of the system come first."""
    named_alone = len(expr.name) == 1 or expr.name[-2] in _SCHEMAS
    if expr.within_group is not None or (named_alone and _is_of_system(expr.name[-1])):
        return None
    return bind_user_aggregate(binder, expr)


def _is_of_system(name: str) -> bool:
    return is_builtin_function(name) or is_aggregate(name) or is_window_function(name)


def _user_call(binder: Binder, expr: ast.FunctionCall) -> Scalar | None:
    """Return the value of a call of a user's function, None if there is none that fits."""
    if not binder.planning.catalog.functions_named(expr.name):
        return None
    found = find_call(binder, expr, tuple(binder.bind(arg) for arg in expr.args))
    return None if found is None else bind_value(binder, found)


def _refuse_in_definition(binder: Binder, name: str, call: Call, at: int) -> None:
    """Raise an error for functions with side effects on sessions in kept definitions."""
    if binder.planning.maintained:
        if call.function in (RANDOM, RANDOM_UUID):
            raise FeatureNotSupported(
                f"{name} cannot be used in a view that is maintained, "
                "because each call has another value",
                position=at + 1,
            )
        where = "a view that is maintained"
    elif binder.planning.in_view and call.function in (
        *SIGNALS,
        *ADVISORY,
        NOTIFY,
        FORGET_LEFTOVER,
    ):
        where = "a view, an index or a constraint"
    else:
        return
    raise FeatureNotSupported(
        f"{name} cannot be used in {where}, because it has side effects on a session",
        position=at + 1,
    )


def with_normal_form(name: str, args: tuple[ast.Expression, ...]) -> tuple[ast.Expression, ...]:
    """Return the arguments of normalize(text, NFC), whose second one is a keyword."""
    if name != "normalize" or len(args) != 2 or not isinstance(args[1], ast.ColumnRef):
        return args
    parts, at = args[1].parts, args[1].at
    known = len(parts) == 1 and parts[0].upper() in FORMS
    return (args[0], ast.String(parts[0].upper(), at)) if known else args


def _type_called(name: str) -> SqlType | None:
    forms = ("array", "numeric", "number", "unknown")
    return SqlType(name) if name in TYPES and name not in forms else None


# --- the session ---------------------------------------------------------------------------


def _current_setting(binder: Binder, name: str, args: tuple[Scalar, ...], at: int) -> Scalar:
    if not 1 <= len(args) <= 2:
        raise undefined_function(name, [type_of(arg) for arg in args], at)
    if columns_used(args[0]):  # as psql's list of settings has it, over pg_settings
        found = find_sql_function("_setting_called", tuple(map(type_of, args)))
        if found is None:
            raise undefined_function(name, [type_of(arg) for arg in args], at)
        return _bind_sql_function(binder, found, args, (at,) * len(args), at)
    if not isinstance(args[0], Literal) or args[0].value is None:  # evaluated at run time
        return binder.call(name, args, at, (at,) * len(args))
    key = f"current_setting:{args[0].value.lower()}"
    if len(args) == 2:
        missing_ok = coerce(binder.planning, args[1], BOOL, "implicit", at)
        if not isinstance(missing_ok, Literal):
            raise undefined_function(name, [type_of(arg) for arg in args], at)
        if missing_ok.value is None:
            return Literal(None, TEXT)
        if missing_ok.value:
            key = f"current_setting_or_null:{args[0].value.lower()}"
    return environment(binder, Environment(key, TEXT), at)


def _current_schemas(binder: Binder, name: str, args: tuple[Scalar, ...], at: int) -> Scalar:
    implicit = coerce(binder.planning, args[0], BOOL, "implicit", at) if len(args) == 1 else None
    if implicit is None:
        raise undefined_function(name, [type_of(arg) for arg in args], at)
    type = array_of(NAME)
    every, searched = (
        environment(binder, Environment(f"current_schemas:{each}", type), at)
        for each in ("true", "false")
    )
    if isinstance(implicit, Literal):
        if implicit.value is None:
            return Literal(None, type)
        return every if implicit.value else searched
    neither = Call("not", (implicit,), BOOL)
    return Case(((implicit, every), (neither, searched)), Literal(None, type), type)


def _pg_typeof(binder: Binder, name: str, args: tuple[Scalar, ...], at: int) -> Scalar:
    if len(args) != 1:
        raise undefined_function(name, [type_of(arg) for arg in args], at)
    return Literal(str(type_of(args[0])), TEXT)


def _name_of_row_type(binder: Binder, expr: ast.Expression) -> str | None:
    """Return the name of the relation whose row an expression is, None for any other.

    The rows themselves are anonymous records (`type_names.py`).
    """
    match expr:
        case ast.CastTo(type=type):
            found = type_of(binder.bind(expr))
            row = found.element or found
            if row.name != "record" or row.defined is not None or type.name[-1] == "record":
                return None
            written = type.name[-1]
            is_array_name = found.element is not None and not type.dimensions  # such as _t
            name = quote_identifier(written[1:] if is_array_name else written)
            return f"{name}[]" if found.element else name
        case ast.ColumnRef() | ast.Star():
            value = binder.bind_value(expr)
            if isinstance(value, RowValue) and value.relation is not None:
                return quote_identifier(value.relation)
    return None


_SESSION_FUNCTIONS: dict[str, Callable[[Binder, str, tuple[Scalar, ...], int], Scalar]] = {
    "current_setting": _current_setting,
    "current_schemas": _current_schemas,
    "pg_typeof": _pg_typeof,
}
assert _SESSION_FUNCTIONS.keys() == SESSION_FUNCTIONS


# --- aggregates ----------------------------------------------------------------------------


def _within_group(binder: Binder, name: str, expr: ast.FunctionCall) -> Scalar:
    """Return a call of an ordered-set aggregate."""
    if expr.within_group is None:
        if len(expr.args) != (1 if name == "mode" else 2):
            types = [type_of(binder.bind(arg)) for arg in expr.args]
            raise undefined_function(name, types, expr.at)
        raise WrongObjectType(
            f"WITHIN GROUP is required for ordered-set aggregate {name}", position=expr.at + 1
        )
    if is_aggregate(name) or is_ordered_set(name) or is_window_function(name):
        return bind_aggregate(binder, name, expr)
    args = (*expr.args, *(key.expr for key in expr.within_group))
    bound = tuple(binder.bind(arg) for arg in args)
    binder.call(name, bound, expr.at, tuple(map(at_of, args)))  # raises if there is none
    raise WrongObjectType(
        f"WITHIN GROUP specified, but {name} is not an aggregate function", position=expr.at + 1
    )


def _not_an_aggregate(binder: Binder, name: str, expr: ast.FunctionCall) -> Scalar:
    """Raise the error of `f(*)`, `f(DISTINCT x)`, ... for a function that is not an aggregate."""
    types = [type_of(binder.bind(arg)) for arg in expr.args]
    if expr.star:
        raise undefined_function(name, types, expr.at)
    what = "DISTINCT" if expr.distinct else "ORDER BY" if expr.order_by else "FILTER"
    if not function_exists(name):
        raise undefined_function(name, types, expr.at)
    raise WrongObjectType(
        f"{what} specified, but {name} is not an aggregate function", position=expr.at + 1
    )


def _bind_sql_function(
    binder: Binder,
    function: SqlFunction,
    args: tuple[Scalar, ...],
    offsets: tuple[int, ...],
    at: int,
) -> Scalar:
    """Return the function's body over `args`."""
    values: list[Scalar] = []
    for arg, place, type in zip(args, offsets, function.parameters, strict=True):
        value = coerce(binder.planning, arg, type, "implicit", place)
        assert value is not None
        values.append(value)
    with located(at):
        return inline(binder.planning, function, tuple(values))


def _with_roles(planning: Planning, args: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """Return the arguments of aclexplode with the names and oids of all roles."""
    if len(args) != 1:
        return args
    names, oids = function_named("_role_names"), function_named("_role_oids")
    return (*args, inline(planning, names, ()), inline(planning, oids, ()))
