"""A sqlglot dialect that reads queries and expressions as PostgreSQL does.

sqlglot normalises many dialects to one tree and so loses distinctions that PostgreSQL makes. This
dialect keeps the text's meaning (its parser is in `grammar/`):

- every call is kept by name with its arguments in order (no function is known), except calls that
  the standard spells with key words;
- operators bind as in PostgreSQL's grammar, from loosest to tightest OR, AND, NOT, IS, comparison,
  BETWEEN IN LIKE, any other operator, + -, * / %, ^, AT TIME ZONE, COLLATE, sign; each is an
  `exp.Operator` with its spelling;
- types keep their names and modifiers;
- each node records the offset to which an error would point (`meta["at"]`).

Text that PostgreSQL rejects is a syntax error at the token where sqlglot stops.
"""

import re
from bisect import bisect_left
from itertools import pairwise
from typing import ClassVar

from sqlglot.dialects.postgres import Postgres
from sqlglot.tokenizer_core import TokenizerCore
from sqlglot.tokens import Token, TokenType

from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql.parse.grammar.query import Parser as Grammar
from foreshore.sql.parse.string_constants import (
    decode_escapes,
    escaped_pieces,
    goes_on,
    has_continued,
    on_one_line,
)


class InterruptibleCore(TokenizerCore):
    """The loop of sqlglot's tokenizer, which can be interrupted before each token."""

    __slots__ = ()

    def _add(self, token_type: TokenType, text: str | None = None) -> None:
        if REQUESTS:
            safepoint()
        super()._add(token_type, text)


class Foreshore(Postgres):
    """PostgreSQL's syntax for reading, without normalisation."""

    INDEX_OFFSET = 0

    class Tokenizer(Postgres.Tokenizer):
        KEYWORDS = {
            **{
                word: type
                for word, type in Postgres.Tokenizer.KEYWORDS.items()
                if type not in (TokenType.COMMAND, TokenType.HINT, TokenType.ASOF)
                and (" " not in word or word in ("GROUP BY", "ORDER BY", "PARTITION BY"))
            },
            **{
                operator: TokenType.DAT
                for operator in (
                    "!~", "!~*", "!~~", "!~~*", "~~", "~~*", "~*", "~", "|/", "||/", "@>", "<@",
                    "?|", "?&", "#-", "@?", "@@", "&&", "<<", ">>", "->", "->>", "#>", "#>>", "||",
                    "<->", "-|-", "&<", "&>", "<<=", ">>=", "^@", "!!",
                )
            },
            "!=": TokenType.NEQ,
        }  # fmt: skip
        COMMANDS: ClassVar[set[TokenType]] = set()
        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
        SINGLE_TOKENS = {
            **Postgres.Tokenizer.SINGLE_TOKENS,
            **{"$": TokenType.PARAMETER, "@": TokenType.DAT},
        }

        def _init_core(self) -> TokenizerCore:
            core = super()._init_core()
            core.__class__ = InterruptibleCore
            return core

    Parser = Grammar


class DollarQuoting(Foreshore):
    """The dialect for texts with dollar-quoted strings.

    It is separate because sqlglot's tokenizer then searches for a closing delimiter after every
    `$1,`.
    """

    class Tokenizer(Foreshore.Tokenizer):
        HEREDOC_STRINGS = Postgres.Tokenizer.HEREDOC_STRINGS
        SINGLE_TOKENS = Postgres.Tokenizer.SINGLE_TOKENS


FORESHORE = Foreshore()
_DOLLAR_QUOTING = DollarQuoting()
_CONTINUED = (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING)
# sqlglot reads `1e3-1` as one number; this finds where the number ends.
_END_OF_NUMBER = re.compile(r"[\d.][eE]\d+(?=[+-]\d)")
_DOLLAR_QUOTE = re.compile(r"\$(?:[A-Za-z_]\w*)?\$")


def tokenize(text: str) -> list[Token]:
    """Return sqlglot's tokens of `text`; raises sqlglot's TokenError."""
    dialect = _DOLLAR_QUOTING if _DOLLAR_QUOTE.search(text) else FORESHORE
    if not has_continued(text):
        return _tokens(dialect, text)
    return _joined(text, _tokens(dialect, on_one_line(text)))


def _tokens(dialect: Foreshore, text: str) -> list[Token]:
    """Return sqlglot's tokens, with `1e3-1` split into three."""
    found = dialect.tokenize(text)
    ends = [
        token.start + end.end()
        for token in found
        if token.token_type == TokenType.NUMBER and (end := _END_OF_NUMBER.search(token.text))
    ]
    if not ends:
        return found
    spaced = " ".join(text[start:end] for start, end in pairwise([0, *ends, len(text)]))
    spaces = [end + i for i, end in enumerate(ends)]
    return [
        Token(
            token.token_type,
            token.text,
            token.line,
            token.col,
            token.start - bisect_left(spaces, token.start),
            token.end - bisect_left(spaces, token.end),
            token.comments,
        )
        for token in _tokens(dialect, spaced)
    ]


def moved(token: Token, shift: int) -> Token:
    """Return a token that is so many characters later in the text."""
    return Token(
        token.token_type,
        token.text,
        token.line,
        token.col,
        token.start + shift,
        token.end + shift,
        token.comments,
    )


def _joined(text: str, found: list[Token]) -> list[Token]:
    """Return the tokens with string constants that continue on later lines joined."""
    joined: list[Token] = []
    for token in found:
        last = joined[-1] if joined else None
        if token.token_type == TokenType.BYTE_STRING:
            pieces = escaped_pieces(text, token.start)
            if pieces is not None and len(pieces) > 1:
                value = decode_escapes(pieces, token.start)
                token = Token(
                    token.token_type, value, token.line, token.col, token.start, token.end
                )
        elif (
            last is not None
            and token.token_type == TokenType.STRING
            and last.token_type in _CONTINUED
            and goes_on(text, last.end + 1, token.start)
        ):
            value = last.text + token.text
            joined[-1] = Token(last.token_type, value, last.line, last.col, last.start, token.end)
            continue
        joined.append(token)
    return joined


def new_parser() -> Grammar:
    """Return a parser for one text; `start_at` positions it."""
    return Grammar(dialect=FORESHORE)
