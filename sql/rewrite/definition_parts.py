"""Parts of the text of a definition, as it is kept in the catalog."""

from collections.abc import Sequence
from functools import lru_cache

from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.rewrite.full_names import dotted


@lru_cache(maxsize=1024)
def default_texts(create_sql: str) -> tuple[str, ...]:
    """Return the texts of the defaults in a CREATE TABLE, one for each column."""
    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, ast.CreateTableStatement), create_sql
    return tuple(column.default_text.strip() for column in statement.ast.columns)


@lru_cache(maxsize=1024)
def generated_texts(create_sql: str) -> tuple[str, ...]:
    """Return the expressions of generated columns in a CREATE TABLE, one text for each column."""
    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, ast.CreateTableStatement), create_sql
    return tuple(column.generated_text.strip() for column in statement.ast.columns)


@lru_cache(maxsize=1024)
def query_text(create_sql: str) -> str:
    """Return the query of the statement that defines a view or subscription, else empty text."""
    (statement,) = parse(create_sql)
    tree = statement.ast
    if not isinstance(tree, ast.CreateViewStatement | ast.CreateSubscriptionStatement):
        return ""
    query = create_sql[tree.at : tree.end].strip()
    if isinstance(tree, ast.CreateViewStatement) and tree.columns:
        names = ", ".join(map(quote_identifier, tree.columns))
        return f"SELECT * FROM ({query}) AS {quote_identifier(tree.name.name[-1])}({names})"
    return query


def with_columns_named(create_sql: str, names: Sequence[str]) -> str:
    """Return the statement of a view with `names` for its columns."""
    (statement,) = parse(create_sql)
    tree = statement.ast
    assert isinstance(tree, ast.CreateViewStatement), create_sql
    head = "CREATE MATERIALIZED VIEW " if tree.materialized else "CREATE VIEW "
    head += dotted(tree.name.name)
    given = f" ({', '.join(map(quote_identifier, tree.columns))})" if tree.columns else ""
    assert create_sql.startswith(head + given), create_sql
    rest = create_sql[len(head + given) :]
    return f"{head} ({', '.join(map(quote_identifier, names))}){rest}"


@lru_cache(maxsize=1024)
def expectations_of(create_sql: str) -> tuple[tuple[str, str, str], ...]:
    """Return the name, condition and action of each expectation of a view."""
    if "expect" not in create_sql.lower():
        return ()  # at a thousandth of the cost
    (statement,) = parse(create_sql)
    if not isinstance(statement.ast, ast.CreateViewStatement):
        return ()
    return tuple(
        (each.name, create_sql[each.start : each.end], each.action)
        for each in statement.ast.checks.expectations
    )


def is_assertion(create_sql: str) -> bool:
    """Return whether a materialized view is an assertion."""
    return create_sql.endswith(" CONSTRAINT ASSERTION")
