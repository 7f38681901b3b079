"""Bind what CREATE TABLE says beside columns and constraints: ON COMMIT, INDEX."""

from typing import Literal as OneOf

from foreshore.errors import InvalidTableDefinition, WrongObjectType
from foreshore.item_view import ItemView, Name
from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.rewrite.full_names import dotted


def index_on(table: Name, index: str | None, keys: str) -> str:
    """Return the statement that creates an index; `keys` are in parentheses."""
    name = quote_identifier(index) + " " if index else ""
    return f"CREATE INDEX {name}ON {dotted(table.parts)} {keys}"


def bound_on_commit(
    name: Name, on_commit: ast.OnCommit | None
) -> OneOf["delete rows", "drop"] | None:
    """Return ON COMMIT; raises an error if the table is not temporary."""
    if on_commit is not None and not name.temporary:
        raise InvalidTableDefinition("ON COMMIT can only be used on temporary tables")
    return None if on_commit == "preserve rows" else on_commit


def require_table(item: ItemView) -> None:
    """Raise an error unless `item` is a table."""
    if item.kind != "table":
        code = "42501" if item.kind == "builtin" else None
        raise WrongObjectType(f'"{item.name.item}" is not a table', sqlstate=code)
