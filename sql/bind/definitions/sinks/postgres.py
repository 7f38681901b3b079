"""Bind POSTGRES CONNECTION as the target of a sink."""

from collections.abc import Mapping

from foreshore.errors import InvalidParameterValue
from foreshore.sinks.spec import PostgresTarget
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.definitions.sources.options import Parse, parsed_options, text
from foreshore.sql.bind.planning import Planning

_OPTIONS: Mapping[str, tuple[str, Parse]] = {"table": ("table", text)}


def bind_postgres_target(planning: Planning, target: ast.PostgresTargetSyntax) -> PostgresTarget:
    """Return the table of a PostgreSQL server that a sink writes."""
    connection = bind_connection(planning, target.connection, "postgres")
    options = parsed_options("POSTGRES CONNECTION", target.options, _OPTIONS)
    if "table" not in options:
        raise InvalidParameterValue(
            'POSTGRES CONNECTION needs the option "table"', position=target.at + 1
        )
    return PostgresTarget(connection, **options)
