"""Names of objects by their oids, by which results show values of type regclass, regtype, ...

They are looked up in the catalog's relations as the session sees them when a result begins, and
only for results with such columns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from foreshore.catalog.builtin.functions import SYSTEM_NAMESPACE
from foreshore.catalog.builtin.registry import builtins_by_name
from foreshore.catalog.builtin.relation import Builtin
from foreshore.expr.functions.text import quote_ident
from foreshore.ids import GlobalId
from foreshore.output_style import ObjectNames
from foreshore.types import OTHER_TYPES, TYPES, SqlType, type_of_oid

_NAMESPACE, _VISIBILITY, _TYPE, _PROC, _OPERATOR = (
    ("pg_catalog", "pg_namespace"),
    ("mz_internal", "pg_relation_visibility"),
    ("pg_catalog", "pg_type"),
    ("pg_catalog", "pg_proc"),
    ("pg_catalog", "pg_operator"),
)
# The relations with many rows that the names of a type are made of.
_SOURCES = {
    "regclass": (_NAMESPACE, _VISIBILITY, ("pg_catalog", "pg_class")),
    "regtype": (_NAMESPACE, _VISIBILITY, _TYPE),
    "regproc": (_NAMESPACE, _VISIBILITY, _PROC),
    "regprocedure": (_NAMESPACE, _VISIBILITY, _TYPE, _PROC),
    "regoper": (_OPERATOR,),
    "regoperator": (_NAMESPACE, _VISIBILITY, _TYPE, _OPERATOR),
}


def sources_of_names(types: Iterable[SqlType]) -> set[GlobalId]:
    """Return the ids of the relations from which values of these types are shown."""
    sources = (_SOURCES.get((type.element or type).name, ()) for type in types)
    return {builtins_by_name()[each].id for found in sources for each in found}


# Names by oid, and the relations that they were made of, by type.
KeptNames: TypeAlias = dict[str, tuple[Mapping[int, str], Mapping[tuple[str, str], pa.Table]]]


def object_names(rows_of: Callable[[Builtin], pa.Table], kept: KeptNames) -> ObjectNames:
    """Return the names that a session shows, by type and oid; `rows_of` returns a relation.

    They are `kept` for as long as the relations are the same.
    """

    def find(type: str, make: Callable[[_Catalog], dict[int, str]]) -> Mapping[int, str]:
        names, sources = kept.get(type, ({}, {}))
        if not sources or any(
            rows_of(builtins_by_name()[name]) is not rows for name, rows in sources.items()
        ):
            catalog = _Catalog(rows_of)
            names, sources = kept[type] = make(catalog), catalog.read
        return names

    makes: dict[str, Callable[[_Catalog], dict[int, str]]] = {
        "regclass": _Catalog.relations,
        "regnamespace": _Catalog.namespaces,
        "regproc": lambda catalog: catalog.functions(with_types=False),
        "regprocedure": lambda catalog: catalog.functions(with_types=True),
        "regoper": lambda catalog: catalog.operators(with_types=False),
        "regoperator": lambda catalog: catalog.operators(with_types=True),
        "regtype": _Catalog.types,
        "regrole": lambda catalog: catalog.named("pg_roles", "rolname"),
        "regcollation": lambda catalog: catalog.named("pg_collation", "collname"),
        "regconfig": lambda catalog: catalog.named("pg_ts_config", "cfgname"),
        "regdictionary": lambda catalog: catalog.named("pg_ts_dict", "dictname"),
    }
    return ObjectNames({type: partial(find, type, make) for type, make in makes.items()})


class _Catalog:
    def __init__(self, rows_of: Callable[[Builtin], pa.Table]) -> None:
        self._rows_of = rows_of
        self.read: dict[tuple[str, str], pa.Table] = {}

    def _rows(self, schema: str, name: str, *names: str) -> Iterator[tuple[Any, ...]]:
        rows = self.read[schema, name] = self._rows_of(builtins_by_name()[schema, name])
        return zip(*(rows.column(column).to_pylist() for column in names), strict=True)

    def namespaces(self) -> dict[int, str]:
        """Return the schemas."""
        rows = self._rows("pg_catalog", "pg_namespace", "oid", "nspname")
        return {oid: quote_ident(name) for oid, name in rows}

    def _visible(self) -> set[int]:
        rows = self._rows("mz_internal", "pg_relation_visibility", "oid", "visible")
        return {oid for oid, visible in rows if visible}

    def relations(self) -> dict[int, str]:
        """Return the relations, with the schema where the search path does not find them."""
        namespaces, visible = self.namespaces(), self._visible()
        return {
            oid: ("" if oid in visible else namespaces.get(namespace, "") + ".") + quote_ident(name)
            for oid, name, namespace in self._rows(
                "pg_catalog", "pg_class", "oid", "relname", "relnamespace"
            )
        }

    def types(self) -> dict[int, str]:
        """Return the types, and the arrays of them."""
        namespaces, visible, types = self.namespaces(), self._visible(), _types()
        wanted = ("oid", "typname", "typnamespace", "typtype", "typarray")
        for oid, name, namespace, kind, array in self._rows("pg_catalog", "pg_type", *wanted):
            if kind in ("d", "e", "c") and namespace != SYSTEM_NAMESPACE:
                schema = "" if oid in visible else namespaces.get(namespace, "") + "."
                types[oid] = schema + quote_ident(name)
                types[array] = types[oid] + "[]"
        return types

    def functions(self, *, with_types: bool) -> dict[int, str]:
        """Return the functions, with the schema if a name alone is ambiguous or not found."""
        namespaces = self.namespaces()
        rows_of_visibility = self._rows("mz_internal", "pg_relation_visibility", "oid", "visible")
        hidden = {oid for oid, visible in rows_of_visibility if not visible}
        wanted = ("oid", "proname", "pronamespace", "proargtypes")
        rows = [*self._rows("pg_catalog", "pg_proc", *wanted)]
        if with_types:
            types = self.types()
            shown = {oid: f"{quote_ident(n)}({_listed(types, args)})" for oid, n, _, args in rows}
        else:
            shown = {oid: quote_ident(name) for oid, name, _, _ in rows}
        count = Counter(shown.values())
        return {
            oid: shown[oid]
            if count[shown[oid]] == 1 and oid not in hidden
            else f"{namespaces.get(namespace, '')}.{shown[oid]}"
            for oid, _, namespace, _ in rows
        }

    def operators(self, *, with_types: bool) -> dict[int, str]:
        """Return the operators, with the schema if a name alone is ambiguous."""
        wanted = ("oid", "oprname", "oprleft", "oprright")
        rows = [*self._rows("pg_catalog", "pg_operator", *wanted)]
        if with_types:
            types = {**self.types(), 0: "NONE"}
            return {oid: f"{name}({_listed(types, sides)})" for oid, name, *sides in rows}
        count = Counter(name for _, name, _, _ in rows)
        return {oid: name if count[name] == 1 else f"pg_catalog.{name}" for oid, name, _, _ in rows}

    def named(self, relation: str, column: str) -> dict[int, str]:
        """Return objects of which each name is there once."""
        rows = self._rows("pg_catalog", relation, "oid", column)
        return {oid: quote_ident(name) for oid, name in rows}


def _listed(types: Mapping[int, str], oids: Sequence[int]) -> str:
    return ",".join(types.get(oid, str(oid)) for oid in oids)


def _types() -> dict[int, str]:
    oids = {oid for info in TYPES.values() for oid in (info.oid, info.array_oid) if oid}
    found = {oid: type_of_oid(oid) for oid in oids}
    ours = {oid: str(type) for oid, type in found.items() if type is not None}
    return {oid: name for name, oid in OTHER_TYPES.items()} | ours
