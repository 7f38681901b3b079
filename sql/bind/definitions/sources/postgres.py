"""Bind POSTGRES CONNECTION."""

from collections.abc import Mapping, Sequence

from foreshore.errors import InvalidParameterValue
from foreshore.sources.postgres import PostgresSource, TableOptions
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.definitions.sources.options import (
    Parse,
    is_apply,
    names,
    parsed_options,
    text,
)
from foreshore.sql.bind.planning import Planning

_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "publication": ("publication", text),
    "text columns": ("text_columns", names),
    "exclude columns": ("exclude_columns", names),
    "exclude constraints": ("exclude_constraints", names),
    "schema changes": ("applies_changes", is_apply),
}


_OF_TABLE = {
    name: _OPTIONS[name] for name in ("text columns", "exclude columns", "exclude constraints")
}


def bind_table_options(options: Sequence[ast.SourceOption]) -> TableOptions | None:
    """Return the options of one table; None if there are none."""
    if not options:
        return None
    found = parsed_options("CREATE TABLE ... FROM SOURCE", options, _OF_TABLE)
    return TableOptions(**found)


def bind_postgres(planning: Planning, reads: ast.PostgresSyntax) -> PostgresSource:
    """Return which tables of a PostgreSQL server are read."""
    connection = bind_connection(planning, reads.connection, "postgres")
    options = parsed_options("POSTGRES CONNECTION", reads.options, _OPTIONS)
    if "publication" not in options:
        raise InvalidParameterValue(
            'POSTGRES CONNECTION needs the option "publication"',
            hint="Create one upstream: CREATE PUBLICATION name FOR ALL TABLES.",
            position=reads.at + 1,
        )
    return PostgresSource(connection, **options)
