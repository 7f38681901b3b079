"""A cursor over tokens: look at the current token, consume it, or raise a syntax error.

Nesting is counted, so that deeply nested input raises 54001 instead of exhausting the stack.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from foreshore.errors import FeatureNotSupported, NumericValueOutOfRange, SyntaxError_
from foreshore.interruptible import REQUESTS, safepoint
from foreshore.keywords import RESERVED
from foreshore.sql.parse.grammar.base import MAX_DEPTH, too_deep
from foreshore.sql.parse.grammar.word_classes import NOT_COLUMN
from foreshore.sql.parse.lexer import (
    END,
    NUMBER,
    OPERATOR,
    PUNCTUATION,
    QUOTED,
    STRING,
    WORD,
    Token,
)

T = TypeVar("T")


_BIGINT_DIGITS = 19


class Cursor:
    """A position `index` in the tokens of `text`."""

    def __init__(self, text: str, tokens: list[Token], index: int = 0) -> None:
        self.text = text
        self.tokens = tokens
        self.index = index
        self.token = tokens[index]
        self.depth = 0

    # --- inspecting tokens

    def peek(self, ahead: int = 1) -> Token:
        """Return the token `ahead` places after the current one."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def at_word(self, *words: str) -> bool:
        """Return whether the current token is one of the key words."""
        return self.token.kind == WORD and self.token.value in words

    def at_words(self, *words: str) -> bool:
        """Return whether the next tokens are these key words."""
        return all(
            (token := self.peek(i)).kind == WORD and token.value == word
            for i, word in enumerate(words)
        )

    def at_symbol(self, symbol: str) -> bool:
        """Return whether the current token is the punctuation or operator `symbol`."""
        return self.token.value == symbol and self.token.kind in (PUNCTUATION, OPERATOR)

    def at_literal(self) -> bool:
        """Return whether the current token is a string or a number."""
        return self.token.kind in (STRING, NUMBER)

    def at_end(self) -> bool:
        """Return whether the statement ends here."""
        return self.token.kind == END or self.at_symbol(";")

    @property
    def last_end(self) -> int:
        """Return the end of the previous token."""
        return self.tokens[self.index - 1].end

    # --- consuming tokens

    def go_to(self, index: int) -> None:
        """Move to the token at `index`."""
        self.index = index
        self.token = self.tokens[index]

    def advance(self) -> Token:
        """Consume the current token."""
        if REQUESTS:
            safepoint()
        token = self.token
        if token.kind != END:
            self.index += 1
            self.token = self.tokens[self.index]
        return token

    def accept(self, *words: str) -> bool:
        """Consume these key words if all of them follow; return whether they did."""
        if not self.at_words(*words):
            return False
        for _ in words:
            self.advance()
        return True

    def accept_symbol(self, symbol: str) -> bool:
        """Consume `symbol` if it follows; return whether it did."""
        if self.at_symbol(symbol):
            self.advance()
            return True
        return False

    def expect(self, *words: str) -> Token:
        """Consume these key words or raise a syntax error; return the first token."""
        first = self.token
        for word in words:
            if not self.accept(word):
                self.fail()
        return first

    def expect_symbol(self, symbol: str) -> Token:
        """Consume `symbol` or raise a syntax error."""
        token = self.token
        if not self.accept_symbol(symbol):
            self.fail()
        return token

    def fail(self, token: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raise PostgreSQL's syntax error at `token`, or at the current one."""
        token = token or self.token
        position = token.start + 1
        if token.kind == END:
            raise SyntaxError_("syntax error at end of input", hint=hint, position=position)
        near = self.text[token.start : token.end]
        raise SyntaxError_(f'syntax error at or near "{near}"', hint=hint, position=position)

    def unsupported(self, what: str, at: int | None = None, hint: str | None = None) -> NoReturn:
        """Raise 0A000 for a feature that PostgreSQL or Materialize has."""
        position = (self.token.start if at is None else at) + 1
        raise FeatureNotSupported(f"{what} is not supported", hint=hint, position=position)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Enter one level of nesting for the duration of the block."""
        self.enter()
        try:
            yield
        finally:
            self.depth -= 1

    def enter(self) -> None:
        """Enter one level of nesting; the caller leaves it."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise too_deep()

    # --- lists and names

    def list_of(self, one: Callable[[], T]) -> tuple[T, ...]:
        """Return the results of `one`, called for each item of a comma-separated list."""
        items = [one()]
        while self.accept_symbol(","):
            items.append(one())
        return tuple(items)

    def in_parentheses(self, one: Callable[[], T]) -> tuple[T, ...]:
        """Return a list in parentheses."""
        self.expect_symbol("(")
        items = self.list_of(one)
        self.expect_symbol(")")
        return items

    def name(self) -> str:
        """Return the name of a column, table, alias, cursor, ..."""
        token = self.token
        if token.kind == QUOTED or (token.kind == WORD and token.value not in NOT_COLUMN):
            self.advance()
            return token.value
        self.fail()

    def name_at(self) -> tuple[str, int]:
        """Return a name and its offset."""
        at = self.token.start
        return self.name(), at

    def label(self) -> str:
        """Return a label after AS or a dot, for which any word is allowed."""
        token = self.token
        if token.kind not in (QUOTED, WORD):
            self.fail()
        self.advance()
        return token.value

    def name_or_function(self) -> str:
        """Return a name that may also be that of a function or type."""
        token = self.token
        if token.kind == QUOTED or (token.kind == WORD and token.value not in RESERVED):
            self.advance()
            return token.value
        self.fail()

    def dotted(self) -> tuple[str, ...]:
        """Return a name with its qualifiers."""
        parts = [self.name()]
        while self.accept_symbol("."):
            parts.append(self.label())
        return tuple(parts)

    def string(self) -> str:
        """Return a string constant."""
        if self.token.kind != STRING:
            self.fail()
        return self.advance().value

    def integer(self) -> int:
        """Return a non-negative integer constant."""
        if self.token.kind != NUMBER or not self.token.value.isdigit():
            self.fail()
        digits = self.advance().value
        if len(digits.lstrip("0")) > _BIGINT_DIGITS:
            raise NumericValueOutOfRange(f'value "{digits}" is out of range for type bigint')
        return int(digits)
