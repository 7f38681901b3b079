"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802), without I/O.

    exchange = Exchange(verifier, channel)
    exchange.offered                      the mechanisms, for AuthenticationSASL
    exchange.first(mechanism, data)       the client's first message; returns the server's
    exchange.final(data)                  the client's last one; returns the server's, None if wrong

The user name in the messages is ignored, as the startup message has named the role. Messages and
errors are PostgreSQL's.
"""

import base64
import binascii
import hmac
import re
import secrets

from foreshore.errors import FeatureNotSupported, InvalidAuthorization
from foreshore.scram import MECHANISM, Verifier, digest, hashed
from foreshore.server.message import FramingError

PLUS = f"{MECHANISM}-PLUS"
BINDING = "tls-server-end-point"
NONCE_BYTES = 18

_FIRST = re.compile(
    r"(?P<header>(?:n|y|p=(?P<binding>[A-Za-z0-9.-]+)),(?P<identity>a=[^,]*)?,)"
    r"(?P<bare>(?P<extension>m=[^,]*,)?n=[^,]*,r=(?P<nonce>[!-+\--~]{1,1024})(?:,.*)?)\Z",
    re.DOTALL,
)
_FINAL = re.compile(
    r"(?P<signed>c=(?P<channel>[^,]*),r=(?P<nonce>[^,]*)(?:,.*)?),p=(?P<proof>[^,]*)\Z", re.DOTALL
)


class Exchange:
    """One authentication. `end_point` is the channel's binding data, None without TLS."""

    def __init__(self, verifier: Verifier, end_point: bytes | None) -> None:
        self._verifier = verifier
        self._end_point = end_point
        self._server_nonce = base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        self.offered = [MECHANISM] if end_point is None else [PLUS, MECHANISM]

    def first(self, mechanism: str, data: bytes) -> str:
        """Return the answer to the client's first message; raises FramingError and the like."""
        if mechanism not in self.offered:
            raise FramingError("client selected an invalid SASL authentication mechanism")
        found = _FIRST.match(_text(data))
        if found is None:
            raise _malformed()
        self._check_binding(mechanism, found)
        if found["identity"]:
            raise FeatureNotSupported("client uses authorization identity, but it is not supported")
        if found["extension"]:
            raise FeatureNotSupported("client requires an unsupported SCRAM extension")
        channel = found["header"].encode()
        if found["binding"] is not None:
            assert self._end_point is not None
            channel += self._end_point
        self._channel = base64.b64encode(channel).decode()
        self._nonce = found["nonce"] + self._server_nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._signed = f"{found['bare']},{answer},"
        return answer

    def _check_binding(self, mechanism: str, found: re.Match[str]) -> None:
        """Check that the client binds the channel if and only if it has chosen to."""
        binding = found["binding"]
        if mechanism == PLUS and binding is None:
            raise _malformed(
                f"The client selected {PLUS}, but the SCRAM message does not include channel "
                "binding data."
            )
        if mechanism != PLUS and binding is not None:
            raise _malformed(
                f"The client selected {MECHANISM} without channel binding, but the SCRAM message "
                "includes channel binding data."
            )
        if binding not in (None, BINDING):
            raise FramingError(f'unsupported SCRAM channel-binding type "{binding}"')
        if found["header"].startswith("y") and self._end_point is not None:
            raise InvalidAuthorization(
                "SCRAM channel binding negotiation error",
                detail="The client supports SCRAM channel binding but thinks the server does not.  "
                "However, this server does support channel binding.",
            )

    def final(self, data: bytes) -> str | None:
        """Return the answer to the client's last message; None if its proof is wrong."""
        found = _FINAL.match(_text(data))
        if found is None:
            raise _malformed()
        if found["channel"] != self._channel:
            raise InvalidAuthorization("SCRAM channel binding check failed")
        if not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            raise FramingError("invalid SCRAM response", detail="Nonce does not match.")
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except (binascii.Error, ValueError):
            raise _malformed() from None
        verifier = self._verifier
        if len(proof) != len(verifier.stored_key):
            raise _malformed()
        signed = (self._signed + found["signed"]).encode()
        signature = hashed(verifier.stored_key, signed)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(digest(key), verifier.stored_key):
            return None
        return "v=" + base64.b64encode(hashed(verifier.server_key, signed)).decode()


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _malformed() from None
    if "\0" in text:
        raise _malformed("The message length does not match the length of the field.")
    return text


def _malformed(detail: str | None = None) -> FramingError:
    return FramingError("malformed SCRAM message", detail=detail)
