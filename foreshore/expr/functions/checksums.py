"""Hashes that Materialize has: crc32, kafka_murmur2, seahash; uuid_generate_v5.

`kafka_murmur2` is MurmurHash2 with the seed of Kafka's default partitioner, its sign bit cleared:
divided by a topic's number of partitions, the remainder is the partition of a key. `seahash` is
that of the reference implementation (ticki/tfs, Rust crate `seahash`) with its default seeds.
"""

import hashlib
import hmac
import zlib
from collections.abc import Callable
from typing import Any

from foreshore.expr.functions.function import declare
from foreshore.expr.functions.rows import mapped

_32, _64 = 2**32 - 1, 2**64 - 1
_MURMUR_SEED, _MURMUR = 0x9747B28C, 0x5BD1E995
_SEAHASH = 0x6EED0E9DA4D94A4F
_SEAHASH_SEEDS = (
    0x16F11FE89B0D677C,
    0xB480A793D8E6C86C,
    0x6FE2E5AAF078EBC9,
    0x14F994A4C5259381,
)


def kafka_murmur2(data: bytes) -> int:
    """Return Kafka's MurmurHash2 of `data`, without its sign."""
    state = _MURMUR_SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MURMUR & _32
        word = (word ^ word >> 24) * _MURMUR & _32
        state = state * _MURMUR & _32 ^ word
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MURMUR & _32
    state = (state ^ state >> 13) * _MURMUR & _32
    return (state ^ state >> 15) & 2**31 - 1


def _diffused(x: int) -> int:
    x = x * _SEAHASH & _64
    x ^= x >> 32 >> (x >> 60)
    return x * _SEAHASH & _64


def seahash(data: bytes) -> int:
    """Return the hash of `data`: four lanes take words of 8 bytes in turn."""
    lanes = list(_SEAHASH_SEEDS)
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at : at + 8], "little")
        lane = at // 8 % 4
        lanes[lane] = _diffused(lanes[lane] ^ word)
    return _diffused(lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ len(data))


def _uuid_v5(namespace: bytes, name: str) -> bytes:
    """Return the UUID of a name within a namespace (RFC 4122, version 5)."""
    digest = hashlib.sha1(namespace + name.encode(), usedforsecurity=False).digest()
    return (
        digest[:6]
        + bytes((digest[6] & 0x0F | 0x50, digest[7], digest[8] & 0x3F | 0x80))
        + digest[9:16]
    )


def _of_octets(compute: Callable[[bytes], Any]) -> Callable[[bytes | str], Any]:
    return lambda data: compute(data.encode() if isinstance(data, str) else data)


for _t in ("text", "bytea"):
    declare("crc32", _t, "uint4", mapped(_of_octets(zlib.crc32)))
    declare("kafka_murmur2", _t, "int4", mapped(_of_octets(kafka_murmur2)))
    declare(
        "seahash", _t, "uint8", mapped(_of_octets(lambda data: seahash(data).to_bytes(8, "big")))
    )
declare("constant_time_eq", "bytea bytea", "bool", mapped(hmac.compare_digest))
declare(
    "constant_time_eq",
    "text text",
    "bool",
    mapped(lambda a, b: hmac.compare_digest(a.encode(), b.encode())),
)
declare("uuid_generate_v5", "uuid text", "uuid", mapped(_uuid_v5))
