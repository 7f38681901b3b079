"""How a source begins: at its position, or with all rows. All of this blocks.

It begins with all rows at its first start, and when the slot has lost something. Then a new slot is
created, whose snapshot has the rows at the place where it begins. Tables that were added get a
snapshot from a slot of their own, which is not used otherwise: they join when the stream is there.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

import psycopg

from foreshore.errors import ConnectionFailure
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.external.access import Access
from foreshore.storage.external.libpq import ReplicationSession, open_session
from foreshore.storage.external.postgres_failures import failure
from foreshore.storage.ingest.connector import Position
from foreshore.storage.ingest.postgres.layout import TableLayout
from foreshore.storage.ingest.postgres.overlap import Overlap
from foreshore.storage.ingest.postgres.ready import check_recovery
from foreshore.storage.ingest.postgres.shapes import stamp_of
from foreshore.storage.ingest.postgres.slot import (
    LSN,
    PUBLICATION,
    SYSTEM,
    TIMELINE,
    NewSlot,
    System,
    check_history,
    copy_slot,
    create_slot,
    drop_slot,
    lsn_text,
    overlap_of,
    release,
    slot_break,
    system_of,
)


@dataclass(frozen=True, slots=True)
class Joining:
    """Tables that join the stream at the place of a snapshot, which the session keeps."""

    session: ReplicationSession
    new: NewSlot
    tables: Mapping[str, TableLayout]


@dataclass(frozen=True, slots=True)
class Begun:
    """A session whose slot is ready at the position; or a new slot, with a snapshot of all rows."""

    session: ReplicationSession
    identity: Position  # the parts of the position that must stay as they are
    new: NewSlot | None  # None: the rows that are here are right
    joining: Joining | None = None
    why: str | None = None  # all rows are read again, if there are some
    overlap: Overlap | None = None


def begin(
    spec: PostgresSource,
    tables: Mapping[str, TableLayout],
    access: Access,
    position: Position,
    anew: str | None,
    is_stopped: Callable[[], bool],
) -> Begun:
    """Return how the source begins, with all rows if `anew` says why; raises DatabaseError.

    No slot is made once the source `is_stopped`: it may have been dropped, and its slot with it.
    """
    session = ReplicationSession(access)
    try:
        server = system_of(session)
        with closing(open_session(access)) as connection:
            check_recovery(connection)
            stamp = stamp_of(connection, spec.publication)
            identity = {SYSTEM: server.system, TIMELINE: server.timeline, PUBLICATION: stamp}
            why = None
            if LSN in position:
                check_history(server, position)
                why = anew or _break(connection, spec, position, server, stamp)
                if why is None:
                    release(connection, spec.slot)
                    added = {r: each for r, each in tables.items() if each.part not in position}
                    joining = _joining(spec, added, access, connection) if added else None
                    overlap = overlap_of(connection, spec.slot, position)
                    return Begun(session, identity, None, joining, None, overlap)
            drop_slot(connection, spec.slot)
        if is_stopped():
            raise ConnectionFailure("the source was stopped while it began")
        return Begun(session, identity, create_slot(session, spec.slot), why=why)
    except psycopg.Error as error:
        session.close()
        raise failure(error) from error
    except BaseException:
        session.close()
        raise


def _break(
    connection: psycopg.Connection[tuple[object, ...]],
    spec: PostgresSource,
    position: Position,
    server: System,
    stamp: int,
) -> str | None:
    """Return why what follows a position cannot be had; None if it can."""
    if (system := position.get(SYSTEM)) != server.system:
        return f"it is another server (system identifier {server.system} instead of {system})"
    if (timeline := position.get(TIMELINE, server.timeline)) != server.timeline:
        return f"a standby was promoted (timeline {server.timeline} after {timeline})"
    if position[LSN] > server.end:
        return (
            f"the server was restored to an earlier time (its log ends at {lsn_text(server.end)},"
            f" and was read up to {lsn_text(position[LSN])})"
        )
    if position.get(PUBLICATION, stamp) != stamp:
        return f'publication "{spec.publication}" was altered'
    why = slot_break(connection, spec.slot, position)
    if why is None or not spec.copied_slots:
        return why
    if copy_slot(connection, spec.copied_slots, spec.slot, position):
        return None
    return f"{why}, unless this is the first start after a restore from a backup"


def _joining(
    spec: PostgresSource,
    added: Mapping[str, TableLayout],
    access: Access,
    connection: psycopg.Connection[tuple[object, ...]],
) -> Joining:
    """Return a snapshot for tables that were added; raises DatabaseError."""
    name = f"{spec.slot}_add"
    drop_slot(connection, name)  # of a process of ours that was killed
    session = ReplicationSession(access)
    try:
        return Joining(session, create_slot(session, name, temporary=True), added)
    except BaseException:
        session.close()
        raise


def dispose(spec: PostgresSource, access: Access) -> None:
    """Drop the slot of a source; raises DatabaseError."""
    try:
        with closing(open_session(access)) as connection:
            drop_slot(connection, spec.slot)
    except psycopg.Error as error:
        raise failure(error) from error
