"""Files with the code of kernels: its length and digest come first, so a damaged one is known.

A file may be empty or cut off when the machine has lost its power. It counts as missing then: the
kernel is compiled anew.
"""

import hashlib
import struct
from pathlib import Path

_HEADER = struct.Struct("<Q32s")


def sealed(code: bytes) -> bytes:
    """Return the contents of a file with this code."""
    return _HEADER.pack(len(code), hashlib.sha256(code).digest()) + code


def has_code(path: Path, start: int = 0) -> bool:
    """Whether a file exists and has all that `sealed` wrote, from `start` on; reads the header."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            header = file.read(_HEADER.size)
            size = file.seek(0, 2) - start
    except FileNotFoundError:
        return False
    if len(header) < _HEADER.size:
        return False
    length, _ = _HEADER.unpack(header)
    return bool(size == _HEADER.size + length)


def code_in(contents: bytes) -> bytes | None:
    """Return the code of a file's contents; None if they are not what was written."""
    code = contents[_HEADER.size :]
    return code if contents == sealed(code) else None
