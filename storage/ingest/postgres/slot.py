"""The replication slot of a source. All of this blocks.

The server confirms no more of a slot than is durable here. A slot that has more confirmed than our
position is therefore not the one that the position is of, or somebody else has read it.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import pq

from foreshore.errors import ObjectInUse, ObjectNotInPrerequisiteState
from foreshore.storage.external.access import Access
from foreshore.storage.external.libpq import ReplicationSession, open_session
from foreshore.storage.external.postgres_failures import failure
from foreshore.storage.ingest.connector import Position
from foreshore.storage.ingest.messages import SlotState
from foreshore.storage.ingest.postgres.overlap import Overlap

logger = logging.getLogger(__name__)

LSN = "lsn"  # the part of the position that says up to where the log was read
TRANSACTION = "transaction"  # that where the last transaction ends that was taken
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


_STATE = """
SELECT greatest(pg_current_wal_lsn() - confirmed_flush_lsn, 0)::int8,
    greatest(pg_current_wal_lsn() - restart_lsn, 0)::int8, {limits}
FROM pg_replication_slots WHERE slot_name = %s
"""
WITH_LIMITS = 130_000  # the version since which slots may be lost


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


class System(NamedTuple):
    """What identifies a server, its timeline, and up to where its log is."""

    system: int
    timeline: int
    end: int


def system_of(session: ReplicationSession) -> System:
    """Return what a server says of itself."""
    system, timeline, end, *_ = session.command("IDENTIFY_SYSTEM", pq.ExecStatus.TUPLES_OK)
    return System(int(system) & (2**63 - 1), int(timeline), lsn_of(end))


def check_history(server: System, position: Position) -> None:
    """Raise ObjectNotInPrerequisiteState if a server is behind the history that was read.

    So is a former primary: its rows are older than ours.
    """
    read = position.get(TIMELINE, server.timeline)
    if position.get(SYSTEM) == server.system and server.timeline < read:
        raise ObjectNotInPrerequisiteState(
            f"the PostgreSQL server is on timeline {server.timeline}, and timeline {read} was read",
            hint="It is a former primary: let HOST and PORT of the connection lead to the present"
            " one. If an old backup was restored, drop the source and create it anew.",
        )


def create_slot(session: ReplicationSession, name: str, *, temporary: bool = False) -> NewSlot:
    """Create a slot; its snapshot lasts until the next command of the session.

    A temporary one goes with the session.
    """
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    command = f'CREATE_REPLICATION_SLOT "{name}" {kind} pgoutput EXPORT_SNAPSHOT'
    _, start, snapshot, *_ = session.command(command, pq.ExecStatus.TUPLES_OK)
    return NewSlot(lsn_of(start), snapshot)


def slot_break(
    connection: psycopg.Connection[tuple[object, ...]], name: str, position: Position
) -> str | None:
    """Return why the slot has not all that follows the position; None if it has."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, to_jsonb(s) ->> 'wal_status'"  # none in PostgreSQL 12
        " FROM pg_replication_slots s WHERE slot_name = %s AND database = current_database()",
        (name,),
    ).fetchone()
    if row is None or row[0] is None:
        return f'the replication slot "{name}" was dropped'
    if row[1] == "lost":
        return f'the replication slot "{name}" was lost, as max_slot_wal_keep_size was exceeded'
    if lsn_of(str(row[0])) > position[LSN]:
        return f'the replication slot "{name}" was read by somebody else'
    return None


def overlap_of(
    connection: psycopg.Connection[tuple[object, ...]], name: str, position: Position
) -> Overlap | None:
    """Return what comes again before the position; None if the slot has confirmed all of it."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (name,)
    ).fetchone()
    confirmed, commit = lsn_of(str(row[0])) if row else 0, position.get(TRANSACTION, 0)
    is_known = commit > 0 and 0 < confirmed < position[LSN]
    return Overlap(confirmed, position[LSN], commit) if is_known else None


class SlotWatch:
    """Asks a server about a slot, over a session of its own; for one thread at a time."""

    def __init__(self, access: Access, name: str) -> None:
        self._access, self._name = access, name
        self._session: psycopg.Connection[tuple[Any, ...]] | None = None

    def state(self) -> SlotState | None:
        """Return what the slot is; None if it is not there. Raises DatabaseError."""
        try:
            if self._session is None or self._session.closed:
                self._session = open_session(self._access)
            has_limits = self._session.info.server_version >= WITH_LIMITS
            limits = "wal_status, safe_wal_size" if has_limits else "NULL, NULL"
            query = _STATE.format(limits=limits).encode()
            row = self._session.execute(query, (self._name,)).fetchone()
        except psycopg.Error as error:
            self.close()
            raise failure(error) from error
        return None if row is None else SlotState(self._name, *row)

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None


def copy_slot(
    connection: psycopg.Connection[tuple[object, ...]],
    originals: Sequence[str],
    name: str,
    position: Position,
) -> bool:
    """Make a slot as a copy of one of the originals, if that has all that follows the position.

    An original may be in use. Return whether the new slot can go on from the position.
    """
    for original in originals:
        if slot_break(connection, original, position) is None:
            drop_slot(connection, name)
            try:
                connection.execute(
                    "SELECT pg_copy_logical_replication_slot(%s, %s, false)", (original, name)
                )
            except psycopg.Error as error:  # such as no room for it: a new slot will tell
                logger.info("the slot %s is not copied: %s", original, error)
                return False
            return slot_break(connection, name, position) is None
    return False


def release(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """End a process of this database that still reads a slot, as it was killed.

    Raises ObjectInUse if another client reads it.
    """
    ends = time.monotonic() + RELEASE_SECONDS
    while (reader := connection.execute(_READER, (name,)).fetchone()) is not None:
        pid, is_ours = reader
        if not is_ours or time.monotonic() > ends:
            raise ObjectInUse(
                f'the replication slot "{name}" is in use by another client, process {pid}',
                hint="A slot can be read by one client only: end the other one.",
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
