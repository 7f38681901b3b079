"""Authentication: finds the rule for a client, and lets the client prove who it is.

Nothing that a client can see or measure tells whether a role exists before its password is proven.
A role that is unknown, or has no password, or one that has expired, gets the same exchange with a
made-up verifier that no password fits.
"""

import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from cryptography import x509
from cryptography.x509.oid import NameOID

from foreshore import blocking
from foreshore.adapter.client import Client, Login
from foreshore.errors import DatabaseError, InvalidAuthorization, InvalidPassword
from foreshore.scram import ITERATIONS, SALT_BYTES, Verifier
from foreshore.server import message
from foreshore.server.admission.exchange import Exchange
from foreshore.server.admission.policy import Policy
from foreshore.server.admission.rules import Address, Attempt, Rule, address_of
from foreshore.server.admission.throttle import Throttle
from foreshore.server.wire import Wire
from foreshore.tokens import parsed

logger = logging.getLogger(__name__)

_Gate: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client sends with its request to say who it is, and where it comes from."""

    user: str
    password: str | None
    database: str
    host: str  # the client's address
    peer: str  # the same with its port, for logs
    encrypted: bool
    token: str | None = None  # in place of user and password


@dataclass(frozen=True, slots=True)
class Admitted:
    """The role of an admitted client, and whether it has proven anything to be that."""

    login: Login
    proven: bool


class Authenticator:
    """Admits or refuses each connection before its session begins.

    `seed` decides the salts of roles that do not exist; it should outlast the server.
    """

    def __init__(
        self, client: Client, policy: Policy, seed: bytes, now: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._policy = policy
        self._seed = seed
        self._now = now
        self._throttle = Throttle(time.monotonic)

    async def authenticate(self, wire: Wire, user: str, database: str) -> Login:
        """Return the role of an admitted client; raises InvalidAuthorization, InvalidPassword."""
        login = self._client.login(user)
        address = address_of(wire.host)
        rule = self._rule(login, user, database, address, encrypted=wire.tls is not None)
        if rule.option("clientcert") is not None and _certificate(wire) is None:
            raise InvalidAuthorization("connection requires a valid client certificate")
        if rule.method in ("scram-sha-256", "password"):

            async def prove(gate: _Gate) -> Login | None:
                return await self._prove(wire, rule, user, login, gate)

            login = await self._throttled(prove, rule, user, address, wire.peer)
        if rule.option("clientcert") == "verify-full" and not self._is_owner(wire, rule, user):
            raise _failed(rule, user, wire.peer)
        return _usable(login, user)

    async def check_credentials(self, given: Credentials) -> Admitted:
        """Return the role of a client that sends a password, a token or nothing with its request.

        Raises InvalidAuthorization, InvalidPassword.
        """
        if given.token is not None:
            return await self._check_token(given, given.token)
        user, login = given.user, self._client.login(given.user)
        address = address_of(given.host)
        rule = self._rule(login, user, given.database, address, encrypted=given.encrypted)
        if rule.method == "cert" or rule.option("clientcert") is not None:
            raise InvalidAuthorization("certificate authentication is not supported over HTTP")
        if rule.method == "trust":
            return Admitted(_usable(login, user), proven=False)
        password = given.password
        if not password:
            raise InvalidPassword(f'password required for user "{user}"')
        is_local = address is not None and address.is_loopback
        if not (given.encrypted or is_local or rule.option("plaintext") == "1"):
            raise _needs_encryption(f'password authentication for user "{user}"')

        async def prove(gate: _Gate) -> Login | None:
            proven = await self._proven(user, login, password)
            await gate()
            return proven

        found = await self._throttled(prove, rule, user, address, given.peer)
        return Admitted(_usable(found, user), proven=True)

    async def _check_token(self, given: Credentials, text: str) -> Admitted:
        """Return the role of a client that sends an access token with its request."""
        address = address_of(given.host)
        token = parsed(text)
        name = "" if token is None else token.role
        self._throttle.check(address, name)
        login = None if token is None else self._client.login_by(token)
        await self._throttle.attempt(address, name)
        if login is None:
            self._throttle.failed(address, name)
            logger.warning("token refused", extra={"peer": given.peer})
            raise InvalidPassword(
                "the access token is not valid", hint="It may have expired, or been dropped."
            )
        self._throttle.succeeded(address, name)
        user, encrypted = login.name, given.encrypted
        rule = self._rule(login, user, given.database, address, encrypted=encrypted)
        if rule.method == "cert" or rule.option("clientcert") is not None:
            raise InvalidAuthorization("certificate authentication is not supported over HTTP")
        is_local = address is not None and address.is_loopback
        if not (encrypted or is_local or rule.option("plaintext") == "1"):
            raise _needs_encryption("access by a token")
        return Admitted(_usable(login, user), proven=True)

    def _rule(
        self,
        login: Login | None,
        user: str,
        database: str,
        address: Address | None,
        *,
        encrypted: bool,
    ) -> Rule:
        """Return the rule about a client; raises InvalidAuthorization if it is to be rejected."""
        groups = frozenset[str]() if login is None else login.groups
        attempt = Attempt(user, database, groups, address, encrypted)
        rule = self._policy.rule_for(attempt)
        if rule is None or rule.method == "reject":
            raise _rejected(attempt, rule)
        return rule

    async def _throttled(
        self,
        prove: Callable[[_Gate], Awaitable[Login | None]],
        rule: Rule,
        user: str,
        address: Address | None,
        peer: str,
    ) -> Login:
        """Return the role that `prove` returns; failures slow later attempts down.

        Raises InvalidPassword if it returns none.
        """
        self._throttle.check(address, user)

        async def gate() -> None:
            await self._throttle.attempt(address, user)

        proven = await prove(gate)
        if proven is None:
            self._throttle.failed(address, user)
            raise _failed(rule, user, peer)
        self._throttle.succeeded(address, user)
        return proven

    def _verifier(self, login: Login | None, user: str) -> Verifier:
        """Return the verifier of the role's password, or one that no password fits."""
        found = None
        if login is not None and login.verifier is not None:
            expired = login.valid_until is not None and login.valid_until < self._now() * 1e6
            found = None if expired else Verifier.parse(login.verifier)

        def derived(purpose: bytes) -> bytes:
            return hmac.digest(self._seed, purpose + user.encode(), hashlib.sha256)

        made_up = Verifier(
            ITERATIONS, derived(b"salt")[:SALT_BYTES], derived(b"stored"), derived(b"server")
        )
        return made_up if found is None else found

    async def _prove(
        self, wire: Wire, rule: Rule, user: str, login: Login | None, gate: _Gate
    ) -> Login | None:
        """Return the role if the client knows its password; `gate` is passed just before."""
        if rule.method == "password":
            if wire.tls is None and rule.option("plaintext") != "1":
                raise InvalidAuthorization(
                    f'password authentication for user "{user}" needs an encrypted connection',
                    hint="Connect with TLS.",
                )
            return await self._clear(wire, user, login, gate)
        return login if await self._scram(wire, self._verifier(login, user), gate) else None

    async def _proven(self, user: str, login: Login | None, password: str) -> Login | None:
        """Return the role if a password, or an access token in its place, is that of it."""
        if (token := parsed(password)) is not None:
            found = self._client.login_by(token)
            return found if found is not None and found.name == user else None
        verifier = self._verifier(login, user)
        return login if await blocking.run(None, verifier.verifies, password) else None

    async def _clear(self, wire: Wire, user: str, login: Login | None, gate: _Gate) -> Login | None:
        """Ask for the password itself, and return the role if it is the right one."""
        wire.put(message.AUTHENTICATION_CLEARTEXT_PASSWORD)
        wire.flush()
        data = await _password(wire)
        if not data.endswith(b"\0") or b"\0" in data[:-1]:
            raise message.FramingError("invalid password packet size")
        if data == b"\0":
            raise InvalidPassword("empty password returned by client")
        password = message.decode_text(data[:-1])
        proven = await self._proven(user, login, password)
        await gate()
        return proven

    async def _scram(self, wire: Wire, verifier: Verifier, gate: _Gate) -> bool:
        """Go through the exchange, and return whether the client has proven the password."""
        exchange = Exchange(verifier, None if wire.tls is None else wire.tls.end_point)
        wire.put(message.authentication_sasl(exchange.offered))
        wire.flush()
        mechanism, first = _initial_response(await _password(wire))
        wire.put(message.authentication_sasl_continue(exchange.first(mechanism, first)))
        wire.flush()
        last = exchange.final(await _password(wire))
        await gate()
        if last is None:
            return False
        wire.put(message.authentication_sasl_final(last))
        return True

    def _is_owner(self, wire: Wire, rule: Rule, user: str) -> bool:
        """Return whether the client's certificate is that of `user`."""
        certificate = _certificate(wire)
        assert certificate is not None, "checked before"
        if rule.option("clientname") == "DN":
            name = certificate.subject.rfc4514_string()
        else:
            common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            name = str(common[-1].value) if common else ""
        map = rule.option("map")
        if name and "\0" not in name and self._policy.admits(map, name, user):
            return True
        logger.warning(
            "certificate is of another user",
            extra={"user": user, "certificate": name, "map": map, "peer": wire.peer},
        )
        return False


def _certificate(wire: Wire) -> x509.Certificate | None:
    return None if wire.tls is None else wire.tls.client_certificate()


def _rejected(attempt: Attempt, rule: Rule | None) -> DatabaseError:
    """Return PostgreSQL's error for a client that no rule, or one of rejection, is about."""
    encryption = "SSL encryption" if attempt.encrypted else "no encryption"
    host = "[local]" if attempt.address is None else attempt.address
    about = f'host "{host}", user "{attempt.user}", database "{attempt.database}", {encryption}'
    if rule is None:
        return InvalidAuthorization(f"no pg_hba.conf entry for {about}")
    return InvalidAuthorization(f"pg_hba.conf rejects connection for {about}")


def _needs_encryption(what: str) -> InvalidAuthorization:
    return InvalidAuthorization(
        f"{what} needs an encrypted connection", hint="Start the server with --http-tls."
    )


def _usable(login: Login | None, user: str) -> Login:
    """Return the role; raises InvalidAuthorization if it is not there or may not log in."""
    if login is None:
        raise InvalidAuthorization(f'role "{user}" does not exist')
    if not login.can_login:
        raise InvalidAuthorization(f'role "{user}" is not permitted to log in')
    return login


def _failed(rule: Rule, user: str, peer: str) -> DatabaseError:
    logger.warning(
        "authentication failed",
        extra={"user": user, "peer": peer, "method": rule.method, "line": rule.line},
    )
    match rule.method:
        case "scram-sha-256" | "password":
            return InvalidPassword(f'password authentication failed for user "{user}"')
        case "cert":
            return InvalidAuthorization(f'certificate authentication failed for user "{user}"')
        case method:
            return InvalidAuthorization(f'"{method}" authentication failed for user "{user}"')


async def _password(wire: Wire) -> bytes:
    """Return the data of the next message; raises FramingError if it is not a password message."""
    received = await wire.next()
    if not isinstance(received, message.Password):
        raise message.FramingError(
            f"expected SASL response, got message type {type(received).__name__}"
        )
    return received.data


def _initial_response(data: bytes) -> tuple[str, bytes]:
    """Return the mechanism and the client's first message of SASLInitialResponse."""
    mechanism, end, rest = data.partition(b"\0")
    if not end or len(rest) < 4:
        raise message.FramingError("insufficient data left in message")
    length = int.from_bytes(rest[:4], "big", signed=True)
    if length != len(rest) - 4:
        raise message.FramingError("invalid message format")
    return message.decode_text(mechanism), rest[4:]
