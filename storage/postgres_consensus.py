"""Consensus in PostgreSQL, shared by the machines that can connect to it.

Two tables in a schema of their own: `head` has the seqno of each key's last version, `version` has
the versions. A compare-and-set is one statement that updates the head's row and inserts the
version. Two concurrent updates of a row wait on its lock, and the second one checks the row again:
read committed is enough.

A statement that the server answered with an ERROR had no effect. A compare-and-set without an
answer, because the connection was lost or timed out, may have taken effect or may still do so.
"""

# The Protocol documents the methods.
# ruff: noqa: D102

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import asyncpg

from foreshore.errors import InvalidParameterValue, UndefinedFile
from foreshore.storage.consensus import Committed, Mismatch, Versioned
from foreshore.storage.fault import Determinate, Indeterminate

SCHEMA = "foreshore"
CONNECTIONS = 4
STATEMENT_SECONDS = 10.0
CONNECT_SECONDS = 10.0
ATTEMPTS = 5  # to connect, and to repeat a read after a lost connection
PAUSE_SECONDS = 0.05

# Errors of a statement. The last one occurs if the session ends in the middle of its answer.
FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, asyncpg.InternalClientError)

# An advisory lock that serializes concurrent creation of the tables.
_CREATION_LOCK = 0x666F7265

R = TypeVar("R")


def split_schema(url: str) -> tuple[str, str]:
    """Return libpq's part of the URL of a consensus service, and the schema that it names."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", SCHEMA)
    if not schema or "\0" in schema:
        raise InvalidParameterValue(f'invalid schema name "{schema}" for consensus')
    query = urlencode([(name, value) for name, value in options if name != "schema"])
    return urlunsplit(parts._replace(query=query)), schema


class _SharedPool:
    """The connections to one URL, which all clients of an event loop share while they are open."""

    _ALL: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, "_SharedPool"]]] = (
        WeakKeyDictionary()
    )

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._users = 0

    @classmethod
    def of(cls, url: str) -> "_SharedPool":
        """Return the pool of a URL with one more user, who gives it back."""
        pools = cls._ALL.setdefault(asyncio.get_running_loop(), {})
        shared = pools.setdefault(url, cls(url))
        shared._users += 1
        return shared

    def give_back(self) -> None:
        """Close the connections if nobody else uses them."""
        self._users -= 1
        if self._users:
            return
        pools = self._ALL.get(asyncio.get_running_loop(), {})
        if pools.get(self._url) is self:
            del pools[self._url]
        if self._pool is not None:
            self._pool.terminate()

    async def opened(self) -> Any:
        """Return the pool; its connections are made when they are needed."""
        async with self._opening:
            if self._pool is None:
                pool = asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=CONNECTIONS,
                    timeout=CONNECT_SECONDS,
                    target_session_attrs="read-write",
                    server_settings={
                        "application_name": "foreshore",
                        "default_transaction_isolation": "read committed",
                        "synchronous_commit": "on",
                    },
                )
                await pool
                self._pool = pool
            return self._pool


class PostgresConsensus:
    """Versions in the tables of one schema, which are created if missing."""

    def __init__(self, url: str) -> None:
        """Connect at the first call. `url` is a libpq URL; `schema=NAME` selects the schema."""
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(options).get("schema", SCHEMA)
        if not schema or "\0" in schema:
            raise InvalidParameterValue(f'invalid schema name "{schema}" for consensus')
        query = urlencode([(name, value) for name, value in options if name != "schema"])
        self._url = urlunsplit(parts._replace(query=query))
        self._schema = '"' + schema.replace('"', '""') + '"'
        self._shared: _SharedPool | None = None
        self._opening = asyncio.Lock()

    async def head(self, key: str) -> Versioned | None:
        rows = await self._read(
            f"SELECT seqno, data FROM {self._schema}.version WHERE key = $1"
            " ORDER BY seqno DESC LIMIT 1",
            key,
        )
        return Versioned(*rows[0]) if rows else None

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        schema = self._schema
        if expected is None:
            move = f"INSERT INTO {schema}.head VALUES ($1, 1) ON CONFLICT DO NOTHING"
            given: tuple[object, ...] = (key, new)
        else:
            move = f"UPDATE {schema}.head SET seqno = seqno + 1 WHERE key = $1 AND seqno = $3"
            given = (key, new, expected)
        statement = (
            f"WITH moved AS ({move} RETURNING seqno)"
            f" INSERT INTO {schema}.version SELECT $1, seqno, $2 FROM moved RETURNING seqno"
        )

        async def change(connection: Any) -> Any:
            return await connection.fetchval(statement, *given, timeout=STATEMENT_SECONDS)

        try:
            seqno = await self._on_connection(change)
        except FAILURES as error:
            raise _fault(error) from error
        return Committed(seqno) if seqno is not None else Mismatch(await self.head(key))

    async def scan(self, key: str, start: int) -> list[Versioned]:
        rows = await self._read(
            f"SELECT seqno, data FROM {self._schema}.version WHERE key = $1 AND seqno >= $2"
            " ORDER BY seqno",
            key,
            start,
        )
        return [Versioned(*row) for row in rows]

    async def truncate(self, key: str, start: int) -> None:
        schema = self._schema
        await self._read(
            f"DELETE FROM {schema}.version WHERE key = $1 AND seqno < $2"
            f" AND seqno < (SELECT seqno FROM {schema}.head WHERE key = $1)",
            key,
            start,
        )

    async def heads(self, prefix: str) -> dict[str, Versioned]:
        schema = self._schema
        rows = await self._read(
            f"SELECT key, seqno, data FROM {schema}.head JOIN {schema}.version USING (key, seqno)"
            ' WHERE starts_with(key, $1) ORDER BY key COLLATE "C"',
            prefix,
        )
        return {key: Versioned(*row) for key, *row in rows}

    async def close(self) -> None:
        async with self._opening:
            shared, self._shared = self._shared, None
        if shared is not None:
            shared.give_back()

    async def _read(self, sql: str, *parameters: str | int) -> list[Any]:
        """Run a statement that may be repeated, over a new connection if one is lost."""

        async def read(connection: Any) -> Any:
            return await connection.fetch(sql, *parameters, timeout=STATEMENT_SECONDS)

        attempt = 1
        while True:
            try:
                return list(await self._on_connection(read))
            except FAILURES as error:
                if _surely_failed(error) or attempt == ATTEMPTS:
                    raise Determinate(f"consensus failed: {error_text(error)}") from error
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
            attempt += 1

    async def _on_connection(self, work: Callable[[Any], Awaitable[R]]) -> R:
        """Await `work` on a connection; raise Determinate if there is no connection."""
        attempt = 1
        while True:
            try:
                pool = await self._opened()
                connection = await pool.acquire(timeout=CONNECT_SECONDS)
                break
            except FAILURES as error:
                if _surely_failed(error) or attempt == ATTEMPTS:
                    raise Determinate(
                        f"could not connect to consensus: {error_text(error)}"
                    ) from error
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
            attempt += 1
        try:
            return await work(connection)
        except (TimeoutError, asyncio.CancelledError, asyncpg.InternalClientError):
            connection.terminate()  # its work must not mix with later statements
            raise
        finally:
            # The connection is lost anyway, so an error here is no answer.
            with contextlib.suppress(*FAILURES):
                await pool.release(connection)

    async def _opened(self) -> Any:
        """Return the pool of connections, in whose database the tables exist."""
        async with self._opening:
            if self._shared is None:
                shared = _SharedPool.of(self._url)
                try:
                    pool = await shared.opened()
                    async with pool.acquire(timeout=CONNECT_SECONDS) as connection:
                        await self._create(connection)
                except BaseException:
                    shared.give_back()
                    raise
                self._shared = shared
            return await self._shared.opened()

    async def _create(self, connection: Any) -> None:
        """Create missing tables; the right to create is not needed if they exist."""
        schema = self._schema
        if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.version") is not None:
            return
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
            await connection.execute(
                f"CREATE SCHEMA IF NOT EXISTS {schema};"
                f" CREATE TABLE IF NOT EXISTS {schema}.head"
                " (key text PRIMARY KEY, seqno bigint NOT NULL);"
                f" CREATE TABLE IF NOT EXISTS {schema}.version (key text NOT NULL,"
                " seqno bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (key, seqno))"
            )


async def read_heads(url: str) -> dict[str, Versioned]:
    """Return the last version of each key as of one moment; makes nothing that is missing.

    Raises UndefinedFile if there is no consensus, Determinate if it cannot be read.
    """
    libpq, schema = split_schema(url)
    quoted = '"' + schema.replace('"', '""') + '"'
    try:
        connection = await asyncpg.connect(libpq, timeout=CONNECT_SECONDS)
        try:
            rows = await connection.fetch(
                f"SELECT key, seqno, data FROM {quoted}.head JOIN {quoted}.version"
                " USING (key, seqno)",
                timeout=STATEMENT_SECONDS,
            )
        finally:
            await connection.close(timeout=CONNECT_SECONDS)
    except asyncpg.UndefinedTableError:
        raise UndefinedFile(f"there is no consensus in schema {quoted}") from None
    except (*FAILURES, TimeoutError) as error:
        raise Determinate(f"consensus cannot be read: {error_text(error)}") from error
    return {key: Versioned(*row) for key, *row in rows}


def _surely_failed(error: Any) -> bool:
    """Whether the server itself reported the failure, and the session continues."""
    return getattr(error, "severity_en", None) == "ERROR"


def _fault(error: Any) -> Determinate | Indeterminate:
    kind = Determinate if _surely_failed(error) else Indeterminate
    return kind(f"consensus failed: {error_text(error)}")


def error_text(error: BaseException) -> str:
    """Return what an error says, its type if it says nothing."""
    return str(error) or type(error).__name__
