"""A take-over: rows that a reader or a backup sees during it are there afterwards."""

import asyncio
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from foreshore import failpoint
from foreshore.errors import Fenced
from foreshore.storage import backup
from foreshore.storage.controller import StorageController
from foreshore.storage.epoch import take_epoch
from tests.harness import ROOT
from tests.storage.harness import ROWS, U1, abandon, open_at, put, reader, run, write

sys.path.append(str(ROOT / "docs" / "open"))
import foreshore_files
import read_pandas

BOUND_S = 60.0  # on what takes a moment


def restored(data_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of a backup taken now."""
    place, copy = data_dir.parent / "backup", data_dir.parent / "copy"
    backup.back_up(data_dir, place)
    backup.restore(place, copy)
    return rows(copy)


def rows(data_dir: Path) -> list[dict[str, Any]]:
    """Return the rows that an open reader reads now."""
    found: list[dict[str, Any]] = foreshore_files.reading(
        data_dir, U1, None, read_pandas.table
    ).to_pylist()
    return found


def late(older: StorageController, wakes: threading.Event) -> threading.Event:
    """Delay the older environment's next write until `wakes`; return the event of its end."""
    wal, has_written = older._wal, threading.Event()
    plain = wal._write

    def write_late(contents: Any) -> None:
        assert wakes.wait(BOUND_S)
        try:
            plain(contents)
        finally:
            has_written.set()

    wal._write = write_late  # type: ignore[method-assign]
    return has_written


@pytest.mark.parametrize("read", [rows, restored])
def test_write_after_new_owner_read_the_log_is_never_read(tmp_path: Path, read: Any) -> None:
    data_dir, wakes = tmp_path / "data", threading.Event()
    data_dir.mkdir()
    reads: list[Future[Any]] = []

    async def main() -> None:
        older = await open_at(data_dir)
        await older.create(U1, ROWS)
        await put(older, write(U1, 0, 1, ((1, "a"), 0, 1)))
        has_written = late(older, wakes)
        append = asyncio.create_task(older.append([write(U1, 1, 2, ((2, "b"), 1, 1))]))
        await asyncio.sleep(0)

        def at(point: str) -> None:
            if point == "segment.made" and not reads:  # the newcomer has read the log
                wakes.set()
                assert has_written.wait(BOUND_S)
                reads.append(pool.submit(read, data_dir))
                with pytest.raises(TimeoutError):
                    reads[0].result(1)

        failpoint.arm(at)
        try:
            newer = await open_at(data_dir)
        finally:
            failpoint.arm(None)
        with pytest.raises(Fenced):
            await append
        found = await asyncio.wrap_future(reads[0])
        assert [row["k"] for row in found] == [1]
        snapshot = newer.snapshot(await reader(newer, U1), 0)
        assert (await snapshot.rows()).column("k").to_pylist() == [1]
        snapshot.release()
        await newer.close()
        await abandon(older)

    with ThreadPoolExecutor(1) as pool:
        run(main)


@pytest.mark.parametrize("read", [rows, restored])
def test_owner_that_died_during_take_over_does_not_block_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    monkeypatch.setattr(foreshore_files, "TAKEOVER_S", 1.0)
    monkeypatch.setattr(backup, "TAKEOVER_SECONDS", 1.0)
    data_dir = tmp_path / "data"
    data_dir.mkdir()

    class Killed(BaseException):
        """Simulates the end of the process."""

    def kill(point: str) -> None:
        if point == "log.claimed":
            raise Killed

    async def main() -> None:
        older = await open_at(data_dir)
        await older.create(U1, ROWS)
        await put(older, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await abandon(older)
        failpoint.arm(kill)
        try:
            with pytest.raises(Killed):
                await open_at(data_dir)
        finally:
            failpoint.arm(None)

    run(main)
    assert [row["k"] for row in read(data_dir)] == [1]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("read", [rows, restored])
def test_owner_that_died_before_claiming_the_log_delays_no_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    for module, name in ((foreshore_files, "TAKEOVER_S"), (backup, "TAKEOVER_SECONDS")):
        monkeypatch.setattr(module, name, 600.0)
    data_dir = tmp_path / "data"
    data_dir.mkdir()

    async def main() -> None:
        owner = await open_at(data_dir)
        await owner.create(U1, ROWS)
        await take_epoch(owner.consensus)
        await put(owner, write(U1, 0, 1, ((1, "a"), 0, 1)))
        assert [row["k"] for row in await asyncio.to_thread(read, data_dir)] == [1]
        await owner.close()

    run(main)
