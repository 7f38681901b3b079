"""The information schema, with the contents that PostgreSQL shows."""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin import foreign_keys, granted
from foreshore.catalog.builtin.columns import INFORMATION_SCHEMA
from foreshore.catalog.builtin.relation import (
    Declaration,
    IntrospectionSnapshot,
    Row,
    nothing,
)
from foreshore.catalog.builtin.shown import Shown
from foreshore.catalog.builtin.standard_routines import ROUTINES
from foreshore.catalog.builtin.standard_types import (
    INTEGER_BITS,
    TYPES,
    domain_checks,
    type_columns,
)
from foreshore.catalog.builtin.usage import USAGE
from foreshore.catalog.item import Item
from foreshore.catalog.state import SYSTEM_SCHEMAS
from foreshore.constraint import Unique
from foreshore.expr.functions.text import quote_ident as quoted
from foreshore.expr.split import columns_used
from foreshore.types import RelationDesc

_SYSTEM_SCHEMAS = frozenset(each.name for each in SYSTEM_SCHEMAS)
_TABLE_TYPES = {"table": "BASE TABLE", "view": "VIEW"}


def relations() -> Iterator[Declaration]:
    """Yield the relations of the schema."""
    for name, (oid, columns) in INFORMATION_SCHEMA.items():
        # Its domains are over varchar, name, int4 and timestamptz.
        nullable = columns.replace(" text", " varchar").replace(",", "?,").rstrip() + "?"
        yield Declaration(oid, "information_schema", name, nullable, ROWS.get(name, nothing))


def _character_sets(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the one encoding of the database, which has no name of its own."""
    yield {
        "character_set_name": "UTF8",
        "character_repertoire": "UCS",
        "form_of_use": "UTF8",
        "default_collate_catalog": snapshot.database,
        "default_collate_schema": "pg_catalog",
        "default_collate_name": "C",
    }


def _relations(
    snapshot: IntrospectionSnapshot,
) -> Iterator[tuple[str, str, str, RelationDesc, Item | None]]:
    """Yield schema, name, kind and description of each relation that PostgreSQL lists.

    Materialized views are not listed.
    """
    for item in Shown(snapshot).items():
        if item.type in _TABLE_TYPES:
            yield snapshot.name(item.schema), item.name, item.type, snapshot.desc_of(item.id), item
    for builtin in snapshot.builtins:
        kind = "table" if builtin.schema == "pg_catalog" else "view"
        yield builtin.schema, builtin.name, kind, builtin.desc, None


def _tables(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for schema, name, kind, _, item in _relations(snapshot):
        yield {
            "table_catalog": snapshot.database,
            "table_schema": schema,
            "table_name": name,
            "table_type": "LOCAL TEMPORARY" if item and item.temporary else _TABLE_TYPES[kind],
            "is_insertable_into": "YES" if kind == "table" and _is_user(schema) else "NO",
            "is_typed": "NO",
        }


def _is_user(schema: str) -> bool:
    return schema not in _SYSTEM_SCHEMAS


def _columns(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for schema, name, kind, desc, item in _relations(snapshot):
        for i, (column, type) in enumerate(zip(desc.names, desc.columns, strict=True)):
            if item is not None and not shown.column(item, i + 1):
                continue
            of_table = item if kind == "table" and item and shown.owned(item) else None
            default = None if of_table is None else snapshot.default_of(of_table.id, i)
            stored = (
                item is not None
                and kind == "table"
                and snapshot.generated_of(item.id, i) == "stored"
            )
            yield {
                "table_catalog": snapshot.database,
                "table_schema": schema,
                "table_name": name,
                "column_name": column,
                "ordinal_position": i + 1,
                "column_default": None if stored else default,
                **type_columns(snapshot, type),
                "dtd_identifier": str(i + 1),
                "is_self_referencing": "NO",
                **_identity(snapshot, item, column, i),
                "is_generated": "ALWAYS" if stored else "NEVER",
                "generation_expression": default if stored else None,
                "is_updatable": "YES" if kind == "table" and _is_user(schema) else "NO",
            }


def _identity(
    snapshot: IntrospectionSnapshot, item: Item | None, column: str, position: int
) -> Row:
    """Return the columns about an identity column's sequence."""
    generated = None
    if item is not None and item.type == "table":
        generated = snapshot.generated_of(item.id, position)
    if item is None or generated in (None, "stored"):
        return {"is_identity": "NO", "identity_cycle": "NO"}
    assert generated is not None
    (sequence,) = (
        snapshot.sequence_of(each.id)
        for each in snapshot.state.sequences_of(item.id)
        if each.owned_by and each.owned_by.column == column and each.owned_by.identity
    )
    return {
        "is_identity": "YES",
        "identity_generation": generated.upper(),
        "identity_start": str(sequence.start),
        "identity_increment": str(sequence.increment),
        "identity_maximum": str(sequence.maximum),
        "identity_minimum": str(sequence.minimum),
        "identity_cycle": "YES" if sequence.cycle else "NO",
    }


def _sequences(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the sequences, except those of identity columns."""
    for item in Shown(snapshot).items():
        if item.type == "sequence" and not (item.owned_by and item.owned_by.identity):
            found = snapshot.sequence_of(item.id)
            yield {
                "sequence_catalog": snapshot.database,
                "sequence_schema": snapshot.name(item.schema),
                "sequence_name": item.name,
                "data_type": str(found.type),
                "numeric_precision": INTEGER_BITS[found.type.name],
                "numeric_precision_radix": 2,
                "numeric_scale": 0,
                "start_value": str(found.start),
                "minimum_value": str(found.minimum),
                "maximum_value": str(found.maximum),
                "increment": str(found.increment),
                "cycle_option": "YES" if found.cycle else "NO",
            }


def _schemata(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for schema in filter(shown.schema, snapshot.schemas.values()):
        known = schema.owner in snapshot.state.objects
        yield {
            "catalog_name": snapshot.database,
            "schema_name": schema.name,
            "schema_owner": snapshot.name(schema.owner) if known else None,
        }


def _views(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for item in shown.items():
        if item.type == "view":
            definition = snapshot.definition_of(item.id) if shown.owned(item) else None
            yield {
                "table_catalog": snapshot.database,
                "table_schema": snapshot.name(item.schema),
                "table_name": item.name,
                "view_definition": definition,
                "check_option": "NONE",
                "is_updatable": "NO",
                "is_insertable_into": "NO",
                "is_trigger_updatable": "NO",
                "is_trigger_deletable": "NO",
                "is_trigger_insertable_into": "NO",
            }


def _constraint_names(snapshot: IntrospectionSnapshot, item: Item, name: str) -> Row:
    schema = snapshot.name(item.schema)
    return {
        "constraint_catalog": snapshot.database,
        "constraint_schema": schema,
        "constraint_name": name,
        "table_catalog": snapshot.database,
        "table_schema": schema,
        "table_name": item.name,
    }


def _table_constraints(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    yield from foreign_keys.table_constraints(snapshot)
    common = {"is_deferrable": "NO", "initially_deferred": "NO", "enforced": "YES"}
    for item, named, constraint in snapshot.own_constraints:
        if not shown.changed(item):
            continue
        row = {**_constraint_names(snapshot, item, named.name), **common}
        if not isinstance(constraint, Unique):
            yield {**row, "constraint_type": "CHECK"}
        elif constraint.primary:
            yield {**row, "constraint_type": "PRIMARY KEY"}
        else:
            distinct = "YES" if constraint.nulls_distinct else "NO"
            yield {**row, "constraint_type": "UNIQUE", "nulls_distinct": distinct}
    for item in snapshot.own_items:
        if item.type == "table" and shown.changed(item):
            for i, column in enumerate(snapshot.desc_of(item.id).columns, 1):
                if not column.nullable:
                    name = f"{snapshot.oid(item.schema)}_{item.oid}_{i}_not_null"
                    row = {**_constraint_names(snapshot, item, name), **common}
                    yield {**row, "constraint_type": "CHECK"}


def _key_column_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    yield from foreign_keys.key_column_usage(snapshot)
    for item, named, constraint in snapshot.own_constraints:
        if isinstance(constraint, Unique):
            for number, i in enumerate(constraint.columns, 1):
                if not shown.column(item, i + 1):
                    continue
                yield {
                    **_constraint_names(snapshot, item, named.name),
                    "column_name": snapshot.desc_of(item.id).names[i],
                    "ordinal_position": number,
                }


def _constraint_column_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    yield from foreign_keys.constraint_column_usage(snapshot)
    for item, named, constraint in snapshot.own_constraints:
        if not shown.owned(item):
            continue
        columns = (
            constraint.columns
            if isinstance(constraint, Unique)
            else sorted(columns_used(constraint.condition))
        )
        for i in columns:
            yield {
                **_constraint_names(snapshot, item, named.name),
                "column_name": snapshot.desc_of(item.id).names[i],
            }


def _catalog_name(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    yield {"catalog_name": snapshot.database}


def _check_constraints(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    yield from domain_checks(snapshot)
    for item, named, constraint in snapshot.own_constraints:
        if not isinstance(constraint, Unique) and shown.owned(item):
            yield {
                **_check_names(snapshot, item, named.name),
                "check_clause": f"(({constraint.text}))",
            }
    for item in snapshot.own_items:
        if item.type == "table" and shown.owned(item):
            desc = snapshot.desc_of(item.id)
            for i, column in enumerate(desc.columns, 1):
                if not column.nullable:
                    name = f"{snapshot.oid(item.schema)}_{item.oid}_{i}_not_null"
                    clause = f"{quoted(desc.names[i - 1])} IS NOT NULL"
                    yield {**_check_names(snapshot, item, name), "check_clause": clause}


def _check_names(snapshot: IntrospectionSnapshot, item: Item, name: str) -> Row:
    row = _constraint_names(snapshot, item, name)
    return {key: row[key] for key in row if key.startswith("constraint")}


ROWS: dict[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
    "character_sets": _character_sets,
    "tables": _tables,
    "columns": _columns,
    "schemata": _schemata,
    "sequences": _sequences,
    "views": _views,
    "table_constraints": _table_constraints,
    "check_constraints": _check_constraints,
    "key_column_usage": _key_column_usage,
    "constraint_column_usage": _constraint_column_usage,
    "referential_constraints": foreign_keys.referential_constraints,
    "information_schema_catalog_name": _catalog_name,
    **granted.INFORMATION_SCHEMA,
    **ROUTINES,
    **TYPES,
    **USAGE,
}
