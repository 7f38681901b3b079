"""PostgreSQL's string functions, by characters (code points), in collation C.UTF-8."""

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.datum import from_array
from foreshore.expr.functions.casting import text_of
from foreshore.expr.functions.conditional import template
from foreshore.expr.functions.function import (
    Kernel,
    Outcome,
    Renderer,
    Rendering,
    Signature,
    declare,
)
from foreshore.expr.functions.lengths import MAX_BYTES, length_in_bytes
from foreshore.expr.functions.rows import WithSingle, fail, mapped
from foreshore.query_memory import require_room
from foreshore.text import format_text
from foreshore.types import SqlType

LONGEST_CHARACTER = 4  # bytes; PostgreSQL counts so many for each that lpad and rpad make


def simple_map(upper: bool) -> Callable[[str], str]:
    """Return upper or lower case, character by character; expanding characters are unchanged."""

    @lru_cache(4096)
    def one(character: str) -> str:
        mapped = character.upper() if upper else character.lower()
        return mapped if len(mapped) == 1 else character

    def convert(text: str) -> str:
        if text.isascii():
            return text.upper() if upper else text.lower()
        return "".join(map(one, text))

    return convert


to_upper, to_lower = simple_map(True), simple_map(False)


def initcap(text: str) -> str:
    """Return each word capitalised, a word being a run of letters and digits."""
    out: list[str] = []
    inside = False
    for character in text:
        out.append(to_lower(character) if inside else to_upper(character))
        inside = character.isalnum()
    return "".join(out)


def _case(upper: bool) -> Kernel:
    by_row = mapped(to_upper if upper else to_lower)

    def kernel(types: Signature, a: pa.Array) -> Outcome:
        if pc.all(pc.string_is_ascii(a)).as_py() is not False:
            return pc.ascii_upper(a) if upper else pc.ascii_lower(a)
        return by_row(types, a)

    return WithSingle(kernel, by_row.one)


def substring(text: str, start: int, count: int | None = None) -> str:
    """Return PostgreSQL's substring; positions before the first character count as well."""
    if count is None:
        return text[max(start - 1, 0) :]
    if count < 0:
        raise fail("22011", "negative substring length not allowed")
    return text[max(start - 1, 0) : max(start - 1 + count, 0)]


def _substring_bytes(data: bytes, start: int, count: int | None = None) -> bytes:
    if count is None:
        return data[max(start - 1, 0) :]
    if count < 0:
        raise fail("22011", "negative substring length not allowed")
    return data[max(start - 1, 0) : max(start - 1 + count, 0)]


def overlay(text: str, new: str, start: int, count: int | None = None) -> str:
    """Return `text` with `new` in place of `count` characters from `start`."""
    if start <= 0:
        raise fail("22011", "negative substring length not allowed")
    length = len(new) if count is None else count
    return text[: start - 1] + new + text[max(start - 1 + length, 0) :]


def _overlaid_bytes(data: bytes, new: bytes, start: int, count: int | None = None) -> bytes:
    if start <= 0:
        raise fail("22011", "negative substring length not allowed")
    length = len(new) if count is None else count
    return data[: start - 1] + new + data[max(start - 1 + length, 0) :]


def left(text: str, count: int) -> str:
    """Return the first `count` characters, or all but the last -`count`."""
    return text[:count]


def right(text: str, count: int) -> str:
    """Return the last `count` characters, or all but the first -`count`."""
    if count < 0:
        return text[-count:]
    return text[-count:] if count else ""


def _pad(at_left: bool) -> Callable[..., str]:
    def pad(text: str, length: int, fill: str = " ") -> str:
        length = max(length, 0)
        _check_size(LONGEST_CHARACTER * length)
        if len(text) >= length or not fill:
            return text[:length]
        missing = length - len(text)
        added = (fill * (missing // len(fill) + 1))[:missing]
        return added + text if at_left else text + added

    return pad


def _check_size(length: int) -> None:
    """Raise 54000 if a value of `length` bytes is too long."""
    if length > MAX_BYTES:
        raise fail("54000", "requested length too large")


def replace(text: str, old: str, new: str) -> str:
    """Return `text` with `new` in place of each `old`; raises 54000 if that is too long."""
    if not old:
        return text
    added = length_in_bytes(new) - length_in_bytes(old)
    if added > 0:
        _check_size(length_in_bytes(text) + text.count(old) * added)
    return text.replace(old, new)


def repeat(text: str, count: int) -> str:
    """Return `text` `count` times."""
    _check_size(length_in_bytes(text) * max(count, 0))
    return text * max(count, 0)


def split_part(text: str, delimiter: str, field: int) -> str:
    """Return the `field`-th part of `text`, from the end where negative; empty if there is none."""
    if field == 0:
        raise fail("22023", "field position must not be zero")
    parts = text.split(delimiter) if delimiter else [text]
    if not text:
        return ""
    index = field - 1 if field > 0 else len(parts) + field
    return parts[index] if 0 <= index < len(parts) else ""


def translate(text: str, characters: str, replacements: str) -> str:
    """Return `text` with each of `characters` replaced by its counterpart, or removed."""
    table: dict[str, str] = {}
    for i, character in enumerate(characters):
        table.setdefault(character, replacements[i] if i < len(replacements) else "")
    return "".join(table.get(c, c) for c in text)


def chr_(code: int) -> str:
    """Return the character of a code point."""
    if code == 0:
        raise fail("54000", "null character not permitted")
    if code < 0:
        raise fail("22023", "character number must be positive")
    if code > 0x10FFFF:
        raise fail("54000", f"requested character too large for encoding: {code}")
    if 0xD800 <= code <= 0xDFFF:
        raise fail("54000", f"requested character not valid for encoding: {code}")
    return chr(code)


def _to_hex(bits: int) -> Callable[[int], str]:
    return lambda value: format(value & ((1 << bits) - 1), "x")


def quote_ident(name: str) -> str:
    """Return `name` quoted as an SQL identifier if necessary."""
    from foreshore.keywords import COL_NAME, RESERVED, TYPE_FUNC, XML

    quoted = any(name in words for words in (RESERVED, TYPE_FUNC, COL_NAME, XML))
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and not quoted:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Return `text` as a string constant of SQL."""
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f" E{quoted}".lstrip() if "\\" in text else quoted


def format_(pattern: str, *args: str | None) -> str:
    """Return PostgreSQL's format(): %s, %I, %L and %%, with positions and widths."""
    next_arg = made = 0

    def value(match: "re.Match[str]") -> str:
        nonlocal next_arg, made
        if match[0] == "%%":
            return "%"
        position, flags, width, kind = match[1], match[2], match[3], match[4]
        if kind not in ("s", "I", "L"):
            raise (
                fail("22023", f'unrecognized format() type specifier "{kind}"')
                if kind
                else fail("22023", "unterminated format() type specifier")
            )
        if max(len(position or ""), len(width)) > 10:
            raise fail("22003", "number is out of range")
        if position is not None:
            if int(position[:-1]) == 0:
                raise fail(
                    "22023", "format specifies argument 0, but arguments are numbered from 1"
                )
            next_arg = int(position[:-1])
        else:
            next_arg += 1
        if next_arg > len(args):
            raise fail("22023", "too few arguments for format()")
        arg = args[next_arg - 1]
        if kind == "s":
            text = arg or ""
        elif kind == "L":
            text = "NULL" if arg is None else quote_literal(arg)
        elif arg is None:
            raise fail("22004", "null values cannot be formatted as an SQL identifier")
        else:
            text = quote_ident(arg)
        size = int(width or 0)
        made += max(size, length_in_bytes(text))
        _check_size(made)
        return text.ljust(size) if "-" in flags else text.rjust(size)

    return re.sub(r"%%|%([0-9]+\$)?(-*)([0-9]*)(.?)", value, pattern, flags=re.DOTALL)


def _format_kernel(types: Signature, *arrays: pa.Array) -> Outcome:
    from foreshore.expr.functions.rows import Failure

    columns = [text_of(a, t) for a, t in zip(arrays, types.args, strict=True)]
    values: list[str | None] = []
    errors: list[str | None] = []
    for pattern, *args in zip(*columns, strict=True):
        try:
            values.append(None if pattern is None else format_(pattern, *args))
            errors.append(None)
        except Failure as failure:
            values.append(None)
            errors.append(failure.text)
    return pa.array(values, pa.string()), pa.array(errors, pa.string())


def _joined(left: str, right: str) -> str:
    require_room(len(left) + len(right))
    return left + right


def _concat(types: Signature, *arrays: pa.Array) -> Outcome:
    columns = [output_of(a, t) for a, t in zip(arrays, types.args, strict=True)]
    return pa.array(
        ["".join(t for t in row if t is not None) for row in zip(*columns, strict=True)],
        pa.string(),
    )


def _concat_ws(types: Signature, separator: pa.Array, *arrays: pa.Array) -> Outcome:
    columns = [output_of(a, t) for a, t in zip(arrays, types.args[1:], strict=True)]
    values = [
        None if by is None else by.join(t for t in row if t is not None)
        for by, *row in zip(separator.to_pylist(), *columns, strict=True)
    ]
    return pa.array(values, pa.string())


def output_of(array: pa.Array, type: SqlType) -> list[str | None]:
    """Return the output form of each value: a cast to text, except that bool is t or f."""
    if type.name == "bool":
        return [None if v is None else "t" if v else "f" for v in array.to_pylist()]
    if type.name == "inet":
        return [None if d is None else format_text(d, type) for d in from_array(array, type)]
    return text_of(array, type)


def _join(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    if types.args[0].name == "bytea":
        return pc.binary_join_element_wise(a, b, b"")
    return pc.binary_join_element_wise(a, b, "")


def _join_any(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    columns = [
        pa.array(text_of(x, t), pa.string()) for x, t in zip((a, b), types.args, strict=True)
    ]
    return pc.binary_join_element_wise(*columns, "")


def _strpos(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    return mapped(lambda text, part: text.find(part) + 1)(types, a, b)


def _strip(side: str) -> Callable[..., str]:
    def strip(text: str, characters: str = " ") -> str:
        if side == "both":
            return text.strip(characters) if characters else text
        if side == "left":
            return text.lstrip(characters) if characters else text
        return text.rstrip(characters) if characters else text

    return strip


_ENCODINGS = ("hex", "base64", "escape")
_NO_SPACES = str.maketrans("", "", " \t\n\r")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")


def encode(data: bytes, kind: str) -> str:
    """Return bytes in one of the text encodings."""
    import base64

    match kind.lower():
        case "hex":
            return data.hex()
        case "base64":
            text = base64.b64encode(data).decode()
            return "\n".join(text[i : i + 76] for i in range(0, len(text), 76))
        case "escape":
            return "".join(
                "\\\\" if b == 0x5C else chr(b) if 0 < b < 0x80 else f"\\{b:03o}" for b in data
            )
        case _:
            raise fail("22023", f'unrecognized encoding: "{kind}"')


def decode(text: str, kind: str) -> bytes:
    """Return the bytes of one of the text encodings."""
    import base64
    import binascii

    from foreshore.text import parse_text
    from foreshore.types import BYTEA

    match kind.lower():
        case "hex":
            found = parse_text("\\x" + text, BYTEA)
            assert isinstance(found, bytes)
            return found
        case "base64":
            digits = text.translate(_NO_SPACES)
            if (wrong := _NOT_BASE64.search(digits)) is not None:
                raise fail(
                    "22023", f'invalid symbol "{wrong[0]}" found while decoding base64 sequence'
                )
            try:
                return base64.b64decode(digits, validate=True)
            except binascii.Error:
                raise fail("22023", "invalid base64 end sequence") from None
        case "escape":
            found = parse_text(
                text.replace("\\x", "\\\\x", 1) if text.startswith("\\x") else text, BYTEA
            )
            assert isinstance(found, bytes)
            return found
        case _:
            raise fail("22023", f'unrecognized encoding: "{kind}"')


# --- renderings -------------------------------------------------------------------------------


def both(text: str) -> dict[str, Any]:
    """Return the same rendering for both engines."""
    return {"duckdb": template(text), "spark": template(text)}


def _length_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    cast = "INTEGER" if dialect.name == "duckdb" else "INT"
    return f"CAST(length({args[0]}) AS {cast})"


def _position_sql(swap: bool) -> Rendering:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
        text, part = (args[1], args[0]) if swap else (args[0], args[1])
        if dialect.name == "duckdb":
            return f"CAST(strpos({text}, {part}) AS INTEGER)"
        return f"locate({part}, {text})"

    return render


declare(
    "length char_length character_length",
    "text",
    "int4",
    lambda types, a: pc.utf8_length(a).cast(pa.int32()),
    duckdb=_length_sql,
    spark=_length_sql,
    one=lambda types: len,
)
declare(
    "length octet_length",
    "bytea",
    "int4",
    lambda types, a: pc.binary_length(a).cast(pa.int32()),
    stem="octet_length",
)
declare("octet_length", "text", "int4", lambda types, a: pc.binary_length(a).cast(pa.int32()))
declare("bit_length", "text", "int4", mapped(lambda text: 8 * len(text.encode())))
declare("upper", "text", "text", _case(True))
declare("lower", "text", "text", _case(False))
declare("initcap", "text", "text", mapped(initcap))
declare("substring substr", "text int4", "text", mapped(substring))
declare("substring substr", "text int4 int4", "text", mapped(substring), fallible=True)
declare("substring substr", "bytea int4", "bytea", mapped(_substring_bytes))
declare("substring substr", "bytea int4 int4", "bytea", mapped(_substring_bytes), fallible=True)
declare("overlay", "text text int4", "text", mapped(overlay), fallible=True)
declare("overlay", "text text int4 int4", "text", mapped(overlay), fallible=True)
declare("overlay", "bytea bytea int4", "bytea", mapped(_overlaid_bytes), fallible=True)
declare("overlay", "bytea bytea int4 int4", "bytea", mapped(_overlaid_bytes), fallible=True)
declare("position", "bytea bytea", "int4", mapped(lambda data, part: data.find(part) + 1))
declare("left", "text int4", "text", mapped(left))
declare("right", "text int4", "text", mapped(right))
declare("lpad", "text int4", "text", mapped(_pad(True)), fallible=True)
declare("lpad", "text int4 text", "text", mapped(_pad(True)), fallible=True)
declare("rpad", "text int4", "text", mapped(_pad(False)), fallible=True)
declare("rpad", "text int4 text", "text", mapped(_pad(False)), fallible=True)


def _stripped_bytes(side: str) -> Callable[[bytes, bytes], bytes]:
    strip = {"both": bytes.strip, "left": bytes.lstrip, "right": bytes.rstrip}[side]
    return lambda data, octets: strip(data, octets) if octets else data


for _name, _side in (("btrim", "both"), ("ltrim", "left"), ("rtrim", "right")):
    declare(_name, "text", "text", mapped(_strip(_side)))
    declare(_name, "text text", "text", mapped(_strip(_side)))
    declare(_name, "bytea bytea", "bytea", mapped(_stripped_bytes(_side)))
declare(
    "replace",
    "text text text",
    "text",
    mapped(replace),
    fallible=True,
)
declare("translate", "text text text", "text", mapped(translate))
declare("repeat", "text int4", "text", mapped(repeat), fallible=True)
declare("reverse", "text", "text", mapped(lambda text: text[::-1]))
declare("split_part", "text text int4", "text", mapped(split_part), fallible=True)
declare("starts_with ^@", "text text", "bool", mapped(lambda text, start: text.startswith(start)))
declare(
    "strpos", "text text", "int4", _strpos, duckdb=_position_sql(False), spark=_position_sql(False)
)
# PostgreSQL's parser turns position(part IN text) into a call with the text first.
declare(
    "position",
    "text text",
    "int4",
    _strpos,
    duckdb=_position_sql(False),
    spark=_position_sql(False),
)
declare("ascii", "text", "int4", mapped(lambda text: ord(text[0]) if text else 0))
declare("chr", "int4", "text", mapped(chr_), fallible=True)
declare(
    "md5",
    "text",
    "text",
    mapped(lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()),
)
declare(
    "md5",
    "bytea",
    "text",
    mapped(lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()),
)
declare("sha256", "bytea", "bytea", mapped(lambda data: hashlib.sha256(data).digest()))
declare("to_hex", "int4", "text", mapped(_to_hex(32)))
declare("to_hex", "int8", "text", mapped(_to_hex(64)))
declare("quote_ident", "text", "text", mapped(quote_ident))
declare("quote_literal", "text", "text", mapped(quote_literal))


def _quoted_values(types: Signature, a: pa.Array) -> Outcome:
    texts = text_of(a, types.args[0])
    return pa.array([None if t is None else quote_literal(t) for t in texts], pa.string())


declare("quote_literal", "anyelement", "text", _quoted_values)
for _type in ("text", "anyelement"):
    declare(
        *("quote_nullable", _type, "text"),
        lambda types, a: _quoted_values(types, a).fill_null("NULL"),
        strict=False,
    )
declare("encode", "bytea text", "text", mapped(encode), fallible=True)
declare("decode", "text text", "bytea", mapped(decode), fallible=True)
declare("format", "text any", "text", _format_kernel, strict=False, fallible=True, variadic=True)
declare("format", "text", "text", _format_kernel, strict=False, fallible=True)
declare("concat", "any", "text", _concat, strict=False, variadic=True)
declare("concat_ws", "text any", "text", _concat_ws, strict=False, variadic=True)
declare(
    "||",
    "text text",
    "text",
    _join,
    stem="concatenate",
    one=lambda types: _joined,
    **both("({0} || {1})"),
)
declare("||", "bytea bytea", "bytea", _join, stem="concatenate")
declare("||", "text anynonarray", "text", _join_any, stem="concatenate")
declare("||", "anynonarray text", "text", _join_any, stem="concatenate")
