"""Connections for replication. All of this blocks.

psycopg, as it gives access to libpq: the stream of a slot goes both ways at once (CopyBoth), which
asyncpg has not.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from foreshore.errors import ConnectionFailure, DatabaseError
from foreshore.storage.external.access import Access
from foreshore.storage.external.postgres import CONNECT_SECONDS

# How values are written, whatever the server's configuration or the role's.
_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
_FILES = {
    "ssl certificate authority": "sslrootcert",
    "ssl certificate": "sslcert",
    "ssl key": "sslkey",
}


def failure(error: psycopg.Error) -> DatabaseError:
    """Return what a client of ours is told of an error of the server or of the connection."""
    message = error.diag.message_primary or str(error).strip() or "the connection was lost"
    if error.sqlstate is None:
        return ConnectionFailure(f"the PostgreSQL server is not reachable: {message}")
    return DatabaseError(
        message,
        sqlstate=error.sqlstate,
        detail=error.diag.message_detail,
        hint=error.diag.message_hint,
    )


def open_session(access: Access) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection for statements, without a transaction; raises ConnectionFailure."""
    with _info(access) as info:
        try:
            return psycopg.connect(info, autocommit=True)
        except psycopg.Error as error:
            raise _unreachable(access, str(error)) from error


def refusal(result: pq.abc.PGresult) -> DatabaseError:
    """Return the error of a result."""
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return DatabaseError(
        message.decode() if message else result.get_error_message() or "the connection was lost",
        sqlstate=code.decode() if code else ConnectionFailure.sqlstate,
    )


class ReplicationSession:
    """A connection that takes replication commands."""

    def __init__(self, access: Access) -> None:
        """Connect; raises ConnectionFailure."""
        with _info(access, replication="database") as info:
            self.pgconn = pq.PGconn.connect(info.encode())
        if self.pgconn.status != pq.ConnStatus.OK:
            message = self.pgconn.get_error_message()
            self.pgconn.finish()
            raise _unreachable(access, message)

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
        self.pgconn.finish()


def _unreachable(access: Access, why: str) -> ConnectionFailure:
    where = f"{access.options['host']}:{access.options.get('port', '5432')}"
    return ConnectionFailure(
        f"could not connect to the PostgreSQL server at {where}: {why.strip()}"
    )


@contextmanager
def _info(access: Access, **more: str) -> Iterator[str]:
    """Yield what libpq needs to connect; certificates are in files meanwhile."""
    options = access.options
    with tempfile.TemporaryDirectory() as folder:
        for option, name in _FILES.items():
            if option in options:
                path = Path(folder, name)
                path.touch(mode=0o600)
                path.write_text(options[option])
                more[name] = str(path)
        yield make_conninfo(
            host=options["host"],
            port=options.get("port", "5432"),
            dbname=options["database"],
            user=options["user"],
            password=options.get("password"),
            sslmode=options.get("ssl mode", "prefer"),
            connect_timeout=int(CONNECT_SECONDS),
            application_name="foreshore",
            client_encoding="UTF8",
            options=" ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
            **more,
        )
