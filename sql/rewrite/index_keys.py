"""The keys of an index, as its statement writes them."""

from collections.abc import Iterator
from functools import lru_cache

from foreshore.index_key import IndexKey
from foreshore.sql import ast
from foreshore.sql.parse.lexer import PUNCTUATION, WORD, tokenize
from foreshore.sql.parse.parse import parse

_ORDER = ("asc", "desc", "nulls", "first", "last")


@lru_cache(maxsize=1024)
def index_keys(create_sql: str) -> tuple[IndexKey, ...]:
    """Return the keys of a CREATE INDEX, none for a default index."""
    text = keys_text(create_sql)
    return tuple(map(_key, _parts(text[1:-1]))) if text else ()


def keys_text(create_sql: str) -> str:
    """Return the keys of a CREATE INDEX in their parentheses, empty for a default index."""
    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, ast.CreateIndexStatement), create_sql
    return create_sql[statement.ast.keys_at : statement.ast.keys_end].strip()


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a list between its outer commas."""
    depth = begin = 0
    for token in tokenize(text)[0]:
        if token.kind == PUNCTUATION:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.value, 0)
            if token.value == "," and depth == 0:
                yield text[begin : token.start].strip()
                begin = token.end
    yield text[begin:].strip()


def _key(text: str) -> IndexKey:
    tokens, order = tokenize(text)[0][:-1], list[str]()  # the last is the end
    while len(tokens) > 1 and tokens[-1].kind == WORD and tokens[-1].value in _ORDER:
        order.append(tokens.pop().value)
    expression = text[: tokens[-1].end]
    descending = "desc" in order
    return IndexKey(
        expression, descending, "first" in order or (descending and "last" not in order)
    )
