"""Consensus: small values that change by compare-and-set, in a total order for each key.

Each key has versions with increasing numbers, `seqno`; the last one is its head. A new version is
accepted only from a caller that knows the head, so of two concurrent writers one gets a mismatch.
All guarantees of storage about what exists depend on this.
"""

# The Protocol documents the methods.
# ruff: noqa: D102

import asyncio
import sqlite3
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foreshore import blocking
from foreshore.errors import DataCorrupted
from foreshore.storage.fault import Determinate, DiskFull, Indeterminate


@dataclass(frozen=True, slots=True)
class Versioned:
    """A version of a key's value."""

    seqno: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Committed:
    """The compare-and-set succeeded; `seqno` is the new head's."""

    seqno: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The compare-and-set failed because the head was not the expected one."""

    head: Versioned | None


class Consensus(Protocol):
    """A register for each key. Every call is linearizable.

    Calls raise `Determinate` if they had no effect. A compare-and-set raises `Indeterminate` if it
    may have had one.
    """

    async def head(self, key: str) -> Versioned | None:
        """Return the last version, None if the key was never set."""
        ...

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        """Set the head to `new` if the head is version `expected` (None: if there is none)."""
        ...

    async def scan(self, key: str, start: int) -> list[Versioned]:
        """Return the versions from seqno `start` on, oldest first."""
        ...

    async def truncate(self, key: str, start: int) -> None:
        """Remove the versions before seqno `start`, but never the head."""
        ...

    async def heads(self, prefix: str) -> dict[str, Versioned]:
        """Return the heads of the keys that start with `prefix`, ordered by key."""
        ...

    async def close(self) -> None:
        """Close connections and files."""
        ...


class MemoryConsensus:
    """Versions in memory."""

    def __init__(self) -> None:
        self._versions: dict[str, list[Versioned]] = {}

    async def head(self, key: str) -> Versioned | None:
        await asyncio.sleep(0)
        return self._head(key)

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        await asyncio.sleep(0)
        head = self._head(key)
        if (head.seqno if head else None) != expected:
            return Mismatch(head)
        seqno = (expected or 0) + 1
        self._versions.setdefault(key, []).append(Versioned(seqno, new))
        return Committed(seqno)

    async def scan(self, key: str, start: int) -> list[Versioned]:
        await asyncio.sleep(0)
        return [v for v in self._versions.get(key, []) if v.seqno >= start]

    async def truncate(self, key: str, start: int) -> None:
        await asyncio.sleep(0)
        versions = self._versions.get(key, [])
        versions[:-1] = [v for v in versions[:-1] if v.seqno >= start]

    async def heads(self, prefix: str) -> dict[str, Versioned]:
        await asyncio.sleep(0)
        return {k: self._versions[k][-1] for k in sorted(self._versions) if k.startswith(prefix)}

    async def close(self) -> None:
        pass

    def _head(self, key: str) -> Versioned | None:
        versions = self._versions.get(key)
        return versions[-1] if versions else None


# SQLite's codes for a full disk; the second concerns the index shared by processes.
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
LAST = "SELECT seqno, data, checksum FROM version WHERE key = ? ORDER BY seqno DESC LIMIT 1"


def checksum_of(key: str, seqno: int, data: bytes) -> int:
    """Return the CRC-32 stored beside a version: SQLite's pages have no checksums."""
    return zlib.crc32(data, zlib.crc32(f"{key} {seqno} ".encode()))


def checked(key: str, seqno: int, data: object, checksum: int | None = None) -> Versioned:
    """Return the version; raise DataCorrupted if it is not as it was written.

    In a corrupt page `data` may be any SQLite value. Very old versions have no checksum.
    """
    if not isinstance(data, bytes):
        raise DataCorrupted(f'consensus has version {seqno} of "{key}" that is not bytes')
    if checksum is not None and checksum != checksum_of(key, seqno, data):
        raise DataCorrupted(f'consensus has version {seqno} of "{key}" with a wrong checksum')
    return Versioned(seqno, data)


def verify(connection: sqlite3.Connection, name: str) -> None:
    """Raise DataCorrupted unless the database and every version in it are intact."""
    for (message,) in connection.execute("PRAGMA integrity_check").fetchall():
        if message != "ok":
            raise DataCorrupted(f'"{name}" is damaged: {message}')
    for row in connection.execute("SELECT key, seqno, data, checksum FROM version").fetchall():
        checked(*row)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A compare-and-set that is asked for."""

    key: str
    expected: int | None
    new: bytes
    done: "asyncio.Future[Committed | Mismatch]"


class SqliteConsensus:
    """Versions in an SQLite database, shared by the processes of one machine.

    The connection has a thread of its own. A commit is durable on return, and is then in the
    database file itself. The journal mode is rollback, which can lose only a commit that was never
    acknowledged. With a write-ahead journal, SQLite would silently ignore everything after the
    first corrupt frame, and consensus would go back to an earlier state.

    Changes that are asked for while others are made become durable together, in one transaction: a
    start claims the states of all shards.

    Raises DataCorrupted if the database is corrupt.
    """

    def __init__(self, path: Path) -> None:
        self._executor = ThreadPoolExecutor(1, "consensus")
        self._asked: list[_Asked] = []
        self._changing: asyncio.Task[None] | None = None
        try:
            self._connection = self._executor.submit(self._open, path).result()
        except sqlite3.OperationalError as error:
            raise _fault(error, f'could not open consensus "{path}"') from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise DataCorrupted(f'"{path.name}" is damaged: {error}') from error

    @classmethod
    def _open(cls, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=10, isolation_level=None)
        try:
            cls._prepare(connection)
            verify(connection, path.name)
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _prepare(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS version (key TEXT NOT NULL, seqno INTEGER NOT NULL,"
            " data BLOB NOT NULL, checksum INTEGER, PRIMARY KEY (key, seqno)) WITHOUT ROWID"
        )
        columns = connection.execute("PRAGMA table_info(version)").fetchall()
        # Databases created before checksums were introduced lack the column.
        if all(name != "checksum" for _, name, *_ in columns):
            connection.execute("ALTER TABLE version ADD COLUMN checksum INTEGER")

    async def head(self, key: str) -> Versioned | None:
        rows = await self._query(LAST, key)
        return checked(key, *rows[0]) if rows else None

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        asked = _Asked(key, expected, new, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._changing is None:
            self._changing = asyncio.get_running_loop().create_task(self._change())
        return await asked.done

    async def _change(self) -> None:
        """Make the changes that are asked for, until there are none."""
        asked: list[_Asked] = []
        try:
            while self._asked:
                asked, self._asked = self._asked, []
                outcomes = await blocking.run(self._executor, self._compare_and_set, asked)
                for each, outcome in zip(asked, outcomes, strict=True):
                    if each.done.done():
                        continue  # its caller was cancelled
                    if isinstance(outcome, Exception):
                        each.done.set_exception(outcome)
                    else:
                        each.done.set_result(outcome)
        except BaseException as error:  # say, it is closed: nobody is left waiting
            left, self._asked = [*asked, *self._asked], []
            for each in left:
                if not each.done.done():
                    each.done.set_exception(Indeterminate(f"consensus failed: {error}"))
            if not isinstance(error, Exception):
                raise
        finally:
            self._changing = None

    async def scan(self, key: str, start: int) -> list[Versioned]:
        rows = await self._query(
            "SELECT seqno, data, checksum FROM version WHERE key = ? AND seqno >= ? ORDER BY seqno",
            key,
            start,
        )
        return [checked(key, *row) for row in rows]

    async def truncate(self, key: str, start: int) -> None:
        await self._query(
            "DELETE FROM version WHERE key = ?1 AND seqno < ?2"
            " AND seqno < (SELECT max(seqno) FROM version WHERE key = ?1)",
            key,
            start,
        )

    async def heads(self, prefix: str) -> dict[str, Versioned]:
        rows = await self._query(
            "SELECT key, max(seqno), data, checksum FROM version"
            " WHERE substr(key, 1, length(?1)) = ?1 GROUP BY key ORDER BY key",
            prefix,
        )
        return {key: checked(key, *row) for key, *row in rows}

    async def close(self) -> None:
        await blocking.run(self._executor, self._connection.close)
        self._executor.shutdown(wait=False)

    async def _query(self, sql: str, *parameters: str | int) -> list[tuple[Any, ...]]:
        return await blocking.run(self._executor, self._execute, sql, parameters)

    def _execute(self, sql: str, parameters: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        try:
            self._roll_back()
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise _fault(error) from error

    def _compare_and_set(
        self, asked: Sequence["_Asked"]
    ) -> Sequence[Committed | Mismatch | Exception]:
        """Make changes in one transaction; return the outcome of each, or its error."""
        connection = self._connection
        try:
            self._roll_back()
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return [_fault(error) for _ in asked]
        try:
            outcomes = [self._changed(each) for each in asked]
            is_changed = any(isinstance(outcome, Committed) for outcome in outcomes)
            connection.execute("COMMIT" if is_changed else "ROLLBACK")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # the next call closes it, or fails
                self._roll_back()
            if _is_full(error):  # the commit record is written last
                return [_fault(error) for _ in asked]
            return [Indeterminate(f"consensus failed: {error}") for _ in asked]
        return outcomes

    def _changed(self, asked: "_Asked") -> Committed | Mismatch | DataCorrupted:
        """Make a change in the present transaction."""
        row = self._connection.execute(LAST, (asked.key,)).fetchone()
        if (row[0] if row else None) != asked.expected:
            try:
                return Mismatch(checked(asked.key, *row) if row else None)
            except DataCorrupted as error:
                return error
        seqno = (asked.expected or 0) + 1
        self._connection.execute(
            "INSERT INTO version (key, seqno, data, checksum) VALUES (?, ?, ?, ?)",
            (asked.key, seqno, asked.new, checksum_of(asked.key, seqno, asked.new)),
        )
        return Committed(seqno)

    def _roll_back(self) -> None:
        """Roll back a failed transaction, if there is one."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _fault(error: sqlite3.Error, what: str = "consensus failed") -> Determinate:
    """Return the Determinate error for an SQLite error."""
    if _is_full(error):
        return DiskFull("to consensus")
    return Determinate(f"{what}: {error}")


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) in FULL
