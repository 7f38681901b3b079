"""CREATE CONNECTION and ALTER CONNECTION."""

import re
from collections.abc import Collection, Mapping

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists, schema_of, skip_existing
from foreshore.adapter.external.access import access, access_by
from foreshore.adapter.sources.chosen import check_obstacles, listed, of_all_tables
from foreshore.adapter.sources.create import check_types
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.item import Connection, Role, Secret
from foreshore.catalog.rights import holds
from foreshore.catalog.roles import role_with
from foreshore.connection_spec import (
    RULES,
    TUNNEL,
    TUNNELLED,
    ConnectionSpec,
    KeyPair,
    OptionRule,
    SecretRef,
    check_host,
    check_url,
    check_urls,
    has_identity,
    lacking_option,
    password_is_required,
)
from foreshore.digits import is_digits
from foreshore.errors import (
    DuplicateObject,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidParameterValue,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.sources.postgres import PostgresSource
from foreshore.sql.plan import AlterConnection, CreateConnection, OptionValue, ValidateConnection
from foreshore.ssh_keys import new_key_pair
from foreshore.storage.external.access import Access

_WITH_PASSWORD = re.compile(r"https?://[^/@]*:[^/@]*@", re.IGNORECASE)


def create_connection(context: StatementContext, plan: CreateConnection) -> Completed:
    """Run CREATE CONNECTION."""
    if plan.name.temporary:
        raise FeatureNotSupported("connections cannot be temporary")
    state, schema = context.planner.state, schema_of(context, plan.name)
    name = plan.name.item
    with skip_existing(context, plan.if_not_exists):
        if state.connection_in(schema.id, name) is not None:
            raise DuplicateObject(f'connection "{name}" already exists')
        spec = _spec(context.planner, context.role, ConnectionSpec(plan.kind, {}), plan.options)
        _require_identity(spec, context.role)
        change = context.catalog_change()
        id, oid = f"l{change.allot('l')}", change.allot("oid")
        keys = (_new_keys(context, id), _new_keys(context, id)) if plan.kind == TUNNEL else ()
        change.put(Connection(id, oid, schema.id, name, context.role.id, spec, keys))
    return Completed("CREATE CONNECTION")


async def validate_new(context: StatementContext, plan: CreateConnection) -> None:
    """Reach the external system of a connection to be created, if it is to be validated."""
    if plan.validate and plan.kind == TUNNEL:
        raise FeatureNotSupported(
            "a connection to an SSH TUNNEL cannot be validated before it is there",
            hint="Create it without VALIDATE, add its public keys in mz_ssh_tunnel_connections to"
            " authorized_keys of the SSH server, and VALIDATE CONNECTION.",
        )
    if plan.validate:
        spec = _spec(context.planner, context.role, ConnectionSpec(plan.kind, {}), plan.options)
        state, name = context.planner.state, plan.name.item
        reached = access_by(context.names, state.get, name, spec, context.role.id)
        await _reach(context, reached)


async def validate_altered(context: StatementContext, plan: AlterConnection) -> None:
    """Reach the external system of a connection with the options that it is to have."""
    try:
        found = context.planner.reader().object_called("connection", plan.name.parts, altered=True)
    except UndefinedObject:
        return  # alter_connection tells
    assert isinstance(found, Connection), found
    changed = msgspec.structs.replace(
        found, spec=_spec(context.planner, context.role, found.spec, plan.options)
    )
    await _reach(context, access(context.names, context.planner.state.get, changed))


async def validate_connection(context: StatementContext, plan: ValidateConnection) -> Completed:
    """Run VALIDATE CONNECTION."""
    found = context.planner.reader().object_called("connection", plan.name.parts)
    assert isinstance(found, Connection), found
    check_urls(found.spec)
    if plan.publication is None:
        await _reach(context, access(context.names, context.planner.state.get, found))
        return Completed("VALIDATE CONNECTION")
    if found.spec.kind != "postgres":
        raise WrongObjectType(f'connection "{found.name}" is not to POSTGRES')
    with context.interrupts.running():
        spec = PostgresSource(found.id, plan.publication)
        found_there = await context.feeds.ingestion.discovered(spec)
    outputs = of_all_tables(context.notice, found_there.outputs)
    if not outputs:
        raise UndefinedTable(
            f'publication "{plan.publication}" has no tables',
            hint="Run ALTER PUBLICATION ... ADD TABLE upstream.",
        )
    check_obstacles(outputs)
    for reference, output in outputs.items():
        check_types(context.planner, reference, output)
    context.notice(f'publication "{plan.publication}" has {listed([*outputs])}')
    return Completed("VALIDATE CONNECTION")


async def _reach(context: StatementContext, access: Access) -> None:
    """Connect to an external system, and send a notice for each feature that it lacks."""
    with context.interrupts.running():
        lacks = await context.feeds.ingestion.validate(access)
    for message, hint in lacks:
        context.notice(f"sources cannot use it, sinks can: {message}", hint=hint)


def alter_connection(context: StatementContext, plan: AlterConnection) -> Completed:
    """Run ALTER CONNECTION ... SET, DROP, RESET and ROTATE KEYS."""
    found = find_if_exists(
        context.planner,
        context.notice,
        "connection",
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        assert isinstance(found, Connection), found
        changed = msgspec.structs.replace(
            found, spec=_spec(context.planner, context.role, found.spec, plan.options)
        )
        _require_identity(changed.spec, role_with(context.planner.state, found.owner))
        if plan.rotate:
            if not found.keys:
                raise WrongObjectType(f'connection "{found.name}" has no keys')
            keys = (found.keys[1], _new_keys(context, found.id))
            changed = msgspec.structs.replace(found, keys=keys)
        context.catalog_change().put(changed)
    return Completed("ALTER CONNECTION")


def _new_keys(context: StatementContext, id: str) -> KeyPair:
    """Return a new key pair of the connection `id` to an SSH server."""
    public, private = new_key_pair(f"foreshore-{id}")
    return KeyPair(public, context.names.secrets.sealed(id, private))


def _spec(
    planner: Planner, role: Role, before: ConnectionSpec, given: Mapping[str, OptionValue]
) -> ConnectionSpec:
    """Return what a connection is after options were given; raises if one is missing or wrong."""
    kind, tunnel = before.kind, before.tunnel
    rules, options = RULES[kind], dict(before.options)
    if given:  # perhaps another place, to which the secrets go
        for name in options.keys() - given.keys():
            if isinstance(kept := options[name], SecretRef):
                found = planner.state.objects[kept.secret]
                assert isinstance(found, Secret), found
                _require_usage(planner, role, found)
    for name, value in given.items():
        if name == TUNNEL and kind in TUNNELLED:
            tunnel = None if value is None else _tunnel(planner, role, value)
            continue
        rule = rules.get(name)
        if rule is None:
            raise InvalidParameterValue(
                f'connections to {kind.upper()} have no option "{name}"',
                hint=f"They have {', '.join((*rules, *([TUNNEL] if kind in TUNNELLED else [])))}.",
            )
        if value is None:
            options.pop(name, None)
        else:
            options[name] = _checked(planner, role, name, rule, value)
    if kind == "postgres" and isinstance(host := options.get("host"), str):
        check_host(host)
    if (lacking := lacking_option(kind, options)) is not None:
        raise InvalidParameterValue(f'connections to {kind.upper()} need the option "{lacking}"')
    return ConnectionSpec(kind, options, tunnel)


def _require_identity(spec: ConnectionSpec, owner: Role) -> None:
    """Raise if a connection to PostgreSQL has nothing by which its owner is known there."""
    if spec.kind != "postgres" or owner.superuser or has_identity(spec.options):
        return
    raise password_is_required()


def _tunnel(planner: Planner, role: Role, value: OptionValue) -> str:
    """Return the id of the connection to an SSH server that a connection is to go through."""
    if isinstance(value, str) or value is None:
        raise InvalidParameterValue('the option "ssh tunnel" is the name of a connection')
    found = planner.reader().object_called("connection", value.parts)
    assert isinstance(found, Connection), found
    if found.spec.kind != TUNNEL:
        raise WrongObjectType(
            f'connection "{found.name}" is not to an SSH TUNNEL',
            hint="CREATE CONNECTION ... TO SSH TUNNEL (HOST ..., USER ...) makes one.",
        )
    if not holds(planner.state, role, found, "USAGE"):
        raise InsufficientPrivilege(f"permission denied for connection {found.name}")
    return found.id


def _checked(
    planner: Planner, role: Role, name: str, rule: OptionRule, value: OptionValue
) -> str | SecretRef:
    if isinstance(value, str):
        if rule.secret == "must":
            raise InvalidParameterValue(
                f'the option "{name}" must be a secret', hint="Write SECRET and its name."
            )
        if rule.required and not value.strip():
            raise InvalidParameterValue(f'the option "{name}" must not be empty')
        if rule.choices:
            value = _chosen(value, rule.choices)
        if rule.choices and value not in rule.choices:
            raise InvalidParameterValue(
                f'invalid value for option "{name}": "{value}"',
                hint=f"It is one of {', '.join(rule.choices)}.",
            )
        if _WITH_PASSWORD.match(value):
            raise InvalidParameterValue(
                f'the option "{name}" must not have a password in its URL',
                hint="There are options for users and passwords, which take secrets.",
            )
        if rule.is_url:
            check_url(name, value)
        if rule.is_number and not (is_digits(value) and len(value) < 10):
            raise InvalidParameterValue(f'the option "{name}" must be a number')
        if rule.is_number and int(value) > rule.most:
            raise InvalidParameterValue(f'the option "{name}" must be at most {rule.most}')
        return value
    assert value is not None, name
    if rule.secret == "never":
        raise InvalidParameterValue(f'the option "{name}" cannot be a secret')
    secret = planner.reader().object_called("secret", value.parts)
    assert isinstance(secret, Secret), secret
    _require_usage(planner, role, secret)
    return SecretRef(secret.id)


def _chosen(value: str, choices: Collection[str]) -> str:
    """Return a value of an option in lower case, with hyphens as the choices have them."""
    found = value.lower()
    return next((each for each in choices if each.replace("-", "_") == found), found)


def _require_usage(planner: Planner, role: Role, secret: Secret) -> None:
    if not holds(planner.state, role, secret, "USAGE"):
        raise InsufficientPrivilege(f"permission denied for secret {secret.name}")
