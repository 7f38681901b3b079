"""Rules of network policies: from which addresses clients may connect."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

import msgspec

from foreshore.errors import InvalidParameterValue

SETTING = "network_policy"  # of the system or a role: the name of a policy
DEFAULT = "default"  # the policy of a system that has set none: all may connect

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


class NetworkRule(msgspec.Struct, frozen=True):
    """A rule that allows clients from the network `address` to connect."""

    name: str
    address: str
    action: str = "allow"
    direction: str = "ingress"


OPEN = (NetworkRule("open_ingress", "0.0.0.0/0"), NetworkRule("open_ingress_ipv6", "::/0"))


def checked_rules(rules: Iterable[tuple[str, dict[str, str]]]) -> tuple[NetworkRule, ...]:
    """Return the rules of a statement, given as names with options; raises if one is wrong."""
    found: dict[str, NetworkRule] = {}
    for name, options in rules:
        if name in found:
            raise InvalidParameterValue(f'network policy rule "{name}" is given twice')
        for option, only in (("action", "allow"), ("direction", "ingress")):
            value = options.get(option, "").lower()
            if value != only:
                raise InvalidParameterValue(
                    f'invalid {option} "{value}" of network policy rule "{name}"',
                    hint=f"The {option} of a rule is {only}.",
                )
        found[name] = NetworkRule(name, str(_network(options.get("address", ""))))
    return tuple(found.values())


def _network(text: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise InvalidParameterValue(
            f'invalid address "{text}" of a network policy rule',
            detail=f"{str(error)[:1].upper()}{str(error)[1:]}.",
            hint="Give a network such as 10.0.0.0/8 or 2001:db8::/32.",
        ) from None


def allows(rules: Iterable[NetworkRule], address: Address) -> bool:
    """Return whether one of the rules allows a client at an address."""
    return any(address in _parsed(rule.address) for rule in rules)


_parsed = lru_cache(1024)(ip_network)


def address_of_peer(peer: str) -> Address | None:
    """Return the address in `host:port`; None for a client without one, in this process."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    if not host:
        return None
    address = ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
