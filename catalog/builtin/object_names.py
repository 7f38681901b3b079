"""Names of objects by their oids, by which results show values of type regclass, regtype, ...

They are looked up in the catalog's relations as the session sees them when a result begins, and
only for results with such columns.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foreshore.catalog.builtin.functions import functions
from foreshore.catalog.builtin.registry import builtins_by_name
from foreshore.catalog.builtin.relation import Builtin
from foreshore.expr.functions.text import quote_ident
from foreshore.output_style import ObjectNames
from foreshore.types import OTHER_TYPES, TYPES, type_of_oid


def object_names(rows_of: Callable[[Builtin], pa.Table]) -> ObjectNames:
    """Return the names that a session shows, by type and oid; `rows_of` returns a relation."""

    def columns(schema: str, name: str, *names: str) -> list[list[Any]]:
        rows = rows_of(builtins_by_name()[schema, name])
        return [rows.column(column).to_pylist() for column in names]

    oids, names = columns("pg_catalog", "pg_namespace", "oid", "nspname")
    namespaces = {oid: quote_ident(name) for oid, name in zip(oids, names, strict=True)}
    seen = columns("mz_internal", "pg_relation_visibility", "oid", "visible")
    visible = {oid for oid, is_visible in zip(*seen, strict=True) if is_visible}
    relations = {}
    found = columns("pg_catalog", "pg_class", "oid", "relname", "relnamespace")
    for oid, name, namespace in zip(*found, strict=True):
        schema = "" if oid in visible else namespaces.get(namespace, "") + "."
        relations[oid] = schema + quote_ident(name)
    types = {}
    wanted = ("oid", "typname", "typnamespace", "typtype", "typarray")
    for oid, name, namespace, kind, array in zip(
        *columns("pg_catalog", "pg_type", *wanted), strict=True
    ):
        if kind in ("d", "e"):
            schema = "" if oid in visible else namespaces.get(namespace, "") + "."
            types[oid] = schema + quote_ident(name)
            types[array] = types[oid] + "[]"
    return ObjectNames(
        {
            "regclass": relations,
            "regnamespace": namespaces,
            "regproc": _functions(),
            "regtype": _types() | types,
        }
    )


def _functions() -> dict[int, str]:
    """Return the names of functions, with the schema if a name is ambiguous."""
    count = Counter(function.name for function in functions())
    return {
        function.oid: function.name if count[function.name] == 1 else f"pg_catalog.{function.name}"
        for function in functions()
    }


def _types() -> dict[int, str]:
    oids = {oid for info in TYPES.values() for oid in (info.oid, info.array_oid) if oid}
    found = {oid: type_of_oid(oid) for oid in oids}
    ours = {oid: str(type) for oid, type in found.items() if type is not None}
    return {oid: name for name, oid in OTHER_TYPES.items()} | ours
