"""PostgreSQL servers as a kind of target: what is needed there before a sink writes."""

import psycopg

from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedColumn,
)
from foreshore.sinks.spec import FRONTIERS
from foreshore.storage.export.exporter import Exporter
from foreshore.storage.export.messages import Export
from foreshore.storage.export.postgres.exporter import (
    PostgresExporter,
    access_of,
    as_ours,
    own_columns,
    quoted,
    target_of,
)
from foreshore.storage.external.libpq import writing
from foreshore.types import written_type

_SETUP = f"""
CREATE SCHEMA IF NOT EXISTS foreshore;
CREATE TABLE IF NOT EXISTS {FRONTIERS} (
    sink text PRIMARY KEY,
    epoch bigint NOT NULL,  -- of the exporter that may write
    frontier bigint,  -- the table has all changes before this time, in milliseconds since 1970
    target oid  -- of the table; NULL: not known
);
"""
_COLUMNS = """
SELECT attname FROM pg_catalog.pg_attribute
WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped
"""


class PostgresSinkKind:
    """PostgreSQL servers."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        return PostgresExporter(export)

    async def check(self, export: Export) -> None:
        """Make the table if it is not there; raises if it lacks a column or must not be written."""
        if export.spec.envelope == "debezium":
            raise FeatureNotSupported(
                "ENVELOPE DEBEZIUM is not for tables", hint="Use UPSERT or APPEND."
            )
        table = target_of(export)
        async with writing(access_of(export)) as connection:
            try:
                await connection.execute(_SETUP)
                columns = await connection.execute(_COLUMNS, (table,))
                found = [row[0] for row in await columns.fetchall()]
                if not found:
                    await connection.execute(_create_table(export, table))
                    return
                await connection.execute(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 0")
            except psycopg.Error as error:
                raise as_ours(error) from error
        for name in own_columns(export):
            if name not in found:
                raise UndefinedColumn(
                    f'the table {table} of the target has no column "{name}"',
                    hint=f"It has {', '.join(found)}.",
                )

    async def dispose(self, export: Export) -> None:
        """Remove the sink's frontier, unless all frontiers were; the table stays."""
        async with writing(access_of(export)) as connection:
            try:
                gone = f"DELETE FROM {FRONTIERS} WHERE sink = $1"
                await connection.execute(gone, (export.name,))
            except psycopg.errors.UndefinedTable:
                return
            except psycopg.Error as error:
                raise as_ours(error) from error


def _create_table(export: Export, table: str) -> str:
    """Return CREATE TABLE with the columns of the relation.

    A key with columns that may be NULL cannot be a primary key. The table then gets its whole rows
    as replica identity, as PostgreSQL refuses DELETE in a publication of a table without one.
    """
    desc, parts = export.desc, []
    for name, column in zip(desc.names, desc.columns, strict=True):
        if column.type.defined is not None:
            raise InvalidParameterValue(
                f'the target has no type {column.type} for column "{name}"',
                hint="Create the table there, with text for example.",
            )
        given = "" if column.nullable else " NOT NULL"
        parts.append(f"{quoted(name)} {written_type(column.type)}{given}")
    for name in own_columns(export)[len(desc.names) :]:
        parts.append(f"{quoted(name)} bigint NOT NULL")
    identity = ""
    if export.spec.key:
        nullable = {n for n, c in zip(desc.names, desc.columns, strict=True) if c.nullable}
        constraint = "PRIMARY KEY" if nullable.isdisjoint(export.spec.key) else "UNIQUE"
        if constraint == "UNIQUE":
            identity = f"; ALTER TABLE {table} REPLICA IDENTITY FULL"
        parts.append(f"{constraint} ({', '.join(map(quoted, export.spec.key))})")
    return f"CREATE TABLE {table} ({', '.join(parts)}){identity}"


KIND = PostgresSinkKind()
