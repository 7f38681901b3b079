"""The address that a request goes to: no one of a private network, unless that is allowed.

A name is resolved once for each request (`dial.py`).
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from foreshore.errors import ConnectionFailure, InsufficientPrivilege, InvalidParameterValue
from foreshore.storage.external.dial import addresses

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Place:
    """The parts of a URL that a request needs."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def is_secure(self) -> bool:
        """Return whether it is HTTPS."""
        return self.scheme == "https"


def place_of(url: str) -> Place:
    """Return the parts of a URL; raises InvalidParameterValue."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidParameterValue(f'invalid URL "{url}": {error}') from None
    if parts.scheme not in PORTS or not parts.hostname or parts.fragment:
        raise InvalidParameterValue(f'invalid URL "{url}"', hint="A URL is https://HOST/PATH.")
    if parts.username is not None or parts.password is not None:
        raise InvalidParameterValue(
            "a URL must not have a password", hint="Use HEADER 'Authorization' = SECRET name."
        )
    if not url.isascii() or any(c.isspace() or ord(c) < 32 for c in url):
        raise InvalidParameterValue("a URL has ASCII letters without blanks only")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path)


def addresses_of(place: Place, *, private: bool) -> list[str]:
    """Return the addresses of a place. Blocks.

    Raises ConnectionFailure if it has none, InsufficientPrivilege if one is link-local, or is not
    public and `private` does not allow that.
    """
    try:
        found = addresses(place.host, place.port)
    except OSError as error:
        raise ConnectionFailure(f'could not resolve "{place.host}": {error}') from None
    for each in () if private else found:
        if not is_public(each):
            raise InsufficientPrivilege(
                f'the address {each} of "{place.host}" is not public',
                hint="A superuser may create the sink with PRIVATE = true.",
            )
    return found


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if found in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
        if found not in _UNICAST:
            return False
    return found.is_global and not found.is_multicast


_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that is given out to the internet
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
