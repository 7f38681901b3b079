"""Which tables a publication has, and their columns."""

from collections.abc import Sequence

import asyncpg

from foreshore.errors import UndefinedColumn, UndefinedObject
from foreshore.sources.outputs import Column, Output
from foreshore.sources.postgres import PostgresSource

_COLUMNS = """
SELECT t.schemaname, t.tablename, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
    a.attnotnull, a.attnum = ANY (k.indkey) AND k.indisprimary
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
WHERE t.pubname = $1
ORDER BY 1, 2, a.attnum
"""


async def outputs_of(connection: asyncpg.Connection, spec: PostgresSource) -> dict[str, Output]:
    """Return the tables of the source's publication by their references.

    Raises UndefinedObject if there is no such publication, UndefinedColumn if a column of TEXT
    COLUMNS or EXCLUDE COLUMNS is none of it.
    """
    known = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = $1"
    if await connection.fetchval(known, spec.publication) is None:
        raise UndefinedObject(
            f'publication "{spec.publication}" does not exist',
            hint="Create it upstream: CREATE PUBLICATION name FOR ALL TABLES.",
        )
    tables: dict[str, list[Sequence[object]]] = {}
    for row in await connection.fetch(_COLUMNS, spec.publication):
        tables.setdefault(f"{row[0]}.{row[1]}", []).append(row)
    known_columns = {f"{each}.{row[2]}" for each, rows in tables.items() for row in rows}
    for named in (*spec.text_columns, *spec.exclude_columns):
        if named not in known_columns:
            raise UndefinedColumn(
                f'column "{named}" does not exist in the publication "{spec.publication}"',
                hint="Columns are named as schema.table.column.",
            )
    return {reference: _output(reference, rows, spec) for reference, rows in tables.items()}


def _output(reference: str, rows: Sequence[Sequence[object]], spec: PostgresSource) -> Output:
    """Return a table without the excluded columns; without one of its key, it has none."""
    read = [row for row in rows if f"{reference}.{row[2]}" not in spec.exclude_columns]
    columns = tuple(
        Column(
            str(name),
            "text" if f"{reference}.{name}" in spec.text_columns else str(type),
            not given,
        )
        for _, _, name, type, given, _ in read
    )
    key = [row for row in rows if row[5]]
    return Output(columns, tuple(str(row[2]) for row in key) if all(k in read for k in key) else ())
