"""Split a text into statements and parse each of them.

`parse` returns a syntax tree for each statement, with its text and its offset in the whole text.
All positions in the tree are offsets in the whole text, as in PostgreSQL's error positions.

sqlglot, with our dialect, tokenizes the text and parses queries and expressions (decision 0003);
statement parsers read the rest from its tokens. Accepted text means what it means in PostgreSQL,
and other text is rejected where PostgreSQL would reject it. Text that is too long or nested too
deeply raises 54001 before or during parsing.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from sqlglot.tokens import Token as SqlglotToken

from foreshore.errors import DatabaseError, StatementTooComplex, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.parse.dialect import moved
from foreshore.sql.parse.grammar.base import too_deep
from foreshore.sql.parse.lexer import END, WORD, Token, tokenize
from foreshore.sql.parse.long_lists import Lists, take_out
from foreshore.sql.parse.pieces import pieces
from foreshore.sql.parse.statement import StatementParser

# In characters; larger than a driver's largest batch of INSERTs, small enough not to delay other
# sessions.
MAX_LENGTH = 32 << 20
# Maximum number of each of UNION, EXCEPT, INTERSECT and JOIN in a statement.
MAX_COMBINED = 400
RELEASED_AT_ONCE = 50_000
_CHAINS = ("union", "except", "intersect", "join")


class Statement(msgspec.Struct, frozen=True):
    """One statement: its text, its offset in `whole`, and its syntax tree."""

    text: str
    position: int
    ast: ast.StatementSyntax
    whole: str
    translated: bool = False  # from another dialect, so that positions mean nothing to the client


def check_length(text: str) -> None:
    """Raise StatementTooComplex for a text that is too long to be parsed."""
    if len(text) > MAX_LENGTH:
        raise StatementTooComplex(f"the statement is longer than {MAX_LENGTH} characters")


def until_nul(text: str) -> str:
    """Return what is parsed of a text; raises StatementTooComplex if it is too long."""
    check_length(text)
    return text[: text.index("\x00")] if "\x00" in text else text


def parse(text: str) -> list[Statement]:
    """Return the statements of `text`; none if it holds only space and comments.

    Raises SyntaxError_, FeatureNotSupported, StatementTooComplex.
    """
    text = until_nul(text)
    found: list[Statement] = []
    for start, end in pieces(text):
        found += parse_piece(text, start, end)
    return found


def parse_piece(text: str, start: int, end: int) -> list[Statement]:
    """Return the statements of a range of `text`, which has whole ones; raises as `parse` does."""
    return _without_long_lists(text, start, end) or _tokenized(text, start, text[start:end], {})


def _without_long_lists(text: str, start: int, end: int) -> list[Statement] | None:
    """Return the statements, with their long lists read in bulk; None if that is not possible.

    Parsing the text as it is finds the place of an error.
    """
    short, lists = take_out(text, start, end)
    if not lists:
        return None
    try:
        for each in list(lists.values()):
            if isinstance(each, FormRows):
                each.parse = partial(_rows_as_written, each)
            else:
                each.types = {type: _type_of(type) for type in each.casts}
        statements = _tokenized(text, start, short, lists)
    except DatabaseError:
        return None
    return None if lists else statements  # each list has to be found by its node


def _rows_as_written(rows: FormRows) -> tuple[Any, ...]:
    """Return the syntax of rows that were taken out: rows of VALUES, or items of IN."""
    before, after = ("0 IN (", ")") if rows.is_in_list else ("VALUES ", "")
    text = rows.text[: rows.end] + after
    found = _moved_tokens(before + text[rows.start :], rows.start - len(before), ())
    parser = StatementParser(text, *found)
    if not rows.is_in_list:
        values = parser.query().body
        assert isinstance(values, ast.Values), values
        return values.rows
    items = parser.expression()
    assert isinstance(items, ast.InList), items
    return items.items


def _type_of(text: str) -> ast.TypeName:
    """Return the syntax of a type that stands alone."""
    tree = parse_expression(f"$1::{text}")
    if not isinstance(tree, ast.CastTo) or not isinstance(tree.arg, ast.ParameterRef):
        raise SyntaxError_(f"{text} is no type")
    return tree.type


def _tokenized(text: str, start: int, short: str, lists: Lists) -> list[Statement]:
    """Return the statements of `short`: a piece of `text`, from `start`, without long lists."""
    gaps = sorted((a - start, b - start) for each in lists.values() for a, b in each.gaps)
    tokens, found = _moved_tokens(short, start, gaps)
    try:
        return _statements(text, tokens, found, lists)
    finally:
        _release(tokens)
        _release(found)


def _moved_tokens(
    short: str, start: int, gaps: Sequence[tuple[int, int]]
) -> tuple[list[Token], list[SqlglotToken]]:
    """Return the tokens of the part of a text that begins at `start`, with offsets in the text."""
    try:
        tokens, found = tokenize(short, gaps)
    except DatabaseError as error:
        if error.position is not None:
            error.position += start
        raise
    if start:
        tokens = [
            Token(each.kind, each.value, each.start + start, each.end + start) for each in tokens
        ]
        found = [moved(each, start) for each in found]
    return tokens, found


def _release(tokens: list[Any]) -> None:
    """Empty a list in steps between which other threads can run: it may be millions of tokens."""
    while tokens:
        del tokens[-RELEASED_AT_ONCE:]


def _statements(
    text: str, tokens: list[Token], found: list[SqlglotToken], lists: Lists
) -> list[Statement]:
    _check_chains(tokens)
    parser = StatementParser(text, tokens, found, lists)
    statements: list[Statement] = []
    while True:
        while parser.accept_symbol(";"):
            pass
        if parser.token.kind == END:
            return statements
        start = parser.token.start
        parser.depth = 0
        try:
            tree = parser.statement()
        except RecursionError:
            raise too_deep() from None
        statements.append(Statement(text[start : parser.last_end], start, tree, text))


def _check_chains(tokens: list[Token]) -> None:
    """Raise an error if a statement combines too many queries or tables."""
    counts = dict.fromkeys(_CHAINS, 0)
    for token in tokens:
        if token.value == ";":
            counts = dict.fromkeys(_CHAINS, 0)
        elif token.kind == WORD and token.value in counts:
            counts[token.value] += 1
            if counts[token.value] > MAX_COMBINED:
                raise StatementTooComplex(
                    f"the statement has more than {MAX_COMBINED} times {token.value.upper()}"
                )


def parse_expression(text: str) -> ast.Expression:
    """Return the syntax tree of `text` as one expression."""
    parser = StatementParser(text, *tokenize(text))
    tree = parser.expression()
    if parser.token.kind != END:
        parser.fail()
    return tree
