"""Names of a table's columns where its own texts use them: in CHECKs and in the keys of indexes.

Both are expressions over the row of one table, without subqueries. So a reference whose last part
is the name of a column means that column, and renaming one is an edit of those words of the text.
"""

from collections.abc import Iterator

from foreshore.sql import ast
from foreshore.sql.keywords import quote_identifier
from foreshore.sql.lexer import tokenize


def column_refs(tree: object) -> Iterator[ast.ColumnRef]:
    """Yield the references to columns in a syntax tree, or in a tuple of such."""
    return (each for each in ast.nodes_of(tree) if isinstance(each, ast.ColumnRef))


def with_column_renamed(text: str, text_at: int, tree: object, name: str, to: str) -> str:
    """Return `text` with the column `name` called `to`.

    `tree` is what was parsed of it, by offsets in a text in which it begins at `text_at`.
    """
    wanted = {
        ref.at - text_at: 2 * (len(ref.parts) - 1)
        for ref in column_refs(tree)
        if ref.parts[-1] == name
    }
    tokens, _ = tokenize(text)
    parts, position = [], 0
    for place, first in enumerate(tokens):
        if first.start in wanted:
            token = tokens[place + wanted[first.start]]
            assert token.value == name, (text, token, name)
            parts += [text[position : token.start], quote_identifier(to)]
            position = token.end
    return "".join(parts) + text[position:]


def index_with_column_renamed(create_sql: str, name: str, to: str) -> str:
    """Return a CREATE INDEX with the column `name` of its table called `to`."""
    from foreshore.sql.parse import parse

    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, ast.CreateIndexStatement), create_sql
    return with_column_renamed(create_sql, 0, statement.ast.keys, name, to)
