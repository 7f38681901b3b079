"""Bind statements about the tables of a source that exists."""

from foreshore.errors import FeatureNotSupported
from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.definitions.sources.asked import asked_tables
from foreshore.sql.bind.definitions.sources.kafka import bind_messages
from foreshore.sql.bind.definitions.sources.postgres import bind_table_options
from foreshore.sql.bind.definitions.watermark import source_watermark
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.plan import (
    AddSourceTables,
    CreateSourceTable,
    DropSourceTables,
    RefreshSourceTables,
)


def bind_create_source_table(
    planning: Planning, statement: ast.CreateSourceTableStatement
) -> CreateSourceTable:
    """Return the plan of CREATE TABLE ... FROM SOURCE."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
        if name.temporary:
            raise FeatureNotSupported("tables of sources cannot be temporary")
    source = name_of(planning, "source", statement.source)
    messages = bind_messages(planning, statement.messages, statement.declared)
    return CreateSourceTable(
        name,
        statement.columns,
        source,
        statement.reference,
        messages,
        statement.if_not_exists,
        source_watermark(statement.watermark),
        bind_table_options(statement.options),
    )


def bind_add_source_tables(
    planning: Planning, statement: ast.AddSourceTablesStatement
) -> AddSourceTables:
    """Return the plan of ALTER SOURCE ... ADD TABLE."""
    source = name_of(planning, "source", statement.source)
    return AddSourceTables(source, asked_tables(planning, statement.tables), statement.if_exists)


def bind_drop_source_tables(
    planning: Planning, statement: ast.DropSourceTablesStatement
) -> DropSourceTables:
    """Return the plan of ALTER SOURCE ... DROP TABLE."""
    return DropSourceTables(
        name_of(planning, "source", statement.source),
        tuple(name_of(planning, "source", each) for each in statement.names),
        statement.tables_may_lack,
        statement.cascade,
        statement.if_exists,
    )


def bind_refresh_source_tables(
    planning: Planning, statement: ast.RefreshSourceTablesStatement
) -> RefreshSourceTables:
    """Return the plan of ALTER SOURCE ... REFRESH TABLE."""
    return RefreshSourceTables(
        name_of(planning, "source", statement.source),
        tuple(name_of(planning, "source", each) for each in statement.names),
        statement.if_exists,
    )
