"""Functions of bytea: single bytes and bits, hashes, and conversions of encodings."""

import hashlib
import hmac
from collections.abc import Callable
from struct import Struct
from typing import Any

from foreshore.expr.functions.function import declare
from foreshore.expr.functions.rows import fail, mapped

_ALGORITHMS = frozenset(("md5", "sha1", "sha224", "sha256", "sha384", "sha512"))
# Python's names of the encodings whose names differ, without punctuation and in lower case.
_ENCODINGS = {
    "utf8": "utf-8",
    "unicode": "utf-8",
    "sqlascii": "ascii",
    **{f"latin{n}": code for n, code in ((1, "iso8859-1"), (2, "iso8859-2"), (3, "iso8859-3"),
       (4, "iso8859-4"), (5, "iso8859-9"), (6, "iso8859-10"), (7, "iso8859-13"),
       (8, "iso8859-14"), (9, "iso8859-15"), (10, "iso8859-16"))},
    **{f"iso8859{n}": f"iso8859-{n}" for n in range(1, 17)},
    **{f"win{n}": f"cp{n}" for n in (866, 874, *range(1250, 1259))},
    **{f"windows{n}": f"cp{n}" for n in (866, 874, *range(1250, 1259))},
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "eucjp": "euc_jp",
    "euckr": "euc_kr",
    "sjis": "shift_jis",
    "big5": "big5",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "uhc": "cp949",
    "johab": "johab",
}  # fmt: skip


def _index_error(index: int, last: int) -> Exception:
    return fail("2202E", f"index {index} out of valid range, 0..{last}")


def _get_byte(data: bytes, index: int) -> int:
    if not 0 <= index < len(data):
        raise _index_error(index, len(data) - 1)
    return data[index]


def _set_byte(data: bytes, index: int, value: int) -> bytes:
    if not 0 <= index < len(data):
        raise _index_error(index, len(data) - 1)
    return data[:index] + bytes((value & 255,)) + data[index + 1 :]


def _get_bit(data: bytes, index: int) -> int:
    if not 0 <= index < 8 * len(data):
        raise _index_error(index, 8 * len(data) - 1)
    return data[index // 8] >> index % 8 & 1


def _set_bit(data: bytes, index: int, value: int) -> bytes:
    if not 0 <= index < 8 * len(data):
        raise _index_error(index, 8 * len(data) - 1)
    if value not in (0, 1):
        raise fail("22023", "new bit must be 0 or 1")
    place, mask = index // 8, 1 << index % 8
    changed = data[place] | mask if value else data[place] & ~mask
    return data[:place] + bytes((changed,)) + data[place + 1 :]


def _algorithm(name: str) -> str:
    """Return the name of a hash; with pgcrypto's error for an unknown one."""
    if name.lower().replace("-", "") not in _ALGORITHMS:
        raise fail("22023", f'Cannot use "{name}": No such hash algorithm')
    return name.lower().replace("-", "")


def _digest(data: bytes | str, name: str) -> bytes:
    octets = data.encode() if isinstance(data, str) else data
    return hashlib.new(_algorithm(name), octets, usedforsecurity=False).digest()


def _hmac(data: bytes | str, key: bytes | str, name: str) -> bytes:
    octets, secret = (x.encode() if isinstance(x, str) else x for x in (data, key))
    return hmac.new(secret, octets, _algorithm(name)).digest()


def _codec(name: str, what: str) -> str:
    known = _ENCODINGS.get("".join(c for c in name.lower() if c.isalnum()))
    if known is None:
        raise fail("22023", f'invalid {what} encoding name "{name}"')
    return known


def _shown_bytes(data: bytes) -> str:
    return " ".join(f"0x{byte:02x}" for byte in data)


def _convert_from(data: bytes, name: str) -> str:
    try:
        text = data.decode(_codec(name, "source"))
    except UnicodeDecodeError as error:
        wrong = _shown_bytes(data[error.start : max(error.end, error.start + 1)])
        raise fail(
            "22021", f'invalid byte sequence for encoding "{name.upper()}": {wrong}'
        ) from None
    if "\0" in text:
        raise fail("22021", f'invalid byte sequence for encoding "{name.upper()}": 0x00')
    return text


def _convert_to(text: str, name: str) -> bytes:
    try:
        return text.encode(_codec(name, "destination"))
    except UnicodeEncodeError as error:
        wrong = _shown_bytes(text[error.start].encode())
        raise fail(
            "22P05",
            f'character with byte sequence {wrong} in encoding "UTF8" has no equivalent '
            f'in encoding "{name.upper()}"',
        ) from None


def _sha(name: str) -> Callable[[bytes], bytes]:
    return lambda data: hashlib.new(name, data).digest()


declare("get_byte", "bytea int4", "int4", mapped(_get_byte), fallible=True)
declare("set_byte", "bytea int4 int4", "bytea", mapped(_set_byte), fallible=True)
declare("get_bit", "bytea int8", "int4", mapped(_get_bit), fallible=True)
declare("set_bit", "bytea int8 int4", "bytea", mapped(_set_bit), fallible=True)
declare("bit_count", "bytea", "int8", mapped(lambda data: int.from_bytes(data, "big").bit_count()))
declare("bit_length", "bytea", "int4", mapped(lambda data: 8 * len(data)))
for _name in ("sha224", "sha384", "sha512"):
    declare(_name, "bytea", "bytea", mapped(_sha(_name)))
for _t in ("text", "bytea"):
    declare("digest", f"{_t} text", "bytea", mapped(_digest), fallible=True)
    declare("hmac", f"{_t} {_t} text", "bytea", mapped(_hmac), fallible=True)


def _convert(data: bytes, source: str, destination: str) -> bytes:
    return _convert_to(_convert_from(data, source), destination)


declare("convert", "bytea name name", "bytea", mapped(_convert), fallible=True)
declare("convert_from", "bytea name", "text", mapped(_convert_from), fallible=True)
declare("convert_to", "text name", "bytea", mapped(_convert_to), fallible=True)


def _sent(format: str) -> Callable[[Any], bytes]:
    return Struct(format).pack


for _t, _format in (
    *(("int2", "!h"), ("int4", "!i"), ("int8", "!q"), ("float4", "!f"), ("float8", "!d")),
    ("bool", "!?"),
):
    declare(f"{_t}send", _t, "bytea", mapped(_sent(_format)))
declare("textsend", "text", "bytea", mapped(str.encode))
