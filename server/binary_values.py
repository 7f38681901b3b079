"""What the binary formats of values and of columns share: numerics, and PostgreSQL's epoch."""

from decimal import Decimal
from struct import Struct

from foreshore.numbers import scale_of, shown

EPOCH_DAYS = 10_957  # from 1970-01-01 to PostgreSQL's epoch, 2000-01-01
EPOCH_MICROS = EPOCH_DAYS * 86_400_000_000

NEGATIVE = 0x4000  # the sign of a numeric
_NUMERIC = Struct("!HhHH")


def numeric_bytes(value: Decimal, scale: int | None) -> bytes:
    """Return a numeric in binary, as digits in base 10000.

    If `scale` is None, the numeric has as few fractional digits as the value needs.
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    unscaled = int("".join(map(str, digits)) or "0")
    places = -exponent
    if places < 0:
        unscaled, places = unscaled * 10**-places, 0
    if scale is None:
        while places and unscaled % 10 == 0:
            unscaled //= 10
            places -= 1
        scale = places
    if places % 4:
        unscaled *= 10 ** (4 - places % 4)
    groups: list[int] = []
    weight = -1 - (places + 3) // 4
    while unscaled:
        unscaled, group = divmod(unscaled, 10_000)
        weight += 1
        if group or groups:
            groups.append(group)
    if not groups:
        return _NUMERIC.pack(0, 0, 0, scale)
    groups.reverse()
    header = _NUMERIC.pack(len(groups), weight, NEGATIVE if sign else 0, scale)
    return header + Struct(f"!{len(groups)}H").pack(*groups)


_NOT_FINITE = {"NaN": 0xC000, "Infinity": 0xD000, "-Infinity": 0xF000}


def number_bytes(value: Decimal) -> bytes:
    """Return a numeric without a declared scale in binary."""
    if value.is_finite():
        return numeric_bytes(value, scale_of(value))
    return _NUMERIC.pack(0, 0, _NOT_FINITE[shown(value)], 0)
