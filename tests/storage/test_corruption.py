"""Corruption: stored data is read correctly or not at all."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from foreshore.errors import DataCorrupted, Unavailable
from foreshore.storage import segment
from foreshore.storage.record import decode_opening
from foreshore.storage.replay import replay
from foreshore.storage.segment import Contents, read_segment
from foreshore.storage.wal import SegmentInfo
from tests.storage.harness import (
    ROWS,
    U1,
    U2,
    Update,
    abandon,
    open_at,
    put,
    reader,
    run,
    updates_of,
    write,
)

GROUPS = 6


async def fill(directory: Path) -> SegmentInfo:
    """Make a log whose groups append the same to two shards; return its open segment."""
    controller = await open_at(directory, compacting=False)
    await controller.create(U1, ROWS)
    await controller.create(U2, ROWS)
    for time in range(GROUPS):
        update = ((time, "x" * time), time, 1)
        await put(controller, write(U1, time, time + 1, update), write(U2, time, time + 1, update))
    await abandon(controller)
    return controller._wal.segments[-1]


def expected(groups: int) -> list[Update]:
    return [((time, "x" * time), time, 1) for time in range(groups)]


def log_file(directory: Path, info: SegmentInfo) -> Path:
    return directory / "log" / segment.segment_name(info.number, info.epoch)


def contents_of(contents: Contents) -> list[list[Update]]:
    """Return the updates of the two shards as the segment's replay gives them."""
    shards = replay([(1, contents)], {}, 9).shards
    return [
        updates_of(part.updates for part in shards[id].tail) if id in shards else []
        for id in (U1, U2)
    ]


@pytest.mark.parametrize("filling", [b"", 1_000 * segment.FILLING], ids=["none", "some"])
def test_truncated_log_yields_prefix_of_whole_groups(tmp_path: Path, filling: bytes) -> None:
    info = asyncio.run(fill(tmp_path))
    path = log_file(tmp_path, info)
    whole = path.read_bytes().rstrip(segment.FILLING)
    first = read_segment(path, info.number, info.epoch, None).records[1].offset
    seen = set()
    for length in range(first, len(whole) + 1):
        path.write_bytes(whole[:length] + filling)
        contents = read_segment(path, info.number, info.epoch, None)
        one, two = contents_of(contents)
        assert one == two == expected(len(one))
        assert contents.length + contents.torn == len(whole[:length].rstrip(segment.FILLING))
        seen.add(len(one))
    assert seen == set(range(GROUPS + 1))


def test_changed_byte_is_detected(tmp_path: Path) -> None:
    info = asyncio.run(fill(tmp_path))
    path = log_file(tmp_path, info)
    whole = path.read_bytes()
    for offset in range(len(whole.rstrip(segment.FILLING))):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << (offset % 8)
        path.write_bytes(damaged)
        with pytest.raises(DataCorrupted, match=path.name):
            read_segment(path, info.number, info.epoch, None)


def test_torn_tail_is_cut_off_and_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        path = log_file(tmp_path, await fill(tmp_path))
        whole = path.read_bytes().rstrip(segment.FILLING)
        path.write_bytes(whole[:-1])
        for _ in range(2):
            controller = await open_at(tmp_path, compacting=False)
            read = await reader(controller, U2)
            assert controller.upper(U1) == controller.upper(U2) == GROUPS - 1
            tail = controller.snapshot(read, GROUPS - 2).tail
            assert updates_of(tail) == expected(GROUPS - 1)
            await abandon(controller)
        (warning,) = [r for r in caplog.records if "torn tail" in r.message]
        assert warning.__dict__["file"] == path.name

    run(main)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    "corruption",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:50]),
        lambda path: path.write_bytes(path.read_bytes()[:200] + path.read_bytes()[208:]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"xxx", b"xyx")),
    ],
    ids=["missing", "empty", "cut", "hole", "changed"],
)
def test_corrupt_segment_stops_start(
    tmp_path: Path, sealed: bool, corruption: Callable[[Path], None]
) -> None:
    async def main() -> None:
        path = log_file(tmp_path, await fill(tmp_path))
        if sealed:
            await abandon(await open_at(tmp_path, compacting=False))
        before = path.read_bytes()
        corruption(path)
        for _ in range(2):
            with pytest.raises(DataCorrupted, match=path.name):
                await open_at(tmp_path, compacting=False)
        path.write_bytes(before)  # the start changed nothing
        controller = await open_at(tmp_path, compacting=False)
        assert controller.upper(U1) == GROUPS
        await controller.close()

    run(main)


def test_older_segment_under_newer_name_is_detected(tmp_path: Path) -> None:
    async def main() -> None:
        info = await fill(tmp_path)
        path = log_file(tmp_path, info)
        shutil.copy(path, tmp_path / "old")
        controller = await open_at(tmp_path, compacting=False)
        await put(controller, write(U1, GROUPS, GROUPS + 1, ((9, "new"), GROUPS, 1)))
        await abandon(controller)
        newer = log_file(tmp_path, controller._wal.segments[-1])
        shutil.copy(tmp_path / "old", newer)
        with pytest.raises(DataCorrupted, match=newer.name):
            await open_at(tmp_path)

    run(main)


def test_writes_of_fenced_environment_are_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        older = await open_at(tmp_path, compacting=False)
        await older.create(U1, ROWS)
        newer = await open_at(tmp_path, compacting=False)
        with pytest.raises(Unavailable):
            await older.append([write(U1, 0, 1, ((1, "lost"), 0, 1))])
        assert log_file(tmp_path, older._wal.segments[-1]).stat().st_size > (
            newer._wal.segments[0].length or 0
        )
        await abandon(newer)
        again = await open_at(tmp_path, compacting=False)
        assert again.upper(U1) == 0
        await again.close()

    run(main)


def test_failed_fsync_stops_all_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(5, "Input/output error")

    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False)
        await controller.create(U1, ROWS)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", failing)
            with pytest.raises(Unavailable, match="Input/output error"):
                await controller.append([write(U1, 0, 1, ((1, "a"), 0, 1))])
        size = log_file(tmp_path, controller._wal.segments[-1]).stat().st_size
        for _ in range(2):  # although writing would work again
            with pytest.raises(Unavailable, match="Input/output error"):
                await controller.append([write(U1, 1, 2, ((1, "b"), 1, 1))])
        assert log_file(tmp_path, controller._wal.segments[-1]).stat().st_size == size
        assert len(calls) == 1
        assert controller.upper(U1) == 0
        await controller.close()
        controller = await open_at(tmp_path, compacting=False)
        assert controller.upper(U1) in (0, 1)
        await controller.close()

    run(main)


def test_opening_holds_complete_state(tmp_path: Path) -> None:
    async def main() -> None:
        info = await fill(tmp_path)
        await abandon(await open_at(tmp_path, compacting=False))
        controller = await open_at(tmp_path, compacting=False)
        segments = controller._wal.segments
        assert [s.number for s in segments] == [info.number, info.number + 1, info.number + 2]
        last = read_segment(
            log_file(tmp_path, segments[1]), segments[1].number, segments[1].epoch, None
        )
        opening = decode_opening(last.records[0].payload)
        assert [(s.id, s.upper, len(s.grants)) for s in opening.shards] == [
            (U1, GROUPS, 2),
            (U2, GROUPS, 2),
        ]
        await controller.close()

    run(main)
