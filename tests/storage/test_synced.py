"""After a power failure, everything that a state names or that was acknowledged had been synced.

A `Disk` tracks what a power failure would leave: for each file its contents at the last sync, and
for each directory its entries at that time. Reading does not reveal a missing sync; only the power
failure does.
"""

import contextlib
import errno
import os
import stat
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foreshore import failpoint
from foreshore.clock import SystemClock
from foreshore.errors import Unavailable
from foreshore.storage import blob as blob_module
from foreshore.storage.backup import MANIFEST, back_up, restore
from foreshore.storage.blob import FileBlob
from foreshore.storage.consensus import Committed, Mismatch, SqliteConsensus
from foreshore.storage.controller import StorageConfig, StorageController
from foreshore.storage.epoch import FENCE, Fence, fence_of
from foreshore.storage.identity import NAME
from foreshore.storage.segment import HEADER, segment_name
from foreshore.storage.trace import KEYS, TraceState
from foreshore.storage.wal import LOG_KEY, LogState
from tests.storage.harness import ROWS, U1, U2, abandon, open_at, put, run, write


class Disk:
    """The contents below `root` after a power failure."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.lost: list[str] = []  # what a power cut would have, at some moment, that it must not
        self._contents: dict[int, bytes] = {}  # of files, by inode
        self._names: dict[int, dict[str, int]] = {}  # in directories
        self._lock = threading.Lock()
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._synced(getattr(os, name)))

    def _synced(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(descriptor: int) -> None:
            sync(descriptor)
            found = os.fstat(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}")
            if not path.resolve().is_relative_to(self.root):  # other tests have files beside it
                return
            with self._lock:
                if stat.S_ISDIR(found.st_mode):
                    self._list(found.st_ino, path.resolve())
                else:
                    self._contents[found.st_ino] = path.read_bytes()

        return synced

    def _list(self, directory: int, path: Path) -> None:
        before = self._names.get(directory, {})
        names: dict[str, int] = {}  # `read` sees all of them or the ones before, on its thread
        for entry in os.scandir(path):
            names[entry.name] = inode = entry.inode()
            if entry.name.endswith(".parquet") and before.get(entry.name) != inode:
                # Else a power cut before the file's own sync would leave the name of nothing.
                whole = self._contents.get(inode) == Path(entry.path).read_bytes()
                self.expect(whole, f"{entry.name} was named first")
        self._names[directory] = names

    def expect(self, holds: bool, what: str) -> None:
        """Record a violation; raising here would only cause a retry."""
        if not holds:
            self.lost.append(what)

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file after a power failure, None if it would not exist."""
        inode: int | None = self.root.stat().st_ino
        for part in path.split("/"):
            inode = self._names.get(inode or -1, {}).get(part)
        return None if inode is None else self._contents.get(inode)


class Watched(SqliteConsensus):
    """Consensus that checks for each state that the files it names are synced."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.root / "consensus.sqlite")
        self.disk = disk
        self.batches: dict[str, int] = {}  # that were named, and how far each reaches
        self.sealed: set[str] = set()
        self.epochs: set[int] = set()

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        if key == NAME:
            for where in ("blob", "log"):
                self.disk.expect(self.disk.read(f"{where}/{NAME}") == new, f"mark of the {where}")
        elif key == LOG_KEY:
            self._check_log(msgspec.json.decode(new, type=LogState))
        elif key.startswith(KEYS):
            self._check_trace(msgspec.json.decode(new, type=TraceState))
        return await super().compare_and_set(key, expected, new)

    def _check_log(self, state: LogState) -> None:
        for info in state.segments:
            name = segment_name(info.number, info.epoch)
            found = self.disk.read(f"log/{name}") or b""
            if info.sealed is None:
                self.disk.expect(len(found) > HEADER, f"{name}, open")
            else:
                length, checksum = info.sealed
                self.disk.expect(zlib.crc32(found[:length]) == checksum, f"{name}, sealed")
                self.sealed.add(name)
            if info.epoch == state.epoch:
                self.epochs.add(info.epoch)
                raised = self.disk.read(f"log/{FENCE}") == fence_of(info.epoch)
                self.disk.expect(raised, f"the fence of {info.epoch}")

    def _check_trace(self, state: TraceState) -> None:
        for batch in state.batches:
            found = self.disk.read(f"blob/{batch.key}")
            whole = found is not None and zlib.crc32(found) == batch.checksum
            self.disk.expect(whole, f"{batch.key}")
            self.batches[batch.key] = batch.upper - batch.lower


def acknowledged(disk: Disk, controller: StorageController) -> None:
    """Assert that acknowledged writes are synced: the whole log, as nobody else writes."""
    (path,) = (disk.root / "log").glob(f"{controller._wal.number:012}-*.log")
    disk.expect(disk.read(f"log/{path.name}") == path.read_bytes(), f"{path.name}, acknowledged")


@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "on another file system"])
def test_named_or_acknowledged_data_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    if elsewhere:
        replace = Path.replace

        def across(self: Path, target: Any) -> Path:
            if "scratch" in self.parts and "blob" in Path(target).parts:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", across)
    disk = Disk(tmp_path, monkeypatch)

    async def main() -> None:
        time, merged = 0, False
        for _ in range(3):
            consensus = Watched(disk)
            controller = await StorageController.open_services(
                tmp_path,
                FileBlob(tmp_path / "blob"),
                consensus,
                SystemClock(),
                StorageConfig(segment_records=4),
            )
            assert consensus.epochs == {controller.epoch}
            for id in {U1, U2} - set(controller.ids()):
                await controller.create(id, ROWS)
            acknowledged(disk, controller)
            for _ in range(3):
                for _ in range(5):
                    row = ((time, "a"), time, 1)
                    await put(controller, *(write(id, time, time + 1, row) for id in (U1, U2)))
                    time += 1
                    acknowledged(disk, controller)
                await controller.settle()
            assert consensus.sealed
            assert len(consensus.batches) >= 6
            merged |= any(reach > 10 for reach in consensus.batches.values())
            await abandon(controller)
            with contextlib.suppress(Exception):
                await consensus.close()
        assert merged
        assert disk.lost == []

    run(main)


def test_unsynced_writes_of_killed_process_are_synced_at_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)

    class Killed(BaseException):
        """The process ends here."""

    def kill(point: str) -> None:
        if point == "log.written":
            raise Killed

    async def main() -> None:
        async def over() -> StorageController:
            blob, clock = FileBlob(tmp_path / "blob"), SystemClock()
            return await StorageController.open_services(
                tmp_path, blob, Watched(disk), clock, StorageConfig()
            )

        controller = await over()
        await controller.create(U1, ROWS)
        failpoint.arm(kill)
        try:
            with pytest.raises(Unavailable):
                await controller.append([write(U1, 0, 1, ((1, "a"), 0, 1))])
        finally:
            failpoint.arm(None)
        await abandon(controller)
        controller = await over()
        assert controller.upper(U1) == 1
        acknowledged(disk, controller)
        await controller.close()
        assert disk.lost == []

    run(main)


@pytest.mark.parametrize("linked", [True, False])
def test_backup_and_restore_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    disk = Disk(tmp_path, monkeypatch)

    async def fill() -> None:
        controller = await open_at(tmp_path / "data")
        for id in (U1, U2):
            await controller.create(id, ROWS)
            await put(controller, write(id, 0, 10, ((1, "one"), 5, 1)))
        await controller.settle()
        await controller.close()

    run(fill)
    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "first" / "blob" / "u2").mkdir(parents=True)  # by a backup that was killed
    for place, copy in (("first", "copies/first"), ("more/backups/second", "second")):
        backup = back_up(tmp_path / "data", tmp_path / place)
        for name in (MANIFEST, *(file.stored for file in backup.files)):
            assert disk.read(f"{place}/{name}") == (tmp_path / place / name).read_bytes()
        restore(tmp_path / place, tmp_path / copy)
        for name in (file.path for file in backup.files):
            assert disk.read(f"{copy}/{name}") == (tmp_path / copy / name).read_bytes()
        assert len(backup.files) == 3
    assert disk.lost == []


def test_raised_fence_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    for epoch in (1, 2):
        Fence(tmp_path / FENCE, epoch).close()
        assert disk.read(FENCE) == fence_of(epoch)


def test_a_directory_that_a_killed_process_made_is_synced_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = FileBlob(tmp_path)
    blob.put("u1/a", b"a")
    blob.delete("u1/a")  # with its directory
    (tmp_path / "u1").mkdir()
    (tmp_path / "u2").mkdir()  # as somebody did who was killed before he synced it
    disk = Disk(tmp_path, monkeypatch)
    for key in ("u1/a", "u2/a"):
        blob.put(key, key.encode())
        assert disk.read(key) == key.encode()


def test_a_store_that_a_killed_process_made_is_synced_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    (tmp_path / "blob").mkdir()  # by somebody who was killed before he synced it
    FileBlob(tmp_path / "blob").put("u1/a", b"a")
    assert disk.read("blob/u1/a") == b"a"


def test_store_in_unreadable_directory_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = blob_module.sync_directory

    def refuse(path: Path) -> None:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        sync(path)

    monkeypatch.setattr(blob_module, "sync_directory", refuse)
    (tmp_path / "blob").mkdir()
    blob = FileBlob(tmp_path / "blob")
    blob.put("u1/a", b"a")
    assert blob.get("u1/a") == b"a"
