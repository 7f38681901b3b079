"""Backups: consistent copies of a data directory, taken while it is in use.

    DEST/backup.json     the manifest; without it there is no backup
    DEST/blob, DEST/log  the files that it lists

The log has one order for all shards and the catalog, so a prefix of it, together with the consensus
states at its end, is a consistent state: the state that a kill at that moment would have left. It
includes everything acknowledged before the backup began. Batches never change, so they are
hard-linked if source and destination share a file system, and copied otherwise. A later backup to
the same place takes only files that are new or corrupt there. `backup.json` is replaced last: an
interrupted backup leaves the previous one, or none.

A restored database is a new database. It has its own identity and a new epoch, its times are later
than all times in the backup, and its new ids differ from those of the original and of any other
copy (`identity.py`).
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from foreshore.errors import (
    DataCorrupted,
    DuplicateFile,
    ObjectNotInPrerequisiteState,
    UndefinedFile,
)
from foreshore.processes import file_modes
from foreshore.processes.file_lock import try_lock
from foreshore.storage.blob import sync_directory, sync_file
from foreshore.storage.consensus import SqliteConsensus, Versioned
from foreshore.storage.directory import (
    CONSENSUS_FILE,
    RESTORED_FROM,
    RESTORING,
    States,
    decode_states,
    is_half_restored,
    read_log,
    read_registers,
    read_states,
    segment_path,
)
from foreshore.storage.epoch import FENCE, fence_of
from foreshore.storage.identity import FIRST_ID, NAME
from foreshore.storage.local_files import check_file
from foreshore.storage.trace import KEYS
from foreshore.storage.wal import LOG_KEY, LogState, SegmentInfo

MANIFEST = "backup.json"
VERSION = 1
PARTS = ("blob", "log")  # the directories of a backup and of a new data directory
LOCK_FILES = {"server", "server.start"}  # of a server that could not start in an empty directory
TAKEOVER_SECONDS = 10.0  # a takeover that takes longer has died


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup: its path within a data directory, its length and its CRC-32."""

    path: str
    bytes: int
    checksum: int

    @property
    def stored(self) -> str:
        """Return its path within the backup. An open segment has its own name, since it grows."""
        return f"{self.path}.{self.bytes}" if self.path.startswith("log/") else self.path


class Backup(msgspec.Struct, frozen=True):
    """The manifest of a backup: the heads of consensus, and the files that they name."""

    version: int
    identity: str  # of the database
    states: dict[str, bytes]
    files: tuple[BackupFile, ...]


class _Manifest(msgspec.Struct, frozen=True):
    backup: Backup
    checksum: int  # CRC-32 of the encoded backup


def read_backup(place: Path) -> Backup:
    """Return the manifest of the backup.

    Raises UndefinedFile if there is none, DataCorrupted if it is corrupt or too new.
    """
    path = place / MANIFEST
    try:
        written = path.read_bytes()
        manifest = msgspec.json.decode(written, type=_Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise UndefinedFile(
            f'"{place}" holds no complete backup: there is no "{MANIFEST}"'
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataCorrupted(f'"{path}" is not readable: {error}') from None
    intact = zlib.crc32(msgspec.json.encode(manifest.backup)) == manifest.checksum
    if not intact or msgspec.json.encode(manifest) != written:  # base64 has unused bits
        raise DataCorrupted(f'"{path}" has a wrong checksum')
    if manifest.backup.version > VERSION:
        raise DataCorrupted(
            f'"{path}" has version {manifest.backup.version}, this version reads up to {VERSION}'
        )
    return manifest.backup


# --- taking one ----------------------------------------------------------------------------


def back_up(data_dir: Path, place: Path) -> Backup:
    """Back up the current state of the data directory to `place`, and return the manifest.

    The server may be running. Raises DuplicateFile if the place holds something else, or the backup
    of another database or of another history of this one. The group may read the backup if it may
    read the data directory.
    """
    states = read_states(data_dir)
    with _locked(place, f'a backup to "{place}"'):
        previous = _previous(place, states)
        group = file_modes.is_for_group(data_dir)
        file_modes.secure(place, group=group, what="backup directory")
        named = {file.stored for file in previous.values()}
        try:
            backup = _copied(data_dir, place, previous)
            _sync_names(place, [file.stored for file in backup.files])
            manifest = _Manifest(backup, zlib.crc32(msgspec.json.encode(backup)))
            _write(place / MANIFEST, msgspec.json.encode(manifest))
            named = {file.stored for file in backup.files}
        finally:  # also frees the space of a failed backup
            for folder in PARTS:
                for path in (place / folder).rglob("*"):
                    if path.is_file() and path.relative_to(place).as_posix() not in named:
                        path.unlink()
            file_modes.secure(place, group=group, what="backup directory")
    return backup


@contextlib.contextmanager
def _locked(directory: Path, work: str) -> Iterator[None]:
    """Lock a directory, making it if there is none; `work` is what another one may do."""
    while True:
        _make(directory)
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            if not try_lock(descriptor):
                raise ObjectNotInPrerequisiteState(f"{work} is under way")
            if _is_still(directory, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_still(directory: Path, descriptor: int) -> bool:
    """Whether a directory that was opened has not been removed or renamed meanwhile."""
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _previous(place: Path, states: States) -> dict[str, BackupFile]:
    """Return the files of the place's last backup, which must be of the same database."""
    try:
        backup = read_backup(place)
    except UndefinedFile:
        unlisted_segments = _names(place) - {*PARTS, f"{MANIFEST}.new"}
        if unlisted_segments:
            raise DuplicateFile(
                f'"{place}" is not empty and holds no backup',
                detail=", ".join(sorted(unlisted_segments)),
            ) from None
        return {}
    if backup.identity != states.identity:
        raise DuplicateFile(f'"{place}" holds the backup of another database')
    return {file.path: file for file in backup.files}


def _names(directory: Path) -> set[str]:
    """Return the names in a directory, except lock files and a new file system's `lost+found`."""
    found = {path.name for path in directory.iterdir() if not _is_new_lost_found(path)}
    return found - LOCK_FILES


def _is_new_lost_found(path: Path) -> bool:
    try:
        return path.name == "lost+found" and path.is_dir() and not any(path.iterdir())
    except PermissionError:  # only root may read it
        return True


def _copied(data_dir: Path, place: Path, previous: dict[str, BackupFile]) -> Backup:
    """Copy the files named by the states, retrying if the compacter removed one meanwhile.

    Raises DuplicateFile if the last backup has another file of the same name.
    """
    verified: dict[str, BackupFile] = {}
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while True:
        states, end = _consistent_states(data_dir)
        if states.takeover_in_progress and time.monotonic() < deadline:
            time.sleep(0.1)
            continue
        if states.identity is None:
            raise ObjectNotInPrerequisiteState(
                "the data directory has no identity yet", hint="Start the server over it once."
            )
        try:
            backup = _copy_once(data_dir, place, states, end, previous, verified)
        except (DataCorrupted, FileNotFoundError):
            if states.names() <= read_states(data_dir).names():
                raise
            continue
        now = read_states(data_dir).log
        if now.epoch == states.log.epoch and not (
            states.takeover_in_progress and now != states.log
        ):
            return backup
        # Another environment took over and may have cut off the end of the log that was read.


def _consistent_states(data_dir: Path) -> tuple[States, int | None]:
    """Return consistent states, and the length of the open segment that belongs to them.

    It is None if the segment cannot be read.

    Values in consensus such as sequence positions are not logged, but rows and catalog entries in
    the log depend on them. So the log is cut where it ended between two looks that found these
    values equal. The states of shards are read only once, which may take long; they fit as long as
    the log still has the segments that it had then.
    """
    while True:
        states = read_states(data_dir)
        registers: Mapping[str, Versioned] = states.heads
        while registers.get(LOG_KEY) == states.heads[LOG_KEY]:
            end = None
            for segment in states.log.segments[-1:]:
                with contextlib.suppress(DataCorrupted):  # `_copy_once` reports it
                    end = read_log(data_dir, segment).length
            before, registers = registers, read_registers(data_dir)
            if _beside_the_log(before) == _beside_the_log(registers):
                return decode_states({**states.heads, **before}), end


def _beside_the_log(heads: Mapping[str, Versioned]) -> dict[str, Versioned]:
    return {key: head for key, head in heads.items() if key != LOG_KEY and not key.startswith(KEYS)}


def _copy_once(
    data_dir: Path,
    place: Path,
    states: States,
    end: int | None,
    previous: Mapping[str, BackupFile],
    verified: dict[str, BackupFile],
) -> Backup:
    assert states.identity is not None
    files = []
    segments = []
    for segment in states.log.segments:  # first, because they are removed first
        contents = read_log(data_dir, segment, end)
        path = segment_path(data_dir, segment)
        with path.open("rb") as source:  # reading the log has just found it
            file = BackupFile(f"log/{path.name}", contents.length, contents.checksum)
            _check_history(place, previous.get(file.path), file)
            _write(place / file.stored, source.read(contents.length))
        files.append(file)
        segments.append(
            SegmentInfo(segment.number, segment.epoch, contents.length, contents.checksum)
        )
    for batch in states.batches:
        file = BackupFile(f"blob/{batch.key}", batch.bytes, batch.checksum)
        _check_history(place, previous.get(file.path), file)
        if verified.get(file.path) != file:
            if previous.get(file.path) != file or not _is_intact(place, file):
                _take(data_dir / file.path, place / file.stored)
                _verify(place, file)
            verified[file.path] = file
        files.append(file)
    log = LogState(epoch=states.log.epoch, segments=tuple(segments))
    heads = {key: head.data for key, head in states.heads.items()}
    heads[LOG_KEY] = msgspec.json.encode(log)
    return Backup(VERSION, states.identity, heads, tuple(files))


def _check_history(place: Path, before: BackupFile | None, file: BackupFile) -> None:
    """Raise DuplicateFile if `file` would replace a different file of the last backup.

    This happens if the data directory was restored to an earlier state and took another course.
    """
    if before is not None and before.stored == file.stored and before != file:
        raise DuplicateFile(
            f'"{place}" holds the backup of another history of this database',
            detail=f'"{file.stored}" is another file there.',
            hint="Back up to another place.",
        )


def _make(directory: Path) -> None:
    """Create the directory and missing parents, durably."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # not readable for us, so created by somebody else
        sync_directory(directory.parent)


def _sync_names(place: Path, files: Sequence[str]) -> None:
    """Make the names of these files below `place` durable."""
    for directory in {parent for file in files for parent in PurePosixPath(file).parents}:
        sync_directory(place / directory)


def _take(source: Path, target: Path) -> None:
    """Link or copy `source` to `target`; the caller syncs the name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise DataCorrupted(f'"{source}" is missing') from None
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
        sync_file(target)


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(data)
        sync_file(new)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _verify(place: Path, file: BackupFile) -> None:
    check_file(place / file.stored, f'"{file.stored}"', file.bytes, file.checksum)


def _is_intact(place: Path, file: BackupFile) -> bool:
    try:
        _verify(place, file)
    except DataCorrupted:
        return False
    return True


# --- going back to one ---------------------------------------------------------------------


def restore(place: Path, data_dir: Path) -> Backup:
    """Restore the backup in `place` to `data_dir`, completely or not at all.

    An empty directory, which may be a mount point, is filled and not replaced. Raises DuplicateFile
    if `data_dir` is not empty, DataCorrupted if a file of the backup is corrupt, and
    ObjectNotInPrerequisiteState if another restore to `data_dir` is under way.
    """
    if data_dir.exists():
        file_modes.check_owner(data_dir)
    backup = read_backup(place)
    work = f'a restore to "{data_dir}"'
    if data_dir.exists():
        if not data_dir.is_dir():
            raise _not_empty(data_dir)
        with _locked(data_dir, work):
            _restore_into(data_dir, place, backup)
        return backup
    partial = data_dir.with_name(f".{data_dir.name}{RESTORING}")
    with _locked(partial, work):
        try:
            if data_dir.exists():  # another one has been faster
                raise _not_empty(data_dir)
            for left in partial.iterdir():  # by an interrupted attempt
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            _restore_to(partial, place, backup)
            file_modes.secure(partial, group=file_modes.is_for_group(place))
            partial.replace(data_dir)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    sync_directory(data_dir.absolute().parent)
    return backup


def _not_empty(data_dir: Path) -> DuplicateFile:
    return DuplicateFile(f'"{data_dir}" exists and is not empty')


def _restore_into(data_dir: Path, place: Path, backup: Backup) -> None:
    """Fill an existing directory, which must be empty."""
    if is_half_restored(data_dir):
        _clear(data_dir)
    if _names(data_dir):
        raise _not_empty(data_dir)
    file_modes.secure(data_dir)
    _fill(data_dir, place, backup)
    file_modes.secure(data_dir, group=file_modes.is_for_group(place))


def _fill(data_dir: Path, place: Path, backup: Backup) -> None:
    partial = data_dir / RESTORING
    _make(partial)
    try:
        _restore_to(partial, place, backup)
        for name in PARTS:
            (partial / name).replace(data_dir / name)
        sync_directory(data_dir)
        (partial / CONSENSUS_FILE).replace(data_dir / CONSENSUS_FILE)
    except BaseException:
        if is_half_restored(data_dir):  # otherwise the interruption was after the last step
            _clear(data_dir)
        raise
    with contextlib.suppress(FileNotFoundError):  # a server has started and removed it
        shutil.rmtree(partial)  # including the empty journal of consensus
    sync_directory(data_dir)


def _clear(data_dir: Path) -> None:
    """Remove what a restore has left in a directory that was empty before."""
    for name in (*PARTS, RESTORING):  # RESTORING last: until then it is no data directory
        shutil.rmtree(data_dir / name, ignore_errors=True)


def _restore_to(data_dir: Path, place: Path, backup: Backup) -> None:
    for file in backup.files:
        _verify(place, file)
        _take(place / file.stored, data_dir / file.path)
    states = decode_states({key: Versioned(1, data) for key, data in backup.states.items()})
    _write(data_dir / "log" / FENCE, fence_of(states.epoch))
    identity = secrets.token_hex(16).encode()
    for part in PARTS:
        _write(data_dir / part / NAME, identity)
    heads = {
        **backup.states,
        NAME: identity,
        RESTORED_FROM: backup.identity.encode(),
        FIRST_ID: str(time.time_ns() // 1000).encode(),
    }
    asyncio.run(_set_states(data_dir / CONSENSUS_FILE, heads))
    _sync_names(data_dir, [CONSENSUS_FILE, *(file.path for file in backup.files)])


async def _set_states(path: Path, heads: dict[str, bytes]) -> None:
    consensus = SqliteConsensus(path)
    try:
        for key, data in heads.items():
            await consensus.compare_and_set(key, None, data)
    finally:
        await consensus.close()
