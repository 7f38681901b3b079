"""Tokenize a text, for sqlglot's parser and for the statement parsers.

sqlglot's tokenizer, with our dialect, reads the text. Statement parsers (`cursor.py`) need only the
kind of each token, its value (names folded, strings decoded) and its position. Queries and
expressions are parsed by sqlglot from its own tokens, found by offset.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec
from sqlglot.errors import TokenError
from sqlglot.tokens import Token as SqlglotToken
from sqlglot.tokens import TokenType

from foreshore.bits import parse_bits
from foreshore.errors import InvalidTextRepresentation, SyntaxError_
from foreshore.identifiers import cut, fold
from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql.parse import dialect

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


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token: its kind, its value, and its characters [start, end)."""

    kind: str
    value: str
    start: int
    end: int


_KINDS = {
    TokenType.IDENTIFIER: QUOTED,
    TokenType.NUMBER: NUMBER,
    TokenType.BIT_STRING: BITS,
    TokenType.HEX_STRING: BITS,
    **dict.fromkeys(
        (
            TokenType.STRING,
            TokenType.HEREDOC_STRING,
            TokenType.BYTE_STRING,
            TokenType.NATIONAL_STRING,
            TokenType.UNICODE_STRING,
        ),
        STRING,
    ),
}
_PUNCTUATION = frozenset((",", "(", ")", "[", "]", ".", ";", ":", "::", ":=", "=>"))
_WORDS = re.compile(r"\S+")
# How quoted text and comments start and end.
QUOTED_TEXT = (
    r"""--[^\r\n]*|/\*(?:[^*]++|\*(?!/))*+(?P<comment>\*/|\Z)|"(?:[^"]++|"")*+(?P<name>"|\Z)"""
    r"""|[eE]'(?:[^'\\]++|\\.|'')*+(?P<escaped>'|\Z)|'(?:[^']++|'')*+(?P<string>'|\Z)"""
    r"""|\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?(?P<dollar>\$(?P=tag)\$|\Z)"""
)
_QUOTED = re.compile(QUOTED_TEXT, re.DOTALL)


def tokenize(
    text: str, gaps: Sequence[tuple[int, int]] = ()
) -> tuple[list[Token], list[SqlglotToken]]:
    """Return the tokens of `text`: ours (the last of kind END) and sqlglot's.

    `gaps` are ranges of blanks, in order, which sqlglot need not go through.
    """
    try:
        found = _tokens_around(text, gaps) if gaps else dialect.tokenize(text)
    except TokenError:
        _check_bits(text)
        raise _unterminated(text) from None
    tokens: list[Token] = []
    for token in found:
        if REQUESTS:
            safepoint()
        kind = _KINDS.get(token.token_type)
        value, start, end = token.text, token.start, token.end + 1
        if tokens and start == tokens[-1].end and tokens[-1].kind == NUMBER:
            _check_number(text, tokens[-1], kind, value, end)
        if kind == STRING and tokens and tokens[-1].kind == STRING:
            _check_continued(text, tokens[-1].end, start, end)
        if kind == BITS and text[start] == "0":  # 0x1F is a number in later versions of PostgreSQL
            raise _trailing_junk(text, start, end)
        if kind == QUOTED and not value:
            raise SyntaxError_(
                'zero-length delimited identifier at or near """"', position=start + 1
            )
        if kind is not None:
            tokens.append(Token(kind, cut(value) if kind == QUOTED else value, start, end))
        elif value[0].isalpha() or value[0] == "_" or not value[0].isascii():
            for word in _WORDS.finditer(text, start, end):  # ORDER BY is one token in sqlglot
                tokens.append(Token(WORD, fold(word.group()), word.start(), word.end()))
        elif value in _PUNCTUATION:
            tokens.append(Token(PUNCTUATION, value, start, end))
        elif value == "$":
            tokens.append(Token(PARAMETER, value, start, end))
        else:
            tokens.append(Token(OPERATOR, "<>" if value == "!=" else value, start, end))
    tokens.append(Token(END, "", len(text), len(text)))
    return tokens, found


def _tokens_around(text: str, gaps: Sequence[tuple[int, int]]) -> list[SqlglotToken]:
    """Return sqlglot's tokens of `text` with one blank for each gap, at their places in `text`."""
    ends = [0, *(end - 1 for _, end in gaps)]
    starts = [*(start for start, _ in gaps), len(text)]
    short = "".join(text[end:start] for end, start in zip(ends, starts, strict=True))
    shifts = [0]  # what is to be added to offsets after each of the gaps
    for start, end in gaps:
        shifts.append(shifts[-1] + end - 1 - start)
    places = [start - shift for (start, _), shift in zip(gaps, shifts, strict=False)]
    found = []
    for token in dialect.tokenize(short):
        shift = shifts[bisect_left(places, token.start)]
        found.append(dialect.moved(token, shift) if shift else token)
    return found


def _check_number(text: str, number: Token, kind: str | None, value: str, end: int) -> None:
    """Raise an error if a word directly follows a number."""
    if kind is None and (value[0].isalpha() or value[0] == "_"):
        raise _trailing_junk(text, number.start, end)


def _check_continued(text: str, before: int, start: int, end: int) -> None:
    """Raise an error if a string follows another one on its line: it continues none."""
    if "\n" not in text[before:start] and "\r" not in text[before:start]:
        raise SyntaxError_(f'syntax error at or near "{text[start:end]}"', position=start + 1)


def _trailing_junk(text: str, start: int, end: int) -> SyntaxError_:
    return SyntaxError_(
        f'trailing junk after numeric literal at or near "{text[start:end]}"', position=start + 1
    )


def _check_bits(text: str) -> None:
    """Raise the error of the first bit string constant with a wrong digit, if there is one."""
    for match in _QUOTED.finditer(text):
        mark = match.start() - 1
        if match.lastgroup == "string" and text[max(mark, 0)] in "bBxX" and match["string"]:
            try:
                parse_bits(text[mark] + text[match.start() + 1 : match.end() - 1])
            except InvalidTextRepresentation as error:
                error.position = mark + 1
                raise


def _unterminated(text: str) -> SyntaxError_:
    """Return PostgreSQL's error for text with an unterminated quote."""
    kinds = {
        "comment": "/* comment",
        "name": "quoted identifier",
        "string": "quoted string",
        "escaped": "quoted string",
        "dollar": "dollar-quoted string",
    }
    for match in _QUOTED.finditer(text):
        kind = match.lastgroup
        if kind is not None and match[kind] == "":
            return SyntaxError_(
                f'unterminated {kinds[kind]} at or near "{text[match.start() :]}"',
                position=match.start() + 1,
            )
    return SyntaxError_("syntax error at end of input", position=len(text) + 1)
