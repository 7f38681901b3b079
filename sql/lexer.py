r"""Text to tokens, by PostgreSQL's lexical rules.

Words are folded to lower case unless quoted; strings are decoded (`''`, `E'\n'`, `$tag$...$tag$`),
operators are as long as PostgreSQL makes them (`<-1` is `<` and `-1`), comments are gone, block
comments nest. Each token knows where it stood, so that errors can say so. Linear in the text.
"""

import re
from typing import Final, NamedTuple

from foreshore.errors import InvalidTextRepresentation, SyntaxError_

# Kinds of token.
WORD: Final = "word"  # unquoted, folded
QUOTED: Final = "quoted"  # a quoted identifier
STRING: Final = "string"
NUMBER: Final = "number"
PARAMETER: Final = "parameter"
OPERATOR: Final = "operator"
PUNCTUATION: Final = "punctuation"
BITS: Final = "bits"
END: Final = "end"


class Token(NamedTuple):
    """A token: what it is, what it says, and the characters [start, end) that it stands in."""

    kind: str
    value: str
    start: int
    end: int


_SPACE = re.compile(r"(?:[ \t\n\r\f\v]+|--[^\n\r]*)+")
_TOKEN = re.compile(
    r"""
      (?P<estring>[eE]'(?:[^'\\]|\\.|'')*')
    | (?P<bits>[bBxX]'[^']*')
    | (?P<ustring>[uU]&'(?:[^']|'')*')
    | (?P<uquoted>[uU]&"(?:[^"]|"")*")
    | (?P<string>(?:[nN])?'(?:[^']|'')*')
    | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<junk>(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_]*)
    | (?P<number>(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<parameter>\$\d+)
    | (?P<dollar>\$(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)?\$)
    | (?P<punctuation>::|:=|\.\.|=>|[,()\[\].;:])
    | (?P<operator>[~!@\#^&|`?+\-*/%<>=]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|''", re.DOTALL
)
_SIMPLE_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UNICODE = re.compile(r"\\(?:\\|\+([0-9A-Fa-f]{6})|([0-9A-Fa-f]{4}))")
_CONTINUATION = re.compile(r"[ \t\f\v]*[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*)*(?=')")
_OPEN_QUOTE = {"'": "string", '"': "identifier"}
_TAIL_CHARACTERS = frozenset("~!@#%^&|`?")


def tokenize(text: str) -> list[Token]:
    """Return the tokens of `text`, the last of them of kind END."""
    tokens: list[Token] = []
    position, size = 0, len(text)
    while True:
        space = _SPACE.match(text, position)
        if space is not None:
            position = space.end()
        if position >= size:
            tokens.append(Token(END, "", size, size))
            return tokens
        if text.startswith("/*", position):
            position = _skip_comment(text, position)
            continue
        found = _TOKEN.match(text, position)
        if found is None:
            raise _unreadable(text, position)
        kind = found.lastgroup
        assert kind is not None
        end = found.end()
        raw = found.group()
        match kind:
            case "word":
                tokens.append(Token(WORD, _fold(raw), position, end))
            case "number":
                tokens.append(Token(NUMBER, raw, position, end))
            case "punctuation":
                tokens.append(Token(PUNCTUATION, raw, position, end))
            case "operator":
                raw = _operator(raw)
                end = position + len(raw)
                if raw == "=>":
                    tokens.append(Token(PUNCTUATION, raw, position, end))
                else:
                    tokens.append(Token(OPERATOR, "<>" if raw == "!=" else raw, position, end))
            case "string":
                value, end = _string(text, raw, end)
                tokens.append(Token(STRING, value, position, end))
            case "estring":
                tokens.append(Token(STRING, _unescape(raw[2:-1], position), position, end))
            case "ustring":
                value = _unicode(raw[3:-1].replace("''", "'"), position)
                tokens.append(Token(STRING, value, position, end))
            case "quoted" | "uquoted":
                value = raw[raw.index('"') + 1 : -1].replace('""', '"')
                if kind == "uquoted":
                    value = _unicode(value, position)
                if not value:
                    raise SyntaxError_(
                        'zero-length delimited identifier at or near """"', position=position + 1
                    )
                tokens.append(Token(QUOTED, _truncate(value), position, end))
            case "parameter":
                tokens.append(Token(PARAMETER, raw[1:], position, end))
            case "dollar":
                close = text.find(raw, end)
                if close < 0:
                    raise SyntaxError_(
                        f'unterminated dollar-quoted string at or near "{text[position:]}"',
                        position=position + 1,
                    )
                tokens.append(Token(STRING, text[end:close], position, close + len(raw)))
                end = close + len(raw)
            case "bits":
                tokens.append(Token(BITS, raw[0].lower() + raw[2:-1], position, end))
            case _:
                raise SyntaxError_(
                    f'trailing junk after numeric literal at or near "{raw}"', position=position + 1
                )
        position = end


def _fold(word: str) -> str:
    # Only ASCII letters fold, as in a database with encoding UTF8 and collation C.
    return _truncate(word.lower() if word.isascii() else re.sub("[A-Z]+", _lower, word))


def _lower(match: re.Match[str]) -> str:
    return match.group().lower()


def _truncate(name: str) -> str:
    """Return `name` cut to the 63 bytes that PostgreSQL keeps of a name."""
    if len(name) < 16:
        return name
    data = name.encode()
    return name if len(data) <= 63 else data[:63].decode(errors="ignore")


def _string(text: str, raw: str, end: int) -> tuple[str, int]:
    """Return the value and the end of a string, with those that continue it on later lines."""
    value = raw[raw.index("'") + 1 : -1].replace("''", "'")
    while (gap := _CONTINUATION.match(text, end)) is not None:
        found = _TOKEN.match(text, gap.end())
        if found is None or found.lastgroup != "string":
            break
        value += found.group()[1:-1].replace("''", "'")
        end = found.end()
    return value, end


def _operator(run: str) -> str:
    """Return as much of a run of operator characters as is one operator."""
    for comment in ("--", "/*"):
        if (cut := run.find(comment)) > 0:
            run = run[:cut]
    while len(run) > 1 and run[-1] in "+-" and not _TAIL_CHARACTERS.intersection(run):
        run = run[:-1]
    return run


def _skip_comment(text: str, start: int) -> int:
    depth, position = 1, start + 2
    while depth:
        close = text.find("*/", position)
        if close < 0:
            raise SyntaxError_(
                f'unterminated /* comment at or near "{text[start:]}"', position=start + 1
            )
        inner = text.find("/*", position, close)
        if inner >= 0:
            depth += 1
            position = inner + 2
        else:
            depth -= 1
            position = close + 2
    return position


def _unescape(body: str, start: int) -> str:
    def one(match: re.Match[str]) -> str:
        octal, hexadecimal, short, long, other = match.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        if hexadecimal:
            return chr(int(hexadecimal, 16))
        if short or long:
            return _character(int(short or long, 16), start)
        return _SIMPLE_ESCAPES.get(other, other) if other else "'"

    return _ESCAPE.sub(one, body)


def _unicode(body: str, start: int) -> str:
    def one(match: re.Match[str]) -> str:
        digits = match.group(1) or match.group(2)
        return "\\" if digits is None else _character(int(digits, 16), start)

    return _UNICODE.sub(one, body)


def _character(code: int, start: int) -> str:
    if code == 0 or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise SyntaxError_("invalid Unicode escape value", position=start + 1)
    return chr(code)


def _unreadable(text: str, position: int) -> SyntaxError_ | InvalidTextRepresentation:
    rest = text[position:]
    for quote, what in _OPEN_QUOTE.items():
        if rest.lstrip("eEnNuU&bBxX").startswith(quote):
            return SyntaxError_(
                f'unterminated quoted {what} at or near "{rest}"', position=position + 1
            )
    return SyntaxError_(f'syntax error at or near "{rest[0]}"', position=position + 1)
