"""Whether a PostgreSQL server is set up for logical replication. All of this blocks.

Each lack is one short message with a hint, found before anything is made.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any, TypeAlias

import psycopg

from foreshore.errors import DatabaseError, FeatureNotSupported, ObjectNotInPrerequisiteState
from foreshore.storage.external.access import Access
from foreshore.storage.external.libpq import ReplicationSession, open_session
from foreshore.storage.external.postgres_failures import failure

Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

OLDEST = 120_000  # the version since which the server tells all that is asked
_SETTINGS = """
SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('wal_level'),
    (SELECT count(*) FROM pg_catalog.pg_replication_slots),
    pg_catalog.current_setting('max_replication_slots')::int8,
    (SELECT count(*) FROM pg_catalog.pg_stat_replication),
    pg_catalog.current_setting('max_wal_senders')::int8,
    pg_catalog.current_setting('search_path'), pg_catalog.current_setting('row_security')
"""


def lacks(connection: Session) -> Iterator[DatabaseError]:
    """Yield what a server lacks for one more source; raises psycopg.Error."""
    version = connection.info.server_version
    if version < OLDEST:
        yield FeatureNotSupported(
            f"the PostgreSQL server has version {version // 10_000}",
            hint=f"Sources need PostgreSQL {OLDEST // 10_000} or later.",
        )
        return
    row = connection.execute(_SETTINGS.encode()).fetchone()
    assert row is not None
    is_standby, level, slots, most_slots, senders, most_senders, path, row_security = row
    if (path, row_security) != ("pg_catalog", "off"):
        yield ObjectNotInPrerequisiteState(
            "the PostgreSQL server has not got the settings of our session",
            hint="A pooler such as PgBouncer is in between: let HOST and PORT of the connection"
            " lead to the PostgreSQL server itself.",
        )
    if is_standby:
        yield standby()
    if level != "logical":
        yield ObjectNotInPrerequisiteState(
            f'the PostgreSQL server has wal_level "{level}" instead of "logical"',
            hint="Run ALTER SYSTEM SET wal_level = 'logical' upstream and restart that server.",
        )
    if slots >= most_slots:
        yield ObjectNotInPrerequisiteState(
            f"all {most_slots} replication slots of the PostgreSQL server are taken",
            hint="Raise max_replication_slots upstream, or drop slots there that nobody uses.",
        )
    if senders >= most_senders:
        yield ObjectNotInPrerequisiteState(
            f"all {most_senders} WAL senders of the PostgreSQL server are taken",
            hint="Raise max_wal_senders upstream: a source needs one, and one more while it begins"
            " or gets tables.",
        )


def standby() -> DatabaseError:
    """Return the error for a server that is a standby."""
    return ObjectNotInPrerequisiteState(
        "the PostgreSQL server is a standby, which cannot be followed",
        hint="Let HOST and PORT of the connection lead to its primary.",
    )


def check_recovery(connection: Session) -> None:
    """Raise ObjectNotInPrerequisiteState if the server is a standby."""
    row = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
    if row is not None and row[0]:
        raise standby()


async def validate(access: Access) -> tuple[DatabaseError, ...]:
    """Reach the server, and return what it lacks for one more source; raises DatabaseError."""
    return await asyncio.to_thread(_lacks_of, access)


def _lacks_of(access: Access) -> tuple[DatabaseError, ...]:
    try:
        with closing(open_session(access)) as connection:
            found = [*lacks(connection)]
    except psycopg.Error as error:
        raise failure(error) from error
    try:
        ReplicationSession(access).close()
    except DatabaseError as error:
        found.append(error)
    return tuple(found)
