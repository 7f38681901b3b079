"""The addresses to which connections go: a name is resolved once, checked, and then left aside.

    name ─► addresses ─► each one checked ─► the socket goes to one of these

Whoever looks a name up a second time may get another answer, by which a connection would lead where
the check would not have let it. So what connects is told an address. The name stays what TLS checks
the other side's certificate by, and what HTTP calls the host.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

from foreshore.errors import InsufficientPrivilege

T = TypeVar("T")

Failures: TypeAlias = tuple[type[Exception], ...]

_OTHERS = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host, at least one, in the order in which to try them. Blocks.

    Raises OSError if it has none, and InsufficientPrivilege if one is link-local.
    """
    try:
        return _checked(host, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError as error:
        raise OSError(f'"{host[:100]}" is no name of a host') from error


async def addresses_soon(host: str, port: int) -> list[str]:
    """Return and raise as `addresses` does, and do not block."""
    loop = asyncio.get_running_loop()
    try:
        return _checked(host, await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError as error:
        raise OSError(f'"{host[:100]}" is no name of a host') from error


def first_that(
    found: Sequence[str], connect: Callable[[str], T], failures: Failures = (OSError,)
) -> T:
    """Return what `connect` returns for the first address for which it does not raise a failure.

    If there is none, raises what it has raised for the last one. Blocks as `connect` does.
    """
    for address in found[:-1]:
        with contextlib.suppress(*failures):
            return connect(address)
    return connect(found[-1])


async def first_that_soon(
    found: Sequence[str], connect: Callable[[str], Awaitable[T]], failures: Failures = (OSError,)
) -> T:
    """Return and raise as `first_that` does, and do not block."""
    for address in found[:-1]:
        with contextlib.suppress(*failures):
            return await connect(address)
    return await connect(found[-1])


def _checked(host: str, found: Iterable[Any]) -> list[str]:
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if not addresses:
        raise OSError(f'"{host[:100]}" has no address')
    for each in addresses:
        if is_link_local(each):
            raise InsufficientPrivilege(
                f'the address {each} of "{host}" is not for connections',
                hint="Link-local addresses are those where a machine learns about itself.",
            )
    return addresses


def is_link_local(text: str) -> bool:
    """Return whether an IP address is link-local, or one that is used alike.

    Clouds give machines their own keys at such addresses, over plain HTTP. The server reaches them,
    and who may only name the endpoint of a connection must not.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and (address in _NAT64 or address in _COMPATIBLE):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return address.is_link_local or address in _OTHERS


def check_endpoint(url: str) -> None:
    """Raise as `addresses` does for the host of a URL to which a library will connect. Blocks.

    A host without addresses is left to the library, which tells.
    """
    place = _place(url)
    if place is not None:
        with contextlib.suppress(OSError):
            addresses(*place)


def with_checked_address(url: str) -> str:
    """Return the endpoint of a store to which a library will connect, which looks up names itself.

    Without TLS an address takes the place of the name. With TLS the name stays: who answers has to
    have a certificate of it. Raises as `addresses` does, but not if there are none. Blocks.
    """
    place = _place(url)
    if place is None:
        return url
    try:
        found = addresses(*place)
    except OSError:
        return url  # the library tells
    parts = urlsplit(url)
    if parts.scheme == "https":
        return url
    address = f"[{found[0]}]" if ":" in found[0] else found[0]
    port = "" if parts.port is None else f":{parts.port}"
    return urlunsplit((parts.scheme, address + port, *parts[2:]))


def _place(url: str) -> tuple[str, int] | None:
    """Return the host and the port of a URL, None if it is none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname, parts.port or 0) if parts.hostname else None
    except ValueError:
        return None
