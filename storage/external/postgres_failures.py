"""What clients of ours are told of a server that refuses or is away, and what helps.

While a connection is made libpq passes on only a text, so the reason is told by its words, which
are the same in all versions. Later errors have an SQLSTATE.
"""

from collections.abc import Mapping
from typing import NamedTuple

import psycopg
from psycopg import pq

from foreshore.errors import ConnectionFailure, DatabaseError
from foreshore.storage.external.access import Access
from foreshore.storage.external.postgres_identity import not_asked
from foreshore.storage.external.reasons import reasons


class _Reason(NamedTuple):
    """Why no connection was made: words of the text, an SQLSTATE, and what helps."""

    words: tuple[str, ...]
    sqlstate: str
    hint: str


_TLS = "Check SSL MODE, SSL CERTIFICATE AUTHORITY, SSL CERTIFICATE and SSL KEY of the connection."
_REASONS = (  # the first of which a word is there
    _Reason(
        ("unsupported startup parameter", "bouncer"),
        "0A000",
        "A pooler such as PgBouncer is in between: let HOST and PORT of the connection lead to the"
        " PostgreSQL server itself.",
    ),
    _Reason(("certificate authentication failed", "client certificate"), "28000", _TLS),
    _Reason(
        ("authentication failed", "no password supplied"),
        "28P01",
        "Check USER and PASSWORD of the connection, and the value of its secret.",
    ),
    _Reason(
        ("pg_hba.conf",),
        "28000",
        "Let this client in by a line of pg_hba.conf upstream, and reload that server; or change"
        " SSL MODE of the connection.",
    ),
    _Reason(
        ("max_wal_senders",),
        "53300",
        "Raise max_wal_senders upstream: a source needs one, and one more while it begins.",
    ),
    _Reason(
        ("too many clients", "connection slots", "too many connections"),
        "53300",
        "Raise max_connections upstream, or close connections there.",
    ),
    _Reason(
        ("walsender", "wal sender"),
        "42501",
        "Run ALTER ROLE {user} REPLICATION upstream.",
    ),
    _Reason(('role "',), "28000", "Check USER of the connection."),
    _Reason(('database "',), "3D000", "Check DATABASE of the connection."),
    _Reason(("certificate", "ssl", "tls"), "08001", _TLS),
    _Reason(
        ("starting up", "shutting down", "recovery mode"),
        "57P03",
        "Sources and sinks try the server again until it takes connections.",
    ),
)
_NOT_ASKED = (  # of libpq, about a server that lets in whoever comes
    "authentication method requirement",
    "did not request an ssl certificate",
    "accepted connection without a valid ssl certificate",
)
_ELSEWHERE = _Reason(
    (),
    ConnectionFailure.sqlstate,
    "Check HOST and PORT of the connection, and that the server runs and can be reached from here.",
)
LOST = "the connection was lost"
_SLOTS = "Raise max_replication_slots upstream, or drop slots there that nobody uses."
_HINTS: Mapping[str, str] = {
    "42501": "Grant the connection's USER upstream what it lacks: USAGE of the schema and SELECT"
    " on the table, or ALTER ROLE ... REPLICATION.",
    "53400": _SLOTS,
    "55000": "Replication needs wal_level = logical upstream.",
    "55006": "A slot can be read by one client only: end the other one.",
}


def unreachable(
    access: Access, why: str, through: ConnectionFailure | None = None
) -> DatabaseError:
    """Return the error for a connection that could not be made, by libpq's text.

    `through` is the failure of the SSH tunnel, if that is the reason.
    """
    where = f"{access.options['host']}:{access.options.get('port', '5432')}"
    begin = f"could not connect to the PostgreSQL server at {where}"
    if through is not None:
        return ConnectionFailure(f"{begin}: {through.message}", hint=through.hint)
    lower = why.lower()
    if not access.by_superuser and any(each in lower for each in _NOT_ASKED):
        return not_asked()
    reason = next((r for r in _REASONS if any(each in lower for each in r.words)), _ELSEWHERE)
    message = f"{begin}: {reasons(why)}"
    hint = reason.hint.replace("{user}", access.options["user"])
    return DatabaseError(message, sqlstate=reason.sqlstate, hint=hint)


def failure(error: psycopg.Error) -> DatabaseError:
    """Return what a client of ours is told of an error of the server or of the connection."""
    message = error.diag.message_primary or reasons(str(error)) or LOST
    if error.sqlstate is None:
        return ConnectionFailure(
            f"the PostgreSQL server is not reachable: {message}", hint=_ELSEWHERE.hint
        )
    return DatabaseError(
        message,
        sqlstate=error.sqlstate,
        detail=error.diag.message_detail,
        hint=error.diag.message_hint or _HINTS.get(error.sqlstate),
    )


def refusal(result: pq.abc.PGresult) -> DatabaseError:
    """Return the error of a result."""
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    hint = result.error_field(pq.DiagnosticField.MESSAGE_HINT)
    sqlstate = code.decode() if code else ConnectionFailure.sqlstate
    return DatabaseError(
        message.decode() if message else reasons(result.get_error_message()) or LOST,
        sqlstate=sqlstate,
        hint=hint.decode() if hint else _HINTS.get(sqlstate),
    )
