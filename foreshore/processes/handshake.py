"""How two Foreshore processes show each other that both know a secret, which is never sent.

    one that connects ─► Greeting(version, nonce)
                      ◄─ Challenge(version, nonce)
                      ─► Proof of the secret and both nonces
                      ◄─ Proof

A proof is an HMAC-SHA-256, and says which end it comes from, so that none can be sent back to who
made it. Only then does either end send or read anything else: what listens at an address learns
nothing by which it could be somebody else. Who sits between both can still read what they say
later; the network between machines has to be a trusted one, or encrypted.
"""

import hmac
import secrets
from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.processes.messages import Message

VERSION = 3  # of all that two processes say; 1 sent the secret itself
MAX_FRAME = 1024  # bytes of a frame
SECONDS = 60.0  # for the whole of it
LEAST_SECRET = 16  # characters of a secret that an operator gives
_NONCE_BYTES = 32
_encode = msgspec.msgpack.Encoder().encode

End: TypeAlias = OneOf["connects", "accepts"]


class HandshakeError(Exception):
    """The other end does not know the secret, or speaks another protocol."""


class Greeting(Message, frozen=True):
    """The first message of who connects."""

    version: int
    nonce: bytes


class Challenge(Message, frozen=True):
    """The first message of who accepts."""

    version: int
    nonce: bytes


class Proof(Message, frozen=True):
    """Shows that an end knows the secret."""

    proof: bytes


_decode = msgspec.msgpack.Decoder(Greeting | Challenge | Proof).decode


class Handshake:
    """The part of one end. Each message of the other goes to `receive`, until `is_over`."""

    def __init__(self, end: End, secret: str) -> None:
        assert secret, "anybody knows an empty secret"
        self._end, self._key = end, secret.encode()
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._other: bytes | None = None
        self.is_over = False

    def begin(self) -> Message | None:
        """Return what is sent first, if anything is."""
        return Greeting(VERSION, self._nonce) if self._end == "connects" else None

    def receive(self, data: bytes) -> Message | None:
        """Take a message; return what to send for it, if anything. Raises HandshakeError."""
        try:
            message = _decode(data)
        except msgspec.DecodeError:
            raise HandshakeError("another version of Foreshore, or no Foreshore") from None
        expects = Greeting if self._end == "accepts" else Challenge
        if self._other is None and isinstance(message, expects):
            return self._challenged(message.version, message.nonce)
        if self._other is None or not isinstance(message, Proof):
            raise HandshakeError("no handshake")
        other: End = "accepts" if self._end == "connects" else "connects"
        if not hmac.compare_digest(message.proof, self._proof(other)):
            raise HandshakeError("the other end does not know the secret")
        self.is_over = True
        return Proof(self._proof("accepts")) if self._end == "accepts" else None

    def _challenged(self, version: int, nonce: bytes) -> Message:
        if version != VERSION:
            raise HandshakeError(f"the other end speaks version {version}, and this one {VERSION}")
        if len(nonce) != _NONCE_BYTES or nonce == self._nonce:
            raise HandshakeError("no nonce of its own")
        self._other = nonce
        if self._end == "accepts":
            return Challenge(VERSION, self._nonce)
        return Proof(self._proof("connects"))

    def _proof(self, of: End) -> bytes:
        """Return the proof of one of both ends."""
        assert self._other is not None
        nonces = (self._nonce, self._other)
        first, second = nonces if self._end == "connects" else nonces[::-1]
        said = b"foreshore %d %s " % (VERSION, of.encode()) + first + second
        return hmac.digest(self._key, said, "sha256")
