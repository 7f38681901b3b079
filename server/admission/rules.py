"""Rules of who may connect, as those of PostgreSQL's pg_hba.conf: the first that matches decides.

`rule_file.py` reads them from a file.
"""

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal as OneOf
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Type = OneOf["local", "host", "hostssl", "hostnossl"]
Method = OneOf["trust", "reject", "scram-sha-256", "password", "cert"]


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the file. Keywords are words that are not quoted."""

    text: str
    quoted: bool = False

    def __str__(self) -> str:
        return f'"{self.text}"' if self.quoted else self.text

    def is_keyword(self, *words: str) -> bool:
        """Return whether it is one of these keywords."""
        return not self.quoted and self.text in words


@dataclass(frozen=True, slots=True)
class Attempt:
    """A client that wants a session, as far as rules look at it."""

    user: str
    database: str
    groups: frozenset[str]  # roles that the user is a member of, and the user's own
    address: Address | None  # None: it has connected by a Unix socket
    encrypted: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of the file. One with an error matches nobody.

    `networks` is None for all addresses.
    """

    line: int
    type: Type
    databases: Sequence[Token] = ()
    users: Sequence[Token] = ()
    networks: Network | OneOf["samehost"] | None = None
    method: Method = "reject"
    options: Mapping[str, str] | None = None
    error: str | None = None

    def matches(self, attempt: Attempt) -> bool:
        """Return whether the rule is about this client."""
        return (
            self.error is None
            and self._matches_channel(attempt)
            and any(_is_database(each, attempt) for each in self.databases)
            and any(_is_user(each, attempt) for each in self.users)
        )

    def _matches_channel(self, attempt: Attempt) -> bool:
        address = attempt.address
        if self.type == "local" or address is None:
            return self.type == "local" and address is None
        if self.type != "host" and (self.type == "hostssl") != attempt.encrypted:
            return False
        match self.networks:
            case None:
                return True
            case "samehost":
                return is_own(address)
            case network:
                return address.version == network.version and address in network

    def option(self, name: str) -> str | None:
        """Return the value of an option."""
        return (self.options or {}).get(name)


def _is_database(token: Token, attempt: Attempt) -> bool:
    if token.is_keyword("all"):
        return True
    if token.is_keyword("sameuser"):
        return attempt.database == attempt.user
    if token.is_keyword("samerole", "samegroup"):
        return attempt.database in attempt.groups
    return not token.is_keyword("replication") and token.text == attempt.database


def _is_user(token: Token, attempt: Attempt) -> bool:
    if token.is_keyword("all"):
        return True
    if not token.quoted and token.text.startswith("+"):
        return token.text[1:] in attempt.groups
    return token.text == attempt.user


def is_own(address: Address) -> bool:
    """Return whether this machine has the address: only then a socket can be bound to it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def address_of(host: str) -> Address | None:
    """Return the address of a peer; an IPv4 address in the form of IPv6 as that of IPv4."""
    if not host:
        return None
    address = ipaddress.ip_address(host.partition("%")[0])
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


@dataclass(frozen=True, slots=True)
class UserName:
    """A line of pg_ident.conf: who may connect as whom, in a map."""

    map: str
    system_user: str  # a regular expression after a slash
    user: str  # with \\1 for what the expression's group has matched

    def admits(self, system_user: str, user: str) -> bool:
        """Return whether the line lets `system_user` connect as `user`."""
        if not self.system_user.startswith("/"):
            return self.system_user == system_user and self.user == user
        found = re.search(self.system_user[1:], system_user)
        if found is None:
            return False
        group = found[1] if found.re.groups and found[1] is not None else ""
        return self.user.replace("\\1", group, 1) == user
