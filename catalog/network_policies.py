"""Network policies: from where the sessions of the system, or of a role, may come.

CREATE NETWORK POLICY office (RULES (here (ACTION = 'allow', DIRECTION = 'ingress',
ADDRESS = '192.0.2.0/24')))
ALTER SYSTEM SET network_policy = office        for all roles
ALTER ROLE ann SET network_policy = office      for this one, in place of the system's
"""

import msgspec

from foreshore.catalog.item import NetworkPolicy, Role
from foreshore.catalog.state import State
from foreshore.catalog.system_settings import system_setting, system_settings
from foreshore.catalog.transaction import Transaction
from foreshore.errors import (
    DependentObjectsStillExist,
    DuplicateObject,
    InvalidAuthorization,
    InvalidName,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.network_policy import DEFAULT, OPEN, SETTING, NetworkRule, address_of_peer, allows


def policy_called(state: State, name: str) -> NetworkPolicy:
    """Return the policy `name`."""
    found = state.network_policy(name)
    if found is None:
        raise UndefinedObject(f'network policy "{name}" does not exist')
    return found


def create_policy(
    change: Transaction, name: str, owner: str, rules: tuple[NetworkRule, ...]
) -> NetworkPolicy:
    """Create a policy."""
    if name == DEFAULT or name.startswith(("pg_", "mz_")):
        raise InvalidName(f'network policy name "{name}" is reserved', sqlstate="42939")
    if change.state.network_policy(name) is not None:
        raise DuplicateObject(f'network policy "{name}" already exists')
    id = f"p{change.allot('p')}"
    return change.put(NetworkPolicy(id, change.allot("oid"), name, owner, rules))


def set_rules(
    change: Transaction, policy: NetworkPolicy, rules: tuple[NetworkRule, ...], peer: str
) -> None:
    """Replace the rules of a policy; the client at `peer` must not lock itself out by that."""
    change.put(msgspec.structs.replace(policy, rules=rules))
    if system_setting(change.state, SETTING) == policy.name:
        check_not_locked_out(change.state, policy.name, peer)


def check_not_locked_out(state: State, name: str, peer: str) -> None:
    """Raise unless a policy, which exists, allows the client that sets it for the system."""
    address = address_of_peer(peer)
    if address is not None and not allows(rules_of(state, name), address):
        raise ObjectNotInPrerequisiteState(
            f'network policy "{name}" does not allow the address of this session',
            detail=f"The session comes from {address}.",
        )


def rules_of(state: State, name: str) -> tuple[NetworkRule, ...]:
    """Return the rules of the policy `name`."""
    return OPEN if name == DEFAULT else policy_called(state, name).rules


def check_peer(state: State, role: Role, peer: str) -> None:
    """Raise unless the policy of a role, or else the system's, allows a client to connect."""
    name = role.settings.get(SETTING) or system_setting(state, SETTING)
    address = address_of_peer(peer)
    if name == DEFAULT or address is None:
        return
    policy = state.network_policy(name)
    if policy is None or not allows(policy.rules, address):
        raise InvalidAuthorization(
            "a network policy refuses the connection",
            detail=f"Role {role.name} may not connect from {address}.",
        )


def check_unused(state: State, policy: NetworkPolicy) -> None:
    """Raise if the policy is that of the system or of a role."""
    users = [f"role {role.name}" for role in state.all(Role) if _uses(role.settings, policy)]
    if _uses(system_settings(state), policy):
        users.insert(0, "the system")
    if users:
        raise DependentObjectsStillExist(
            f'network policy "{policy.name}" is in use',
            detail="\n".join(f"It is the network policy of {each}." for each in users),
        )


def _uses(settings: dict[str, str], policy: NetworkPolicy) -> bool:
    return settings.get(SETTING) == policy.name
