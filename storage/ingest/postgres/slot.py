"""The replication slot of a source. All of this blocks.

The server confirms no more of a slot than is durable here. A slot that has more confirmed than our
position is therefore not the one that the position is of, or somebody else has read it.
"""

import time
from typing import NamedTuple

import psycopg
from psycopg import pq

from foreshore.errors import ObjectInUse
from foreshore.storage.external.libpq import ReplicationSession
from foreshore.storage.ingest.connector import Position

LSN = "lsn"  # the part of the position that says up to where the log was read
SYSTEM = "system"  # that which identifies the server
TIMELINE = "timeline"  # the server's history, which a standby leaves when it is promoted
PUBLICATION = "publication"  # what it publishes; see `shapes.stamp_of`

RELEASE_SECONDS = 10.0
_READER = """
SELECT s.active_pid, a.application_name = current_setting('application_name')
FROM pg_replication_slots s
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND s.active_pid IS NOT NULL
"""


class NewSlot(NamedTuple):
    """A slot that was just created: where it begins, and the snapshot at that place."""

    lsn: int
    snapshot: str


def lsn_of(text: str) -> int:
    """Return a place in the log, in bytes."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return a place in the log as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def system_of(session: ReplicationSession) -> tuple[int, int, int]:
    """Return what identifies the server, its timeline, and up to where its log is."""
    system, timeline, end, *_ = session.command("IDENTIFY_SYSTEM", pq.ExecStatus.TUPLES_OK)
    return int(system) & (2**63 - 1), int(timeline), lsn_of(end)


def create_slot(session: ReplicationSession, name: str, *, temporary: bool = False) -> NewSlot:
    """Create a slot; its snapshot lasts until the next command of the session.

    A temporary one goes with the session.
    """
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    command = f'CREATE_REPLICATION_SLOT "{name}" {kind} pgoutput EXPORT_SNAPSHOT'
    _, start, snapshot, *_ = session.command(command, pq.ExecStatus.TUPLES_OK)
    return NewSlot(lsn_of(start), snapshot)


def can_go_on(
    connection: psycopg.Connection[tuple[object, ...]], name: str, position: Position
) -> bool:
    """Return whether the slot still has all that follows the position."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots"
        " WHERE slot_name = %s AND database = current_database()",
        (name,),
    ).fetchone()
    if row is None or row[0] is None or row[1] == "lost":
        return False
    return lsn_of(str(row[0])) <= position[LSN]


def release(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """End a process of this database that still reads a slot, as it was killed.

    Raises ObjectInUse if another client reads it, such as a database that was restored from a
    backup of ours, or of which we are one.
    """
    ends = time.monotonic() + RELEASE_SECONDS
    while (reader := connection.execute(_READER, (name,)).fetchone()) is not None:
        pid, is_ours = reader
        if not is_ours or time.monotonic() > ends:
            raise ObjectInUse(
                f'the replication slot "{name}" is in use by another client, process {pid}',
                hint="A slot can be read by one client only: end the other one. If this is a"
                " restored backup of a database that runs, drop the source here.",
            )
        connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        time.sleep(0.05)


def drop_slot(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """Drop a slot if it exists."""
    release(connection, name)
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    )
