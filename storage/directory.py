"""Reads a data directory without owning or changing it.

The server may be running. `read_states` returns the states in consensus as of one moment. The
compacter may remove files that they name, after committing states without them, because no lease is
taken here. So a caller that misses a file looks again: something is wrong only if a state still
names the file.
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
from urllib.parse import unquote, urlsplit

import msgspec

from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState, UndefinedFile
from foreshore.ids import GlobalId
from foreshore.processes.file_modes import check_reader
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
    """Whether a restore into this directory was started and not completed."""
    return (data_dir / RESTORING).is_dir() and not (data_dir / CONSENSUS_FILE).exists()


def check_restored(data_dir: Path) -> None:
    """Raise ObjectNotInPrerequisiteState if a restore was not completed."""
    if is_half_restored(data_dir):
        raise ObjectNotInPrerequisiteState(
            f'a restore into "{data_dir}" was not completed', hint="Run the restore again."
        )


def local_places(blob: str | None, consensus: str | None) -> list[Path]:
    """Return what stores given by URI have outside of the data directory."""
    places = []
    if blob is not None and (store := urlsplit(blob)).scheme == "file":
        places.append(Path(unquote(store.path)))
    if consensus is not None and (store := urlsplit(consensus)).scheme == "sqlite":
        file = Path(unquote(store.path))
        places += [file.with_name(f"{file.name}{suffix}") for suffix in ("", "-wal", "-shm")]
    return [each for each in places if each.exists()]


def finish_restore(data_dir: Path) -> None:
    """Remove the remains of a completed restore; raise as `check_restored` does."""
    check_restored(data_dir)
    shutil.rmtree(data_dir / RESTORING, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class States:
    """The contents of consensus as of one moment."""

    heads: Mapping[str, Versioned]
    log: LogState
    epoch: int
    identity: str | None  # None: the directory was created before databases had ids
    restored_from: str | None  # the id of the database whose backup was restored
    traces: Mapping[GlobalId, TraceState]

    @property
    def batches(self) -> list[Batch]:
        """Return all batches of all shards."""
        return [batch for trace in self.traces.values() for batch in trace.batches]

    @property
    def takeover_in_progress(self) -> bool:
        """Whether a new owner has claimed the log without recording yet where it ended before."""
        last = self.log.segments[-1:]
        return any(each.sealed is None and each.epoch < self.log.epoch for each in last)

    def names(self) -> set[str]:
        """Return the paths, within the data directory, of all files that states name."""
        return {f"blob/{batch.key}" for batch in self.batches} | {
            f"log/{segment_name(each.number, each.epoch)}" for each in self.log.segments
        }


def read_states(data_dir: Path) -> States:
    """Return the states.

    Raises UndefinedFile if there are none, DataCorrupted if they are unreadable, and
    ObjectNotInPrerequisiteState if the directory is another user's.
    """
    if data_dir.exists():
        check_reader(data_dir)
    return decode_states(read_heads(data_dir))


def decode_states(heads: Mapping[str, Versioned]) -> States:
    """Return the states in these heads. Raises DataCorrupted if one is unreadable."""
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
    """Return the last version of each key of the SQLite consensus, as of one moment.

    Raises DataCorrupted if any version is corrupt: with a corrupt last version, SQLite may confuse
    keys or numbers and return the version before it. Directories that were last opened before
    checksums were introduced have no checksum column.
    """
    for (message,) in _query(data_dir, "PRAGMA integrity_check"):
        if message != "ok":
            raise DataCorrupted(f'"{CONSENSUS_FILE}" is damaged: {message}')
    return _last(_query(data_dir, "SELECT * FROM version ORDER BY key, seqno"))


def read_registers(data_dir: Path) -> dict[str, Versioned]:
    """Return the heads except those of shards, of which there may be very many.

    This is quick, and checks only the versions that it returns.
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
                code = getattr(error, "sqlite_errorcode", None)
                if code != sqlite3.SQLITE_READONLY_ROLLBACK:
                    raise
            if (found := _query_copy(path, sql)) is not None:
                return found
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise DataCorrupted(f'"{path.name}" is not readable: {error}') from error


def _ask(path: Path, sql: str, mode: str = "ro") -> list[tuple[Any, ...]]:
    uri = f"{path.as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
        return connection.execute(sql).fetchall()


def _query_copy(path: Path, sql: str) -> list[tuple[Any, ...]] | None:
    """Query a copy of the database if a killed process left the journal of a commit.

    The next writer, perhaps a server starting now, rolls the commit back with the journal and
    removes the journal last. So a journal that still exists after the copy belongs to it. Returns
    None if the journal is gone.
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
    """Return the path of the log segment."""
    return data_dir / "log" / segment_name(segment.number, segment.epoch)


def read_log(data_dir: Path, segment: SegmentInfo, end: int | None = None) -> Contents:
    """Return the contents of the segment; an open one as written so far, or up to `end`."""
    return read_segment(
        segment_path(data_dir, segment), segment.number, segment.epoch, segment.sealed, end
    )
