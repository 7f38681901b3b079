"""Rows of pg_proc for users' functions."""

from collections.abc import Iterator

from foreshore.catalog.builtin.functions import pg_proc_rows
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.rights import shown
from foreshore.catalog.item import Item
from foreshore.sql_function import SqlFunction
from foreshore.types import oid_of, parts_of

SQL_LANGUAGE = 14
_RECORD = 2249
_LETTERS = {"immutable": "i", "stable": "s", "volatile": "v"}


def _modes(function: SqlFunction, letter: str) -> tuple[str, ...]:
    """Return the modes of a function's parameters, and of its columns."""
    given = ["i"] * len(function.types)
    if function.variadic:
        given[-1] = "v"
    return (*given, *(letter for _ in function.columns))


def proc_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_proc: the system's functions, then those of users."""
    yield from pg_proc_rows()
    for item in snapshot.state.all(Item):
        function = snapshot.planned[item.id].function if item.is_function else None
        if function is None or item.schema not in snapshot.schemas:
            continue
        types = tuple(oid_of(type) for type in function.types)
        names = [each.name for each in function.parameters]
        defaults = [each.default for each in function.parameters if each.default is not None]
        columns = function.columns
        letter = "t" if function.returns_set else "o"
        yield {
            "oid": item.oid,
            "proname": item.name,
            "pronamespace": snapshot.oid(item.schema),
            "proowner": snapshot.oid(item.owner),
            "prolang": SQL_LANGUAGE,
            "procost": 100.0,
            "prorows": 1000.0 if function.returns_set else 0.0,
            "prokind": "f",
            "proisstrict": function.strict,
            "proretset": function.returns_set,
            "provolatile": _LETTERS[function.volatility],
            "proparallel": "u",
            "pronargs": len(types),
            "pronargdefaults": len(defaults),
            "prorettype": _RECORD if columns else oid_of(function.result),
            "proargtypes": types,
            "proallargtypes": (*types, *(oid_of(t) for _, t in columns))
            if columns or function.variadic
            else None,
            "proargmodes": _modes(function, letter) if columns or function.variadic else None,
            "proargnames": (*names, *(name for name, _ in columns))
            if any(names) or columns
            else None,
            "proargdefaults": ", ".join(defaults) or None,
            "provariadic": oid_of(parts_of(function.types[-1])[0]) if function.variadic else 0,
            "proacl": shown(snapshot, item),
            "prosrc": "" if function.is_expression else function.body,
            "prosqlbody": f"RETURN {function.body}" if function.is_expression else None,
        }
