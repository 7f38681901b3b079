"""Bind CREATE TYPE ... AS ENUM and ALTER TYPE."""

from collections.abc import Sequence

from foreshore.errors import InvalidName, UniqueViolation
from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.plan import AlterEnum, CreateEnum
from foreshore.sql.rewrite.full_names import dotted

_MAX_BYTES = 63


def bind_create_enum(planning: Planning, statement: ast.CreateEnumStatement) -> CreateEnum:
    """Return the plan of CREATE TYPE ... AS ENUM."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    labels = tuple(label for label, _ in statement.labels)
    given: set[str] = set()
    for label in labels:
        check_label(label)
        if label in given:
            raise UniqueViolation(
                'duplicate key value violates unique constraint "pg_enum_typid_label_index"',
                detail=f"The label {quote_string(label)} is given twice.",
            )
        given.add(label)
    return CreateEnum(name, labels, enum_statement(name.parts, labels))


def bind_alter_enum(planning: Planning, statement: ast.AlterEnumStatement) -> AlterEnum:
    """Return the plan of ALTER TYPE ... ADD VALUE or RENAME VALUE."""
    check_label(statement.label)
    return AlterEnum(
        name_of(planning, "type", statement.name),
        statement.label,
        statement.renamed,
        statement.if_not_exists,
        statement.beside,
        statement.before,
    )


def check_label(label: str) -> None:
    """Raise InvalidName if a label is too long."""
    if len(label.encode()) > _MAX_BYTES:
        raise InvalidName(
            f'invalid enum label "{label}"', detail=f"Labels must be {_MAX_BYTES} bytes or less."
        )


def enum_statement(name: Sequence[str], labels: Sequence[str]) -> str:
    """Return the statement that defines an enum."""
    return f"CREATE TYPE {dotted(tuple(name))} AS ENUM ({', '.join(map(quote_string, labels))})"
