"""Edit names of a table's columns in its CHECK constraints and index keys.

Both are expressions over the row of one table, without subqueries. So a reference whose last part
is a column's name denotes that column, and renaming the column edits those words of the text.
"""

from collections.abc import Iterable, Iterator, Sequence

from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.lexer import Token, tokenize
from foreshore.sql.rewrite.text_edits import Edit, apply_edits
from foreshore.types import SqlType, written_type


def column_refs(tree: object) -> Iterator[ast.ColumnRef]:
    """Yield the column references in a syntax tree or a tuple of trees."""
    return (each for each in ast.nodes_of(tree) if isinstance(each, ast.ColumnRef))


def with_column_renamed(text: str, text_at: int, tree: object, name: str, to: str) -> str:
    """Return `text` with the column `name` renamed to `to`.

    `tree` was parsed from it, with offsets in a text where it begins at `text_at`.
    """
    refs = [ref for ref in column_refs(tree) if ref.parts[-1] == name]
    words = [token for _, token in _words(text, text_at, refs)]
    assert all(token.value == name for token in words), (text, words, name)
    return apply_edits(text, [(token.start, token.end, quote_identifier(to)) for token in words])


def without_qualifiers(text: str, text_at: int, tree: object, others: Iterable[Edit] = ()) -> str:
    """Return `text` with each column name unqualified; `tree` was parsed from it.

    `others` are further edits. The text then stays valid when the table is renamed. After a dot any
    word is a name, but alone it may need quotes: `t.user` is the column `"user"`.
    """
    refs = {ref.at - text_at: ref for ref in column_refs(tree) if len(ref.parts) > 1}
    edits = [*others]
    for first, last in _words(text, text_at, list(refs.values())):
        assert last.value == refs[first.start].parts[-1], (text, first, last)
        edits.append((first.start, last.end, quote_identifier(last.value)))
    return apply_edits(text, edits)


def _words(text: str, text_at: int, refs: Sequence[ast.ColumnRef]) -> Iterator[tuple[Token, Token]]:
    """Yield the first and last word of each of `refs`, in text order."""
    if not refs:
        return
    lengths = {ref.at - text_at: 2 * (len(ref.parts) - 1) for ref in refs}
    tokens, _ = tokenize(text)
    for place, first in enumerate(tokens):
        if first.start in lengths:
            yield first, tokens[place + lengths[first.start]]


def index_with_column_renamed(create_sql: str, name: str, to: str) -> str:
    """Return a CREATE INDEX with the column `name` of its table renamed to `to`."""
    from foreshore.sql.parse.parse import parse

    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, ast.CreateIndexStatement), create_sql
    return with_column_renamed(create_sql, 0, statement.ast.keys, name, to)


def definition_without_qualifiers(create_sql: str) -> str:
    """Return a CREATE TABLE or CREATE INDEX with unqualified column names."""
    from foreshore.sql.parse.parse import parse

    (statement,) = parse(create_sql)
    return without_qualifiers(create_sql, 0, statement.ast)


def columns_as_known(
    names: Sequence[str], known: Sequence[tuple[str, str | None, SqlType | None]]
) -> str:
    """Return a select list that yields the known columns of a table with columns `names`.

    `known` has the name of each, its present name, and its type if it was dropped. Returns an empty
    text if the table has the same columns.
    """
    shown = []
    for then, now, type in known:
        name = quote_identifier(then)
        if type is not None:
            shown.append(f"NULL::{written_type(type)} AS {name}")
        else:
            shown.append(name if now == then else f"{quote_identifier(now or '')} AS {name}")
    return "" if shown == [*map(quote_identifier, names)] else ", ".join(shown)
