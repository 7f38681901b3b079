"""Rows of the system relations about foreign keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.shown import Shown
from foreshore.catalog.item import Item
from foreshore.constraint import Unique
from foreshore.expr.functions.text import quote_ident as quoted
from foreshore.foreign_key import ForeignKey, rule_text

_ACTIONS = {"no action": "a", "restrict": "r", "cascade": "c", "set null": "n", "set default": "d"}
_EQUALITY = 96  # an operator, as each key column has one


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A foreign key of `table` to `other`; `unique` and its oid are the key that it refers to."""

    table: Item
    key: ForeignKey
    other: Item
    unique: Unique
    unique_oid: int


def found_keys(snapshot: IntrospectionSnapshot) -> Iterator[FoundKey]:
    """Yield the foreign keys of all tables."""
    for item in snapshot.items:
        for key in item.foreign_keys or ():
            other = snapshot.state.item(key.references)
            names = snapshot.desc_of(other.id).names
            unique = next(
                each
                for each in sorted(
                    snapshot.planned[other.id].unique, key=lambda each: not each.primary
                )
                if {names[i] for i in each.columns} == set(key.referenced)
            )
            oids = {each.name: each.oid for each in other.constraints if each.has_index}
            yield FoundKey(item, key, other, unique, oids[unique.name])


def _numbers(
    snapshot: IntrospectionSnapshot, item: Item, columns: Sequence[str]
) -> tuple[int, ...]:
    names = snapshot.desc_of(item.id).names
    return tuple(names.index(name) + 1 for name in columns)


def constraint_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_constraint."""
    for found in found_keys(snapshot):
        key, item = found.key, found.table
        operators = (_EQUALITY,) * len(key.columns)
        yield {
            "oid": key.oid,
            "conname": key.name,
            "connamespace": snapshot.oid(item.schema),
            "contype": "f",
            "condeferrable": key.deferrable,
            "condeferred": key.deferred,
            "convalidated": key.valid,
            "conrelid": item.oid,
            "conindid": found.unique_oid,
            "confrelid": found.other.oid,
            "confupdtype": _ACTIONS[key.on_update],
            "confdeltype": _ACTIONS[key.on_delete],
            "confmatchtype": "f" if key.match_full else "s",
            "conislocal": True,
            "connoinherit": True,
            "conkey": _numbers(snapshot, item, key.columns),
            "confkey": _numbers(snapshot, found.other, key.referenced),
            "conpfeqop": operators,
            "conppeqop": operators,
            "conffeqop": operators,
            "confdelsetcols": _numbers(snapshot, item, key.delete_columns) or None,
        }


def definition(snapshot: IntrospectionSnapshot, key: ForeignKey, other: Item) -> str:
    """Return a foreign key as pg_get_constraintdef formats it."""
    schema = snapshot.name(other.schema)
    name = quoted(other.name)
    if not _is_visible(snapshot, other):
        name = f"{quoted(schema)}.{name}"
    columns = (key.columns, key.referenced, key.delete_columns)
    return rule_text(key, name, [[*map(quoted, each)] for each in columns])


def _is_visible(snapshot: IntrospectionSnapshot, item: Item) -> bool:
    """Whether the search path finds a relation by its name alone."""
    if item.temporary:
        return True
    ids = {schema.name: schema.id for schema in snapshot.schemas.values()}
    for schema in snapshot.search_path:
        if schema == snapshot.name(item.schema):
            return True
        if schema in ids and snapshot.state.is_taken(ids[schema], item.name):
            return False
    return False


def definition_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the results of pg_get_constraintdef."""
    for found in found_keys(snapshot):
        text = definition(snapshot, found.key, found.other)
        for kind in ("constraint", "pretty constraint"):
            yield {
                "oid": found.key.oid, "kind": kind, "definition": text, "create_sql": text
            }  # fmt: skip


def depend_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield what foreign keys depend on, for pg_depend."""
    for found in found_keys(snapshot):
        own = {"classid": 2606, "objid": found.key.oid, "refclassid": 1259}
        for item, columns, kind in (
            (found.table, found.key.columns, "a"),
            (found.other, found.key.referenced, "n"),
        ):
            for number in _numbers(snapshot, item, columns):
                yield {**own, "refobjid": item.oid, "refobjsubid": number, "deptype": kind}
        yield {**own, "refobjid": found.unique_oid, "deptype": "n"}


# --- information_schema --------------------------------------------------------------------


def _own(snapshot: IntrospectionSnapshot) -> Iterator[FoundKey]:
    own = {item.id for item in snapshot.own_items}
    return (found for found in found_keys(snapshot) if found.table.id in own)


def _constraint(snapshot: IntrospectionSnapshot, item: Item, name: str) -> Row:
    return {
        "constraint_catalog": snapshot.database,
        "constraint_schema": snapshot.name(item.schema),
        "constraint_name": name,
    }


def _table(snapshot: IntrospectionSnapshot, item: Item) -> Row:
    return {
        "table_catalog": snapshot.database,
        "table_schema": snapshot.name(item.schema),
        "table_name": item.name,
    }


def table_constraints(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of table_constraints."""
    shown = Shown(snapshot)
    for found in _own(snapshot):
        if not shown.changed(found.table):
            continue
        yield {
            **_constraint(snapshot, found.table, found.key.name),
            **_table(snapshot, found.table),
            "constraint_type": "FOREIGN KEY",
            "is_deferrable": "YES" if found.key.deferrable else "NO",
            "initially_deferred": "YES" if found.key.deferred else "NO",
            "enforced": "YES",
        }


def key_column_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of key_column_usage."""
    shown = Shown(snapshot)
    for found in _own(snapshot):
        names = [snapshot.desc_of(found.other.id).names[i] for i in found.unique.columns]
        pairs = zip(found.key.columns, found.key.referenced, strict=True)
        numbers = _numbers(snapshot, found.table, found.key.columns)
        for number, (column, referenced) in enumerate(pairs, 1):
            if not shown.column(found.table, numbers[number - 1]):
                continue
            yield {
                **_constraint(snapshot, found.table, found.key.name),
                **_table(snapshot, found.table),
                "column_name": column,
                "ordinal_position": number,
                "position_in_unique_constraint": names.index(referenced) + 1,
            }


def constraint_column_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of constraint_column_usage: the columns that are referred to."""
    shown = Shown(snapshot)
    for found in _own(snapshot):
        if not shown.owned(found.other):
            continue
        for column in found.key.referenced:
            yield {
                **_constraint(snapshot, found.table, found.key.name),
                **_table(snapshot, found.other),
                "column_name": column,
            }


def referential_constraints(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of referential_constraints."""
    shown = Shown(snapshot)
    for found in _own(snapshot):
        if not shown.changed(found.table):
            continue
        is_constraint = not found.unique.is_index
        named = _constraint(snapshot, found.other, found.unique.name) if is_constraint else {}
        yield {
            **_constraint(snapshot, found.table, found.key.name),
            **{f"unique_{name}": value for name, value in named.items()},
            "match_option": "FULL" if found.key.match_full else "NONE",
            "update_rule": found.key.on_update.upper(),
            "delete_rule": found.key.on_delete.upper(),
        }
