"""The local side of a live copy: a table of DuckDB and its time, which change in one commit.

Changes wait in a temporary table, which DuckDB takes out of memory if it is large, until all that
belongs together is there. All methods block.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from foreshore.embedded.literals import quoted_name
from foreshore.errors import (
    DatabaseError,
    DuplicateTable,
    InvalidParameterValue,
    LockFileExists,
    ObjectNotInPrerequisiteState,
)

META = "foreshore_copy"
TIME, DIFF = "mz_timestamp", "mz_diff"
OWN = (TIME, DIFF)

_OPEN: set[Path] = set()  # files of this process, in which DuckDB would let both write
_OPENING = threading.Lock()


class CopyStore:
    """A table in a file, or in memory, that is changed by one thread at a time."""

    def __init__(self, path: Path | None, table: str, query: str) -> None:
        """Open the file; it is made if it is not there.

        Raises LockFileExists if it is open elsewhere, InvalidParameterValue if it is the copy of
        another query.
        """
        self._path = None if path is None else path.resolve()
        self._table, self._query = quoted_name(table), query
        self._columns: list[str] | None = None  # of the table, quoted; None: there is none
        self._waits_for: pa.Schema | None = None  # what the rows that wait look like
        self.time: int | None = None
        self._database = _opened(self._path)
        try:
            self._load(table)
        except BaseException:
            self.close()
            raise

    def _load(self, table: str) -> None:
        run = self._database.execute
        run("SET TimeZone = 'UTC'")
        run(f"CREATE TABLE IF NOT EXISTS {META} (query VARCHAR, name VARCHAR, time BIGINT)")
        rows = run(f"SELECT query, name, time FROM {META}").fetchall()
        if rows:
            (found,) = rows
            if found[:2] != (self._query, table):
                raise InvalidParameterValue(
                    f'file "{self._path}" is the copy of another query',
                    detail=f'It is table "{found[1]}" of: {found[0]}',
                    hint="Use another file.",
                )
            self.time = found[2]
            self._columns = self._names()
        elif self._names() is not None:
            raise DuplicateTable(
                f'file "{self._path}" has a table {self._table} that is no copy',
                hint="Use another file, or another name: replica(..., table=...).",
            )

    def _names(self) -> list[str] | None:
        try:
            found = self._database.execute(f"DESCRIBE {self._table}").fetchall()
        except duckdb.CatalogException:
            return None
        return [quoted_name(each[0]) for each in found]

    # --- changes ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Forget the changes that wait, as they will come again."""
        self._database.execute("DROP TABLE IF EXISTS copy_waiting")
        self._waits_for = None

    def stage(self, changes: pa.Table) -> None:
        """Keep changes until they are applied: the query's columns, `mz_timestamp`, `mz_diff`."""
        self._database.register("arrived", changes)
        try:
            if self._waits_for is None:
                self._waits_for = changes.schema
                shape = "SELECT * FROM arrived LIMIT 0"
                self._database.execute(f"CREATE TEMP TABLE copy_waiting AS {shape}")
            self._database.execute("INSERT INTO copy_waiting SELECT * FROM arrived")
        finally:
            self._database.unregister("arrived")

    def apply(self, time: int, *, contents: bool) -> int:
        """Make the table right at `time`; return how many rows it has gained or lost.

        The changes until then take part, which are the whole contents if `contents` says so: then
        only what differs is changed. Raises ObjectNotInPrerequisiteState if the table is not as it
        was left.
        """
        run = self._database.execute
        run("BEGIN")
        try:
            changed = self._applied(time, contents=contents)
            run(f"DELETE FROM {META}")
            name = self._table[1:-1].replace('""', '"')
            run(f"INSERT INTO {META} VALUES (?, ?, ?)", [self._query, name, time])
            run("COMMIT")
        except BaseException:
            run("ROLLBACK")
            self._columns = self._names()
            raise
        self.time = time
        return changed

    def _applied(self, time: int, *, contents: bool) -> int:
        run = self._database.execute
        if self._waits_for is None:
            return 0
        names = [quoted_name(each) for each in self._waits_for.names if each not in OWN]
        columns = ", ".join(names)
        if contents and (self._columns is None or not self._fits(columns)):
            shape = f"SELECT {columns} FROM copy_waiting LIMIT 0"
            run(f"CREATE OR REPLACE TABLE {self._table} AS {shape}")
            self._columns = names
        before = f" UNION ALL SELECT {columns}, -1 FROM {self._table}" if contents else ""
        run(
            f"CREATE OR REPLACE TEMP TABLE copy_net AS"
            f" SELECT {columns}, sum({DIFF})::BIGINT AS {DIFF}"
            f" FROM (SELECT {columns}, {DIFF} FROM copy_waiting WHERE {TIME} <= {time}{before})"
            f" GROUP BY {columns} HAVING sum({DIFF}) <> 0"
        )
        run(f"DELETE FROM copy_waiting WHERE {TIME} <= {time}")
        lost, gained = _row(
            run(
                f"SELECT coalesce(sum(-{DIFF}) FILTER ({DIFF} < 0), 0)::BIGINT,"
                f" coalesce(sum({DIFF}) FILTER ({DIFF} > 0), 0)::BIGINT FROM copy_net"
            )
        )
        if lost:
            same = " AND ".join(f"c.{each} IS NOT DISTINCT FROM n.{each}" for each in names)
            ordered = ", ".join(f"c.{each}" for each in names)
            copies = (
                f"SELECT c.rowid AS id, row_number() OVER (PARTITION BY {ordered}) AS number,"
                f" -n.{DIFF} AS copies FROM {self._table} c JOIN copy_net n ON {same}"
                f" WHERE n.{DIFF} < 0"
            )
            gone = f"SELECT id FROM ({copies}) WHERE number <= copies"
            (found,) = _row(run(f"DELETE FROM {self._table} WHERE rowid IN ({gone})"))
            if found != lost:
                raise ObjectNotInPrerequisiteState(
                    f"{lost} rows are to be deleted from {self._table}, which has {found} of them",
                    hint="Another program has changed it. Delete the file, and make the copy anew.",
                )
        if gained:
            run(
                f"INSERT INTO {self._table} SELECT {columns} FROM (SELECT {columns},"
                f" unnest(range({DIFF})) FROM copy_net WHERE {DIFF} > 0)"
            )
        return int(lost + gained)

    def _fits(self, columns: str) -> bool:
        """Return whether the table has the columns of the rows that wait."""
        run = self._database.execute
        waiting = run(f"DESCRIBE SELECT {columns} FROM copy_waiting").fetchall()
        return [each[:2] for each in run(f"DESCRIBE {self._table}").fetchall()] == [
            each[:2] for each in waiting
        ]

    # --- reads -----------------------------------------------------------------------------------

    def read(self, text: str, params: Sequence[Any]) -> tuple[int | None, pa.Table]:
        """Return the rows of a query, and the time at which the copy is as the query saw it."""
        cursor = self._database.cursor()
        try:
            cursor.execute("SET TimeZone = 'UTC'")
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            found = cursor.execute(f"SELECT time FROM {META}").fetchall()
            rows = cursor.sql(text, params=list(params))
            if rows is None:
                raise InvalidParameterValue("only queries read a copy")
            return found[0][0] if found else None, rows.to_arrow_table()
        except duckdb.Error as error:
            raise DatabaseError(str(error)) from error
        finally:
            cursor.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()
        if self._path is not None:
            _OPEN.discard(self._path)


def _opened(path: Path | None) -> duckdb.DuckDBPyConnection:
    if path is None:
        return duckdb.connect()
    with _OPENING:
        if path in _OPEN:
            raise LockFileExists(f'this process has the copy "{path}" open already')
        try:
            found = duckdb.connect(str(path))
        except duckdb.IOException as error:
            if "lock" not in str(error):
                raise DatabaseError(f'could not open file "{path}": {error}') from error
            raise LockFileExists(
                f'another process has the copy "{path}" open',
                detail=str(error),
                hint="A file has one owner. Give each process a file of its own.",
            ) from None
        _OPEN.add(path)
        return found


def _row(result: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    (found,) = result.fetchall()
    return tuple(found)
