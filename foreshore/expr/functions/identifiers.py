"""parse_ident and unistr: names and escapes within text."""

import re
from collections.abc import Iterator

from foreshore.expr.functions.function import declare
from foreshore.expr.functions.rows import fail, mapped

_BLANKS = " \t\n\r\f\v"
_ESCAPE = re.compile(
    r"\\(?:(\\)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|\+([0-9a-fA-F]{6})|([0-9a-fA-F]{4}))?"
)


def _is_start(c: str) -> bool:
    return c == "_" or (c.isascii() and c.isalpha()) or not c.isascii()


def _is_part(c: str) -> bool:
    return _is_start(c) or c == "$" or "0" <= c <= "9"


def _parse_ident(text: str, strict: bool = True) -> tuple[str, ...]:
    """Return the parts of a qualified name, folded unless quoted."""
    parts: list[str] = []
    at = _skipped(text, 0)
    while True:
        missing = True
        if text[at : at + 1] == '"':
            end = at + 1
            while True:
                end = text.find('"', end)
                if end < 0:
                    raise _invalid(text)
                if text[end + 1 : end + 2] != '"':
                    break
                end += 2
            if end == at + 1:
                raise _invalid(text)
            parts.append(text[at + 1 : end].replace('""', '"'))
            at, missing = end + 1, False
        elif at < len(text) and _is_start(text[at]):
            end = at + 1
            while end < len(text) and _is_part(text[end]):
                end += 1
            parts.append("".join(c.lower() if c.isascii() else c for c in text[at:end]))
            at, missing = end, False
        if missing:
            raise _invalid(text)
        at = _skipped(text, at)
        if text[at : at + 1] != ".":
            break
        at = _skipped(text, at + 1)
    if at < len(text) and strict:
        raise _invalid(text)
    return tuple(parts)


def _skipped(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _invalid(text: str) -> Exception:
    return fail("22023", f'string is not a valid identifier: "{text}"')


def _pieces(text: str) -> Iterator[str | int]:
    """Yield plain text and the code points of escapes."""
    at = 0
    for match in _ESCAPE.finditer(text):
        yield text[at : match.start()]
        backslash, *codes = match.groups()
        code = next((each for each in codes if each is not None), None)
        if backslash is not None:
            yield "\\"
        elif code is None:
            raise fail("42601", "invalid Unicode escape")
        else:
            point = int(code, 16)
            if not 0 < point <= 0x10FFFF:
                raise fail("22023", f"invalid Unicode code point: {code}")
            yield point
        at = match.end()
    yield text[at:]


def _unistr(text: str) -> str:
    """Return `text` with its Unicode escapes replaced."""
    out: list[str] = []
    high = 0
    for piece in _pieces(text):
        if isinstance(piece, str):
            if high and piece:
                raise fail("42601", "invalid Unicode surrogate pair")
            out.append(piece)
            continue
        is_low = 0xDC00 <= piece < 0xE000
        if is_low != bool(high):
            raise fail("42601", "invalid Unicode surrogate pair")
        if 0xD800 <= piece < 0xDC00:
            high = piece
        else:
            out.append(chr(0x10000 + ((high - 0xD800) << 10) + piece - 0xDC00 if high else piece))
            high = 0
    if high:
        raise fail("42601", "invalid Unicode surrogate pair")
    return "".join(out)


declare("parse_ident", "text", "text[]", mapped(_parse_ident), fallible=True)
declare("parse_ident", "text bool", "text[]", mapped(_parse_ident), fallible=True)
declare("unistr", "text", "text", mapped(_unistr), fallible=True)
