"""JSON as jsonb stores it: PostgreSQL's output form, which also defines equality.

Keys are unique and sorted by length, then bytes. The last of equal keys wins. Numbers are numerics,
so `1.50` keeps its zero and `1e2` is `100`. Strings are unescaped and escaped again.
"""

import heapq
import json
import re
from collections.abc import Iterable
from decimal import MAX_PREC, Context, Decimal
from itertools import islice
from typing import Any

from foreshore.errors import DataError, InvalidTextRepresentation, StatementTooComplex

_EXACT = Context(prec=MAX_PREC)
_MAX_EXPONENT = 100_000  # larger exponents overflow PostgreSQL's numeric, or nearly so
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
LONG = 1 << 17  # characters: some milliseconds of decoding
PIECE = 4096  # characters
SHORTEST = 32  # of a part of a piece
MANY = 16_384  # members of an object
_SPACES = (" ", "\n", "\t", "\r")
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED = {
    "Expecting value": "Expected JSON value",
    "Expecting ':' delimiter": 'Expected ":"',
    "Expecting ',' delimiter": 'Expected "," or end of container',
    "Expecting property name enclosed in double quotes": "Expected string",
    "Illegal trailing comma before end of object": "Expected string",
    "Illegal trailing comma before end of array": "Expected JSON value",
    "Extra data": "Expected end of input",
}


class _Number(str):
    """The canonical text of a number, as distinct from a string."""


def canonical_json(text: str) -> str:
    """Return the jsonb output form of the document `text`.

    Raises InvalidTextRepresentation `invalid input syntax for type json`.
    """
    try:
        return format_json(_DECODER.decode(text) if len(text) <= LONG else _decode_long(text))
    except json.JSONDecodeError as error:
        raise _invalid(text, error) from None
    except RecursionError:
        raise StatementTooComplex(
            "stack depth limit exceeded", hint="The document is nested too deeply."
        ) from None


def written_json(text: str) -> str:
    """Return `text`, a document of type json, which is kept as it is written.

    Raises InvalidTextRepresentation `invalid input syntax for type json`.
    """
    try:
        _READER.decode(text)
    except json.JSONDecodeError as error:
        raise _invalid(text, error) from None
    except RecursionError:
        raise StatementTooComplex(
            "stack depth limit exceeded", hint="The document is nested too deeply."
        ) from None
    return text


def _refuse(word: str) -> Any:
    raise InvalidTextRepresentation(
        "invalid input syntax for type json", detail=f'Token "{word.lstrip("-")}" is invalid.'
    )


def _invalid(text: str, error: json.JSONDecodeError) -> DataError:
    rest = text[error.pos :].lstrip(" \t\r\n")
    if error.msg.startswith("Invalid control character"):
        detail = f"Character with value 0x{ord(text[error.pos]):02x} must be escaped."
    elif not rest:
        detail = "The input string ended unexpectedly."
    elif error.msg.startswith(("Invalid \\", "Unterminated")):
        detail = f'Token "{rest}" is invalid.'
    else:
        token = re.match(r'\w+|"(?:[^"\\]|\\.)*"|.', rest, re.DOTALL)
        word = token[0] if token is not None else rest
        known = word[0] in '{}[],:"-0123456789' or word in ("true", "false", "null")
        expected = _EXPECTED.get(error.msg) if known else None
        detail = f'{expected}, but found "{word}".' if expected else f'Token "{word}" is invalid.'
    return InvalidTextRepresentation("invalid input syntax for type json", detail=detail)


def _number(text: str) -> _Number:
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent[:12])) > _MAX_EXPONENT:
        raise DataError("value overflows numeric format", sqlstate="22003")
    if not exponent:
        return _Number(mantissa.lstrip("-") if _is_zero(mantissa) else mantissa)
    value = _EXACT.create_decimal(text)
    shown = format(value, "f")
    return _Number(shown.lstrip("-") if _is_zero(shown) else shown)


_DECODER = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_refuse)


_READER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def _decode_long(text: str) -> Any:
    """Return what `_DECODER.decode` returns, in steps between which other threads can run.

    That method holds Python's interpreter lock for the whole document. So it decodes only short
    pieces here: containers and runs of items of at most `PIECE` characters, strings and numbers.
    """
    value, at = _decode_at(text, _after_space(text, 0), {}, (0, 0))
    at = _after_space(text, at)
    if at != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return value


def _decode_at(text: str, at: int, keys: dict[str, str], tried: tuple[int, int]) -> tuple[Any, int]:
    """Return the value at `at` and the position after it; `keys` are those seen before.

    Each level of the document is one level of recursion, fewer than of formatting it. `tried` is
    the end of the last whole piece that was too short, and the size of the last piece. Up to there
    each level tries half of the one above it, or many levels would read the same characters.
    """
    opening = text[at : at + 1]
    if opening not in ("{", "["):
        return _DECODER.raw_decode(text, at)
    end, size = tried
    end, size = (at + PIECE, PIECE) if at >= end else (end, max(size // 2, SHORTEST))
    if (found := _piece(text[at : at + size])) is not None:
        return found[0], at + found[1]
    tried = (end, size)
    members: dict[str, Any] = {}
    items: list[Any] = []
    value, closing = (members, "}") if opening == "{" else (items, "]")
    at = _after_space(text, at + 1)
    if text[at : at + 1] == closing:
        return value, at + 1
    while True:
        if opening == "{":
            key, at = _key_at(text, at)
            member, at = _decode_at(text, at, keys, tried)
            members[keys.setdefault(key, key)] = member
        else:
            run, at = _run_at(text, at)
            items += run
            if not run:
                item, at = _decode_at(text, at, keys, tried)
                items.append(item)
        at = _after_space(text, at)
        if text[at : at + 1] == closing:
            return value, at + 1
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _after_space(text, at + 1)


def _piece(text: str) -> tuple[Any, int] | None:
    """Return the container that `text` begins with and its length; None if it may be longer."""
    try:
        return _DECODER.raw_decode(text)
    except (json.JSONDecodeError, DataError):
        return None


def _key_at(text: str, at: int) -> tuple[str, int]:
    """Return the key of a member and the position of its value."""
    if text[at : at + 1] != '"':
        error = "Expecting property name enclosed in double quotes"
        raise json.JSONDecodeError(error, text, at)
    key, at = _DECODER.raw_decode(text, at)
    at = _after_space(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return key, _after_space(text, at + 1)


def _run_at(text: str, at: int) -> tuple[list[Any], int]:
    """Return some items of an array, none if the first is a container, and their end."""
    if text[at : at + 1] not in ("{", "["):
        # They end before the last comma, unless that is in a string or a container.
        end = text.rfind(",", at, at + PIECE)
        run = None if end < 0 else _piece(f"[{text[at:end]}]")
        if run is not None and run[1] == end - at + 2:
            return run[0], end
    return [], at


def _after_space(text: str, at: int) -> int:
    """Return the position of the next character that is not white space, from `at` on."""
    while text[at : at + 1] in _SPACES:
        at += 1
    return at


def _is_zero(digits: str) -> bool:
    return not digits.strip("-0.")


def quote_json(text: str) -> str:
    """Return `text` as a JSON string, escaped as PostgreSQL does."""
    return '"' + "".join(_ESCAPED.sub(_escaped, part) for part in _parts(text)) + '"'


def _escaped(character: re.Match[str]) -> str:
    return _SHORT.get(character[0]) or f"\\u{ord(character[0]):04x}"


def _parts(text: str) -> Iterable[str]:
    """Yield `text` in parts, between which other threads can run."""
    if len(text) <= LONG:
        return (text,)
    return (text[at : at + LONG] for at in range(0, len(text), LONG))


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def check_strings(text: str) -> str:
    """Return a document of type json of which each string can be text; raises DataError."""
    if "\\u" in text:
        for found in _STRING.finditer(text):
            if "\\u" in found[0]:
                check_string(json.loads(found[0]))
    return text


def check_string(text: str) -> str:
    """Return `text`, a string of a document; raises DataError if it cannot be a text."""
    if "\x00" in text:
        raise DataError(
            "unsupported Unicode escape sequence",
            sqlstate="22P05",
            detail="\\u0000 cannot be converted to text.",
        )
    if not text.isascii() and any(map(_SURROGATE.search, _parts(text))):
        raise InvalidTextRepresentation(
            "invalid input syntax for type json",
            detail="Unicode high surrogate must not follow a high surrogate."
            if re.search("[\ud800-\udbff]{2}", text)
            else "Unicode low surrogate must follow a high surrogate.",
        )
    return text


def _by_key(members: Iterable[tuple[bytes, Any]]) -> Iterable[tuple[bytes, Any]]:
    """Return the members of an object in order; many are sorted in parts, and merged."""
    rest = iter(members)
    parts = iter(lambda: sorted(islice(rest, MANY), key=_length_and_key), [])
    first, *others = [*parts] or [[]]
    return heapq.merge(first, *others, key=_length_and_key) if others else first


def _length_and_key(member: tuple[bytes, Any]) -> tuple[int, bytes]:
    return len(member[0]), member[0]


def format_json(value: Any) -> str:
    """Return the output form of a document given as Python values."""
    match value:
        case None:
            return "null"
        case True:
            return "true"
        case False:
            return "false"
        case _Number():
            return str(value)
        case str():
            return quote_json(check_string(value))
        case dict():
            pairs = _by_key((check_string(key).encode(), item) for key, item in value.items())
            inner = (f"{quote_json(key.decode())}: {format_json(item)}" for key, item in pairs)
            return "{" + ", ".join(inner) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(format_json, value)) + "]"
        case int():
            return str(value)
        case Decimal():
            return _number(format(value, "f"))
        case _:
            raise TypeError(f"no JSON value: {value!r}")
