"""Roles, network policies and settings in a dump: what belongs to the whole system.

The first role is in each directory, so it is altered and not created. Passwords are not there:
`foreshore dump --role-passwords` reads their verifiers from pg_authid, as superusers may.
"""

import re
from collections.abc import Iterator
from datetime import UTC

from foreshore.adapter.dump.statement import Dumped
from foreshore.calendar import format_timestamp
from foreshore.catalog.bootstrap import FIRST_ROLE
from foreshore.catalog.item import NetworkPolicy, Role
from foreshore.catalog.predefined import is_predefined
from foreshore.catalog.state import State, is_system
from foreshore.catalog.system_settings import system_settings
from foreshore.sql.parse.keywords import quote_identifier, quote_string

_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")

_NO_NAME = '""'  # as a search_path that is empty may be shown


def role_statements(state: State) -> Iterator[Dumped]:
    """Yield roles, network policies, settings of roles, and memberships."""
    roles = sorted(
        (each for each in state.all(Role) if not is_system(each.id) and not is_predefined(each.id)),
        key=lambda each: each.name,
    )
    for role in roles:
        name = quote_identifier(role.name)
        if role.name != FIRST_ROLE:
            yield _about(role, f"CREATE ROLE {name}")
        yield _about(role, f"ALTER ROLE {name} WITH {_attributes(role)}")
        if role.comment:
            yield _about(role, f"COMMENT ON ROLE {name} IS {quote_string(role.comment)}")
    yield from _network_policies(state)
    for role in roles:
        for setting, value in sorted(role.settings.items()):
            alter = f"ALTER ROLE {quote_identifier(role.name)} SET {_assigned(setting, value)}"
            yield _about(role, alter)
    for role in roles:
        yield from sorted(_memberships(state, role))


def system_statements(state: State) -> Iterator[Dumped]:
    """Yield the settings of the system. They come last: they may refuse this client's address."""
    for setting, value in sorted(system_settings(state).items()):
        yield Dumped("system", setting, f"ALTER SYSTEM SET {_assigned(setting, value)}")


def _about(role: Role, sql: str) -> Dumped:
    return Dumped("role", role.name, sql)


def _attributes(role: Role) -> str:
    """Return all attributes of a role but its password."""
    flags = {
        "SUPERUSER": role.superuser,
        "INHERIT": role.inherit,
        "CREATEROLE": role.create_role,
        "CREATEDB": role.create_db,
        "CREATECLUSTER": role.create_cluster,
        "CREATENETWORKPOLICY": role.create_network_policy,
        "LOGIN": role.login,
        "BYPASSRLS": role.bypass_rls,
    }
    found = [word if is_set else f"NO{word}" for word, is_set in flags.items()]
    if role.connection_limit != -1:
        found.append(f"CONNECTION LIMIT {role.connection_limit}")
    if role.valid_until is not None:
        found.append(f"VALID UNTIL {quote_string(format_timestamp(role.valid_until, UTC))}")
    return " ".join(found)


def _assigned(setting: str, value: str) -> str:
    """Return a setting and its value as SET has them."""
    if not _PLAIN.match(setting):
        setting = ".".join(map(quote_identifier, setting.split(".")))
    if setting != "search_path":
        return f"{setting} TO {quote_string(value)}"
    is_empty = value in ("", _NO_NAME)
    return f"{setting} TO {quote_string('') if is_empty else value}"  # names, already quoted


def _memberships(state: State, member: Role) -> Iterator[Dumped]:
    for each in member.member_of:
        role, grantor = state.get(each.role), state.get(each.grantor)
        if isinstance(role, Role):
            sql = f"GRANT {quote_identifier(role.name)} TO {quote_identifier(member.name)}"
            sql += " WITH ADMIN OPTION" if each.admin else ""
            if isinstance(grantor, Role):
                sql += f" GRANTED BY {quote_identifier(grantor.name)}"
            yield _about(member, sql)


def _network_policies(state: State) -> Iterator[Dumped]:
    for policy in sorted(state.all(NetworkPolicy), key=lambda each: each.name):
        name, kind = quote_identifier(policy.name), policy.kind
        rules = ", ".join(
            f"{quote_identifier(each.name)} (ACTION = {quote_string(each.action)}, "
            f"DIRECTION = {quote_string(each.direction)}, ADDRESS = {quote_string(each.address)})"
            for each in policy.rules
        )
        yield Dumped(kind, policy.name, f"CREATE NETWORK POLICY {name} (RULES ({rules}))")
        if policy.comment:
            comment = f"COMMENT ON NETWORK POLICY {name} IS {quote_string(policy.comment)}"
            yield Dumped(kind, policy.name, comment)
        if (owner := state.get(policy.owner)) is not None:
            sql = f"ALTER NETWORK POLICY {name} OWNER TO {quote_identifier(owner.name)}"
            yield Dumped(kind, policy.name, sql, "owner")
