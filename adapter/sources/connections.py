"""CREATE CONNECTION and ALTER CONNECTION."""

from collections.abc import Mapping

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists, schema_of, skip_existing
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.sources.access import access_by
from foreshore.catalog.item import Connection, Schema, Secret
from foreshore.catalog.rights import holds
from foreshore.catalog.state import State
from foreshore.connection_spec import RULES, ConnectionKind, ConnectionSpec, OptionRule, SecretRef
from foreshore.errors import (
    DuplicateObject,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidParameterValue,
)
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.plan import AlterConnection, CreateConnection, OptionValue, ValidateConnection
from foreshore.sql.rewrite.full_names import dotted
from foreshore.storage.external.access import Access


def create_connection(context: StatementContext, plan: CreateConnection) -> Completed:
    """Run CREATE CONNECTION."""
    if plan.name.temporary:
        raise FeatureNotSupported("connections cannot be temporary")
    state, schema = context.planner.state, schema_of(context, plan.name)
    name = plan.name.item
    with skip_existing(context, plan.if_not_exists):
        if state.connection_in(schema.id, name) is not None:
            raise DuplicateObject(f'connection "{name}" already exists')
        spec = _spec(context, plan.kind, {}, plan.options)
        change = context.catalog_change()
        id, oid = f"l{change.allot('l')}", change.allot("oid")
        change.put(Connection(id, oid, schema.id, name, context.role.id, spec))
    return Completed("CREATE CONNECTION")


async def validate_new(context: StatementContext, plan: CreateConnection) -> None:
    """Reach the external system of a connection to be created, if it is to be validated."""
    if plan.validate:
        spec = _spec(context, plan.kind, {}, plan.options)
        await _reach(context, access_by(context.coordinator.secrets, plan.name.item, spec))


async def validate_connection(context: StatementContext, plan: ValidateConnection) -> Completed:
    """Run VALIDATE CONNECTION."""
    found = context.planner.reader().object_called("connection", plan.name.parts)
    assert isinstance(found, Connection), found
    await _reach(context, access_by(context.coordinator.secrets, found.name, found.spec))
    return Completed("VALIDATE CONNECTION")


async def _reach(context: StatementContext, access: Access) -> None:
    with context.interrupts.running():
        await context.coordinator.ingestion.validate(access)


def alter_connection(context: StatementContext, plan: AlterConnection) -> Completed:
    """Run ALTER CONNECTION ... SET, DROP and RESET."""
    found = find_if_exists(context, "connection", plan.name, if_exists=plan.if_exists, altered=True)
    if found is not None:
        assert isinstance(found, Connection), found
        spec = _spec(context, found.spec.kind, found.spec.options, plan.options)
        context.catalog_change().put(msgspec.structs.replace(found, spec=spec))
    return Completed("ALTER CONNECTION")


def _spec(
    context: StatementContext,
    kind: ConnectionKind,
    before: Mapping[str, str | SecretRef],
    given: Mapping[str, OptionValue],
) -> ConnectionSpec:
    """Return what a connection is after options were given; raises if one is missing or wrong."""
    rules, options = RULES[kind], dict(before)
    for name, value in given.items():
        rule = rules.get(name)
        if rule is None:
            raise InvalidParameterValue(
                f'connections to {kind.upper()} have no option "{name}"',
                hint=f"They have {', '.join(rules)}.",
            )
        if value is None:
            options.pop(name, None)
        else:
            options[name] = _checked(context, name, rule, value)
    for name, rule in rules.items():
        if rule.required and name not in options:
            raise InvalidParameterValue(f'connections to {kind.upper()} need the option "{name}"')
    return ConnectionSpec(kind, options)


def _checked(
    context: StatementContext, name: str, rule: OptionRule, value: OptionValue
) -> str | SecretRef:
    if isinstance(value, str):
        if rule.secret == "must":
            raise InvalidParameterValue(
                f'the option "{name}" must be a secret', hint="Write SECRET and its name."
            )
        if rule.choices and value.lower() not in rule.choices:
            raise InvalidParameterValue(
                f'invalid value for option "{name}": "{value}"',
                hint=f"It is one of {', '.join(rule.choices)}.",
            )
        if rule.is_number and not (value.isascii() and value.isdigit() and len(value) < 10):
            raise InvalidParameterValue(f'the option "{name}" must be a number')
        return value.lower() if rule.choices else value
    assert value is not None, name
    if rule.secret == "never":
        raise InvalidParameterValue(f'the option "{name}" cannot be a secret')
    secret = context.planner.reader().object_called("secret", value.parts)
    assert isinstance(secret, Secret), secret
    if not holds(context.planner.state, context.role, secret, "USAGE"):
        raise InsufficientPrivilege(f"permission denied for secret {secret.name}")
    return SecretRef(secret.id)


def connection_text(state: State, connection: Connection) -> str:
    """Return the statement that creates a connection, with the present names of its secrets."""
    options = [
        f"{name.upper()} = {_shown(state, value)}"
        for name, value in connection.spec.options.items()
    ]
    kind = connection.spec.kind.upper()
    name = dotted(full_name(state, connection))
    return f"CREATE CONNECTION {name} TO {kind} ({', '.join(options)})"


def _shown(state: State, value: str | SecretRef) -> str:
    if isinstance(value, str):
        return quote_string(value)
    secret = state.objects[value.secret]
    assert isinstance(secret, Secret), secret
    return f"SECRET {dotted(full_name(state, secret))}"


def full_name(state: State, each: Connection | Secret) -> tuple[str, ...]:
    """Return the names of database, schema and object."""
    schema = state.objects[each.schema]
    assert isinstance(schema, Schema), schema
    return (state.objects[schema.database or ""].name, schema.name, each.name)
