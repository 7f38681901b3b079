"""The key file: 32 random bytes in hexadecimal, which encrypt secrets and are nowhere else.

It is made with mode 0600 where there is none. Keep a copy apart from backups: without it the
database's secrets cannot be read.
"""

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from foreshore.errors import ConfigurationFileError

NAME = "secrets.key"  # in the data directory
KEY_BYTES = 32


def load_key(file: Path) -> bytes:
    """Return the key in a file, which is made if it is not there; raises ConfigurationFileError."""
    try:
        return _read(file)
    except FileNotFoundError:
        pass
    try:
        _create(file)
        return _read(file)
    except OSError as error:
        raise ConfigurationFileError(
            f'could not create key file "{file}": {error.strerror}'
        ) from None


def derived(key: bytes, purpose: str) -> bytes:
    """Return a key of its own for one purpose."""
    return hmac.digest(key, purpose.encode(), hashlib.sha256)


def _create(file: Path) -> None:
    """Write a new key, so that the file is complete once it has its name."""
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as out:
            out.write(secrets.token_hex(KEY_BYTES) + "\n")
            out.flush()
            os.fsync(out.fileno())
        os.link(part, file)  # unlike a rename it replaces nothing
    finally:
        part.unlink()
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigurationFileError(
                f'key file "{file}" has group or world access',
                detail="File must have permissions u=rw (0600) or less.",
            )
        key = bytes.fromhex(file.read_text().strip())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationFileError(
            f'could not read key file "{file}": {error.strerror}'
        ) from None
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationFileError(f'key file "{file}" is not {2 * KEY_BYTES} hexadecimal digits')
    return key
