"""Definitions in PostgreSQL's format: the results of pg_get_indexdef and pg_get_constraintdef."""

from collections.abc import Sequence

from foreshore.catalog.builtin.relation import IntrospectionSnapshot
from foreshore.catalog.item import Item
from foreshore.constraint import Constraint, Unique
from foreshore.expr.functions.text import quote_ident as quoted
from foreshore.expr.functions.text import quote_literal


def index_definition(snapshot: IntrospectionSnapshot, index: Item) -> str:
    """Return the index as pg_get_indexdef formats it."""
    assert index.on is not None, index
    relation = snapshot.state.item(index.on)
    keys = zip(snapshot.index_key_of(index.id), snapshot.written_keys_of(index.id), strict=True)
    columns = ", ".join(
        (quoted(text) if position else text) + key.order for (position, text), key in keys
    )
    schema = quoted(snapshot.name(relation.schema))
    return (
        f"CREATE INDEX {quoted(index.name)} ON {schema}.{quoted(relation.name)}"
        f" USING btree ({columns}){_with(snapshot.options_of(index.id))}"
    )


def _with(options: Sequence[str]) -> str:
    """Return ` WITH (name=value, ...)`, nothing without options."""
    parts = (each.partition("=") for each in options)
    listed = ", ".join(f"{quoted(name)}={quote_literal(value)}" for name, _, value in parts)
    return f" WITH ({listed})" if listed else ""


def constraint_definition(
    snapshot: IntrospectionSnapshot, item: Item, constraint: Constraint, *, pretty: bool = False
) -> str:
    """Return the constraint as pg_get_constraintdef formats it."""
    if not isinstance(constraint, Unique):
        return f"CHECK ({constraint.text})" if pretty else f"CHECK (({constraint.text}))"
    names = snapshot.desc_of(item.id).names
    columns = ", ".join(quoted(names[i]) for i in constraint.columns)
    if constraint.primary:
        return f"PRIMARY KEY ({columns})"
    nulls = "" if constraint.nulls_distinct else "NULLS NOT DISTINCT "
    return f"UNIQUE {nulls}({columns})"


def key_definition(snapshot: IntrospectionSnapshot, item: Item, key: Unique) -> str:
    """Return the index of a unique constraint as pg_get_indexdef formats it."""
    names = snapshot.desc_of(item.id).names
    columns = ", ".join(quoted(names[i]) for i in key.columns)
    schema = quoted(snapshot.name(item.schema))
    nulls = "" if key.nulls_distinct else " NULLS NOT DISTINCT"
    return (
        f"CREATE UNIQUE INDEX {quoted(key.name)} ON {schema}.{quoted(item.name)}"
        f" USING btree ({columns}){nulls}"
    )
