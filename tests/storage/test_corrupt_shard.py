"""Corruption of one shard affects only that shard, and loses none of its data."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.errors import CollectionCorrupted, DataCorrupted
from foreshore.ids import GlobalId
from foreshore.storage import local_files
from foreshore.storage.controller import ReadCapability, StorageController
from tests.storage.harness import (
    ROWS,
    U1,
    U2,
    U3,
    Update,
    abandon,
    open_at,
    put,
    reader,
    run,
    table,
    write,
)

SIZES = {U1: (3000, 100), U2: (2500, 50), U3: (10,)}  # of the batches; these sizes are not merged
TIMES = 2

DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
}


def flipped(whole: bytes) -> bytes:
    """Return bytes with one flipped bit in the middle."""
    place = len(whole) // 2
    return whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :]


def updates(id: GlobalId, time: int) -> list[Update]:
    """Return the updates written to a shard at a time: rows with multiplicity one."""
    sizes = SIZES[id]
    rows = sizes[time] if time < len(sizes) else int(time >= TIMES)
    return [((key, f"{id} at {time}"), time, 1) for key in range(rows)]


async def fill(directory: Path) -> dict[GlobalId, list[Path]]:
    """Leave shards in batches; return the files of each."""
    controller = await open_at(directory)
    for id in SIZES:
        await controller.create(id, ROWS)
    for time in range(TIMES):
        wanted = [id for id, sizes in SIZES.items() if time < len(sizes)]
        await put(controller, *(write(id, time, time + 1, *updates(id, time)) for id in wanted))
        controller.advance(SIZES, time + 1)
        await controller.settle()
    found = {
        id: [directory / "blob" / batch.key for batch in controller._shards[id].batches]
        for id in SIZES
    }
    assert {id: len(paths) for id, paths in found.items()} == {
        id: len(sizes) for id, sizes in SIZES.items()
    }
    await controller.close()
    return found


async def contents(controller: StorageController, read: ReadCapability, as_of: int) -> pa.Table:
    snapshot = controller.snapshot(read, as_of)
    try:
        return await snapshot.rows()
    finally:
        snapshot.release()


async def check(controller: StorageController, read: ReadCapability, times: int) -> None:
    """Assert that the shard holds all writes before `times`, at the last time and at all times."""
    written = [update for time in range(times) for update in updates(read.id, time)]
    rows = await contents(controller, read, times - 1)
    assert sorted(zip(*(c.to_pylist() for c in rows.columns), strict=True)) == sorted(
        (k, v, diff) for (k, v), _, diff in written
    )
    changes = await controller.changes(read, 0, times - 1)
    assert changes.num_rows == sum(time > 0 for _, time, _ in written)


async def check_refused(controller: StorageController, read: ReadCapability, path: Path) -> None:
    """Assert that every read of the shard fails with the reason."""
    said = f'shard "{read.id}" is damaged: batch "{read.id}/{path.name}"'
    with pytest.raises(CollectionCorrupted, match=said) as raised:
        await contents(controller, read, 1)
    assert raised.value.sqlstate == "XX001"
    with pytest.raises(CollectionCorrupted, match=said):
        controller.snapshot(read, 1)
    with pytest.raises(CollectionCorrupted, match=said):
        await controller.changes(read, 0, 1)
    listen = controller.subscribe_at(read, 1, lambda _: None)
    assert listen.task is not None
    with pytest.raises(CollectionCorrupted, match=said):
        await listen.task


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize(
    ("damaged", "number"), [(id, i) for id, sizes in SIZES.items() for i in range(len(sizes))]
)
def test_corrupt_batch_disables_only_its_shard(
    tmp_path: Path, kind: str, damaged: GlobalId, number: int
) -> None:
    async def main() -> None:
        paths = await fill(tmp_path)
        path = paths[damaged][number]
        whole = path.read_bytes()
        DAMAGES[kind](path)
        found = path.read_bytes() if path.exists() else None
        for start in range(2):  # a second start has the same result
            controller = await open_at(tmp_path)
            reads = {id: await reader(controller, id) for id in SIZES}
            now = TIMES + start
            await check_refused(controller, reads[damaged], path)
            for id in SIZES.keys() - {damaged}:
                await check(controller, reads[id], now)
            # All shards are still written, and the writes leave the log.
            await put(controller, *(write(id, now, now + 1, *updates(id, now)) for id in SIZES))
            reads = {
                id: await controller.downgrade_capability(read, 0) for id, read in reads.items()
            }
            await controller.settle()
            assert len(controller._wal.segments) == 1
            await check_refused(controller, reads[damaged], path)
            for id in SIZES.keys() - {damaged}:
                await check(controller, reads[id], now + 1)
            await controller.close()
            assert (path.read_bytes() if path.exists() else None) == found
            if kind != "flipped":  # otherwise its neighbours may be merged before it is found
                assert all(each.exists() for each in paths[damaged] if each != path)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole)
        controller = await open_at(tmp_path)
        assert not controller.corruptions.messages
        for id in SIZES:
            await check(controller, await reader(controller, id), TIMES + 2)
        await controller.close()

    run(main)


def test_merge_skips_corrupt_shard(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        paths = await fill(tmp_path)
        controller = await open_at(tmp_path)
        whole = paths[U1][0].read_bytes()
        paths[U1][0].write_bytes(flipped(whole))
        before = controller._shards[U1].batches
        # As many rows again, so that all batches of each shard are due.
        many = {
            id: [((key, f"{id} at {TIMES}"), TIMES, 1) for key in range(4000)] for id in (U1, U2)
        }
        await put(controller, *(write(id, TIMES, TIMES + 1, *many[id]) for id in many))
        async with asyncio.timeout(20):
            await controller.settle()
        assert controller.corruptions.of(U1) is not None
        assert controller._shards[U1].batches[:-1] == before
        assert len(controller._shards[U2].batches) == 1
        assert len(controller._wal.segments) == 1
        assert not list((tmp_path / "scratch").iterdir())
        await controller.close()
        paths[U1][0].write_bytes(whole)
        controller = await open_at(tmp_path)
        await controller.settle()
        assert len(controller._shards[U1].batches) == 1
        for id in (U1, U2):
            rows = await contents(controller, await reader(controller, id), TIMES)
            assert rows.num_rows == sum(SIZES[id]) + 4000
        await controller.close()

    run(main)


@pytest.mark.parametrize("kind", DAMAGES)
def test_corrupt_shard_can_be_dropped(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        paths = await fill(tmp_path)
        DAMAGES[kind](paths[U1][0])
        controller = await open_at(tmp_path)
        await reader(controller, U1)
        await controller.drop(U1)
        await controller.settle()
        await asyncio.gather(*controller._compacter._deleting)
        assert not any(path.exists() for path in paths[U1])
        assert not controller.corruptions.messages
        await check(controller, await reader(controller, U2), TIMES)
        await controller.close()
        controller = await open_at(tmp_path)
        assert not controller.corruptions.messages
        assert not controller.exists(U1)
        await controller.close()

    run(main)


def test_shard_dropped_only_in_log_is_not_corrupt(tmp_path: Path) -> None:
    async def main() -> None:
        paths = await fill(tmp_path)
        controller = await open_at(tmp_path, compacting=False)
        await controller.drop(U1)
        await abandon(controller)
        paths[U1][0].unlink()
        controller = await open_at(tmp_path)
        assert not controller.corruptions.messages
        await controller.close()

    run(main)


def test_examine_finds_reported_corruption(tmp_path: Path) -> None:
    async def main() -> None:
        paths = await fill(tmp_path)
        controller = await open_at(tmp_path)
        heard = asyncio.Event()
        controller.corruptions.listen(heard.set)
        controller.corruptions.name = {U1: "table one", U2: "table two"}.__getitem__
        read = await reader(controller, U2)
        await check(controller, read, TIMES)  # by now the files have been checked
        stat = paths[U2][0].stat()
        await controller.examine(SIZES)
        assert not controller.corruptions.messages
        paths[U2][0].write_bytes(flipped(paths[U2][0].read_bytes()))
        assert paths[U2][0].stat().st_ino == stat.st_ino
        await controller.examine(SIZES)
        async with asyncio.timeout(20):
            await heard.wait()
        with pytest.raises(CollectionCorrupted, match="table two is damaged: .* wrong checksum"):
            controller.snapshot(read, 0)
        await check(controller, await reader(controller, U1), TIMES)
        await controller.close()

    run(main)


def test_listener_of_corrupt_shard_gets_new_updates(tmp_path: Path) -> None:
    """This needs no reading, so uppers advance and waiters are served."""

    async def main() -> None:
        paths = await fill(tmp_path)
        paths[U1][0].unlink()
        controller = await open_at(tmp_path)
        events: list[tuple[int, pa.Table | None]] = []
        controller.listen(U1, TIMES, lambda event: events.append((event.upper, event.updates)))
        new = write(U1, TIMES, TIMES + 1, ((7, "new"), TIMES, 1))
        await put(controller, new)
        controller.advance([U1], TIMES + 5)
        assert events == [(TIMES + 1, table([((7, "new"), TIMES, 1)])), (TIMES + 5, None)]
        await controller.close()

    run(main)


def test_unreadable_batch_counts_as_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        paths = await fill(tmp_path)
        measure = local_files.measure

        def failing(path: Path) -> tuple[int, int]:
            if path == paths[U1][0]:
                raise OSError(errno.EIO, "Input/output error")
            return measure(path)

        controller = await open_at(tmp_path)
        read = await reader(controller, U1)
        with monkeypatch.context() as patch:
            patch.setattr(local_files, "measure", failing)
            with pytest.raises(DataCorrupted, match="not readable: Input/output error"):
                await contents(controller, read, 1)
        assert controller.corruptions.of(U1) is not None
        await check(controller, await reader(controller, U2), TIMES)
        await controller.close()

    run(main)
