"""Errors of the client: the server's errors as the vocabulary of all layers has them."""

import contextlib
from collections.abc import Iterator

import asyncpg

from foreshore.errors import DatabaseError, Unavailable


class NotReceived(Unavailable):
    """The connection was lost; whether a statement under way has taken effect is not known."""

    sqlstate = "08006"


# The connection has broken, or the server ends it, or takes none as it ends or begins.
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the wire as DatabaseError, with SQLSTATE, detail and hint of the server."""
    try:
        yield
    except LOST as error:
        raise NotReceived(f"the connection to the server was lost: {error}") from error
    except asyncpg.PostgresError as error:
        raise from_server(error) from None
    except (asyncpg.InterfaceError, ConnectionError, OSError) as error:
        raise NotReceived(f"the connection to the server was lost: {error}") from error


def from_server(error: asyncpg.PostgresError) -> DatabaseError:
    """Return an error of the server."""
    position = error.position
    found = DatabaseError(
        error.args[0] if error.args else str(error),
        sqlstate=error.sqlstate,
        detail=error.detail,
        hint=error.hint,
        position=None if position is None else int(position),
        where=error.context,
    )
    add_notes(found)
    return found


def add_notes(error: DatabaseError) -> None:
    """Let a traceback show detail and hint."""
    for label, text in (("DETAIL", error.detail), ("HINT", error.hint)):
        if text:
            error.add_note(f"{label}:  {text}")
