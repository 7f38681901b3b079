"""Which tables a publication has, and their columns."""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg
import msgspec

from foreshore.errors import (
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    UndefinedColumn,
    UndefinedObject,
)
from foreshore.sources.outputs import Column, Output
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.ingest.postgres.layout import Details

_COLUMNS = """
SELECT t.schemaname, t.tablename, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attnum = ANY (k.indkey) AND k.indisprimary,
    a.atttypid::pg_catalog.int8, a.atttypmod, c.oid::pg_catalog.int8, c.relreplident = 'f',
    b.typnamespace = 'pg_catalog'::pg_catalog.regnamespace
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attgenerated = ''
JOIN pg_catalog.pg_type b ON b.oid = a.atttypid
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
WHERE t.pubname = $1
ORDER BY 1, 2, a.attnum
"""
_FILTERED = """
SELECT tablename FROM pg_catalog.pg_publication_tables
WHERE pubname = $1 AND rowfilter IS NOT NULL LIMIT 1
"""
WITH_FILTERS = 150_000  # the version since which publications may have conditions


class _Found(NamedTuple):
    """A column of a table."""

    schema: str
    table: str
    name: str
    type: str
    is_given: bool
    is_key: bool | None
    type_oid: int
    type_modifier: int
    table_oid: int
    has_old_rows: bool
    is_built_in: bool


async def check_log(connection: asyncpg.Connection) -> None:
    """Raise ObjectNotInPrerequisiteState unless the server's log has what replication needs."""
    level = await connection.fetchval("SELECT pg_catalog.current_setting('wal_level')")
    if level != "logical":
        raise ObjectNotInPrerequisiteState(
            f'the PostgreSQL server has wal_level "{level}" instead of "logical"',
            hint="Run ALTER SYSTEM SET wal_level = 'logical' upstream and restart that server.",
        )


async def outputs_of(connection: asyncpg.Connection, spec: PostgresSource) -> dict[str, Output]:
    """Return the tables of the source's publication by their references.

    Raises UndefinedObject if there is no such publication, UndefinedColumn if a column of TEXT
    COLUMNS or EXCLUDE COLUMNS is none of it, FeatureNotSupported if it has conditions.
    """
    known = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = $1"
    if await connection.fetchval(known, spec.publication) is None:
        raise UndefinedObject(
            f'publication "{spec.publication}" does not exist',
            hint="Create it upstream: CREATE PUBLICATION name FOR ALL TABLES.",
        )
    version = await connection.fetchval("SELECT pg_catalog.current_setting('server_version_num')")
    if int(version) >= WITH_FILTERS:
        table = await connection.fetchval(_FILTERED, spec.publication)
        if table is not None:
            raise FeatureNotSupported(
                f'publication "{spec.publication}" has a condition for table "{table}"',
                hint="Publish all rows, and write the condition in a view here.",
            )
    tables: dict[str, list[_Found]] = {}
    for row in await connection.fetch(_COLUMNS, spec.publication):
        found = _Found(*row)
        tables.setdefault(f"{found.schema}.{found.table}", []).append(found)
    known_columns = {f"{each}.{row.name}" for each, rows in tables.items() for row in rows}
    for named in (*spec.text_columns, *spec.exclude_columns):
        if named not in known_columns:
            raise UndefinedColumn(
                f'column "{named}" does not exist in the publication "{spec.publication}"',
                hint="Columns are named as schema.table.column.",
            )
    return {reference: _output(reference, rows, spec) for reference, rows in tables.items()}


def _output(reference: str, rows: Sequence[_Found], spec: PostgresSource) -> Output:
    """Return a table without the excluded columns; without one of its key, it has none."""
    read = [row for row in rows if f"{reference}.{row.name}" not in spec.exclude_columns]
    as_text = {row.name for row in read if f"{reference}.{row.name}" in spec.text_columns}
    columns = tuple(
        Column(row.name, "text" if row.name in as_text else row.type, not row.is_given)
        for row in read
    )
    key = [row for row in rows if row.is_key]
    details = Details(
        rows[0].table_oid,
        tuple(
            (row.name, 0, 0) if row.name in as_text else (row.name, row.type_oid, row.type_modifier)
            for row in read
        ),
    )
    obstacle, hint = _obstacle(reference, rows, [r for r in read if r.name not in as_text])
    return Output(
        columns,
        tuple(row.name for row in key) if all(k in read for k in key) else (),
        msgspec.json.encode(details).decode(),
        obstacle,
        hint,
    )


def _obstacle(reference: str, rows: Sequence[_Found], typed: Sequence[_Found]) -> tuple[str, str]:
    """Return why a table cannot be followed, and what helps; empty if it can."""
    if not rows[0].has_old_rows:
        return (
            f'table "{reference}" does not replicate the old rows of updates and deletes',
            f"Run ALTER TABLE {reference} REPLICA IDENTITY FULL upstream.",
        )
    for each in typed:
        if not each.is_built_in:
            return (
                f'column "{each.name}" of table "{reference}" has the type {each.type},'
                " which is not built in",
                f"Read it as text by TEXT COLUMNS ({reference}.{each.name}), or leave it out by"
                f" EXCLUDE COLUMNS ({reference}.{each.name}).",
            )
    return "", ""
