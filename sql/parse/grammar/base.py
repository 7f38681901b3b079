"""Base of the grammar: positions, key words, errors, lists and names.

Each node of a tree records the offset to which an error about it would point (`meta["at"]`).
"""

import re
from typing import Any, NoReturn, cast

from sqlglot import exp
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokens import Token, TokenType

from foreshore.deep_trees import allow_depth
from foreshore.errors import FeatureNotSupported, StatementTooComplex, SyntaxError_
from foreshore.interruptible import REQUESTS, safepoint
from foreshore.keywords import RESERVED

# Precedence of operators, from loosest to tightest.
OR, AND, NOT, IS, COMPARISON, RANGE, OTHER = range(1, 8)
TERM, FACTOR, POWER, ZONE, COLLATE, SIGN, OPERAND = range(8, 15)

# Exceeds what people and tools write, and is safe for recursion over the tree.
MAX_DEPTH = 120
MAX_CHAIN = 200
allow_depth()  # sqlglot makes about twenty calls per level

_OPERATOR = re.compile(r"[~!@#^&|`?+\-*/%<>=]+\Z")
STRINGS = frozenset(
    (
        TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING,
        TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING,
    )
)  # fmt: skip
# Tokens whose text may look like an operator or a word but is a value.
VALUES = STRINGS | {
    TokenType.IDENTIFIER, TokenType.BIT_STRING, TokenType.HEX_STRING, TokenType.NUMBER,
}  # fmt: skip
NOT_WORDS = VALUES | {TokenType.PARAMETER}
_TWO_WORDS = frozenset((TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.PARTITION_BY))


def too_deep() -> StatementTooComplex:
    """Return PostgreSQL's error for a statement that is nested too deeply."""
    return StatementTooComplex(
        "stack depth limit exceeded",
        hint=f"Expressions and queries may be nested at most {MAX_DEPTH} levels deep.",
    )


def first_word(token: Token) -> str:
    """Return the key word that a token is or (ORDER BY) starts with."""
    return token.text.split()[0].lower() if token.text.strip() else ""


def is_word(token: Token) -> bool:
    """Return whether a token is a key word or an unquoted name."""
    return token.token_type not in NOT_WORDS and (token.text[0].isalpha() or token.text[0] == "_")


def located(node: Any, token: Token) -> Any:
    """Return `node` with the position of `token` for errors."""
    node.meta["at"] = token.start
    return node


class BaseParser(PostgresParser):
    """sqlglot's parser with PostgreSQL's errors, and helpers to inspect and consume tokens."""

    depth = 0

    # --- errors and positions

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise PostgreSQL's syntax error at the current token."""
        self.fail(self._curr)

    def fail(self, token: Token | None) -> NoReturn:
        """Raise PostgreSQL's syntax error at `token`, or at the end if it is None."""
        if not token:
            raise SyntaxError_("syntax error at end of input", position=len(self.sql) + 1)
        near = self.sql[token.start : token.end + 1]
        if token.token_type in _TWO_WORDS:
            near = near.split()[0]
        raise SyntaxError_(f'syntax error at or near "{near}"', position=token.start + 1)

    def unsupported(self, what: str, at: int) -> NoReturn:
        """Raise 0A000 for a feature that PostgreSQL has."""
        raise FeatureNotSupported(f"{what} is not supported", position=at + 1)

    def start_at(self, sql: str, tokens: list[Token], index: int) -> None:
        """Make `tokens[index]` the current token."""
        self.reset()
        self.sql = sql
        self._tokens = tokens
        self._tokens_size = len(tokens)
        self._index = index - 1
        self.depth = 0
        self._advance()

    def _parse_parameter(self) -> exp.Parameter:
        token = self._prev
        return cast(exp.Parameter, located(super()._parse_parameter(), token))

    def position(self) -> int:
        """Return the index of the current token."""
        return self._index if self._curr else self._tokens_size

    # --- consuming tokens

    def _advance(self, times: int = 1) -> None:
        if REQUESTS:
            safepoint()
        super()._advance(times)

    def _level(self, level: int) -> exp.Expr | None:
        raise AssertionError("ExpressionParser has it")

    def _need(self, level: int) -> exp.Expr:
        found = self._level(level)
        if found is None:
            self.fail(self._curr)
        return found

    def _word(self, *words: str) -> bool:
        """Return whether the next tokens are these key words."""
        for ahead, word in enumerate(words):
            index = self._index + ahead
            if index >= len(self._tokens):
                return False
            token = self._tokens[index]
            if token.token_type in NOT_WORDS or token.text.lower() != word:
                return False
        return True

    def _take(self, *words: str) -> bool:
        if not self._word(*words):
            return False
        self._advance(len(words))
        return True

    def _operator_here(self) -> str | None:
        token = self._curr
        if not token or token.token_type in VALUES or not _OPERATOR.match(token.text):
            return None
        if token.text == "=>":  # between a key and a value
            return None
        return token.text

    def _list(self) -> list[exp.Expr]:
        items = [self._need(0)]
        while self._match(TokenType.COMMA):
            items.append(self._need(0))
        return items

    def _integers(self, *, quoted: bool = False) -> list[int]:
        """Parse integers in parentheses, which may be `quoted`."""
        self._match_l_paren()
        numbers = []
        while True:
            negative = self._match(TokenType.DASH)
            token = self._curr
            if not (token and token.text.isdigit() and len(token.text) <= 10):
                self.fail(token)
            if token.token_type in STRINGS and not quoted:
                self.fail(token)
            numbers.append(-int(token.text) if negative else int(token.text))
            self._advance()
            if not self._match(TokenType.COMMA):
                break
        self._match_r_paren()
        return numbers

    def _names(self) -> list[str]:
        """Return a dotted name."""
        names = []
        while True:
            token = self._curr
            if not token or not (is_word(token) or token.token_type == TokenType.IDENTIFIER):
                self.fail(token)
            if token.token_type == TokenType.IDENTIFIER:
                names.append(token.text)
            else:
                word = token.text.lower()
                if not names and word in RESERVED:
                    self.fail(token)
                names.append(word)
            self._advance()
            if not self._match(TokenType.DOT):
                return names
