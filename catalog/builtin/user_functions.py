"""Rows of pg_proc for users' functions."""

from collections.abc import Iterator

from foreshore.catalog.builtin.functions import INTERNAL_LANGUAGE as INTERNAL
from foreshore.catalog.builtin.functions import pg_proc_rows
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.rights import shown
from foreshore.sql_function import SqlFunction
from foreshore.types import array_of, oid_of, parts_of

_LANGUAGES = {"sql": 14, "python": 15}
_RECORD = 2249
_ARRAY_APPEND = 378  # PostgreSQL's
_MODES = {"IN": "i", "OUT": "o", "INOUT": "b", "VARIADIC": "v", "TABLE": "t"}
_LETTERS = {"immutable": "i", "stable": "s", "volatile": "v"}


def proc_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_proc: the system's functions, then those of users."""
    if snapshot.is_rest:
        yield from pg_proc_rows()
    for item in snapshot.database_items:
        function = snapshot.planned[item.id].function if item.is_function else None
        if function is None:
            continue
        types = tuple(oid_of(type) for type in function.types)
        arguments = function.arguments
        shows_modes = bool(function.columns) or function.variadic
        defaults = [each.default for each in function.parameters if each.default is not None]
        yield {
            "oid": item.oid,
            "proname": item.name,
            "pronamespace": snapshot.oid(item.schema),
            "proowner": snapshot.oid(item.owner),
            "prolang": INTERNAL if function.is_aggregate else _LANGUAGES[function.language],
            "procost": 100.0,
            "prorows": 1000.0 if function.returns_set else 0.0,
            "prokind": "a" if function.is_aggregate else "f",
            "proisstrict": function.strict,
            "proretset": function.returns_set,
            "provolatile": _LETTERS[function.volatility],
            "proparallel": "u",
            "pronargs": len(types),
            "pronargdefaults": len(defaults),
            "prorettype": _RECORD if function.columns else oid_of(function.result),
            "proargtypes": types,
            "proallargtypes": tuple(oid_of(e.type) for e in arguments) if shows_modes else None,
            "proargmodes": tuple(_MODES[e.mode] for e in arguments) if shows_modes else None,
            "proargnames": tuple(e.name for e in arguments)
            if any(e.name for e in arguments)
            else None,
            "proargdefaults": ", ".join(defaults) or None,
            "provariadic": oid_of(parts_of(function.types[-1])[0]) if function.variadic else 0,
            "proacl": shown(snapshot, item),
            **_source(function),
        }


def _source(function: SqlFunction) -> Row:
    if function.is_aggregate:
        return {"prosrc": "aggregate_dummy", "prosqlbody": None}
    return {
        "prosrc": "" if function.is_expression else function.body,
        "prosqlbody": f"RETURN {function.body}" if function.is_expression else None,
    }


def aggregate_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_aggregate for users' aggregates."""
    functions = {item.id: item for item in snapshot.database_items if item.is_function}
    for item in functions.values():
        function = snapshot.planned[item.id].function
        if function is None or not function.is_aggregate:
            continue
        final = next(functions[each] for each in item.depends_on if each in functions)
        yield {
            "aggfnoid": item.oid,
            "aggkind": "n",
            "aggtransfn": _ARRAY_APPEND,
            "aggfinalfn": final.oid,
            "aggfinalmodify": "r",
            "aggmfinalmodify": "r",
            "aggtranstype": oid_of(array_of(function.types[0])),
        }
