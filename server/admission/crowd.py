"""The crowd: which connections end first when there are too many that have proven nothing.

They are those of the address that has most of them. So whoever opens connections and leaves them
keeps out no other address. An address of IPv6 counts as its network of 64 bits, which one client
has.
"""

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from foreshore.server.admission.rules import Address, address_of

T = TypeVar("T")


def crowd(hosts: Mapping[T, str]) -> list[T]:
    """Return the connections of the address that has most, in their order; `hosts` of each."""
    networks = {each: network_of(host) for each, host in hosts.items()}
    counts = Counter(networks.values())
    most = max(counts.values(), default=0)
    busiest = next((network for network, count in counts.items() if count == most), None)
    return [each for each, network in networks.items() if network == busiest]


def network_of(host: str) -> int | None:
    """Return a number for the network of a peer; None for a Unix socket."""
    try:
        address = address_of(host)
    except ValueError:
        return None
    return None if address is None else network_number(address)


def network_number(address: Address) -> int:
    """Return a number for an address, or for the network that one client has of IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        return (1 << 64) | (int(address) >> 64)
    return int(address)
