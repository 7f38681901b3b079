"""Connections: how to reach an external system, as SQL describes it.

The values of options are texts, or secrets by their ids. Only who reaches the system reads those.
"""

from collections.abc import Mapping
from typing import Literal as OneOf
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from foreshore.errors import DatabaseError, InvalidParameterValue

ConnectionKind: TypeAlias = OneOf[
    "postgres",
    "kafka",
    "confluent schema registry",
    "aws glue schema registry",
    "aws",
    "iceberg catalog",
    "ssh tunnel",
]
PROGRESS_TOPIC = "_foreshore-progress"  # of sinks to Kafka, unless the option says another one
OAUTHBEARER = "oauthbearer"  # a mechanism of SASL, by tokens of an OAuth2 server
TUNNEL = "ssh tunnel"  # the kind of a connection, and the option of those that go through one


class SecretRef(msgspec.Struct, frozen=True):
    """The value of a secret."""

    secret: str  # its id


class ConnectionSpec(msgspec.Struct, frozen=True):
    """The kind of a connection, and the values of its options."""

    kind: ConnectionKind
    options: dict[str, str | SecretRef]
    tunnel: str | None = None  # the id of the connection to the SSH server that leads there

    @property
    def needs(self) -> frozenset[str]:
        """Return the ids of the secrets and the connection that it needs."""
        return self.secrets | ({self.tunnel} if self.tunnel is not None else set())

    @property
    def secrets(self) -> frozenset[str]:
        """Return the ids of the secrets that it needs."""
        return frozenset(each.secret for each in self.options.values() if not isinstance(each, str))


class OptionRule(msgspec.Struct, frozen=True):
    """The values that an option of a connection may have."""

    required: bool = False
    secret: OneOf["never", "may", "must"] = "never"
    choices: tuple[str, ...] = ()
    is_number: bool = False
    most: int = 999_999_999  # of a number
    is_url: bool = False  # of HTTP or HTTPS


class KeyPair(msgspec.Struct, frozen=True):
    """A public key as a line of authorized_keys, and the private one as the catalog keeps it."""

    public: str
    sealed: str


_TEXT, _NEEDED, _MAY_HIDE = OptionRule(), OptionRule(required=True), OptionRule(secret="may")
_URL = OptionRule(is_url=True)
_HIDDEN = OptionRule(secret="must")
_TLS: Mapping[str, OptionRule] = {
    "ssl certificate authority": _MAY_HIDE,
    "ssl certificate": _MAY_HIDE,
    "ssl key": _HIDDEN,
}
_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", OAUTHBEARER)
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_AWS: Mapping[str, OptionRule] = {
    "endpoint": _URL,
    "region": _TEXT,
    "access key id": _MAY_HIDE,
    "secret access key": _HIDDEN,
    "session token": _HIDDEN,
}
TUNNELLED: frozenset[ConnectionKind] = frozenset(("postgres", "kafka", "confluent schema registry"))
RULES: Mapping[ConnectionKind, Mapping[str, OptionRule]] = {
    "postgres": {
        "host": _NEEDED,
        "port": OptionRule(is_number=True),
        "database": _NEEDED,
        "user": OptionRule(required=True, secret="may"),
        "password": _HIDDEN,
        "ssl mode": OptionRule(choices=_SSL_MODES),
        **_TLS,
    },
    "kafka": {
        "broker": _NEEDED,
        "security protocol": OptionRule(choices=("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
        "sasl mechanisms": OptionRule(choices=_MECHANISMS),
        "sasl username": _MAY_HIDE,
        "sasl password": _HIDDEN,
        "oauth2 server url": _URL,
        "oauth2 extensions": _TEXT,
        "scope": _TEXT,
        "progress topic": _TEXT,
        "progress topic replication factor": OptionRule(is_number=True, most=32_767),
        **_TLS,
    },
    "confluent schema registry": {
        "url": OptionRule(required=True, is_url=True),
        "username": _MAY_HIDE,
        "password": _HIDDEN,
        **_TLS,
    },
    "aws glue schema registry": {
        "registry": _TEXT,
        "endpoint": _URL,
        "region": _NEEDED,
        "access key id": OptionRule(required=True, secret="may"),
        "secret access key": OptionRule(required=True, secret="must"),
        "session token": _HIDDEN,
    },
    "ssh tunnel": {
        "host": _NEEDED,
        "port": OptionRule(is_number=True),
        "user": _NEEDED,
        "host key": _TEXT,
    },
    "aws": _AWS,
    "iceberg catalog": {
        "catalog type": OptionRule(required=True, choices=("rest", "s3tablesrest", "glue")),
        "url": _URL,
        "warehouse": _TEXT,
        "credential": _HIDDEN,
        "token": _HIDDEN,
        "scope": _TEXT,
        "oauth2 server url": _URL,
        **_AWS,
    },
}


def check_url(name: str, url: str) -> None:
    """Raise InvalidParameterValue unless the value of an option is a URL of HTTP or HTTPS."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a wrong port or address
        is_url = False
    if not is_url or not url.isprintable() or " " in url:
        raise InvalidParameterValue(
            f'invalid value for option "{name}": "{url}"',
            hint="It begins with http:// or https:// and the name of a host.",
        )


def check_urls(spec: ConnectionSpec) -> None:
    """Check the URLs of a connection that may have been made before they were checked."""
    for name, value in spec.options.items():
        if isinstance(value, str) and RULES[spec.kind][name].is_url:
            check_url(name, value)


def check_host(host: str) -> None:
    """Raise InvalidParameterValue if what libpq takes for a host is a socket, or several hosts."""
    if host.startswith(("/", "@")) or "," in host:
        raise InvalidParameterValue(
            f'invalid value for option "host": "{host}"',
            hint="It is the name or the address of one host; Unix sockets are not for connections.",
        )


def has_identity(options: Mapping[str, object]) -> bool:
    """Return whether a connection to PostgreSQL shows who it is: by a password, or a certificate.

    Roles that are no superusers need that: a server that asks for nothing trusts this machine.
    """
    return "password" in options or ("ssl certificate" in options and "ssl key" in options)


def password_is_required() -> DatabaseError:
    """Return the error for a connection that has no identity."""
    return DatabaseError(
        "password is required",
        sqlstate="2F003",
        detail="Non-superusers must provide a password in the connection string.",
        hint="Give the connection a PASSWORD, or an SSL CERTIFICATE and its SSL KEY.",
    )


def lacking_option(kind: ConnectionKind, options: Mapping[str, str | SecretRef]) -> str | None:
    """Return an option that a connection needs beside those that it has; None: it has all."""
    rules = RULES[kind]
    needed = [name for name, rule in rules.items() if rule.required]
    if options.get("sasl mechanisms") == OAUTHBEARER:
        needed += ["oauth2 server url", "sasl username", "sasl password"]
    return next((name for name in needed if name not in options), None)
