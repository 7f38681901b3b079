"""Numerics as bytes that sort as they do, and tell where they end: sign, exponent, digits.

00 ...   negative: the exponent in four bytes, the digits, 00, all inverted
01       zero
02 ...   positive
"""

from decimal import Decimal


def significant_digits(value: Decimal) -> str:
    """Return the digits of a finite numeric without zeros at its ends: none for zero.

    They come from the text, which C makes: as_tuple() makes an object of each, and holds the
    interpreter's lock for a tenth of a second for 100,000.
    """
    return str(value.copy_abs()).partition("E")[0].replace(".", "").strip("0")


def numeric_end(data: bytes, at: int) -> int:
    """Return where the bytes of the numeric at `at` end."""
    sign = data[at]
    if sign == 1:  # zero
        return at + 1
    return data.index(b"\x00" if sign == 2 else b"\xff", at + 5) + 1


def numeric_bytes(value: Decimal) -> bytes:
    """Return the bytes of a finite numeric."""
    if not value:
        return b"\x01"
    digits = significant_digits(value)
    body = (value.adjusted() + 2**31).to_bytes(4, "big") + digits.encode() + b"\x00"
    return b"\x02" + body if value > 0 else b"\x00" + bytes(255 - b for b in body)


def numeric_of(key: bytes) -> str:
    """Return the text of a numeric from its bytes."""
    if key == b"\x01":
        return "0"
    body = key[1:] if key[0] == 2 else bytes(255 - b for b in key[1:])
    exponent = int.from_bytes(body[:4], "big") - 2**31
    digits = body[4:-1].decode()
    value = Decimal(f"{'' if key[0] == 2 else '-'}{digits}E{exponent - len(digits) + 1}")
    return format(value, "f")
