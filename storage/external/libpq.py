"""Connections to PostgreSQL servers of those who read and write there, by libpq.

Those for replication block: the stream of a slot goes both ways at once (CopyBoth). Those of sinks
do not. `postgres_identity.py` says who we are there.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from foreshore.connection_spec import check_host
from foreshore.errors import DatabaseError
from foreshore.storage.external.access import APPLICATION, Access
from foreshore.storage.external.dial import addresses, addresses_soon
from foreshore.storage.external.postgres_failures import refusal, unreachable
from foreshore.storage.external.postgres_identity import identity
from foreshore.storage.external.tunnels import HOST, Port, opened_port, port_to

T = TypeVar("T")

AsyncSession: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

CONNECT_SECONDS = 10  # for each address of the host
MOST_ADDRESSES = 2  # of a host that are tried
END_SECONDS = 2.0  # for each step in which interrupted work ends
SILENT_SECONDS = 60  # of a host that does not confirm what it was sent, until it is given up

# How values are written, whatever the server's configuration or the role's.
_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "search_path": "pg_catalog",
    "row_security": "off",  # an error, where rows would be hidden from us
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


def open_session(access: Access) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection for statements, without a transaction; raises DatabaseError."""
    return _connected(access)


class ReplicationSession:
    """A connection that takes replication commands."""

    def __init__(self, access: Access) -> None:
        """Connect; raises DatabaseError."""
        self._connection = _connected(access, replication="database")
        self.pgconn = self._connection.pgconn

    def command(self, text: str, expected: pq.ExecStatus) -> tuple[str, ...]:
        """Run a command and return the first row of its result, if any; raises DatabaseError."""
        result = self.pgconn.exec_(text.encode())
        if result.status != expected:
            raise refusal(result)
        if not result.ntuples:
            return ()
        return tuple((result.get_value(0, i) or b"").decode() for i in range(result.nfields))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _connected(access: Access, **more: str) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection. It waits without the interpreter's lock, also for the host's address."""
    host, port = place_of(access.options)
    through, found = None, [HOST]
    try:
        if access.tunnel is not None:
            through = port_to(access.tunnel, host, port)
        else:
            found = addresses(host, port)
        options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        with _info(access, through, found, options=options, **more) as info:
            return psycopg.connect(info, autocommit=True)
    except (psycopg.Error, OSError) as error:
        raise _failed(access, through, error) from error


@asynccontextmanager
async def writing(access: Access) -> AsyncIterator[AsyncSession]:
    """Yield a connection for statements that write; raises DatabaseError."""
    connection = await connect(access)
    try:
        yield connection
    finally:
        await connection.close()


async def ended_soon(work: Coroutine[Any, Any, T]) -> T:
    """Return what work with a connection returns.

    If this is cancelled, the work ends in seconds, even if the server is silent: to leave a COPY or
    a transaction waits for its answer. A wait that is interrupted again closes the connection, and
    so does who cancels this again: it never ends before the work.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=END_SECONDS)
        if not task.cancelled():
            task.exception()  # it counts as seen: the cancellation is what is told
        raise


async def connect(access: Access) -> AsyncSession:
    """Return a connection for statements that write, with parameters $1, $2...

    Raises DatabaseError.
    """
    host, port = place_of(access.options)
    through, found = None, [HOST]
    try:
        if access.tunnel is not None:
            through = await opened_port(access.tunnel, host, port)
        else:
            found = await addresses_soon(host, port)
        with _info(access, through, found, options="-c search_path=") as info:
            return await psycopg.AsyncConnection.connect(
                info,
                autocommit=True,
                prepare_threshold=None,
                cursor_factory=psycopg.AsyncRawCursor,
            )
    except (psycopg.Error, OSError) as error:
        raise _failed(access, through, error) from error


def _failed(access: Access, through: Port | None, error: Exception) -> DatabaseError:
    """Return why no connection was made."""
    return unreachable(access, str(error), None if through is None else through.failure)


def place_of(options: Mapping[str, str]) -> tuple[str, int]:
    """Return the host and the port of a server; raises InvalidParameterValue for a socket."""
    host = options["host"]
    check_host(host)
    return host, int(options.get("port", "5432"))


@contextmanager
def _info(
    access: Access, through: Port | None, addresses: Sequence[str], **more: str
) -> Iterator[str]:
    """Yield what libpq needs to connect; certificates are in files meanwhile."""
    options, tried = access.options, addresses[:MOST_ADDRESSES]
    port = options.get("port", "5432") if through is None else str(through.number)
    with tempfile.TemporaryDirectory() as folder:
        known: dict[str, Any] = identity(access, Path(folder)) | more
        yield make_conninfo(
            **known
            | {
                # The name is that which the server's certificate must have.
                "host": ",".join([options["host"]] * len(tried)),
                "hostaddr": ",".join(tried),
                "port": port,
                "connect_timeout": CONNECT_SECONDS,
                "keepalives_idle": SILENT_SECONDS // 2,
                "keepalives_interval": SILENT_SECONDS // 6,
                "keepalives_count": 3,
                "tcp_user_timeout": SILENT_SECONDS * 1000,
                "application_name": options.get(APPLICATION, "foreshore"),
                "client_encoding": "UTF8",
            }
        )
