r"""The type "char": one byte, whose datum is its text in PostgreSQL.

Zero is the empty text, a byte beyond ASCII is written in octal digits: `\303`. Such a byte sorts
as that text does, where PostgreSQL puts it behind all others.
"""

import re

_OCTAL = re.compile(r"\\([0-7]{3})\Z")


def datum_of_byte(byte: int) -> str:
    """Return the datum of a byte, 0 to 255."""
    if byte > 127:
        return f"\\{byte:03o}"
    return chr(byte) if byte else ""


def byte_of(datum: str) -> int:
    """Return the byte of a datum, or of a text that is read: the first one, or octal digits."""
    octal = _OCTAL.match(datum)
    if octal is not None:
        return int(octal[1], 8) & 255
    return datum[:1].encode()[0] if datum else 0


def parse_byte(text: str) -> str:
    """Return the datum of a text."""
    return text if len(text) == 1 and text.isascii() else datum_of_byte(byte_of(text))
