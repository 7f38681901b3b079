"""Writes the changes of an interval to a table of a PostgreSQL server, with the frontier.

    foreshore.frontiers (sink, epoch, frontier, target)

An exporter that resumes raises the epoch, and each write asks for its own: so one that was thought
dead can write nothing. `target` is the oid of the table: one that was made anew lacks what was
written to the former one.
"""

import io
from collections.abc import AsyncIterator

import psycopg
import pyarrow as pa
import pyarrow.csv

from foreshore import blocking
from foreshore.errors import ConnectionFailure, DatabaseError, ObjectInUse
from foreshore.output_style import OutputStyle
from foreshore.sinks.errors import TargetLost
from foreshore.sinks.spec import FRONTIERS, PostgresTarget
from foreshore.storage.export.messages import Export
from foreshore.storage.external.access import Access
from foreshore.storage.external.libpq import AsyncSession, connect, ended_soon
from foreshore.storage.external.postgres_failures import LOST
from foreshore.storage.external.reasons import reasons
from foreshore.text_columns import text_column
from foreshore.update import DIFF, TIME, Timestamp

TIME_COLUMN, DIFF_COLUMN = "mz_timestamp", "mz_diff"  # of ENVELOPE APPEND
_LAST = "__last"
_STYLE = OutputStyle()
# An exporter whose connection was lost unnoticed must not hold up the next one for ever.
_LIMITS = "SET lock_timeout = '20s'; SET idle_in_transaction_session_timeout = '60s'"
_IS_TOLD = f"""
SELECT FROM pg_catalog.pg_attribute
WHERE attrelid = pg_catalog.to_regclass('{FRONTIERS}') AND attname = 'target' AND NOT attisdropped
"""
_TELL = f"ALTER TABLE {FRONTIERS} ADD COLUMN IF NOT EXISTS target oid"  # older versions lack it
_RESUME = f"""
INSERT INTO {FRONTIERS} AS f (sink, epoch) VALUES ($1, 1)
ON CONFLICT (sink) DO UPDATE SET epoch = f.epoch + 1
RETURNING epoch, frontier
"""
_ADVANCE = f"""
UPDATE {FRONTIERS} SET frontier = $4, target = pg_catalog.to_regclass($5)
WHERE sink = $1 AND epoch = $2 AND (frontier IS NULL OR frontier = $3)
"""
_COPY = "COPY foreshore_changes FROM STDIN (FORMAT csv)"
_COPIED_BYTES = 1 << 18  # that are sent at once
_MADE_ANEW = f"""
SELECT frontier FROM {FRONTIERS} WHERE sink = $1 AND target <> pg_catalog.to_regclass($2)
"""


class PostgresExporter:
    """Writes to one table; the state of one connection."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._table = target_of(export)
        self._connection: AsyncSession | None = None
        self._epoch = 0

    async def resume(self) -> Timestamp | None:
        """Connect, raise the epoch, and return the frontier."""
        connection = self._connection = await connect(access_of(self._export))
        try:
            await connection.execute(_LIMITS)
            if not (await connection.execute(_IS_TOLD)).rowcount:
                await connection.execute(_TELL)
            await self._check_table(connection)
            row = await (await connection.execute(_RESUME, (self._export.name,))).fetchone()
        except psycopg.Error as error:
            raise as_ours(error) from error
        assert row is not None, "RETURNING has a row"
        found: Timestamp | None
        self._epoch, found = row
        return found

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write an interval and its end in one transaction."""
        await ended_soon(self._write(parts, lower, upper))

    async def _write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        connection = self._connection
        assert connection is not None, "resume comes first"
        try:
            async with connection.transaction():
                await self._check_table(connection)
                arguments = (self._export.name, self._epoch, lower, upper, self._table)
                if (await connection.execute(_ADVANCE, arguments)).rowcount != 1:
                    raise ObjectInUse("another exporter writes for this sink")
                await self._write_rows(connection, parts)
        except psycopg.Error as error:
            raise as_ours(error) from error

    async def close(self) -> None:
        """Close the connection; what was not committed is rolled back."""
        if self._connection is not None:
            await self._connection.close()

    async def _check_table(self, connection: AsyncSession) -> None:
        """Raise TargetLost if the table is not the one that was written until the frontier."""
        found = await connection.execute(_MADE_ANEW, (self._export.name, self._table))
        row = await found.fetchone()
        if row is not None and row[0] is not None:
            raise TargetLost(
                f"the table {self._table} was made anew, so the changes before {row[0]} are not"
                " in it",
                hint="Drop the sink, empty the table, and create the sink anew. If the table has"
                f" them all the same, set target to NULL for the sink in {FRONTIERS} there.",
            )

    async def _write_rows(self, connection: AsyncSession, parts: AsyncIterator[pa.Table]) -> None:
        columns = ", ".join(map(quoted, own_columns(self._export)))
        await connection.execute(
            f"CREATE TEMP TABLE foreshore_changes ON COMMIT DROP AS "
            f"SELECT {columns}, 0::bigint AS {TIME}, 0::bigint AS {DIFF} FROM {self._table} LIMIT 0"
        )
        async with connection.cursor() as cursor:
            async for part in parts:
                lines = await blocking.run(None, self._lines, part)
                async with cursor.copy(_COPY) as copy:
                    while data := lines.read(_COPIED_BYTES):
                        await copy.write(data)
        await connection.execute(self._apply(columns))

    def _apply(self, columns: str) -> str:
        """Return the statements that apply the changes."""
        spec = self._export.spec
        if spec.envelope == "append":
            return f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM foreshore_changes"
        keys = ", ".join(map(quoted, spec.key))
        matches = " AND ".join(f"t.{quoted(k)} = c.{quoted(k)}" for k in spec.key)
        delete = f"DELETE FROM {self._table} t USING foreshore_changes c WHERE"
        return (
            f"{delete} {matches};{self._delete_nulls(delete)}"
            f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM ("
            f"SELECT *, rank() OVER (PARTITION BY {keys} ORDER BY {TIME} DESC) AS {_LAST} "
            f"FROM foreshore_changes) c WHERE {_LAST} = 1 AND {DIFF} > 0"
        )

    def _delete_nulls(self, delete: str) -> str:
        """Return what deletes the rows whose keys have NULLs: these are equal, but not by `=`."""
        desc, key = self._export.desc, self._export.spec.key
        columns = zip(desc.names, desc.columns, strict=True)
        nullable = [name for name, column in columns if name in key and column.nullable]
        if not nullable:
            return ""
        same = " AND ".join(f"t.{quoted(k)} IS NOT DISTINCT FROM c.{quoted(k)}" for k in key)
        some = " OR ".join(f"c.{quoted(name)} IS NULL" for name in nullable)
        return f"{delete} ({some}) AND {same};"

    def _lines(self, part: pa.Table) -> io.BytesIO:
        """Return rows as lines of CSV, with time and multiplicity last."""
        desc = self._export.desc
        texts = [
            text_column(part.column(place).combine_chunks(), column.type, _STYLE)
            for place, column in enumerate(desc.columns)
        ]
        if self._export.spec.envelope == "append":
            texts += [part.column(TIME), part.column(DIFF)]
        texts += [part.column(TIME), part.column(DIFF)]
        names = [str(place) for place in range(len(texts))]
        out = io.BytesIO()
        form = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")
        pyarrow.csv.write_csv(pa.table(texts, names=names), out, form)
        out.seek(0)
        return out


def own_columns(export: Export) -> tuple[str, ...]:
    """Return the columns that a sink writes."""
    if export.spec.envelope == "append":
        return (*export.desc.names, TIME_COLUMN, DIFF_COLUMN)
    return export.desc.names


def target_of(export: Export) -> str:
    """Return the table, quoted."""
    assert isinstance(export.spec.target, PostgresTarget), export
    schema, _, table = export.spec.target.table.rpartition(".")
    return f"{quoted(schema or 'public')}.{quoted(table)}"


def access_of(export: Export) -> Access:
    """Return how to reach the server."""
    assert isinstance(export.spec.target, PostgresTarget), export
    return export.accesses[export.spec.target.connection]


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


_HINTS = {
    "42501": "Grant the connection's USER there what it lacks: SELECT, INSERT, UPDATE and DELETE on"
    " the table, USAGE of its schema, and the same on foreshore.frontiers and its schema. The first"
    " sink needs CREATE on the database, to make them. Only its owner can add the column"
    " target, an oid, to a table foreshore.frontiers of an older version.",
}


def as_ours(error: psycopg.Error) -> DatabaseError:
    """Return an error of the server or of the connection as one of ours."""
    if error.sqlstate is None:
        return ConnectionFailure(f"the target was lost: {reasons(str(error)) or LOST}")
    said = error.diag.message_primary or type(error).__name__  # without DETAIL, which has rows
    hint = error.diag.message_hint or _HINTS.get(error.sqlstate)
    return DatabaseError(f"the target says: {said}", sqlstate=error.sqlstate, hint=hint)
