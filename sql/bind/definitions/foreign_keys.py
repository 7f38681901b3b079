"""Bind foreign keys: the table and the key that they refer to."""

from collections.abc import Collection, Sequence

import msgspec

from foreshore.constraint import Constraint, Unique
from foreshore.errors import (
    DatatypeMismatch,
    DuplicateObject,
    FeatureNotSupported,
    InvalidForeignKey,
    InvalidTableDefinition,
    UndefinedColumn,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.functions.registry import resolve_cast
from foreshore.foreign_key import THIS_TABLE, ForeignKey
from foreshore.item_view import ItemView, Name
from foreshore.number_text import INTEGERS
from foreshore.sql import ast
from foreshore.sql.bind.definitions.column import object_name
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.widths import check_foreign_key
from foreshore.types import RelationDesc, SqlType

_IN_A_ZONE = frozenset(("timestamptz", "timetz"))


def bound_foreign_keys(
    planning: Planning,
    name: Name,
    desc: RelationDesc,
    constraints: Sequence[Constraint],
    definitions: Sequence[ast.ForeignKeyDefinition],
    others: Collection[str] = (),
    table: ItemView | None = None,
) -> tuple[ForeignKey, ...]:
    """Return the foreign keys that `definitions` add to a table, which exists if `table` is given.

    They have no oids yet. `others` are the names of the table's other foreign keys.
    """
    taken = {each.name for each in constraints} | set(others)
    found = []
    for each in definitions:
        if each.name in taken:
            raise DuplicateObject(
                f'constraint "{each.name}" for relation "{name.item}" already exists'
            )
        key = _bound(planning, name, desc, constraints, each, table)
        if not key.name:
            key = _named(key, name, taken)
        taken.add(key.name)
        is_own = key.references == THIS_TABLE
        check_types(key, desc, desc if is_own else planning.catalog.item(key.references).desc)
        found.append(key)
    return tuple(found)


def _named(key: ForeignKey, table: Name, taken: Collection[str]) -> ForeignKey:
    number = 0
    while True:
        label = f"fkey{number or ''}"
        name = object_name(table.item, "_".join(key.columns), label)
        if name not in taken:
            return msgspec.structs.replace(key, name=name)
        number += 1


def _bound(
    planning: Planning,
    name: Name,
    desc: RelationDesc,
    constraints: Sequence[Constraint],
    definition: ast.ForeignKeyDefinition,
    table: ItemView | None,
) -> ForeignKey:
    columns = _columns(desc, definition.columns, defined=planning.defined)
    target = _referenced_table(planning, name, definition, table)
    own = target is None or (table is not None and target.id == table.id)
    other, keys = (
        (desc, constraints) if own or target is None else (target.desc, target.constraints)
    )
    unique = [each for each in keys if isinstance(each, Unique)]
    other_name = name if target is None else target.name
    if definition.referenced:
        referenced = _columns(other, definition.referenced, defined=planning.defined)
    else:
        primary = next((each for each in unique if each.primary), None)
        if primary is None:
            raise UndefinedObject(
                f'there is no primary key for referenced table "{other_name.item}"'
            )
        referenced = tuple(other.names[i] for i in primary.columns)
    if len(referenced) != len(columns):
        raise InvalidForeignKey(
            "number of referencing and referenced columns for foreign key disagree"
        )
    places = sorted(other.names.index(each) for each in referenced)
    if len(set(places)) < len(places) or not any(
        sorted(each.columns) == places and each.nulls_distinct for each in unique
    ):
        raise InvalidForeignKey(
            "there is no unique constraint matching given keys for referenced table "
            f'"{other_name.item}"'
        )
    for each, _ in definition.delete_columns:
        if each not in columns:
            raise UndefinedColumn(
                f'column "{each}" referenced in ON DELETE SET action must be part of foreign key',
                sqlstate="42P10",
            )
    return ForeignKey(
        definition.name or "",
        0,
        columns,
        THIS_TABLE if own or target is None else target.id,
        referenced,
        definition.match_full,
        definition.on_delete,
        definition.on_update,
        tuple(each for each, _ in definition.delete_columns),
        definition.deferrable,
        definition.deferred,
        definition.valid,
    )


def _columns(
    desc: RelationDesc, named: Sequence[tuple[str, int]], *, defined: bool
) -> tuple[str, ...]:
    check_foreign_key(len(named), defined=defined)
    for column, _ in named:
        if column not in desc.names:
            raise UndefinedColumn(
                f'column "{column}" referenced in foreign key constraint does not exist'
            )
    return tuple(column for column, _ in named)


def _referenced_table(
    planning: Planning,
    name: Name,
    definition: ast.ForeignKeyDefinition,
    table: ItemView | None,
) -> ItemView | None:
    """Return the referenced table; None if it is the one that is being created."""
    ref = definition.table
    with located(0):
        try:
            if table is None and planning.catalog.resolve_new(ref.name) == name:
                return None
            item = planning.catalog.resolve_item(ref.name)
        except UndefinedTable:
            if table is None and name.temporary and ref.name[-1] == name.item:
                return None
            raise
    if item.kind != "table":
        raise WrongObjectType(f'referenced relation "{item.name.item}" is not a table')
    if item.name.temporary and not name.temporary:
        raise InvalidTableDefinition(
            "constraints on permanent tables may reference only permanent tables"
        )
    if name.temporary and not item.name.temporary:
        raise InvalidTableDefinition(
            "constraints on temporary tables may reference only temporary tables"
        )
    if item.name.database != name.database:
        raise FeatureNotSupported("a foreign key to a table of another database is not supported")
    return item


def check_types(key: ForeignKey, desc: RelationDesc, other: RelationDesc) -> None:
    """Raise DatatypeMismatch if a column cannot be compared with the one that it refers to."""
    for column, referenced in zip(key.columns, key.referenced, strict=True):
        source = desc.columns[desc.names.index(column)].type
        target = other.columns[other.names.index(referenced)].type
        if not can_refer(source, target):
            raise DatatypeMismatch(
                f'foreign key constraint "{key.name}" cannot be implemented',
                detail=f'Key columns "{column}" and "{referenced}" are of incompatible types: '
                f"{source} and {target}.",
            )


def can_refer(source: SqlType, target: SqlType) -> bool:
    """Whether a column of type `source` can refer to a key column of type `target`."""
    if source.name == target.name or {source.name, target.name} <= INTEGERS.keys():
        return source.defined == target.defined and source.element == target.element
    if _IN_A_ZONE & {source.name, target.name}:
        return False  # the cast would depend on the session
    return resolve_cast(source, target, "implicit") is not None
