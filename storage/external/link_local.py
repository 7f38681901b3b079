"""Addresses where no system of a user is, but what the machine tells programs that run on it.

Clouds give machines their own keys at such addresses, over plain HTTP. The server reaches them, and
who may only name the endpoint of a connection must not.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from foreshore.errors import InsufficientPrivilege

_OTHERS = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))


def check_endpoint(url: str) -> None:
    """Raise InsufficientPrivilege if the host of a URL has such an address. Blocks."""
    host = _host(url)
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return  # the request tells
    _check(host, found)


async def check_endpoint_soon(url: str) -> None:
    """Raise as `check_endpoint` does, and do not block."""
    host = _host(url)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return
    _check(host, found)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _check(host: str, found: Iterable[Any]) -> None:
    for *_, (address, *_) in found:
        if is_link_local(address):
            raise InsufficientPrivilege(
                f'the address {address} of "{host}" is not for connections',
                hint="Link-local addresses are those where a machine learns about itself.",
            )


def is_link_local(text: str) -> bool:
    """Return whether an IP address is link-local, or one that is used alike."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_link_local or address in _OTHERS
