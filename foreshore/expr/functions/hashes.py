"""PostgreSQL's hash functions, with its very numbers: hashtext, hashint8, hashtextextended, ...

Tools choose advisory locks and partitions by them. PostgreSQL hashes bytes with Bob Jenkins's
lookup3 (public domain) on a little-endian machine; an `extended` function has 64 bits and a seed,
and with the seed 0 its lower half is that of the other.
"""

import math
import struct
from collections.abc import Callable
from typing import Any

from foreshore.expr.functions.function import declare
from foreshore.expr.functions.rows import mapped
from foreshore.single_bytes import byte_of

_32, _64 = 2**32 - 1, 2**64 - 1
_START = 0x9E3779B9 + 3923095
_NAN = struct.pack("<d", math.nan)

_State = tuple[int, int, int]


def _rotated(x: int, by: int) -> int:
    return (x << by | x >> 32 - by) & _32


def _mixed(a: int, b: int, c: int) -> _State:
    a = (a - c & _32) ^ _rotated(c, 4)
    c = c + b & _32
    b = (b - a & _32) ^ _rotated(a, 6)
    a = a + c & _32
    c = (c - b & _32) ^ _rotated(b, 8)
    b = b + a & _32
    a = (a - c & _32) ^ _rotated(c, 16)
    c = c + b & _32
    b = (b - a & _32) ^ _rotated(a, 19)
    a = a + c & _32
    c = (c - b & _32) ^ _rotated(b, 4)
    return a, b + a & _32, c


def _finished(a: int, b: int, c: int) -> int:
    """Return the hash of 64 bits, whose lower half is that of 32 bits."""
    c = (c ^ b) - _rotated(b, 14) & _32
    a = (a ^ c) - _rotated(c, 11) & _32
    b = (b ^ a) - _rotated(a, 25) & _32
    c = (c ^ b) - _rotated(b, 16) & _32
    a = (a ^ c) - _rotated(c, 4) & _32
    b = (b ^ a) - _rotated(a, 14) & _32
    c = (c ^ b) - _rotated(b, 24) & _32
    return b << 32 | c


def _begun(length: int, seed: int) -> _State:
    a = b = c = _START + length & _32
    return _mixed(a + (seed >> 32) & _32, b + seed & _32, c) if seed else (a, b, c)


def hash_bytes(data: bytes, seed: int = 0) -> int:
    """Return the hash of `data`, 64 bits without a sign."""
    a, b, c = _begun(len(data), seed & _64)
    whole = len(data) // 12 * 12
    for x, y, z in struct.iter_unpack("<3I", data[:whole]):
        a, b, c = _mixed(a + x & _32, b + y & _32, c + z & _32)
    rest = data[whole:]
    # The lowest byte of `c` is left to the length.
    x, y, z = struct.unpack("<3I", rest[:8].ljust(8, b"\0") + b"\0" + rest[8:].ljust(3, b"\0"))
    return _finished(a + x & _32, b + y & _32, c + z & _32)


def _hash_word(word: int, seed: int = 0) -> int:
    """Return the hash of an integer of 32 bits."""
    a, b, c = _begun(4, seed & _64)
    return _finished(a + word & _32, b, c)


def _hash_int8(value: int, seed: int = 0) -> int:
    """Return the hash of an integer, the same for all its widths."""
    high = value >> 32
    return _hash_word((value ^ (high if value >= 0 else ~high)) & _32, seed)


def _hash_float(value: float, seed: int = 0) -> int:
    """Return the hash of a float; both zeros have that of no bytes and no work: the seed."""
    if value == 0:
        return seed & _64
    return hash_bytes(_NAN if math.isnan(value) else struct.pack("<d", value), seed)


def _hash_char(value: str, seed: int = 0) -> int:
    byte = byte_of(value)
    return _hash_word(byte - 256 if byte > 127 else byte, seed)


def _hash_text(value: str, seed: int = 0) -> int:
    return hash_bytes(value.encode(), seed)


def _hash_padded(value: str, seed: int = 0) -> int:
    return hash_bytes(value.rstrip(" ").encode(), seed)


def _signed(bits: int) -> Callable[[int], int]:
    sign = 1 << bits - 1
    return lambda value: ((value & (sign << 1) - 1) ^ sign) - sign


_AS_INT4, _AS_INT8 = _signed(32), _signed(64)
_HASHES: tuple[tuple[str, str, Callable[..., int]], ...] = (
    ("hashtext", "text", _hash_text),
    ("hashname", "name", _hash_text),
    ("hashbpchar", "bpchar", _hash_padded),
    ("hashchar", "char", _hash_char),
    ("hashint2", "int2", _hash_int8),
    ("hashint4", "int4", _hash_int8),
    ("hashint8", "int8", _hash_int8),
    ("hashoid", "oid", _hash_word),
    ("hashfloat4", "float4", _hash_float),
    ("hashfloat8", "float8", _hash_float),
    ("uuid_hash", "uuid", hash_bytes),
)


def _short(compute: Callable[..., int]) -> Any:
    return mapped(lambda value: _AS_INT4(compute(value)))


def _long(compute: Callable[..., int]) -> Any:
    return mapped(lambda value, seed: _AS_INT8(compute(value, seed)))


for _name, _type, _compute in _HASHES:
    declare(_name, _type, "int4", _short(_compute))
    _extended = f"{_name}_extended" if "_" in _name else f"{_name}extended"
    declare(_extended, f"{_type} int8", "int8", _long(_compute))
