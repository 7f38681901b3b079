"""Names of objects by their oids, by which results show values of type regclass, regtype, ...

They are looked up in the catalog's relations as the session sees them when a result begins, and
only for results that have such columns.
"""

from collections import Counter

from foreshore.adapter.introspection.relations import builtin_rows
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.builtin.functions import functions
from foreshore.catalog.builtin.registry import builtins_by_name
from foreshore.expr.functions.text import quote_ident
from foreshore.text import ObjectNames
from foreshore.types import OTHER_TYPES, TYPES, type_of_oid


def object_names(context: StatementContext) -> ObjectNames:
    """Return the names that the session shows, by type and oid."""
    return ObjectNames(
        {
            "regclass": _relations(context),
            "regnamespace": _namespaces(context),
            "regproc": _functions(),
            "regtype": _types(),
        }
    )


def _columns(
    context: StatementContext, schema: str, name: str, columns: list[str]
) -> list[list[object]]:
    rows = builtin_rows(context, builtins_by_name()[schema, name])
    return [rows.column(column).to_pylist() for column in columns]


def _namespaces(context: StatementContext) -> dict[int, str]:
    oids, names = _columns(context, "pg_catalog", "pg_namespace", ["oid", "nspname"])
    return {_oid(oid): quote_ident(str(name)) for oid, name in zip(oids, names, strict=True)}


def _relations(context: StatementContext) -> dict[int, str]:
    """Return names as they may be written: with the schema where the path does not find them."""
    seen = _columns(context, "mz_internal", "pg_relation_visibility", ["oid", "visible"])
    visible = {_oid(oid) for oid, is_visible in zip(*seen, strict=True) if is_visible}
    namespaces = _namespaces(context)
    found = {}
    columns = _columns(context, "pg_catalog", "pg_class", ["oid", "relname", "relnamespace"])
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
