"""Key pairs by which SSH servers know us: Ed25519, in OpenSSH's formats."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def new_key_pair(comment: str) -> tuple[str, bytes]:
    """Return a public key as a line of authorized_keys, and the private key."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    text = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return f"{public.decode()} {comment}", text
