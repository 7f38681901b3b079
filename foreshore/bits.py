"""Bit strings: text and stored forms of bit(n) and bit varying.

A string of bits is stored as its bytes, padded with zero bits, with 0x00 written as 0x00 0xFF, then
0x00 0x00 and the number of bits. The order of these bytes is PostgreSQL's: by the padded bytes,
then by the length.
"""

import re

from foreshore.errors import DataError, InvalidTextRepresentation, StringDataRightTruncation
from foreshore.types import SqlType

MOST_BITS = 83_886_080  # a declared length
_BINARY, _HEX = re.compile(r"[01]*\Z"), re.compile(r"[0-9a-fA-F]*\Z")


def stored_bits(bits: str) -> bytes:
    """Return the datum of a text of zeros and ones."""
    padded = bits.ljust(-len(bits) % 8 + len(bits), "0")
    data = int(padded, 2).to_bytes(len(padded) // 8, "big") if padded else b""
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00" + len(bits).to_bytes(4, "big")


def bits_of(datum: bytes) -> str:
    """Return the zeros and ones of a datum."""
    length = int.from_bytes(datum[-4:], "big")
    data = datum[:-6].replace(b"\x00\xff", b"\x00")
    return format(int.from_bytes(data, "big"), f"0{8 * len(data)}b")[:length] if length else ""


def padded_bytes(datum: bytes) -> tuple[int, bytes]:
    """Return the number of bits, and the bytes with zero bits behind them."""
    return int.from_bytes(datum[-4:], "big"), datum[:-6].replace(b"\x00\xff", b"\x00")


def parse_bits(text: str) -> str:
    """Return the bits of a text: `101`, `b101`, `x1F`; raises InvalidTextRepresentation."""
    kind, digits = text[:1].lower(), text[1:]
    if kind == "x":
        wrong = _wrong(digits, _HEX)
        if wrong:
            raise InvalidTextRepresentation(f'"{wrong}" is not a valid hexadecimal digit')
        return "".join(format(int(digit, 16), "04b") for digit in digits)
    digits = digits if kind == "b" else text
    wrong = _wrong(digits, _BINARY)
    if wrong:
        raise InvalidTextRepresentation(f'"{wrong}" is not a valid binary digit')
    return digits


def _wrong(digits: str, allowed: re.Pattern[str]) -> str:
    return "" if allowed.match(digits) else next(d for d in digits if not allowed.match(d))


def fitted(bits: str, type: SqlType) -> str:
    """Return bits cast to a declared length: cut, and for bit(n) filled with zeros."""
    if type.length is None:
        return bits
    return bits[: type.length].ljust(type.length if type.name == "bit" else 0, "0")


def checked(bits: str, type: SqlType) -> str:
    """Return bits that are assigned to a declared length; raises a DataError."""
    if type.length is None:
        return bits
    if type.name == "bit" and len(bits) != type.length:
        raise DataError(
            f"bit string length {len(bits)} does not match type bit({type.length})",
            sqlstate="22026",
        )
    if len(bits) > type.length:
        raise StringDataRightTruncation(f"bit string too long for type bit varying({type.length})")
    return bits
