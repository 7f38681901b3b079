"""The log on a full disk: records are refused as a whole, and nothing after them is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from foreshore.clock import SystemClock
from foreshore.errors import DatabaseError, OutOfDisk
from foreshore.storage import segment, wal
from foreshore.storage.blob import FileBlob
from foreshore.storage.consensus import Committed, Mismatch, SqliteConsensus
from foreshore.storage.controller import StorageConfig, StorageController, UpperMismatch
from foreshore.storage.fault import DiskFull
from foreshore.update import DIFF
from tests.storage.harness import ROWS as SCHEMA
from tests.storage.harness import (
    U1,
    U2,
    Update,
    abandon,
    append_at_once,
    open_at,
    put,
    reader,
    run,
    write,
)


class Disk:
    """The operating system's functions for log segments, with a limited disk.

    It does not write in place: what overwrites the filling of a segment takes room, too.
    There is `room` for so many bytes, None for no limit; none either after a refusal if it
    `refuses_once`. It counts `refused` calls; the next sync of a record, not of filling, fails with
    `sync_fails`. `before_write` may wait.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.files = True
        self.refused = 0
        self.sync_fails: int | None = None
        self._has_filled = False  # what was written last is filling
        self.before_write: Callable[[], object] = lambda: None
        self.refuses_once = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, descriptor: int, data: Any, at: int) -> int:
        """Write as much as there is room for."""
        self.before_write()
        self._has_filled = bytes(memoryview(data)[:1]) == segment.FILLING
        if self.room is None:
            return os.pwrite(descriptor, data, at)
        if not self.room:
            self._refuse(errno.ENOSPC)
        written = os.pwrite(descriptor, memoryview(data)[: self.room], at)
        self.room -= written
        return written

    def open(self, path: Path, flags: int, mode: int) -> int:
        """Open the file if it exists or there is room for it."""
        if flags & os.O_CREAT and not self.files:
            self._refuse(errno.ENOSPC)
        return os.open(path, flags, mode)

    def fdatasync(self, descriptor: int) -> None:
        """Sync the file, or fail."""
        if self.sync_fails is not None and not self._has_filled:
            code, self.sync_fails = self.sync_fails, None
            self._refuse(code)
        os.fdatasync(descriptor)

    def _refuse(self, code: int) -> NoReturn:
        self.refused += 1
        if self.refuses_once:
            self.room = None
        raise OSError(code, os.strerror(code))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(wal, "RETRY_SECONDS", 0.01)
    disk = Disk()
    monkeypatch.setattr(segment, "os", disk)
    return disk


def at(time: int) -> Update:
    """Return the update at `time` that inserts a row containing the time."""
    return (time, "at"), time, 1


async def times(controller: StorageController, upper: int) -> list[int]:
    """Return the times in the rows of U1 before `upper`."""
    snapshot = controller.snapshot(await reader(controller, U1), upper - 1)
    try:
        rows = await snapshot.rows()
    finally:
        snapshot.release()
    assert set(rows.column(DIFF).to_pylist()) == {1}
    return sorted(rows.column("k").to_pylist())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of threads and other tasks
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("room", [0, 1, 31, 32, 33, 200])
def test_record_after_refused_one_is_recovered(tmp_path: Path, disk: Disk, room: int) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, SCHEMA)
        await put(controller, write(U1, 0, 1, at(0)))
        disk.room = room
        for _ in range(2):
            with pytest.raises(DiskFull) as raised:
                await put(controller, write(U1, 1, 2, ((2, "b" * 1000), 1, 1)))
            assert raised.value.sqlstate == "53100"
        assert controller.upper(U1) == 1
        disk.room = None
        await put(controller, write(U1, 1, 3, at(2)))
        await abandon(controller)
        again = await open_at(tmp_path)
        assert await times(again, 3) == [0, 2]
        await again.close()

    run(main)


def test_appends_after_refused_one_are_refused(tmp_path: Path, disk: Disk) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, SCHEMA)
        await controller.create(U2, SCHEMA)
        disk.room = 10
        asked = [
            write(U1, 0, 1, at(0)),
            write(U1, 1, 2, at(1)),
            write(U2, 0, 1, at(0)),
            write(U1, 2, 3, at(2)),
        ]
        outcomes = await asyncio.gather(
            *(controller.append([each]) for each in asked), return_exceptions=True
        )
        assert all(isinstance(outcome, DiskFull) for outcome in outcomes), outcomes
        disk.room = None
        assert await controller.append([asked[1]]) == UpperMismatch(U1, 0)
        await put(controller, asked[0], asked[2])
        await put(controller, asked[1])
        assert await times(controller, 2) == [0, 1]
        await controller.close()

    run(main)


def test_appends_while_a_refused_record_is_in_flight_are_refused(
    tmp_path: Path, disk: Disk
) -> None:
    """They were asked for on top of it, so they must not get into the log without it."""

    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, SCHEMA)
        await put(controller, write(U1, 0, 1, at(0)))
        may_write = threading.Event()
        disk.before_write = partial(may_write.wait, 20)
        disk.room, disk.refuses_once = 10, True  # there is room for the second record
        asked = [write(U1, 1, 2, at(1)), write(U1, 2, 3, at(2))]
        appends = [asyncio.create_task(append_at_once(controller, [each])) for each in asked]
        await until(lambda: controller._wal._in_flight is not None)
        for _ in range(5):  # turns of the loop in which another record could begin
            await asyncio.sleep(0)
        may_write.set()
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        assert all(isinstance(outcome, DiskFull) for outcome in outcomes), outcomes
        await put(controller, asked[0])
        await abandon(controller)
        again = await open_at(tmp_path)
        assert await times(again, 2) == [0, 1]
        await again.close()

    run(main)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failed_sync_ends_log(tmp_path: Path, disk: Disk, code: int) -> None:
    """Pages may be lost while the next sync reports success, so nothing is retried."""

    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, SCHEMA)
        disk.sync_fails = code
        for _ in range(2):
            with pytest.raises(DatabaseError, match=os.strerror(code)) as raised:
                await put(controller, write(U1, 0, 1, at(0)))
            assert not isinstance(raised.value, OutOfDisk)  # which says that nothing has happened
            assert raised.value.sqlstate == ("53100" if code == errno.ENOSPC else "58030")
        assert disk.refused == 1
        await abandon(controller)
        again = await open_at(tmp_path)
        upper = again.upper(U1)
        assert upper in (0, 1)  # it may have become durable; whole, if so
        if upper:
            assert await times(again, 1) == [0]
        await again.close()

    run(main)


def test_irrevocable_entries_wait_for_room(tmp_path: Path, disk: Disk) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        controller.set_wait_for_room(True)
        read, _ = await controller.create(U1, SCHEMA)
        await controller.create(U2, SCHEMA)
        await put(controller, write(U1, 0, 5, at(0)))
        disk.room = 0
        dropping = asyncio.create_task(controller.drop(U2))
        cloning = asyncio.create_task(controller.clone_capability(read))
        with pytest.raises(DiskFull):
            await put(controller, write(U1, 5, 6, at(5)))
        await controller.downgrade_capability(read, 3)
        await until(lambda: disk.refused >= 5)
        assert not dropping.done()
        assert not cloning.done()
        disk.room = None
        await dropping
        clone = await cloning
        await controller.drop_capability(clone)
        await controller.confirm()
        await abandon(controller)
        again = await open_at(tmp_path)
        assert not again.exists(U2)
        assert again.since(U1) == 3
        assert await times(again, 5) == [0]
        await again.close()

    run(main)


def test_shutdown_does_not_wait_for_room(tmp_path: Path, disk: Disk) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        controller.set_wait_for_room(True)
        await controller.create(U1, SCHEMA)
        await put(controller, write(U1, 0, 1, at(0)))
        disk.room = 0
        dropping = asyncio.create_task(controller.drop(U1))
        await until(lambda: disk.refused > 0)
        await controller.close()
        with pytest.raises(DiskFull):
            await dropping
        disk.room = None
        again = await open_at(tmp_path)
        assert await times(again, 1) == [0]
        await again.close()

    run(main)


def test_segment_is_extended_while_there_is_no_room_for_next(tmp_path: Path, disk: Disk) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path, segment_records=4, compacting=False)
        await controller.create(U1, SCHEMA)
        disk.files = False
        for time in range(10):
            await put(controller, write(U1, time, time + 1, at(time)))
        assert disk.refused
        assert len(controller._wal.segments) == 1
        disk.files = True
        for time in range(10, 12):
            await put(controller, write(U1, time, time + 1, at(time)))
        assert len(controller._wal.segments) == 2
        await abandon(controller)
        again = await open_at(tmp_path, compacting=False)
        assert await times(again, 12) == list(range(12))
        await again.close()

    run(main)


class FullConsensus(SqliteConsensus):
    """Consensus on a disk that may be full."""

    full = False

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        if self.full:
            raise DiskFull("to consensus")
        return await super().compare_and_set(key, expected, new)


async def full_before_the_next_segment_is_listed(
    data_dir: Path, consensus: FullConsensus
) -> tuple[StorageController, list[int]]:
    """Write until consensus has no room for another segment; return the written times."""
    controller = await StorageController.open_services(
        data_dir,
        FileBlob(data_dir / "blob"),
        consensus,
        SystemClock(),
        StorageConfig(segment_records=3, compacting=False),
    )
    await controller.create(U1, SCHEMA)
    consensus.full = True
    written: list[int] = []
    for time in range(10):
        try:
            await put(controller, write(U1, len(written), time + 1, at(time)))
        except DiskFull:
            break
        written.append(time)
    assert 0 < len(written) < 10
    return controller, written


def test_unlisted_segment_is_not_written(tmp_path: Path) -> None:
    async def main() -> None:
        consensus = FullConsensus(tmp_path / "consensus.sqlite")
        controller, written = await full_before_the_next_segment_is_listed(tmp_path, consensus)
        upper = len(written)
        with pytest.raises(DiskFull):
            await put(controller, write(U1, upper, upper + 1, at(upper)))
        assert len(controller._wal.segments) == 1
        consensus.full = False
        await put(controller, write(U1, upper, upper + 1, at(upper)))
        assert len(controller._wal.segments) == 2
        await abandon(controller)
        again = await open_at(tmp_path, compacting=False)
        assert await times(again, upper + 1) == [*written, upper]
        await again.close()

    run(main)


def test_end_before_segment_is_listed_can_be_reopened(tmp_path: Path) -> None:
    async def main() -> None:
        consensus = FullConsensus(tmp_path / "consensus.sqlite")
        controller, written = await full_before_the_next_segment_is_listed(tmp_path, consensus)
        await controller.close()
        again = await open_at(tmp_path, compacting=False)
        assert await times(again, len(written)) == written
        await again.close()

    run(main)
