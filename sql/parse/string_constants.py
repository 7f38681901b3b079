r"""Decode string constants with escapes.

    E'a\tb\u00e9'                 letters, bytes by number, characters by code point
    U&'a\00e9', UESCAPE '!'        characters by code point

A character beyond the first 65,536 may be written as a pair of UTF-16 surrogates. A constant
continues in the next quotes if only white space with a newline, and comments, lie between them.
"""

import re

from foreshore.errors import DataError, SyntaxError_

# Quantifiers are possessive: a comment of many dashes could be split in as many ways.
_GAP = r"(?:[ \t\f\v]++|--[^\n\r]*+)*+[\n\r](?:[ \t\f\v\n\r]++|--[^\n\r]*+[\n\r])*+"
_BETWEEN = re.compile(_GAP)
_PIECE = r"'((?:[^'\\]++|\\.|'')*+)'"
_QUOTE_FIRST = re.compile(r"[\n\r][ \t\f\v]*+'")  # on its line
_QUOTE_LAST = re.compile(r"'[ \t\f\v]*+(?:--|\Z)")  # on its line, but for a comment
_ESCAPED = re.compile(rf"[eE]{_PIECE}(?:{_GAP}{_PIECE})*", re.DOTALL)
_PIECES = re.compile(rf"{_PIECE}(?:{_GAP}(?='))?", re.DOTALL)
# Where quotes may occur, and constants with escapes.
_QUOTING = re.compile(
    rf"""--[^\n\r]*|/\*.*?(?:\*/|\Z)|"[^"]*"|(?<![\w$])(?P<escaped>{_ESCAPED.pattern})|'[^']*'"""
    r"""|\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$""",
    re.DOTALL,
)
_CODE = rb"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_ESCAPE = re.compile(
    rb"((?:" + _CODE + rb")+)|\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))|''", re.DOTALL
)
WINDOW = 1 << 20  # characters that are searched at once
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def has_continued(text: str) -> bool:
    """Return whether a quote is followed by a gap and another quote, as in a continued constant.

    This takes time in proportion to the text's length, in steps that let other threads run.
    """
    start = 0
    while (newline := _newline_before_quote(text, start)) is not None:
        if _is_continuation(text, newline):
            return True
        start = newline + 1
    return False


def _newline_before_quote(text: str, start: int) -> int | None:
    """Return the place of the next end of line after which, but for spaces, there is a quote."""
    while start < len(text):
        end = start + WINDOW
        found = _QUOTE_FIRST.search(text, start, end)
        if found is None:  # or it begins here and goes on after the window
            last = _last_line_end(text, start, end)
            found = None if last is None else _QUOTE_FIRST.match(text, last)
        if found is not None:
            return found.start()
        start = end
    return None


def _last_line_end(text: str, start: int, end: int) -> int | None:
    """Return the place of the last end of line between these; the search begins at the end."""
    size = 256
    while True:
        low = max(start, end - size)
        at = max(text.rfind("\n", low, end), text.rfind("\r", low, end))
        if at >= 0:
            return at
        if low == start:
            return None
        size *= 4


def _is_continuation(text: str, newline: int) -> bool:
    """Return whether a quote ends the last line above `newline` that is no comment.

    Or one that looks like a comment: it may be within a constant of several lines.
    """
    end: int | None = newline
    while end is not None:
        above = _last_line_end(text, 0, end)
        line = text[0 if above is None else above + 1 : end]
        rest = line.lstrip(" \t\f\v")
        if _QUOTE_LAST.search(line) is not None:
            return True
        if rest and not rest.startswith("--"):
            return False
        end = above
    return False


def escaped_pieces(text: str, at: int) -> list[str] | None:
    """Return the contents of the E'...' constant at `at`, or None if there is none."""
    found = _ESCAPED.match(text, at)
    return None if found is None else [m[1] for m in _PIECES.finditer(text, at + 1, found.end())]


def on_one_line(text: str) -> str:
    """Return a text of the same length in which continued E'...' constants are joined."""

    def one(match: re.Match[str]) -> str:
        if match["escaped"] is None:
            return match[0]
        pieces = _PIECES.finditer(text, match.start() + 1, match.end())
        inside = "".join(piece[1] + " " * (len(piece[0]) - len(piece[1])) for piece in pieces)
        return f"{match[0][0]}'{inside[: len(match[0]) - 3]}'"

    return _QUOTING.sub(one, text)


def goes_on(text: str, end: int, start: int) -> bool:
    """Return whether a constant that ends before `end` continues with the quote at `start`."""
    return text[start] == "'" and _BETWEEN.fullmatch(text, end, start) is not None


def decode_escapes(pieces: list[str], at: int) -> str:
    """Return the text of E'...'; bytes and characters by number must be UTF-8."""

    def one(match: re.Match[bytes]) -> bytes:
        codes, octal, hexadecimal, plain = match.groups()
        if codes:
            return _characters(
                [int(code[2:], 16) for code in re.findall(_CODE, codes)], at
            ).encode()
        if octal or hexadecimal:
            return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])
        if plain in (b"u", b"U"):
            raise DataError(
                "invalid Unicode escape",
                sqlstate="22025",
                position=at + 1,
                hint="Unicode escapes must be \\uXXXX or \\UXXXXXXXX.",
            )
        return _LETTERS.get(plain, plain) if plain else b"'"

    data = b"".join(_ESCAPE.sub(one, piece.encode()) for piece in pieces)
    if 0 in data:
        raise DataError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        wrong = " ".join(f"0x{byte:02x}" for byte in data[error.start : error.end])
        raise DataError(
            f'invalid byte sequence for encoding "UTF8": {wrong}', sqlstate="22021"
        ) from None


def decode_unicode(body: str, mark: str, at: int) -> str:
    """Return the text of U&'...', whose code points follow a `mark`."""
    if len(mark) != 1 or mark in "+'\"" or mark.isspace() or mark in "0123456789abcdefABCDEF":
        raise SyntaxError_("invalid Unicode escape character", position=at + 1)
    before = re.escape(mark)
    escape = re.compile(
        f"{before}{before}|((?:{before}(?:[+][0-9A-Fa-f]{{6}}|[0-9A-Fa-f]{{4}}))+)|{before}"
    )

    def one(match: re.Match[str]) -> str:
        if match[1]:
            codes = match[1].replace("+", "").split(mark)[1:]
            return _characters([int(code, 16) for code in codes], at)
        if len(match[0]) == 2:
            return mark
        raise SyntaxError_(
            "invalid Unicode escape",
            position=at + 1,
            hint="Unicode escapes must be \\XXXX or \\+XXXXXX.",
        )

    return escape.sub(one, body)


def _characters(codes: list[int], at: int) -> str:
    """Return the characters of code points written in sequence."""
    if not all(0 < code <= 0x10FFFF for code in codes):
        raise SyntaxError_("invalid Unicode escape value", position=at + 1)
    units = "".join(map(chr, codes)).encode("utf-16-le", "surrogatepass")
    try:
        return units.decode("utf-16-le")
    except UnicodeDecodeError:
        raise SyntaxError_("invalid Unicode surrogate pair", position=at + 1) from None
