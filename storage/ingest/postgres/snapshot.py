"""The rows of tables at one place in the log. All of this blocks.

Rows come as CSV with all values in quotes, so that a NULL is what has none, and are parsed in bulk.
"""

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from foreshore.errors import ConnectionFailure
from foreshore.storage.external.access import Access
from foreshore.storage.external.libpq import open_session
from foreshore.storage.external.postgres_failures import failure
from foreshore.storage.ingest.postgres.layout import TableLayout, Types, split_reference
from foreshore.storage.ingest.postgres.shapes import checked, shapes
from foreshore.update import DIFF_FIELD

PIECE_BYTES = 4 << 20  # that are parsed together
PATIENCE = "2s"  # for who locks a table, while our catalog is locked
_NULL = "\\N"
_COLUMNS = """
SELECT c.relkind::text, a.attname, a.atttypid::int8, a.atttypmod
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = %s
"""
_MOVED = """
SELECT to_regclass(%s)::oid IS DISTINCT FROM c.oid
    OR c.relkind <> 'p' AND pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode
FROM pg_class c WHERE c.oid = %s
"""
_ESTIMATE = """
SELECT c.reltuples::int8 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""


class RowsMoved(ConnectionFailure):
    """A snapshot does not see the rows of a table: a later one does."""


class Snapshot:
    """A transaction that sees the rows at the place where a slot begins."""

    def __init__(
        self, access: Access, publication: str, name: str | None, stopping: threading.Event
    ) -> None:
        """Begin with an exported snapshot, or at the present if `name` is None.

        At the present it waits for locks of others for PATIENCE only. Raises DatabaseError.
        """
        self._connection = open_session(access)
        self._publication = publication
        self.published: dict[str, int] = {}  # what has tables in the publication, by parts
        self._stopping = stopping
        try:
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if name is None:
                self._connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'".encode())
            else:
                self._connection.execute(
                    sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name))
                )
        except psycopg.Error as error:
            self._connection.close()
            raise failure(error) from error

    def close(self) -> None:
        """End the transaction."""
        self._connection.close()

    def estimate(self, table: TableLayout) -> int | None:
        """Return about how many rows a table has; None if that is not known."""
        try:
            found = self._connection.execute(_ESTIMATE, split_reference(table.table)).fetchone()
        except psycopg.Error as error:
            raise failure(error) from error
        return None if found is None or int(str(found[0])) < 0 else int(str(found[0]))

    def rows(self, table: TableLayout) -> Iterator[pa.Table]:
        """Yield all rows of a table, with `__diff`; raises Misfit or DatabaseError."""
        try:
            for texts in self._texts(table):
                diffs = pa.repeat(pa.scalar(1, pa.int64()), texts.num_rows)
                yield table.typed([each.combine_chunks() for each in texts.columns], diffs)
        except psycopg.Error as error:
            raise failure(error) from error

    def _texts(self, table: TableLayout) -> Iterator[pa.Table]:
        pieces: list[bytes] = []
        size = 0
        with (
            closing(self._connection.cursor()) as cursor,
            cursor.copy(self._copy(table)) as copy,
        ):
            for row in copy:
                pieces.append(bytes(row))
                size += len(row)
                if size >= PIECE_BYTES:
                    if self._stopping.is_set():
                        raise ConnectionFailure("the source was stopped")
                    yield _parsed(b"".join(pieces), len(table.names))
                    pieces, size = [], 0
        if pieces:
            yield _parsed(b"".join(pieces), len(table.names))

    def _copy(self, table: TableLayout) -> sql.Composed:
        schema, name = split_reference(table.table)
        oid = table.details.oid
        found_shapes = shapes(self._connection, self._publication, [oid])
        self.published[table.published_part] = checked(table, found_shapes).published
        self._lock(table)
        found = self._connection.execute(_COLUMNS, (oid,)).fetchall()
        present: Types = {str(each[1]): (int(str(each[2])), int(str(each[3]))) for each in found}
        table.check(present)
        return sql.SQL(
            "COPY (SELECT {columns} FROM {only}{table}) TO STDOUT"
            " WITH (FORMAT csv, FORCE_QUOTE *, NULL {null})"
        ).format(
            columns=sql.SQL(", ").join(map(sql.Identifier, table.names)),
            only=sql.SQL("" if found[0][0] == "p" else "ONLY "),
            table=sql.Identifier(schema, name),
            null=sql.Literal(_NULL),
        )

    def _lock(self, table: TableLayout) -> None:
        """Let nobody write a table's rows elsewhere; raises RowsMoved if somebody has.

        A table that ALTER TABLE has written anew looks empty to snapshots from before.
        """
        name = sql.Identifier(*split_reference(table.table))
        # LOCK TABLE would want the right to read all columns.
        self._connection.execute(sql.SQL("SELECT FROM ONLY {} LIMIT 0").format(name))
        moved = (name.as_string(self._connection), table.details.oid)
        if self._connection.execute(_MOVED, moved).fetchone() != (False,):
            raise RowsMoved(f'table "{table.table}" was altered while it was read')


def present_rows(
    access: Access, publication: str, table: TableLayout, most: int
) -> pa.Table | None:
    """Return all rows of a table as they are now, with `__diff`; None if they are more than `most`.

    Raises Misfit or DatabaseError.
    """
    with closing(Snapshot(access, publication, None, threading.Event())) as snapshot:
        parts = [table.desc.stored_schema().append(DIFF_FIELD).empty_table()]
        for part in snapshot.rows(table):
            parts.append(part)
            if sum(each.num_rows for each in parts) > most:
                return None
    return pa.concat_tables(parts)


def _parsed(data: bytes, width: int) -> pa.Table:
    """Return whole rows as columns of texts."""
    names = [str(i) for i in range(width)]
    return pyarrow.csv.read_csv(
        pa.py_buffer(data),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=len(data) + 1
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[_NULL],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
