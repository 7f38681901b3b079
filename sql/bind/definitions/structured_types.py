"""Bind CREATE TYPE of records, lists and maps."""

from foreshore.errors import FeatureNotSupported, InvalidObjectDefinition
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.type_names import domain_of_name, type_of_name
from foreshore.sql.bind.widths import check_columns
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import CreateStructured
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import CONTAINERS, Member, SqlType, written_type

_NO_PARTS = frozenset(("record", "void", "unknown"))


def bind_create_structured(
    planning: Planning, statement: ast.CreateStructuredStatement
) -> CreateStructured:
    """Return the plan of CREATE TYPE of records, lists or maps."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    planning.in_view = True  # without parameters
    check_columns([name for name, _ in statement.columns], defined=planning.defined)
    members: list[Member] = []
    for column, of in statement.columns:
        if statement.kind in CONTAINERS and of.item is not None and not planning.defined:
            raise InvalidObjectDefinition(
                f"CREATE TYPE ... AS {statement.kind.upper()} can only use named data types",
                hint="Use CREATE TYPE to create a named type first",
                position=of.at + 1,
            )
        if domain_of_name(of, planning) is not None:
            raise FeatureNotSupported(
                f"a domain within a type of {statement.kind}s is not supported",
                position=of.at + 1,
            )
        type = type_of_name(of, planning)
        if type.name in _NO_PARTS and type.defined is None:
            raise InvalidObjectDefinition(
                f'column "{column}" has pseudo-type {type}', position=of.at + 1
            )
        members.append(Member(column, type))
    if statement.key is not None and type_of_name(statement.key, planning).name != "text":
        raise FeatureNotSupported("the keys of a map are texts", position=statement.key.at + 1)
    type = SqlType(statement.kind, members=tuple(members))
    sql = f"CREATE TYPE {dotted(name.parts)} AS {_written(type)}"
    return CreateStructured(name, type, frozenset(planning.depends_on), sql)


def _written(type: SqlType) -> str:
    """Return the definition after AS."""
    match type.name:
        case "list":
            return f"LIST (ELEMENT TYPE = {written_type(type.members[0].type)})"
        case "map":
            item = written_type(type.members[0].type)
            return f"MAP (KEY TYPE = text, VALUE TYPE = {item})"
    columns = (f"{quote_identifier(m.name)} {written_type(m.type)}" for m in type.members)
    return f"({', '.join(columns)})"
