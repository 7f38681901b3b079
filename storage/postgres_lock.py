"""The server lock of a database with consensus in PostgreSQL, for servers on several machines.

It is an advisory lock held by a separate connection. PostgreSQL frees it when the connection ends,
so immediately when the process ends, even by SIGKILL. If a machine vanishes without closing the
connection, PostgreSQL frees the lock after `VANISHED_SECONDS`, because the connection requests such
probes.

A lock that is lost with its connection is acquired again. If another server starts in between, it
gets the lock, and the fence (epoch.py) stops the writes of this one.
"""

import asyncio
import contextlib
import logging
import os
import socket
from typing import Any

import asyncpg

from foreshore.storage.fault import Determinate
from foreshore.storage.postgres_consensus import (
    ATTEMPTS,
    CONNECT_SECONDS,
    FAILURES,
    PAUSE_SECONDS,
    STATEMENT_SECONDS,
    error_text,
    split_schema,
)

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
CHECK_SECONDS = 2.0
WAIT_SECONDS = 5.0  # of one statement that waits for the lock
VANISHED_SECONDS = 12.0  # idle + interval * count, and a second for the network
_PROBES = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "11000",
}
_KEY = "hashtextextended('foreshore server lock of ' || $1, 0)"
_HOLDER = f"""
SELECT application_name, host(client_addr) AS address, backend_start
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (classid::int8 << 32 | objid::int8) = {_KEY}
"""


class PostgresLock:
    """The lock of one server on the database in a schema of PostgreSQL."""

    def __init__(self, url: str) -> None:
        """Connect at the first call; `url` is that of consensus."""
        self._url, self._schema = split_schema(url)
        self._connection: Any = None
        self._held = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def acquire(self, stop: asyncio.Event, *, patient: bool) -> str | None:
        """Acquire the lock and return None, or return a description of the server that holds it.

        If `patient`, wait until a vanished machine can no longer hold it, or until `stop` is set.
        Raises Determinate if PostgreSQL cannot be reached.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (VANISHED_SECONDS if patient else 0.0)
        connection = await self._connect_with_patience()
        try:
            while not await connection.fetchval(
                f"SELECT pg_try_advisory_lock({_KEY})", self._schema
            ):
                if stop.is_set() or loop.time() >= deadline:
                    return await self._holder(connection)
                await asyncio.sleep(POLL_SECONDS)
        except FAILURES as error:
            raise Determinate(f"consensus failed: {error_text(error)}") from error
        self._held.set()
        self._keep()
        return None

    async def wait(self) -> None:
        """Return when the lock is acquired; acquisition continues if this is cancelled."""
        self._keep()
        await self._held.wait()

    async def close(self) -> None:
        """Free the lock."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*FAILURES):
                await connection.close(timeout=CHECK_SECONDS)

    def _keep(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Acquire the lock if it is not held, and again after it is lost."""
        while True:
            try:
                if self._connection is None:
                    await self._connect()
                if not self._held.is_set():
                    await self._connection.execute(f"SELECT pg_advisory_lock({_KEY})", self._schema)
                    self._held.set()
                await asyncio.sleep(CHECK_SECONDS)
                await self._connection.fetchval("SELECT 1")
            except asyncpg.LockNotAvailableError:
                continue  # after WAIT_SECONDS, in which the connection was alive
            except FAILURES as error:
                logger.warning("the server lock in consensus was lost", exc_info=error)
                self._held.clear()
                self._terminate()
                await asyncio.sleep(POLL_SECONDS)

    async def _connect_with_patience(self) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._connect()
            except FAILURES as error:
                if attempt == ATTEMPTS:
                    text = f"could not connect to consensus: {error_text(error)}"
                    raise Determinate(text) from error
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError

    async def _connect(self) -> Any:
        self._connection = connection = await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            command_timeout=STATEMENT_SECONDS,
            target_session_attrs="read-write",
            server_settings={
                "application_name": f"foreshore {os.getpid()}@{socket.gethostname()}"[:63],
                "lock_timeout": f"{1000 * WAIT_SECONDS:.0f}",
            },
        )
        for name, value in _PROBES.items():
            try:
                await connection.execute("SELECT set_config($1, $2, false)", name, value)
            except asyncpg.PostgresError as error:  # not every system and version has each setting
                logger.info("a setting was refused", extra={"setting": name}, exc_info=error)
        return connection

    def _terminate(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _holder(self, connection: Any) -> str:
        row = await connection.fetchrow(_HOLDER, self._schema)
        if row is None:  # it has ended, or is not visible
            return "an unknown process"
        name = (row["application_name"] or "an unknown process").removeprefix("foreshore ")
        pid, at, host = name.partition("@")
        who = f"process {pid} on host {host}" if at else name
        address = f" ({row['address']})" if row["address"] else ""
        return f"{who}{address} since {row['backend_start'].isoformat(' ', 'seconds')}"
