"""Bind CREATE SECRET and ALTER SECRET. No error has a part of the value."""

from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.ir import Literal
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import Scope
from foreshore.sql.plan import AlterSecret, CreateSecret

_TYPES = ("unknown", "text", "varchar", "bytea")
LONGEST = 512 * 1024  # bytes


def bind_create_secret(planning: Planning, statement: ast.CreateSecretStatement) -> CreateSecret:
    """Return the plan of CREATE SECRET."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    return CreateSecret(name, _value(planning, statement.value), statement.if_not_exists)


def bind_alter_secret(planning: Planning, statement: ast.AlterSecretStatement) -> AlterSecret:
    """Return the plan of ALTER SECRET ... AS."""
    name = name_of(planning, "secret", statement.name)
    return AlterSecret(name, _value(planning, statement.value), statement.if_exists)


def _value(planning: Planning, expr: ast.Expression) -> bytes:
    """Return a secret's value: the bytes of a bytea, or those of a text in UTF-8."""
    try:
        scalar = ExpressionBinder(planning, Scope(), Clause("the value of a secret")).bind(expr)
        found = constant(scalar) if is_constant(scalar) else None
    except DatabaseError:
        found = None
    value: object = None
    if isinstance(found, Literal) and found.type.name in _TYPES:
        value = found.value.encode() if isinstance(found.value, str) else found.value
    if not isinstance(value, bytes):
        raise InvalidParameterValue(
            "the value of a secret must be a constant of type text or bytea",
            position=at_of(expr) + 1,
        )
    if len(value) > LONGEST:
        raise InvalidParameterValue(
            f"secrets can not be bigger than {LONGEST} bytes", position=at_of(expr) + 1
        )
    return value
