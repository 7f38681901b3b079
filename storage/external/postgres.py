"""Connections to PostgreSQL servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from foreshore.errors import ConnectionFailure
from foreshore.storage.external.access import Access

CONNECT_SECONDS = 10.0


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection to the server; raises ConnectionFailure."""
    connection = await connect(access)
    try:
        yield connection
    finally:
        connection.terminate()


async def connect(access: Access) -> asyncpg.Connection:
    """Return a connection to the server; raises ConnectionFailure."""
    options = access.options
    try:
        return await asyncpg.connect(
            host=options["host"],
            port=int(options.get("port", "5432")),
            database=options["database"],
            user=options["user"],
            password=options.get("password"),
            ssl=options.get("ssl mode", "prefer"),
            timeout=CONNECT_SECONDS,
            server_settings={"application_name": "foreshore", "search_path": ""},
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        where = f"{options['host']}:{options.get('port', '5432')}"
        raise ConnectionFailure(
            f"could not connect to the PostgreSQL server at {where}: {error or 'it timed out'}"
        ) from error


async def validate(access: Access) -> None:
    """Reach the server; raises ConnectionFailure."""
    async with connected(access):
        return
