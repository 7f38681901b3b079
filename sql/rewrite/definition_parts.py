"""Parts of the text of a definition, as it is kept in the catalog."""

from functools import lru_cache

from foreshore.sql import ast
from foreshore.sql.parse.parse import parse


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
    if not isinstance(statement.ast, ast.CreateViewStatement | ast.CreateSubscriptionStatement):
        return ""
    return create_sql[statement.ast.at : statement.ast.end].strip()


@lru_cache(maxsize=1024)
def expectations_of(create_sql: str) -> tuple[tuple[str, str, str], ...]:
    """Return the name, condition and action of each expectation of a view."""
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
