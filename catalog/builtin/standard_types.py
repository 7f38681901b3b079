"""Types in the information schema: of columns, and the types and domains that users have defined.

PostgreSQL shows modifiers of a column's type and of a domain's, but not those of a parameter's.
"""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.shown import Shown
from foreshore.catalog.item import Item
from foreshore.domain import Domain
from foreshore.types import ColumnType, SqlType, element_of

INTEGER_BITS = {"int2": 16, "int4": 32, "int8": 64}
_FLOAT_BITS = {"float4": 24, "float8": 53}
_DATETIME = frozenset(("time", "timestamp", "timestamptz"))


def type_columns(snapshot: IntrospectionSnapshot, column: ColumnType) -> Row:
    """Return the columns that describe the type of a column."""
    type, element = column.type, element_of(column.type)
    named = element or type
    item = None if named.defined is None else snapshot.state.item_with(named.defined.oid)
    schema = "pg_catalog" if item is None else snapshot.name(item.schema)
    name = named.name if item is None else item.name
    kind = str(type) if item is None else "USER-DEFINED"
    return {
        "is_nullable": "YES" if column.nullable else "NO",
        "data_type": "ARRAY" if element else kind,
        **_precision(type),
        "udt_catalog": snapshot.database,
        "udt_schema": schema,
        "udt_name": f"_{name}" if element else name,
    }


def _precision(type: SqlType) -> Row:
    if type.name in ("varchar", "bpchar"):
        octets = type.length * 4 if type.length else 1_073_741_824
        return {"character_maximum_length": type.length, "character_octet_length": octets}
    if type.name in ("text", "name"):
        return {"character_octet_length": 1_073_741_824}
    if type.name in INTEGER_BITS:
        bits = INTEGER_BITS[type.name]
        return {"numeric_precision": bits, "numeric_precision_radix": 2, "numeric_scale": 0}
    if type.name in _FLOAT_BITS:
        return {"numeric_precision": _FLOAT_BITS[type.name], "numeric_precision_radix": 2}
    if type.name in ("numeric", "number"):
        declared = type.length is not None
        return {
            "numeric_precision": type.length,
            "numeric_precision_radix": 10,
            "numeric_scale": (type.scale or 0) & 0x7FF if declared else None,
        }
    if type.name in _DATETIME:
        return {"datetime_precision": 6 if type.length is None else type.length}
    if type.name == "date":
        return {"datetime_precision": 0}
    if type.name == "interval":
        return {"datetime_precision": 6}
    return {}


def unconstrained(snapshot: IntrospectionSnapshot, type: SqlType) -> Row:
    """Return the columns that describe a type by itself."""
    row = {**type_columns(snapshot, ColumnType(type))}
    del row["is_nullable"]
    return row


def owns_type(snapshot: IntrospectionSnapshot, shown: Shown, type: SqlType) -> bool:
    """Return whether the role has the rights of a type's owner: a superuser, if the system's."""
    named = element_of(type) or type
    item = None if named.defined is None else snapshot.state.item_with(named.defined.oid)
    return shown.all if item is None else shown.owned(item)


def _domains(snapshot: IntrospectionSnapshot) -> Iterator[tuple[Item, Domain]]:
    """Yield the domains that the session's role may use."""
    shown = Shown(snapshot)
    for item in snapshot.types:
        domain = snapshot.domain_of(item.id)
        if domain is not None and shown.granted(item):
            yield item, domain


def _domain_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, domain in _domains(snapshot):
        yield {
            **_domain_names(snapshot, item),
            **unconstrained(snapshot, domain.base),
            "domain_default": domain.default_text,
            "dtd_identifier": "1",
        }


def _domain_names(snapshot: IntrospectionSnapshot, item: Item) -> Row:
    return {
        "domain_catalog": snapshot.database,
        "domain_schema": snapshot.name(item.schema),
        "domain_name": item.name,
    }


def _domain_udt_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the types under domains, if the role has the rights of their owner."""
    shown = Shown(snapshot)
    for item, domain in _domains(snapshot):
        if owns_type(snapshot, shown, domain.base):
            udt = udt_of(unconstrained(snapshot, domain.base))
            yield {**_domain_names(snapshot, item), **udt}


def udt_of(row: Row) -> Row:
    """Return the name of the type that `type_columns` describes."""
    return {name: row[name] for name in ("udt_catalog", "udt_schema", "udt_name")}


def _constraint_names(snapshot: IntrospectionSnapshot, item: Item, name: str) -> Row:
    return {
        "constraint_catalog": snapshot.database,
        "constraint_schema": snapshot.name(item.schema),
        "constraint_name": name,
    }


def _domain_constraints(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for item, _ in _domains(snapshot):
        if shown.owned(item):
            for check in snapshot.domain_checks(item):
                yield {
                    **_constraint_names(snapshot, item, check.name),
                    **_domain_names(snapshot, item),
                    "is_deferrable": "NO",
                    "initially_deferred": "NO",
                }


def domain_checks(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of check_constraints for domains."""
    shown = Shown(snapshot)
    for item, _ in _domains(snapshot):
        if shown.owned(item):
            for check in snapshot.domain_checks(item):
                yield {
                    **_constraint_names(snapshot, item, check.name),
                    "check_clause": f"(({check.text}))",
                }


def _composites(snapshot: IntrospectionSnapshot) -> Iterator[tuple[Item, SqlType]]:
    shown = Shown(snapshot)
    return ((item, type) for item, type in snapshot.composites if shown.granted(item))


def _user_defined_types(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, _ in _composites(snapshot):
        yield {
            "user_defined_type_catalog": snapshot.database,
            "user_defined_type_schema": snapshot.name(item.schema),
            "user_defined_type_name": item.name,
            "user_defined_type_category": "STRUCTURED",
            "is_instantiable": "YES",
        }


def _attributes(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, record in _composites(snapshot):
        for position, member in enumerate(record.members, 1):
            row = {**type_columns(snapshot, ColumnType(member.type))}
            for part in ("catalog", "schema", "name"):
                row[f"attribute_udt_{part}"] = row.pop(f"udt_{part}")
            yield {
                **row,
                "udt_catalog": snapshot.database,
                "udt_schema": snapshot.name(item.schema),
                "udt_name": item.name,
                "attribute_name": member.name,
                "ordinal_position": position,
                "dtd_identifier": str(position),
                "is_derived_reference_attribute": "NO",
            }


def _collations(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for name in ("default", "C"):
        yield {**_collation(snapshot, name), "pad_attribute": "NO PAD"}


def _collations_of_character_set(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for name in ("default", "C"):
        yield {**_collation(snapshot, name), "character_set_name": "UTF8"}


def _collation(snapshot: IntrospectionSnapshot, name: str) -> Row:
    return {
        "collation_catalog": snapshot.database,
        "collation_schema": "pg_catalog",
        "collation_name": name,
    }


TYPES: dict[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
    "domains": _domain_rows,
    "domain_udt_usage": _domain_udt_usage,
    "domain_constraints": _domain_constraints,
    "user_defined_types": _user_defined_types,
    "attributes": _attributes,
    "collations": _collations,
    "collation_character_set_applicability": _collations_of_character_set,
}
