"""The services of consensus, and their locks, by URI.

PostgreSQL's client library is loaded only by a server that uses it.
"""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from foreshore.errors import InvalidParameterValue
from foreshore.storage.consensus import Consensus, MemoryConsensus, SqliteConsensus
from foreshore.storage.sqlite_lock import SqliteLock

if TYPE_CHECKING:
    from foreshore.storage.postgres_lock import PostgresLock


def open_shared_lock(uri: str | None) -> "PostgresLock | SqliteLock | None":
    """Return the lock in the service that `uri` names; None if the data directory has its own."""
    parts = urlsplit(uri or "")
    match parts.scheme:
        case "postgres" | "postgresql":
            from foreshore.storage.postgres_lock import PostgresLock

            assert uri is not None
            return PostgresLock(uri)
        case "sqlite":
            return SqliteLock(Path(unquote(parts.path)))
        case _:
            return None


def open_consensus(uri: str | None, data_dir: Path) -> Consensus:
    """Return the service for `uri`; None stands for an SQLite database in `data_dir`."""
    if uri is None:
        return SqliteConsensus(data_dir / "consensus.sqlite")
    parts = urlsplit(uri)
    match parts.scheme:
        case "sqlite":
            return SqliteConsensus(Path(unquote(parts.path)))
        case "postgres" | "postgresql":
            from foreshore.storage.postgres_consensus import PostgresConsensus

            return PostgresConsensus(uri)
        case "memory":
            return MemoryConsensus()
        case scheme:
            raise InvalidParameterValue(
                f'unrecognized consensus service "{scheme or uri}"',
                hint="Valid services are: sqlite:///PATH, postgresql://HOST/DATABASE, memory:",
            )
