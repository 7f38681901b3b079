"""A data directory as somebody finds it who does not own it: read, never changed.

The server may run meanwhile or not. What `look` returns are the states in consensus as of one
moment. Files that they name may be gone by the time they are read, since the compacter removes what
it has replaced, having committed states without it first, and nobody here takes a lease. So whoever
misses one looks again: only if a state still names it, something is amiss.
"""

import filecmp
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState, UndefinedFile
from foreshore.ids import GlobalId
from foreshore.storage.blob import FileBlob
from foreshore.storage.consensus import Versioned, checked
from foreshore.storage.epoch import EPOCH_KEY, EpochState, State
from foreshore.storage.identity import NAME
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.segment import Contents, read_segment, segment_name
from foreshore.storage.trace import KEYS, Batch, TraceState, id_of
from foreshore.storage.wal import LOG_KEY, LogState, SegmentInfo

CONSENSUS_FILE = "consensus.sqlite"
RESTORED_FROM = "restored_from"
RESTORING = ".restoring"

S = TypeVar("S", bound=State)


def batch_files(data_dir: Path) -> LocalFiles:
    """Return the batches of a data directory, each checked before it is read."""
    return LocalFiles(FileBlob(data_dir / "blob"), data_dir / "fetched")


def is_half_restored(data_dir: Path) -> bool:
    """Whether a restore into this directory has begun and not come to its end."""
    return (data_dir / RESTORING).is_dir() and not (data_dir / CONSENSUS_FILE).exists()


def check_restored(data_dir: Path) -> None:
    """Raise ObjectNotInPrerequisiteState if the directory is half restored."""
    if is_half_restored(data_dir):
        raise ObjectNotInPrerequisiteState(
            f'a restore into "{data_dir}" was not completed', hint="Run the restore again."
        )


def end_restore(data_dir: Path) -> None:
    """Remove what a restore has left that came to its end; raise as `check_restored` does."""
    check_restored(data_dir)
    shutil.rmtree(data_dir / RESTORING, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class States:
    """What consensus holds, all as of one moment."""

    heads: Mapping[str, Versioned]
    log: LogState
    epoch: int
    identity: str | None  # None: the directory is older than identities
    restored_from: str | None  # the identity of the database of whose backup this was made
    traces: Mapping[GlobalId, TraceState]

    @property
    def batches(self) -> list[Batch]:
        """Return all batches of all shards."""
        return [batch for trace in self.traces.values() for batch in trace.batches]

    @property
    def changes_hands(self) -> bool:
        """Whether a new owner has claimed the log, and not yet said where that before him ends."""
        last = self.log.segments[-1:]
        return any(each.sealed is None and each.epoch < self.log.epoch for each in last)

    def names(self) -> set[str]:
        """Return the paths, within the data directory, of all files that states name."""
        return {f"blob/{batch.key}" for batch in self.batches} | {
            f"log/{segment_name(each.number, each.epoch)}" for each in self.log.segments
        }


def look(data_dir: Path) -> States:
    """Return the states; raises UndefinedFile if there are none, DataCorrupted if not readable."""
    return decode_states(read_heads(data_dir))


def decode_states(heads: Mapping[str, Versioned]) -> States:
    """Return what the heads say; raises DataCorrupted if one of them is not readable."""
    log = _decode(heads, LOG_KEY, LogState)
    epoch = _decode(heads, EPOCH_KEY, EpochState)
    if log is None or epoch is None:
        raise DataCorrupted(f'"{CONSENSUS_FILE}" has no state of the log')
    traces: dict[GlobalId, TraceState] = {}
    for key in heads:
        if key.startswith(KEYS):
            trace = _decode(heads, key, TraceState)
            assert trace is not None
            trace.check()
            traces[id_of(key)] = trace
    identity, restored_from = (
        heads[key].data.decode(errors="replace") if key in heads else None
        for key in (NAME, RESTORED_FROM)
    )
    return States(heads, log, epoch.epoch, identity, restored_from, traces)


def read_heads(data_dir: Path) -> dict[str, Versioned]:
    """Return the last version of each key of the SQLite consensus, all as of one moment.

    Raises DataCorrupted if any version is not as it was written: of a damaged last one SQLite may
    take the key or the number for another, and the one before it for the last.
    A directory that no server has opened since there are checksums has no column of them.
    """
    for (message,) in _query(data_dir, "PRAGMA integrity_check"):
        if message != "ok":
            raise DataCorrupted(f'"{CONSENSUS_FILE}" is damaged: {message}')
    return _last(_query(data_dir, "SELECT * FROM version ORDER BY key, seqno"))


def read_registers(data_dir: Path) -> dict[str, Versioned]:
    """Return what `read_heads` does, but for the shards, of which there may be very many.

    It is quick, and no damage is looked for but in what it returns.
    """
    beyond = KEYS[:-1] + chr(ord(KEYS[-1]) + 1)
    sql = (
        f"SELECT * FROM version WHERE key < '{KEYS}' UNION ALL"
        f" SELECT * FROM version WHERE key >= '{beyond}' ORDER BY key, seqno"
    )
    return _last(_query(data_dir, sql))


def _last(versions: Sequence[tuple[Any, ...]]) -> dict[str, Versioned]:
    return {version[0]: checked(*version) for version in versions}


def _query(data_dir: Path, sql: str) -> list[tuple[Any, ...]]:
    path = data_dir.absolute() / CONSENSUS_FILE
    if not path.exists():
        check_restored(data_dir)
        if (data_dir / "log").is_dir():
            raise DataCorrupted(f'"{path.name}" is missing')
        raise UndefinedFile(f'"{data_dir}" is not a data directory: there is no "{path.name}"')
    try:
        while True:
            try:
                return _ask(path, sql)
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", None)  # the module's own have none
                if code != sqlite3.SQLITE_READONLY_ROLLBACK:
                    raise
            if (found := _ask_copy(path, sql)) is not None:
                return found
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise DataCorrupted(f'"{path.name}" is not readable: {error}') from error


def _ask(path: Path, sql: str, mode: str = "ro") -> list[tuple[Any, ...]]:
    uri = f"{path.as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
        return connection.execute(sql).fetchall()


def _ask_copy(path: Path, sql: str) -> list[tuple[Any, ...]] | None:
    """Ask a copy of the database in which a kill left the journal of a commit.

    Whoever opens it to write takes the commit back by the journal. A server may do so meanwhile;
    as the journal goes last, one that is still there goes with whatever was copied of the database.
    None: it has gone.
    """
    journal = path.with_name(f"{path.name}-journal")
    with tempfile.TemporaryDirectory() as place:
        copies = [Path(place) / each.name for each in (journal, path)]
        try:
            for each, copy in zip((journal, path), copies, strict=True):
                shutil.copy(each, copy)
            if not filecmp.cmp(journal, copies[0], shallow=False):
                return None
        except FileNotFoundError:
            return None
        return _ask(copies[1], sql, "rw")


def _decode(heads: Mapping[str, Versioned], key: str, form: type[S]) -> S | None:
    head = heads.get(key)
    try:
        return None if head is None else msgspec.json.decode(head.data, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataCorrupted(
            f'"{CONSENSUS_FILE}" has no readable state under "{key}": {error}'
        ) from error


def segment_path(data_dir: Path, segment: SegmentInfo) -> Path:
    """Return where the segment of the log is."""
    return data_dir / "log" / segment_name(segment.number, segment.epoch)


def read_log(data_dir: Path, segment: SegmentInfo, end: int | None = None) -> Contents:
    """Return what the segment holds, an open one as far as it is written by now, or up to `end`."""
    return read_segment(
        segment_path(data_dir, segment), segment.number, segment.epoch, segment.sealed, end
    )
