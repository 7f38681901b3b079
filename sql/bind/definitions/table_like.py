"""Bind LIKE in CREATE TABLE: columns like those of another relation.

    CREATE TABLE new (LIKE old INCLUDING DEFAULTS INCLUDING CONSTRAINTS, more int)

Names, types and NOT NULL are always copied. CHECKs keep their names; keys and indexes get new ones.
INCLUDING CONSTRAINTS also copies the watermark.
"""

import msgspec

from foreshore.errors import WrongObjectType
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.rewrite.column_names import without_qualifiers
from foreshore.types import written_type

Columns = tuple[ast.ColumnDefinition, ...]
Constraints = tuple[ast.ConstraintDefinition, ...]


def with_likes_expanded(planning: Planning, statement: ast.CreateTableStatement) -> None:
    """Replace each LIKE of CREATE TABLE by columns and constraints."""
    if not any(isinstance(each, ast.LikeTable) for each in statement.elements):
        return
    columns: list[ast.ColumnDefinition] = []
    constraints = list(statement.constraints)
    indexes: list[tuple[str | None, str]] = []
    for each in statement.elements:
        if isinstance(each, ast.ColumnDefinition):
            columns.append(each)
            continue
        found, more, mark = _like(planning, each)
        indexes += _indexes(planning, each)
        columns += found
        constraints += more
        statement.watermark = statement.watermark or mark
    statement.elements, statement.constraints = tuple(columns), tuple(constraints)
    statement.indexes = (*statement.indexes, *indexes)


def _like(
    planning: Planning, like: ast.LikeTable
) -> tuple[Columns, Constraints, ast.WatermarkDefinition | None]:
    with located(like.table.at):
        item = planning.catalog.resolve_item(like.table.name)
    if item.kind in ("index", "sequence", "subscription", "type", "domain"):
        raise WrongObjectType(
            f'relation "{item.name.item}" is invalid in LIKE clause', position=like.table.at + 1
        )
    planning.needs.add(item.id, "SELECT")
    tree = _definition_of(item)
    for column, known in zip(tree.columns, item.desc.columns, strict=True):
        column.not_null = item.kind == "table" and not known.nullable
        if "defaults" not in like.including and column.generated is None:
            column.default, column.default_text = None, ""
        if "generated" not in like.including:
            column.generated = None
        column.identity = _copied(column.identity) if "identity" in like.including else None
    kept = {"check"} if "constraints" in like.including else set()
    if "indexes" in like.including:
        kept |= {"primary key", "unique"}
    constraints = tuple(
        each if each.kind == "check" else msgspec.structs.replace(each, name=None)
        for each in tree.constraints
        if each.kind in kept
    )
    mark = tree.watermark if "constraints" in like.including else None
    if mark is not None:  # the clock's marks are the new table's own
        mark = ast.WatermarkDefinition(mark.column, mark.delay, like.table.at, mark.idle)
    return tree.columns, constraints, mark


def _indexes(planning: Planning, like: ast.LikeTable) -> list[tuple[str | None, str]]:
    """Return the keys of the table's indexes as they are written; the copies get new names."""
    if "indexes" not in like.including:
        return []
    id = planning.catalog.resolve_item(like.table.name).id
    return [(None, keys) for keys in planning.catalog.keys_of_indexes(id)]


def _definition_of(item: ItemView) -> ast.CreateTableStatement:
    """Return CREATE TABLE of a table, or of one with the columns of another relation."""
    from foreshore.sql.parse.parse import parse

    text = item.create_sql
    if item.kind != "table":
        columns = ", ".join(
            f"{quote_identifier(name)} {written_type(column.type)}"
            for name, column in zip(item.desc.names, item.desc.columns, strict=True)
        )
        text = f"CREATE TABLE t ({columns})"
    (statement,) = parse(text)
    plain = without_qualifiers(text, 0, statement.ast)
    if plain != text:
        (statement,) = parse(plain)
    assert isinstance(statement.ast, ast.CreateTableStatement), statement.ast
    return statement.ast


def _copied(identity: ast.Identity | None) -> ast.Identity | None:
    """Return GENERATED ... AS IDENTITY with a sequence of its own."""
    if identity is None:
        return None
    return ast.Identity(identity.always, ast.SequenceOptions({}, {}))
