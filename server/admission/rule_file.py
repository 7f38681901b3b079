"""Reads files of rules: pg_hba.conf and pg_ident.conf, in PostgreSQL's format.

    # type   database     user       address        method         options
    host     all          all        127.0.0.1/32   trust
    hostssl  sales,stock  +staff     10.0.0.0/8     scram-sha-256
    hostssl  all          all        all            cert           map=people

Each line that is not empty becomes a rule. A line with a mistake becomes one that has an error and
matches nobody; `check` refuses such a file. Messages are PostgreSQL's.
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal as OneOf
from typing import cast, get_args

from foreshore.digits import is_digits
from foreshore.errors import ConfigurationFileError
from foreshore.server.admission.rules import Method, Network, Rule, Token, Type, UserName

Field = list[Token]
Networks = Network | OneOf["samehost"] | None

# Methods of PostgreSQL that ask somebody who is not here.
NOT_SUPPORTED = ("peer", "ident", "gss", "sspi", "pam", "bsd", "ldap", "radius")
CLIENT_CERTIFICATE = ("verify-ca", "verify-full")
CLIENT_NAME = ("CN", "DN")


class Mistake(Exception):
    """A line cannot be used; the text says why."""


def parse_rules(text: str, *, verifies_clients: bool) -> list[Rule]:
    """Return the rules of a file; `verifies_clients`: whether authorities are configured."""
    found = []
    for number, line in _lines(text):
        type: Type = "host"
        try:
            fields = list(_fields(line))
            type = _type(fields[0])
            found.append(_rule(number, type, fields[1:], verifies_clients=verifies_clients))
        except Mistake as mistake:
            found.append(Rule(number, type, error=str(mistake)))
    return found


def parse_user_names(text: str, file: Path) -> list[UserName]:
    """Return the lines of a pg_ident.conf; raises ConfigurationFileError."""
    found = []
    for number, line in _lines(text):
        try:
            fields = list(_fields(line))
            if len(fields) != 3 or any(len(field) != 1 for field in fields):
                raise Mistake("a line has a map, the name in a certificate and a role")
            ((name,), (system_user,), (user,)) = fields
            if system_user.text.startswith("/"):
                _check_expression(system_user.text[1:], user.text)
        except Mistake as mistake:
            raise ConfigurationFileError(
                f'could not load "{file}"', detail=f"line {number}: {mistake}"
            ) from None
        found.append(UserName(name.text, system_user.text, user.text))
    return found


def check(rules: Sequence[Rule], file: Path) -> None:
    """Raise ConfigurationFileError if a rule has an error, or there is none."""
    wrong = [f"line {rule.line}: {rule.error}" for rule in rules if rule.error is not None]
    if wrong:
        raise ConfigurationFileError(f'could not load "{file}"', detail="; ".join(wrong))
    if not rules:
        raise ConfigurationFileError(f'configuration file "{file}" contains no entries')


# --- words ------------------------------------------------------------------------------------


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with something in them; a backslash at a line's end continues it."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at]
        while line.endswith("\\") and at + 1 < len(lines):
            at += 1
            line = line[:-1] + lines[at]
        at += 1
        if _without_comment(line).strip():
            yield number, _without_comment(line)


def _without_comment(line: str) -> str:
    quoted = False
    for at, each in enumerate(line):
        quoted ^= each == '"'
        if each == "#" and not quoted:
            return line[:at]
    return line


_WORD = re.compile(r'\s*((?:"[^"]*"|[^\s,"])+)(,?)')


def _fields(line: str) -> Iterator[Field]:
    """Yield the fields of a line: words with commas behind all but the last."""
    field: Field = []
    at = 0
    line = line.strip()
    while at < len(line):
        found = _WORD.match(line, at)
        if found is None:
            raise Mistake("a quoted name does not end" if '"' in line[at:] else "a name is missing")
        word = found[1]
        if word.startswith("@"):
            raise Mistake(f'inclusion of files is not supported: "{word}"')
        field.append(Token(word.replace('"', ""), word.startswith('"')))
        at = found.end()
        if not found[2]:
            yield field
            field = []
    if field:
        yield field


def _only(field: Field, what: str, hint: str) -> Token:
    if len(field) > 1:
        raise Mistake(f"multiple values specified for {what}; {hint}")
    return field[0]


# --- rules ------------------------------------------------------------------------------------


def _type(field: Field) -> Type:
    word = _only(field, "connection type", "Specify exactly one connection type per line.").text
    if word in get_args(Type):
        return cast(Type, word)
    raise Mistake(f'invalid connection type "{word}"')


def _rule(number: int, type: Type, fields: list[Field], *, verifies_clients: bool) -> Rule:
    rest = iter(fields)

    def next_field(what: str) -> Field:
        field = next(rest, None)
        if field is None:
            raise Mistake(f"end-of-line before {what}")
        return field

    databases, users = next_field("database specification"), next_field("role specification")
    networks: Networks = None
    if type != "local":
        address = _only(
            next_field("IP address specification"),
            "host address",
            "Specify one address range per line.",
        )
        if not address.is_keyword("all", "samehost"):
            mask = None
            if "/" not in address.text and _is_address(address.text):
                mask = _only(
                    next_field("netmask specification"),
                    "netmask",
                    "Specify an address range in CIDR notation, or provide a separate netmask.",
                ).text
            networks = _network(address.text, mask)
        elif address.text == "samehost":
            networks = "samehost"
    method = _method(
        _only(
            next_field("authentication method"),
            "authentication type",
            "Specify exactly one authentication type per line.",
        ).text
    )
    options = dict(_option(_only(field, "option", "Specify one.").text) for field in rest)
    _check(type, method, options, verifies_clients=verifies_clients)
    return Rule(number, type, databases, users, networks, method, options)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _network(address: str, mask: str | None) -> Network:
    host, slash, bits = address.partition("/")
    if not _is_address(host):
        if slash or re.fullmatch(r"[\d.]+|[\da-fA-F:.]*:[\da-fA-F:.]*", host):
            raise Mistake(f'invalid IP address "{host}"')
        raise Mistake(f'addresses by name are not supported: "{host}"')
    found = ipaddress.ip_address(host)
    if mask is not None:
        if not _is_address(mask):
            raise Mistake(f'invalid IP mask "{mask}"')
        other = ipaddress.ip_address(mask)
        if other.version != found.version:
            raise Mistake("IP address and mask do not match")
        inverted = int(other) ^ ((1 << other.max_prefixlen) - 1)
        if inverted & (inverted + 1):
            raise Mistake(f'invalid IP mask "{mask}"')
        bits = str(other.max_prefixlen - inverted.bit_length())
    if not is_digits(bits) or int(bits) > found.max_prefixlen:
        raise Mistake(f'invalid CIDR mask in address "{address}"')
    return ipaddress.ip_network((found, int(bits)), strict=False)


def _method(word: str) -> Method:
    if word == "md5":  # for a password that is stored for SCRAM, PostgreSQL uses that too
        return "scram-sha-256"
    if word in get_args(Method):
        return cast(Method, word)
    if word in NOT_SUPPORTED:
        raise Mistake(f'invalid authentication method "{word}": not supported by this build')
    raise Mistake(f'invalid authentication method "{word}"')


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise Mistake(f"authentication option not in name=value format: {text}")
    return name, value


def _check(type: Type, method: Method, options: dict[str, str], *, verifies_clients: bool) -> None:
    if method == "cert":
        if type != "hostssl":
            raise Mistake("cert authentication is only supported on hostssl connections")
        if options.setdefault("clientcert", "verify-full") != "verify-full":
            raise Mistake('clientcert only accepts "verify-full" when using "cert" authentication')
    for name, value in options.items():
        match name:
            case "map" if method != "cert":
                raise Mistake('authentication option "map" is only valid for method cert')
            case "map":
                pass
            case "clientcert" if type != "hostssl":
                raise Mistake('clientcert can only be configured for "hostssl" rows')
            case "clientcert" if value not in CLIENT_CERTIFICATE:
                raise Mistake(f'invalid value for clientcert: "{value}"')
            case "clientcert" if not verifies_clients:
                raise Mistake("client certificates can only be checked with --tls-ca")
            case "clientcert":
                pass
            case "clientname" if type != "hostssl":
                raise Mistake('clientname can only be configured for "hostssl" rows')
            case "clientname" if value not in CLIENT_NAME:
                raise Mistake(f'invalid value for clientname: "{value}"')
            case "clientname":
                pass
            case "plaintext" if method == "password" and value in ("0", "1"):
                pass
            case _:
                raise Mistake(f'unrecognized authentication option name: "{name}"')


def _check_expression(pattern: str, user: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise Mistake(f'invalid regular expression "{pattern}": {error}') from None
    if "\\1" in user and not groups:
        raise Mistake(
            f'regular expression "{pattern}" has no subexpressions as requested by backreference '
            f'in "{user}"'
        )
