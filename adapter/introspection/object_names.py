"""Names of objects by their oids, by which results show values of type regclass, regtype, ...

They are looked up in the catalog's relations as the session sees them when a result begins, and
only for results that have such columns.
"""

from collections import Counter
from typing import TYPE_CHECKING

from foreshore.adapter.introspection.relations import builtin_rows
from foreshore.catalog.builtin.functions import functions
from foreshore.catalog.builtin.registry import builtins_by_name
from foreshore.expr.functions.text import quote_ident
from foreshore.text import ObjectNames
from foreshore.types import OTHER_TYPES, TYPES, type_of_oid

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


def object_names(session: "Session") -> ObjectNames:
    """Return the names that the session shows, by type and oid."""
    return ObjectNames(
        {
            "regclass": _relations(session),
            "regnamespace": _namespaces(session),
            "regproc": _functions(),
            "regtype": _types(),
        }
    )


def _columns(session: "Session", schema: str, name: str, columns: list[str]) -> list[list[object]]:
    rows = builtin_rows(session, builtins_by_name()[schema, name])
    return [rows.column(column).to_pylist() for column in columns]


def _namespaces(session: "Session") -> dict[int, str]:
    oids, names = _columns(session, "pg_catalog", "pg_namespace", ["oid", "nspname"])
    return {_oid(oid): quote_ident(str(name)) for oid, name in zip(oids, names, strict=True)}


def _relations(session: "Session") -> dict[int, str]:
    """Return names as they may be written: with the schema where the path does not find them."""
    seen = _columns(session, "mz_internal", "pg_relation_visibility", ["oid", "visible"])
    visible = {_oid(oid) for oid, is_visible in zip(*seen, strict=True) if is_visible}
    namespaces = _namespaces(session)
    found = {}
    columns = _columns(session, "pg_catalog", "pg_class", ["oid", "relname", "relnamespace"])
    for oid, name, namespace in zip(*columns, strict=True):
        schema = "" if _oid(oid) in visible else namespaces.get(_oid(namespace), "") + "."
        found[_oid(oid)] = schema + quote_ident(str(name))
    return found


def _functions() -> dict[int, str]:
    """Return functions' names, with the schema where there is more than one of a name."""
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


def _oid(value: object) -> int:
    assert isinstance(value, int), value
    return value
