"""SCRAM-SHA-256: verifiers of passwords (RFC 5802, RFC 7677), as PostgreSQL writes them.

    SCRAM-SHA-256$4096:salt$stored key:server key      all but the iterations in base64

A verifier shows whether a client knows the password, and the password cannot be had from it.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata
from dataclasses import dataclass

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000  # that the server computes, some tenths of a second
SALT_BYTES = 16
DIGEST_BYTES = 32

_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([\w+/=]+)\$([\w+/=]+):([\w+/=]+)\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Verifier:
    """The verifier of one password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, salt: bytes | None = None) -> "Verifier":
        """Return a verifier of a password, by default with a new salt. It takes milliseconds."""
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        return cls._derived(prepared(password), salt, ITERATIONS)

    @classmethod
    def _derived(cls, password: bytes, salt: bytes, iterations: int) -> "Verifier":
        salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
        return cls(
            iterations, salt, digest(hashed(salted, b"Client Key")), hashed(salted, b"Server Key")
        )

    @classmethod
    def parse(cls, text: str) -> "Verifier | None":
        """Return the verifier that `text` is; None if it is none, but a password, for example."""
        found = _VERIFIER.match(text)
        if found is None or int(found[1]) < 1:
            return None
        try:
            salt, stored, server = (
                base64.b64decode(part, validate=True) for part in found.groups()[1:]
            )
        except binascii.Error:
            return None
        if len(stored) != DIGEST_BYTES or len(server) != DIGEST_BYTES:
            return None
        return cls(int(found[1]), salt, stored, server)

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{MECHANISM}${self.iterations}:{salt}${stored}:{server}"

    def verifies(self, password: str) -> bool:
        """Return whether it is a verifier of `password`. It takes milliseconds.

        One of more than MOST_ITERATIONS, which a role may choose for itself, verifies none: only a
        client that computes them, by SCRAM, can prove the password.
        """
        if self.iterations > MOST_ITERATIONS:
            return False
        derived = self._derived(prepared(password), self.salt, self.iterations)
        return hmac.compare_digest(derived.stored_key, self.stored_key)


def digest(data: bytes) -> bytes:
    """Return the mechanism's hash."""
    return hashlib.sha256(data).digest()


def hashed(key: bytes, data: bytes) -> bytes:
    """Return the mechanism's keyed hash."""
    return hmac.digest(key, data, "sha256")


def prepared(password: str) -> bytes:
    """Return the bytes of a password after SASLprep; the password as it is, if that refuses it."""
    text = _sasl_prepared(password)
    return (password if text is None else text).encode()


_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def _sasl_prepared(text: str) -> str | None:
    """Return the text after SASLprep (RFC 4013); None if that is empty or refused."""
    if text.isascii() and text.isprintable():
        return text
    mapped = (
        " " if stringprep.in_table_c12(each) else each
        for each in text
        if not stringprep.in_table_b1(each)
    )
    found = unicodedata.ucd_3_2_0.normalize("NFKC", "".join(mapped))
    if not found or any(refuses(each) for each in found for refuses in _PROHIBITED):
        return None
    if any(map(stringprep.in_table_d1, found)) and (
        any(map(stringprep.in_table_d2, found))
        or not (stringprep.in_table_d1(found[0]) and stringprep.in_table_d1(found[-1]))
    ):
        return None
    return found
