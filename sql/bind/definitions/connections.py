"""Bind CREATE CONNECTION and ALTER CONNECTION."""

from collections.abc import Sequence

from foreshore.connection_spec import RULES, TUNNEL, ConnectionKind
from foreshore.errors import FeatureNotSupported, InvalidParameterValue, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.plan import AlterConnection, CreateConnection, OptionValue, ValidateConnection


def bind_create_connection(
    planning: Planning, statement: ast.CreateConnectionStatement
) -> CreateConnection:
    """Return the plan of CREATE CONNECTION."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    kind = _kind(statement)
    return CreateConnection(
        name,
        kind,
        _options(planning, statement.options),
        statement.if_not_exists,
        statement.validate,
    )


def bind_alter_connection(
    planning: Planning, statement: ast.AlterConnectionStatement
) -> AlterConnection:
    """Return the plan of ALTER CONNECTION."""
    name = name_of(planning, "connection", statement.name)
    options = _options(planning, statement.options)
    return AlterConnection(name, options, statement.if_exists, statement.rotate, statement.validate)


def bind_validate_connection(
    planning: Planning, statement: ast.ValidateConnectionStatement
) -> ValidateConnection:
    """Return the plan of VALIDATE CONNECTION."""
    name = name_of(planning, "connection", statement.name)
    return ValidateConnection(name, statement.publication)


def _kind(statement: ast.CreateConnectionStatement) -> ConnectionKind:
    for kind in RULES:
        if kind == statement.kind:
            return kind
    if statement.kind in ("mysql", "sql server"):
        raise FeatureNotSupported(
            f"connections to {statement.kind.upper()} are not supported",
            hint="Send its changes to Kafka by Debezium, and create a connection to KAFKA.",
            position=statement.at + 1,
        )
    raise InvalidParameterValue(
        f"connections to {statement.kind.upper()} are not supported",
        hint=f"There are {', '.join(kind.upper() for kind in RULES)}.",
        position=statement.at + 1,
    )


def _options(planning: Planning, options: Sequence[ast.ConnectionOption]) -> dict[str, OptionValue]:
    found: dict[str, OptionValue] = {}
    for each in options:
        if each.name in found:
            raise SyntaxError_(f'option "{each.name}" is given twice', position=each.at + 1)
        if each.connection is not None:
            if TUNNEL in found:
                raise SyntaxError_(f'option "{TUNNEL}" is given twice', position=each.at + 1)
            found[TUNNEL] = name_of(planning, "connection", each.connection)
            if each.text is not None:
                found[each.name] = each.text
        elif each.secret is not None:
            found[each.name] = name_of(planning, "secret", each.secret)
        else:
            found[each.name] = each.text
    return found
