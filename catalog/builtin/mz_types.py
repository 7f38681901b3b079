"""Types, functions and operators as Materialize's relations show them, with ids for types."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from foreshore.catalog.builtin.functions import SYSTEM_NAMESPACE
from foreshore.catalog.builtin.operators import constant_rows
from foreshore.catalog.builtin.pg_types import type_rows
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.user_functions import proc_rows
from foreshore.catalog.item import Schema
from foreshore.types import item_of, oid_of

_CATEGORIES = {
    "A": "array", "B": "boolean", "C": "composite", "D": "date-time", "E": "enum", "I":
    "network-address", "N": "numeric", "P": "pseudo", "R": "range", "S": "string",
    "T": "timespan", "U": "user-defined", "V": "bit-string", "X": "unknown", "Z": "internal",
    "l": "list", "m": "map",
}  # fmt: skip
_SYSTEM_OWNER = "s1"


def _id(oid: int) -> str:
    """Return the id of a type, which has none of its own: no other object's looks like it."""
    return f"t{oid}"


def _ids(oids: Iterable[int]) -> list[str]:
    return [_id(oid) for oid in oids]


def _types(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    schemas = _schema_ids(snapshot)
    owners = {item.oid: item for item in snapshot.types}
    for row in type_rows(snapshot):
        item = owners.get(row["oid"]) or owners.get(row.get("typelem", 0))
        yield {
            "id": _id(row["oid"]),
            "oid": row["oid"],
            "schema_id": schemas.get(row["typnamespace"], ""),
            "name": row["typname"],
            "category": _CATEGORIES[row["typcategory"]],
            "owner_id": _SYSTEM_OWNER if item is None else item.owner,
            "create_sql": None if item is None else item.create_sql,
        }


def _schema_ids(snapshot: IntrospectionSnapshot) -> dict[int, str]:
    """Return the ids of the schemas that the session sees, by oid."""
    schemas: Iterable[Schema] = snapshot.schemas.values()
    return {schema.oid: schema.id for schema in schemas}


def _of_kind(kind: str) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the function for the types whose pg_type has the category, or is of no special one."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for row in type_rows(snapshot):
            category = row["typcategory"]
            if (category if category in "APlm" else "base") != kind:
                continue
            found = {"id": _id(row["oid"])}
            yield found | {"element_id": _id(row.get("typelem", 0))} if kind == "A" else found

    return rows


def _containers(kind: str) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the function for the list or map types of the catalog."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for item in snapshot.types:
            structure = snapshot.structure_of(item.id)
            if structure is None or structure.name != kind:
                continue
            value = _id(oid_of(item_of(structure)))
            if kind == "list":
                yield {"id": _id(item.oid), "element_id": value}
            else:
                yield {"id": _id(item.oid), "key_id": _id(25), "value_id": value}

    return rows


def _functions(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    schemas = _schema_ids(snapshot)
    owners = {item.oid: item.owner for item in snapshot.state.items() if item.is_function}
    for row in proc_rows(snapshot):
        oid, variadic = row["oid"], row.get("provariadic", 0)
        yield {
            "id": f"f{oid}",
            "oid": oid,
            "schema_id": schemas.get(row["pronamespace"], ""),
            "name": row["proname"],
            "argument_type_ids": _ids(row["proargtypes"]),
            "variadic_argument_type_id": _id(variadic) if variadic else None,
            "return_type_id": _id(row["prorettype"]),
            "returns_set": row.get("proretset", False),
            "owner_id": owners.get(oid, _SYSTEM_OWNER),
        }


def _operators(_: IntrospectionSnapshot) -> Iterator[Row]:
    for row in constant_rows("operators"):
        yield {
            "oid": row["oid"],
            "name": row["oprname"],
            "argument_type_ids": _ids(o for o in (row["oprleft"], row["oprright"]) if o),
            "return_type_id": _id(row["oprresult"]),
        }


def _aggregates(_: IntrospectionSnapshot) -> Iterator[Row]:
    for row in constant_rows("aggregates"):
        yield {
            "oid": row["aggfnoid"],
            "agg_kind": row["aggkind"],
            "agg_num_direct_args": row["aggnumdirectargs"],
        }


def _type_functions(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for row in type_rows(snapshot):
        if row["typnamespace"] == SYSTEM_NAMESPACE:
            yield {
                "id": _id(row["oid"]),
                "typinput": row.get("typinput", 0),
                "typreceive": row.get("typreceive", 0),
            }


ROWS: Mapping[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
    "mz_types": _types,
    "mz_base_types": _of_kind("base"),
    "mz_array_types": _of_kind("A"),
    "mz_pseudo_types": _of_kind("P"),
    "mz_list_types": _containers("list"),
    "mz_map_types": _containers("map"),
    "mz_functions": _functions,
    "mz_operators": _operators,
    "mz_aggregates": _aggregates,
    "mz_type_pg_metadata": _type_functions,
}
