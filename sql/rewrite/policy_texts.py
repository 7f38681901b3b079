"""The kept statement of a policy: its expressions, and these with other names.

CREATE POLICY own ON db.public.orders USING (seller = current_user) WITH CHECK (...)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from foreshore.policy import PolicyTexts
from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.lexer import END, PUNCTUATION, tokenize
from foreshore.sql.parse.parse import parse, parse_expression
from foreshore.sql.rewrite.column_names import column_refs
from foreshore.sql.rewrite.text_edits import Edit, apply_edits

_WITH_PARENTHESES = (
    ast.Operation,
    ast.Connective,
    ast.Not,
    ast.Is,
    ast.IsDistinct,
    ast.Like,
    ast.Between,
    ast.InList,
    ast.InQuery,
    ast.Quantified,
)


@lru_cache(maxsize=1024)
def policy_texts(create_sql: str) -> PolicyTexts:
    """Return the expressions in the kept statement of a policy."""
    (syntax,) = parse(create_sql)
    tree = syntax.ast
    assert isinstance(tree, ast.CreatePolicyStatement), create_sql
    *_, schema, table = ("", *tree.table.name)
    using, check = tree.using, tree.check
    return PolicyTexts(
        table,
        schema or None,
        None if using is None else using.text,
        None if check is None else check.text,
    )


def policy_statement(name: str, table: Sequence[str], using: str | None, check: str | None) -> str:
    """Return the statement that is kept."""
    sql = f"CREATE POLICY {quote_identifier(name)} ON {'.'.join(map(quote_identifier, table))}"
    sql += "" if using is None else f" USING ({using})"
    return sql if check is None else f"{sql} WITH CHECK ({check})"


def shown(text: str) -> str:
    """Return an expression as PostgreSQL shows it: operators are in parentheses, once."""
    if not isinstance(parse_expression(text), _WITH_PARENTHESES) or _is_in_parentheses(text):
        return text
    return f"({text})"


def _is_in_parentheses(text: str) -> bool:
    """Return whether the first token of a text is a parenthesis that the last one closes."""
    depth, tokens = 0, [token for token in tokenize(text)[0] if token.kind != END]
    for place, token in enumerate(tokens):
        if token.kind == PUNCTUATION:
            depth += {"(": 1, ")": -1}.get(token.value, 0)
        if depth == 0:
            return place == len(tokens) - 1
    return False


def with_other_names(
    texts: PolicyTexts, table: str, columns: Mapping[str, str]
) -> Iterator[tuple[str | None, str | None]]:
    """Yield ways to rewrite the expressions for another name of the table and of columns.

    A name may also be that of another relation's column, or of an alias, so whether one is right
    shows only when it is bound: the least likely ones come last.
    """
    own = (texts.table, table)
    choices: tuple[Callable[[ast.ColumnRef], bool], ...] = (
        lambda ref: True,
        lambda ref: len(ref.parts) == 1 or ref.parts[-2] in own,
        lambda ref: len(ref.parts) > 1 and ref.parts[-2] in own,
        lambda ref: len(ref.parts) == 1,
        lambda ref: False,
    )
    for is_meant in choices:
        yield (
            _rewritten(texts.using, is_meant, own, columns),
            _rewritten(texts.check, is_meant, own, columns),
        )


def _rewritten(
    text: str | None,
    is_meant: Callable[[ast.ColumnRef], bool],
    table: tuple[str, str],
    columns: Mapping[str, str],
) -> str | None:
    if text is None:
        return None
    edits: list[Edit] = []
    for ref in filter(is_meant, column_refs(parse_expression(text))):
        parts = list(ref.parts)
        parts[-1] = columns.get(parts[-1], parts[-1])
        if len(parts) > 1 and parts[-2] == table[0]:
            parts[-2] = table[1]
        if tuple(parts) != tuple(ref.parts):
            edits.append((ref.at, _end(text, ref), ".".join(map(quote_identifier, parts))))
    return apply_edits(text, edits)


def _end(text: str, ref: ast.ColumnRef) -> int:
    """Return where a reference ends in a text."""
    tokens, _ = tokenize(text)
    place = next(i for i, token in enumerate(tokens) if token.start == ref.at)
    return tokens[place + 2 * (len(ref.parts) - 1)].end
