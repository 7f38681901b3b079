"""Names of a table's columns where its own texts use them: in CHECKs and in the keys of indexes.

Both are expressions over the row of one table, without subqueries. So a reference whose last part
is the name of a column means that column, and renaming one is an edit of those words of the text.
"""

from collections.abc import Iterator, Sequence

from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.lexer import Token, tokenize
from foreshore.sql.rewrite.text_edits import apply_edits


def column_refs(tree: object) -> Iterator[ast.ColumnRef]:
    """Yield the references to columns in a syntax tree, or in a tuple of such."""
    return (each for each in ast.nodes_of(tree) if isinstance(each, ast.ColumnRef))


def with_column_renamed(text: str, text_at: int, tree: object, name: str, to: str) -> str:
    """Return `text` with the column `name` called `to`.

    `tree` is what was parsed of it, by offsets in a text in which it begins at `text_at`.
    """
    refs = [ref for ref in column_refs(tree) if ref.parts[-1] == name]
    words = [token for _, token in _words(text, text_at, refs)]
    assert all(token.value == name for token in words), (text, words, name)
    return apply_edits(text, [(token.start, token.end, quote_identifier(to)) for token in words])


def without_qualifiers(text: str, text_at: int, tree: object) -> str:
    """Return `text` with each column by its name alone; `tree` is what was parsed of it.

    So it stays true when the table gets another name. Behind a dot any word is a name, alone it
    may need quotes: `t.user` is the column `"user"`.
    """
    refs = {ref.at - text_at: ref for ref in column_refs(tree) if len(ref.parts) > 1}
    edits = []
    for first, last in _words(text, text_at, list(refs.values())):
        assert last.value == refs[first.start].parts[-1], (text, first, last)
        edits.append((first.start, last.end, quote_identifier(last.value)))
    return apply_edits(text, edits)


def _words(text: str, text_at: int, refs: Sequence[ast.ColumnRef]) -> Iterator[tuple[Token, Token]]:
    """Yield the first and the last word of each of `refs`, in the order of the text."""
    if not refs:
        return
    lengths = {ref.at - text_at: 2 * (len(ref.parts) - 1) for ref in refs}
    tokens, _ = tokenize(text)
    for place, first in enumerate(tokens):
        if first.start in lengths:
            yield first, tokens[place + lengths[first.start]]


def index_with_column_renamed(create_sql: str, name: str, to: str) -> str:
    """Return a CREATE INDEX with the column `name` of its table called `to`."""
    from foreshore.sql.parse.parse import parse

    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, ast.CreateIndexStatement), create_sql
    return with_column_renamed(create_sql, 0, statement.ast.keys, name, to)


def definition_without_qualifiers(create_sql: str) -> str:
    """Return a CREATE TABLE or CREATE INDEX with each column by its name alone."""
    from foreshore.sql.parse.parse import parse

    (statement,) = parse(create_sql)
    return without_qualifiers(create_sql, 0, statement.ast)
