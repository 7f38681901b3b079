"""Which tables a publication has, and their columns."""

from collections.abc import Sequence

import asyncpg

from foreshore.errors import UndefinedObject
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

    Raises UndefinedObject if there is no such publication.
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
    return {reference: _output(rows) for reference, rows in tables.items()}


def _output(rows: Sequence[Sequence[object]]) -> Output:
    columns = tuple(Column(str(name), str(type), not given) for _, _, name, type, given, _ in rows)
    return Output(columns, tuple(str(row[2]) for row in rows if row[5]))
