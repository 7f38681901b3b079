"""bit and bit varying: operators, functions and casts."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foreshore.bits import bits_of, checked, fitted, parse_bits, stored_bits
from foreshore.expr.functions.function import Outcome, Signature, declare, hidden
from foreshore.expr.functions.rows import fail, mapped, rowwise
from foreshore.query_memory import require_room

_WIDTHS = {"int4": 32, "int8": 64}


def combined_bits(word: str, compute: Callable[[int, int], int]) -> Callable[[bytes, bytes], bytes]:
    """Return the function that combines two strings of bits, which have one length."""

    def combine(a: bytes, b: bytes) -> bytes:
        x, y = bits_of(a), bits_of(b)
        if len(x) != len(y):
            raise fail("22026", f"cannot {word} bit strings of different sizes")
        if not x:
            return a
        return stored_bits(format(compute(int(x, 2), int(y, 2)), f"0{len(x)}b"))

    return combine


def _inverted(datum: bytes) -> bytes:
    return stored_bits(bits_of(datum).translate(str.maketrans("01", "10")))


def _shifted(left: bool) -> Callable[[bytes, int], bytes]:
    def shift(datum: bytes, count: int) -> bytes:
        bits = bits_of(datum)
        if not left:
            count = -count
        count = max(-len(bits), min(count, len(bits)))
        zeros = "0" * abs(count)
        kept = bits[count:] + zeros if count >= 0 else zeros + bits[:count]
        return stored_bits(kept)

    return shift


def _substring(datum: bytes, start: int, count: int | None = None) -> bytes:
    bits = bits_of(datum)
    if count is not None and count < 0:
        raise fail("22011", "negative substring length not allowed")
    end = len(bits) if count is None else min(start - 1 + count, len(bits))
    return stored_bits(bits[max(start - 1, 0) : max(end, 0)])


def _overlaid(datum: bytes, new: bytes, start: int, count: int | None = None) -> bytes:
    if start <= 0:
        raise fail("22011", "negative substring length not allowed")
    bits, other = bits_of(datum), bits_of(new)
    end = start - 1 + (len(other) if count is None else count)
    return stored_bits(bits[: start - 1] + other + bits[max(end, 0) :])


def _at(datum: bytes, place: int) -> str:
    bits = bits_of(datum)
    if not 0 <= place < len(bits):
        raise fail("2202E", f"bit index {place} out of valid range (0..{len(bits) - 1})")
    return bits


def _get_bit(datum: bytes, place: int) -> int:
    return int(_at(datum, place)[place])


def _set_bit(datum: bytes, place: int, value: int) -> bytes:
    bits = _at(datum, place)
    if value not in (0, 1):
        raise fail("22023", "new bit must be 0 or 1")
    return stored_bits(f"{bits[:place]}{value}{bits[place + 1 :]}")


def _of_integer(source: str) -> Callable[..., Outcome]:
    width = _WIDTHS[source]

    def kernel(types: Signature, a: pa.Array) -> Outcome:
        length = types.result.length or 1  # a cast to bit is one to bit(1)

        def one(value: int) -> bytes:
            bits = format(value & ((1 << width) - 1), f"0{width}b")
            filled = bits[0] * max(length - width, 0) + bits
            return stored_bits(filled[len(filled) - length :])

        return _of_length(types, one, a)

    return kernel


def _of_length(types: Signature, one: Callable[[Any], bytes], a: pa.Array) -> Outcome:
    """Return bits of a declared length, unless a query may not hold so many."""
    if types.result.name == "bit":
        require_room(len(a) * (types.result.length or 0) // 4)  # a zero byte is stored as two
    return rowwise(types, one, a)


def _to_integer(target: str) -> Callable[[bytes], int]:
    width, shown = _WIDTHS[target], {"int4": "integer", "int8": "bigint"}[target]

    def convert(datum: bytes) -> int:
        bits = bits_of(datum)
        if len(bits) > width:
            raise fail("22003", f"{shown} out of range")
        value = int(bits or "0", 2)
        return value - (1 << width) if value >= 1 << (width - 1) else value

    return convert


def _cast(fit: Callable[..., str]) -> Callable[..., Outcome]:
    def kernel(types: Signature, a: pa.Array) -> Outcome:
        return _of_length(types, lambda datum: stored_bits(fit(bits_of(datum), types.result)), a)

    return kernel


def _of_text(types: Signature, a: pa.Array) -> Outcome:
    return _of_length(types, lambda text: stored_bits(fitted(parse_bits(text), types.result)), a)


def _declare_casts() -> None:
    for source in ("bit", "varbit"):
        for target in ("bit", "varbit"):
            hidden(f"cast({source},{target})", source, target, _cast(fitted))
            hidden(f"assign({source},{target})", source, target, _cast(checked), fallible=True)
        for string in ("text", "varchar", "bpchar", "name", "char"):
            hidden(f"cast({string},{source})", string, source, _of_text, fallible=True)
    for integer in _WIDTHS:
        hidden(f"cast({integer},bit)", integer, "bit", _of_integer(integer))
        hidden(f"cast(bit,{integer})", "bit", integer, mapped(_to_integer(integer)), fallible=True)


_declare_casts()
for _name, _word, _compute in (
    ("&", "AND", lambda x, y: x & y),
    ("|", "OR", lambda x, y: x | y),
    ("#", "XOR", lambda x, y: x ^ y),
):
    declare(
        *(_name, "bit bit", "bit", mapped(combined_bits(_word, _compute))),
        stem=f"bits_{_word.lower()}",
        fallible=True,
    )
declare("~", "bit", "bit", mapped(_inverted), stem="bits_not")
declare("<<", "bit int4", "bit", mapped(_shifted(True)), stem="bits_left")
declare(">>", "bit int4", "bit", mapped(_shifted(False)), stem="bits_right")
declare(
    *("||", "varbit varbit", "varbit"),
    mapped(lambda a, b: stored_bits(bits_of(a) + bits_of(b))),
    stem="bits_concat",
)
_lengths: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("length bit_length", lambda n: n),
    ("octet_length", lambda n: (n + 7) // 8),
)
for _names, _of in _lengths:
    declare(_names, "bit", "int4", mapped(lambda a, of=_of: of(len(bits_of(a)))))
declare("bit_count", "bit", "int8", mapped(lambda a: bits_of(a).count("1")))
declare("get_bit", "bit int4", "int4", mapped(_get_bit), fallible=True)
declare("set_bit", "bit int4 int4", "bit", mapped(_set_bit), fallible=True)
declare("substring", "bit int4", "bit", mapped(_substring))
declare("substring", "bit int4 int4", "bit", mapped(_substring), fallible=True)
declare("overlay", "bit bit int4", "bit", mapped(_overlaid), fallible=True)
declare("overlay", "bit bit int4 int4", "bit", mapped(_overlaid), fallible=True)


def _position(a: bytes, b: bytes) -> Any:
    return bits_of(a).find(bits_of(b)) + 1


declare("position", "bit bit", "int4", mapped(_position))
