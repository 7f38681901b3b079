"""Encryption of secrets: AES-256-GCM, in which each ciphertext belongs to one object.

A sealed text is `1:` and, in base64, 12 random bytes, the ciphertext and its tag. It can be opened
only with the same key and for the same object, so it cannot be moved to another one unnoticed.
"""

import base64
import binascii
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = "1:"
_NONCE_BYTES = 12


class WrongKey(Exception):
    """A sealed text is of another key or object, or was changed."""


class SecretBox:
    """Seals and opens values by a key of 32 bytes, which it does not show."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, value: bytes, id: str) -> str:
        """Return a text from which only this key gives `value`, for the object `id`."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, value, id.encode())
        return _VERSION + base64.b64encode(sealed).decode()

    def open(self, text: str, id: str) -> bytes:
        """Return the value that was sealed for the object `id`; raises WrongKey."""
        try:
            sealed = base64.b64decode(text.removeprefix(_VERSION), validate=True)
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], id.encode())
        except (InvalidTag, binascii.Error, ValueError):
            raise WrongKey from None
