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
from foreshore.expr.functions.ordered_sets import is_ordered_set
from foreshore.expr.functions.registry import (
    NO_LITERAL,
    function_exists,
    resolve_table,
    scalar_function,
)
from foreshore.expr.functions.system import (
    ADVISORY,
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
from foreshore.sql.bind.acl_functions import with_roles
from foreshore.sql.bind.argument_names import by_place
from foreshore.sql.bind.coerce import cast, coerce
from foreshore.sql.bind.definitions import sequence
from foreshore.sql.bind.expression import ExpressionBinder, undefined_function
from foreshore.sql.bind.json_records import bind_records, returns_records
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.row_json import bind_arguments, takes_rows
from foreshore.sql.bind.widths import check_arguments
from foreshore.sql.planning import located
from foreshore.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT4,
    MZ_TIMESTAMP,
    NAME,
    OID,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    TIMETZ,
    TYPES,
    VOID,
    SqlType,
    array_of,
)

_SCHEMAS = frozenset(
    ("pg_catalog", "mz_catalog", "mz_internal", "mz_introspection", "information_schema")
)

_ENVIRONMENT: dict[str, Environment] = {
    "now": Environment("now", TIMESTAMPTZ),
    "transaction_timestamp": Environment("now", TIMESTAMPTZ),
    "statement_timestamp": Environment("statement_timestamp", TIMESTAMPTZ),
    "clock_timestamp": Environment("clock_timestamp", TIMESTAMPTZ),
    "mz_now": Environment("mz_now", MZ_TIMESTAMP),
    "current_user": Environment("current_user", NAME),
    "session_user": Environment("session_user", NAME),
    "user": Environment("current_user", NAME),
    "current_role": Environment("current_user", NAME),
    "current_database": Environment("current_database", NAME),
    "current_catalog": Environment("current_database", NAME),
    "current_schema": Environment("current_schema", NAME),
    "version": Environment("version", TEXT),
    "mz_version": Environment("mz_version", TEXT),
    "pg_backend_pid": Environment("pg_backend_pid", INT4),
    "pg_postmaster_start_time": Environment("pg_postmaster_start_time", TIMESTAMPTZ),
    "pg_conf_load_time": Environment("pg_postmaster_start_time", TIMESTAMPTZ),
    "pg_my_temp_schema": Environment("pg_my_temp_schema", OID),
    "pg_advisory_unlock_all": Environment("pg_advisory_unlock_all", VOID),
    "pg_notification_queue_usage": Environment("pg_notification_queue_usage", FLOAT8),
}
_SQL_VALUE_CASTS = {
    "current_date": DATE,
    "current_timestamp": TIMESTAMPTZ,
    "localtimestamp": TIMESTAMP,
    "localtime": TIME_OF_DAY,
    "current_time": TIMETZ,
}


def environment(binder: ExpressionBinder, value: Environment, at: int) -> Scalar:
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


def bind_sql_value(binder: ExpressionBinder, expr: ast.SqlValue) -> Scalar:
    """Return CURRENT_DATE, CURRENT_USER, ..."""
    target = _SQL_VALUE_CASTS.get(expr.name)
    if target is None:
        return environment(binder, _ENVIRONMENT[expr.name], expr.at)
    now = environment(binder, _ENVIRONMENT["now"], expr.at)
    if expr.precision is not None:
        target = SqlType(target.name, min(expr.precision, 6))
    return cast(binder.planning, now, target, expr.at)


def listening(binder: ExpressionBinder, args: Sequence[Scalar], at: int) -> tuple[Scalar, ...]:
    """Return the argument of pg_listening_channels, which is written without."""
    if args:
        raise undefined_function(LISTENING, list(map(type_of, args)), at)
    return (environment(binder, Environment(LISTENING, array_of(TEXT)), at),)


def _merge_action(binder: ExpressionBinder, expr: ast.FunctionCall) -> Scalar:
    if binder.clause.merge_action is None:
        raise SyntaxError_(
            "MERGE_ACTION() can only be used in the RETURNING list of a MERGE command",
            position=expr.at + 1,
        )
    return binder.clause.merge_action


def bind_call(binder: ExpressionBinder, expr: ast.FunctionCall) -> Scalar:
    """Return the scalar of a call."""
    check_arguments(len(expr.args), expr.at, defined=binder.planning.defined)
    if expr.variadic:
        from foreshore.sql.bind.variadic import spread

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
    if name in sequence.FUNCTIONS:
        return sequence.bind_sequence_call(binder, expr)
    if expr.over is not None and (expr.within_group is not None or is_ordered_set(name)):
        raise FeatureNotSupported(
            f"OVER is not supported for ordered-set aggregate {name}", position=expr.at + 1
        )
    if expr.over is not None:
        from foreshore.sql.bind.window_call import bind_window_call

        return bind_window_call(binder, name, expr)
    if expr.within_group is not None or is_ordered_set(name):
        return _within_group(binder, name, expr)
    if is_window_function(name):
        from foreshore.sql.bind.window_call import require_over

        raise require_over(binder, name, expr)
    if is_aggregate(name):
        from foreshore.sql.bind.aggregate_call import bind_aggregate

        return bind_aggregate(binder, name, expr)
    if expr.star or expr.distinct or expr.order_by or expr.filter is not None:
        return _not_an_aggregate(binder, name, expr)
    if not expr.args and name in _ENVIRONMENT:
        return environment(binder, _ENVIRONMENT[name], expr.at)
    if not expr.args and name == "merge_action":
        return _merge_action(binder, expr)
    if expr.names:
        return _named_arguments(binder, expr)
    if not is_builtin_function(name):
        user = _user_call(binder, expr)
        if user is not None:
            return user
    if expr.variadic:
        from foreshore.sql.bind.variadic import over_array

        return over_array(binder, expr)
    if returns_records(expr):
        return bind_records(binder, expr)
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
    from foreshore.sql.bind.sql_functions import bind_sql_function, find_sql_function

    body = find_sql_function(name, tuple(map(type_of, args)))
    if body is not None:
        return bind_sql_function(binder, body, args, offsets, expr.at)
    if name == LISTENING:
        args = listening(binder, args, expr.at)
        offsets = (expr.at,)
    if name == ACLEXPLODE:
        args = with_roles(binder.planning, args)
        offsets = (expr.at,) * len(args)
    if is_table_function(name):
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
    except UndefinedFunction:
        user = _user_call(binder, expr)
        if user is not None:
            return user
        if type is None:
            raise
        return cast(binder.planning, args[0], type, expr.at)
    if isinstance(call, Call) and scalar_function(call.function).volatility == "volatile":
        _refuse_in_definition(binder, name, call, expr.at)
        return msgspec.structs.replace(call, number=binder.planning.new_call())
    return call


def _named_arguments(binder: ExpressionBinder, expr: ast.FunctionCall) -> Scalar:
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


def is_builtin_function(name: str) -> bool:
    """Return whether the system has a function of that name."""
    from foreshore.sql.bind.sql_functions import sql_function_names

    return (
        function_exists(name)
        or is_table_function(name)
        or name in _SESSION_FUNCTIONS
        or name in sql_function_names()
    )


def _user_aggregate(binder: ExpressionBinder, expr: ast.FunctionCall) -> Scalar | None:
    """Return the value of a call of a user's aggregate; those of the system come first."""
    named_alone = len(expr.name) == 1 or expr.name[-2] in _SCHEMAS
    if expr.within_group is not None or (named_alone and _is_of_system(expr.name[-1])):
        return None
    from foreshore.sql.bind.user_aggregates import bind_user_aggregate

    return bind_user_aggregate(binder, expr)


def _is_of_system(name: str) -> bool:
    return is_builtin_function(name) or is_aggregate(name) or is_window_function(name)


def _user_call(binder: ExpressionBinder, expr: ast.FunctionCall) -> Scalar | None:
    """Return the value of a call of a user's function, None if there is none that fits."""
    from foreshore.sql.bind.user_functions import bind_value, find_call

    if not binder.planning.catalog.functions_named(expr.name):
        return None
    found = find_call(binder, expr, tuple(binder.bind(arg) for arg in expr.args))
    return None if found is None else bind_value(binder, found)


def _refuse_in_definition(binder: ExpressionBinder, name: str, call: Call, at: int) -> None:
    """Raise an error for functions with side effects on sessions in kept definitions."""
    if binder.planning.maintained:
        if call.function in (RANDOM, RANDOM_UUID):
            raise FeatureNotSupported(
                f"{name} cannot be used in a view that is maintained, "
                "because each call has another value",
                position=at + 1,
            )
        where = "a view that is maintained"
    elif binder.planning.in_view and call.function in (*SIGNALS, *ADVISORY, NOTIFY):
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


def _current_setting(
    binder: ExpressionBinder, name: str, args: tuple[Scalar, ...], at: int
) -> Scalar:
    if not 1 <= len(args) <= 2:
        raise undefined_function(name, [type_of(arg) for arg in args], at)
    if columns_used(args[0]):  # as psql's list of settings has it, over pg_settings
        from foreshore.sql.bind.sql_functions import bind_sql_function, find_sql_function

        found = find_sql_function("_setting_called", tuple(map(type_of, args)))
        if found is None:
            raise undefined_function(name, [type_of(arg) for arg in args], at)
        return bind_sql_function(binder, found, args, (at,) * len(args), at)
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


def _current_schemas(
    binder: ExpressionBinder, name: str, args: tuple[Scalar, ...], at: int
) -> Scalar:
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


def _pg_typeof(binder: ExpressionBinder, name: str, args: tuple[Scalar, ...], at: int) -> Scalar:
    if len(args) != 1:
        raise undefined_function(name, [type_of(arg) for arg in args], at)
    return Literal(str(type_of(args[0])), TEXT)


_SESSION_FUNCTIONS: dict[
    str, Callable[[ExpressionBinder, str, tuple[Scalar, ...], int], Scalar]
] = {
    "current_setting": _current_setting,
    "current_schemas": _current_schemas,
    "pg_typeof": _pg_typeof,
}


# --- aggregates ----------------------------------------------------------------------------


def _within_group(binder: ExpressionBinder, name: str, expr: ast.FunctionCall) -> Scalar:
    """Return a call of an ordered-set aggregate."""
    from foreshore.sql.bind.aggregate_call import bind_aggregate

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


def _not_an_aggregate(binder: ExpressionBinder, name: str, expr: ast.FunctionCall) -> Scalar:
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
