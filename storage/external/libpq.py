"""Connections for replication. All of this blocks.

psycopg, as it gives access to libpq: the stream of a slot goes both ways at once (CopyBoth), which
asyncpg has not.
"""

import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from foreshore.storage.external.access import APPLICATION, Access
from foreshore.storage.external.postgres_failures import refusal, unreachable
from foreshore.storage.external.tunnels import HOST, Port, port_to

CONNECT_SECONDS = 10  # for each address of the host
MOST_ADDRESSES = 2  # of a host that are tried
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
_FILES = {
    "ssl certificate authority": "sslrootcert",
    "ssl certificate": "sslcert",
    "ssl key": "sslkey",
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
    through = None
    if access.tunnel is not None:
        through = port_to(access.tunnel, *place_of(access.options))
    try:
        with _info(access, through, **more) as info:
            return psycopg.connect(info, autocommit=True)
    except (psycopg.Error, OSError) as error:
        failed = None if through is None else through.failure
        raise unreachable(access, str(error), failed) from error


def place_of(options: Mapping[str, str]) -> tuple[str, int]:
    """Return the host and the port of a server."""
    return options["host"], int(options.get("port", "5432"))


@contextmanager
def _info(access: Access, through: Port | None, **more: str) -> Iterator[str]:
    """Yield what libpq needs to connect; certificates are in files meanwhile."""
    options = access.options
    if through is None:
        port = options.get("port", "5432")
        addresses = _addresses(options["host"], int(port))
    else:  # the host's name is still that which its certificate must have
        port, addresses = str(through.number), [HOST]
    if addresses:
        more["hostaddr"] = ",".join(addresses)
    with tempfile.TemporaryDirectory() as folder:
        for option, name in _FILES.items():
            if option in options:
                path = Path(folder, name)
                path.touch(mode=0o600)
                path.write_text(options[option])
                more[name] = str(path)
        yield make_conninfo(
            host=",".join([options["host"]] * max(1, len(addresses))),
            port=port,
            dbname=options["database"],
            user=options["user"],
            password=options.get("password"),
            sslmode=options.get("ssl mode", "prefer"),
            connect_timeout=CONNECT_SECONDS,
            keepalives_idle=SILENT_SECONDS // 2,
            keepalives_interval=SILENT_SECONDS // 6,
            keepalives_count=3,
            tcp_user_timeout=SILENT_SECONDS * 1000,
            application_name=options.get(APPLICATION, "foreshore"),
            client_encoding="UTF8",
            options=" ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
            **more,
        )


def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host; none of a socket's directory. Raises OSError."""
    if host.startswith(("/", "@")):
        return []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))[:MOST_ADDRESSES]
