"""Authentication: which clients may connect, and how they prove their identity.

Clients on the loopback are trusted. Others prove with SCRAM-SHA-256 that they know the password of
the first role. If no password is configured they are refused. The server keeps only a verifier.

An unknown role gets the same exchange with a made-up verifier, so the answers do not reveal which
roles exist. scramp compares secrets in constant time.
"""

import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from typing import Any

import scramp

from foreshore import blocking
from foreshore.errors import InvalidAuthorization, InvalidPassword
from foreshore.server import message
from foreshore.server.wire import Wire

logger = logging.getLogger(__name__)

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096

Verifier = tuple[bytes, bytes, bytes, int]  # salt, stored key, server key, iterations


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Admits or refuses each connection before its session begins."""

    role: str
    verifier: Verifier | None
    seed: bytes  # of the salts of roles that do not exist

    @classmethod
    def of(cls, role: str, password: str | None) -> "Authenticator":
        """Return an authenticator that admits `role` with `password` and trusts the loopback."""
        verifier = None
        if password:
            verifier = scramp.ScramMechanism(MECHANISM).make_auth_info(password, ITERATIONS)
        return cls(role, verifier, secrets.token_bytes(16))

    async def authenticate(self, wire: Wire, user: str) -> None:
        """Return once the client is admitted; raises InvalidAuthorization or InvalidPassword."""
        if wire.loopback:
            return
        if self.verifier is None:
            raise InvalidAuthorization(
                f'no password is configured for connections from "{wire.peer.rpartition(":")[0]}"',
                hint="Set FORESHORE_PASSWORD, and restart.",
            )
        verifier = self.verifier if user == self.role else self._mock(user)
        await self._scram(wire, user, verifier)

    def _mock(self, user: str) -> Verifier:
        def derived(purpose: bytes) -> bytes:
            return hmac.new(self.seed, purpose + user.encode(), hashlib.sha256).digest()

        return derived(b"salt")[:16], derived(b"stored"), derived(b"server"), ITERATIONS

    async def _scram(self, wire: Wire, user: str, verifier: Verifier) -> None:
        failure = InvalidPassword(f'password authentication failed for user "{user}"')
        # Ignore the name in the exchange: the startup message has named the role.
        server = scramp.ScramMechanism(MECHANISM).make_server(lambda _: verifier)
        wire.put(message.authentication_sasl([MECHANISM]))
        wire.flush()
        mechanism, first = _initial_response(await _password(wire))
        if mechanism != MECHANISM:
            raise message.FramingError("client selected an invalid SASL authentication mechanism")
        try:
            _set_client_first(server, first)
            wire.put(message.authentication_sasl_continue(server.get_server_first()))
            wire.flush()
            last = await _password(wire)
            await blocking.run(None, server.set_client_final, last.decode())
        except (scramp.ScramException, UnicodeDecodeError, ValueError):
            logger.warning("authentication failed", extra={"user": user, "peer": wire.peer})
            raise failure from None
        wire.put(message.authentication_sasl_final(server.get_server_final()))


def _set_client_first(server: Any, first: str) -> None:
    """Pass the client's first message to `server`, which refuses libpq's empty name."""
    binding, name, bare = first.split(",", 2)
    server.set_client_first(f"{binding},{name}," + re.sub(r"\An=,", "n=-,", bare))
    server.client_first_bare = bare  # the signature covers the message as it was sent


async def _password(wire: Wire) -> bytes:
    """Return the data of the next message; raises FramingError if it is not a password message."""
    received = await wire.next()
    if not isinstance(received, message.Password):
        raise message.FramingError(
            f"expected SASL response, got message type {type(received).__name__}"
        )
    return received.data


def _initial_response(data: bytes) -> tuple[str, str]:
    """Return the mechanism and the client's first message of SASLInitialResponse."""
    mechanism, end, rest = data.partition(b"\0")
    if not end or len(rest) < 4:
        raise message.FramingError("insufficient data left in message")
    length = int.from_bytes(rest[:4], "big", signed=True)
    if length != len(rest) - 4:
        raise message.FramingError("invalid message format")
    try:
        return mechanism.decode(), rest[4:].decode()
    except UnicodeDecodeError:
        raise message.FramingError("malformed SCRAM message") from None
