"""The names of the system's functions, and the error of a name that is none of them."""

from collections.abc import Sequence

from foreshore.errors import UndefinedFunction
from foreshore.expr.functions import ordered_sets
from foreshore.expr.functions.aggregates import aggregate_names
from foreshore.expr.functions.function import TABLES
from foreshore.expr.functions.registry import function_exists, scalar_names
from foreshore.expr.functions.tables import is_table_function
from foreshore.expr.functions.windows import window_function_names
from foreshore.expr.ir import Environment
from foreshore.near_names import nearest
from foreshore.sql.bind.sql_functions import sql_function_names
from foreshore.types import FLOAT8, INT4, MZ_TIMESTAMP, NAME, OID, TEXT, TIMESTAMPTZ, VOID, SqlType

# Functions without arguments that are values of the session.
ENVIRONMENT: dict[str, Environment] = {
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
    "mz_environment_id": Environment("mz_environment_id", TEXT),
    "pg_backend_pid": Environment("pg_backend_pid", INT4),
    "pg_postmaster_start_time": Environment("pg_postmaster_start_time", TIMESTAMPTZ),
    "pg_conf_load_time": Environment("pg_postmaster_start_time", TIMESTAMPTZ),
    "pg_my_temp_schema": Environment("pg_my_temp_schema", OID),
    "pg_advisory_unlock_all": Environment("pg_advisory_unlock_all", VOID),
    "pg_notification_queue_usage": Environment("pg_notification_queue_usage", FLOAT8),
}
# Functions that binding computes from the session or from types.
SESSION_FUNCTIONS = frozenset(("current_setting", "current_schemas", "pg_typeof"))
_NO_MATCH = (
    "No function matches the given name and argument types. "
    "You might need to add explicit type casts."
)


def function_names() -> set[str]:
    """Return the names by which the system's functions are called, and of operators."""
    return {
        *scalar_names(),
        *TABLES,
        *aggregate_names(),
        *window_function_names(),
        *ordered_sets.NAMES,
        *sql_function_names(),
        *SESSION_FUNCTIONS,
        *ENVIRONMENT,
    }


def is_builtin_function(name: str) -> bool:
    """Return whether the system has a function of that name."""
    return (
        function_exists(name)
        or is_table_function(name)
        or name in SESSION_FUNCTIONS
        or name in sql_function_names()
    )


def hint_for(name: str) -> str:
    """Return PostgreSQL's hint, or the function that may be meant if none has that name."""
    known = function_names()
    if name in known:
        return _NO_MATCH
    meant = nearest(name, sorted(each for each in known if each[:1].isalpha()))
    return _NO_MATCH if meant is None else f'Perhaps you meant to call the function "{meant}".'


def undefined_function(name: str, types: Sequence[SqlType], at: int) -> UndefinedFunction:
    """Return PostgreSQL's error for a missing function."""
    return UndefinedFunction(
        f"function {name}({', '.join(map(str, types))}) does not exist",
        hint=hint_for(name),
        position=at + 1,
    )
