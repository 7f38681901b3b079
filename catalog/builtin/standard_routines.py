"""Functions of users in the information schema.

The functions of the system, which PostgreSQL lists as well, are in `pg_proc` alone.
"""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.shown import Shown
from foreshore.catalog.builtin.standard_types import unconstrained
from foreshore.catalog.item import Item
from foreshore.sql_function import SqlFunction
from foreshore.types import SqlType

_MODES = {"VARIADIC": "IN", "TABLE": "OUT"}


def specific_name(snapshot: IntrospectionSnapshot, function: Item) -> Row:
    """Return the columns that identify a function among those of its name."""
    return {
        "specific_catalog": snapshot.database,
        "specific_schema": snapshot.name(function.schema),
        "specific_name": f"{function.name[: 63 - len(str(function.oid)) - 1]}_{function.oid}",
    }


def routine_name(snapshot: IntrospectionSnapshot, function: Item) -> Row:
    """Return the columns that name a function."""
    return {
        **specific_name(snapshot, function),
        "routine_catalog": snapshot.database,
        "routine_schema": snapshot.name(function.schema),
        "routine_name": function.name,
    }


def _functions(snapshot: IntrospectionSnapshot) -> Iterator[tuple[Item, SqlFunction]]:
    shown = Shown(snapshot)
    for item in snapshot.database_items:
        function = snapshot.planned[item.id].function if item.is_function else None
        if function is not None and shown.granted(item):
            yield item, function


def _type(snapshot: IntrospectionSnapshot, type: SqlType) -> Row:
    """Return the columns of a type without its modifiers, which functions do not keep."""
    row = unconstrained(snapshot, type)
    names = ("data_type", "udt_catalog", "udt_schema", "udt_name")
    return {name: row[name] for name in names}


def _routines(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for item, function in _functions(snapshot):
        result = SqlType("record") if function.columns else function.result
        row = _type(snapshot, result)
        of_type = {f"type_{name}": row[name] for name in row if name != "data_type"}
        yield {
            **routine_name(snapshot, item),
            "routine_type": "FUNCTION",
            "data_type": row["data_type"],
            **of_type,
            "dtd_identifier": "0",
            "routine_body": "SQL" if function.language == "sql" else "EXTERNAL",
            "routine_definition": function.body if shown.owned(item) else None,
            "external_language": function.language.upper(),
            "parameter_style": "GENERAL",
            "is_deterministic": "YES" if function.volatility == "immutable" else "NO",
            "sql_data_access": "MODIFIES",
            "is_null_call": "YES" if function.strict else "NO",
            "schema_level_routine": "YES",
            "max_dynamic_result_sets": 0,
            "security_type": "INVOKER",
            "as_locator": "NO",
            "is_udt_dependent": "NO",
        }


def _parameters(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for item, function in _functions(snapshot):
        for position, each in enumerate(function.arguments, 1):
            yield {
                **specific_name(snapshot, item),
                "ordinal_position": position,
                "parameter_mode": _MODES.get(each.mode, each.mode),
                "is_result": "NO",
                "as_locator": "NO",
                "parameter_name": each.name or None,
                **_type(snapshot, each.type),
                "dtd_identifier": str(position),
                "parameter_default": each.default if shown.owned(item) else None,
            }


ROUTINES: dict[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
    "routines": _routines,
    "parameters": _parameters,
}
