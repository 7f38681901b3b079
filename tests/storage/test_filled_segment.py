"""Segments filled ahead: records overwrite the filling, and a crash leaves whole records only."""

from __future__ import annotations

import errno
import os
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.errors import DataCorrupted
from foreshore.storage import segment
from foreshore.storage.segment import (
    FILLED_BYTES,
    FILLING,
    SECTOR,
    Kind,
    SegmentWriter,
    has_records,
    read_segment,
    segment_name,
)
from tests.effort import examples

Payloads = list[bytes]


def filled(directory: Path, payloads: Payloads) -> tuple[Path, list[int]]:
    """Write a segment of these payloads; return its path, and where each record ends."""
    writer = SegmentWriter(directory, 1, 1)
    ends: list[int] = []
    for payload in payloads:
        writer.write(Kind.GROUP if ends else Kind.OPENING, [payload])
        ends.append(writer.length)
    writer.close()
    return directory / writer.name, ends


def payloads_of(path: Path) -> Payloads:
    return [bytes(record.payload) for record in read_segment(path, 1, 1, None).records]


PAYLOADS = [b"opening" * 100, b"a" * 30, b"b" * 299, b"", b"c" * 1_000, bytes(700) + b"d"]


@pytest.mark.parametrize("count", range(2, len(PAYLOADS) + 1))
def test_record_cut_off_at_any_byte_is_torn(tmp_path: Path, count: int) -> None:
    path, ends = filled(tmp_path, PAYLOADS[:count])
    whole = path.read_bytes()
    begin, end = ends[-2:]
    for cut in range(begin, end):
        path.write_bytes(whole[:cut] + FILLING * (len(whole) - cut))
        contents = read_segment(path, 1, 1, None)
        assert [bytes(each.payload) for each in contents.records] == PAYLOADS[: count - 1]
        assert contents.length == begin
        assert bool(contents.torn) == (cut > begin)
        assert has_records(path) == (count > 2 or cut > begin)
    path.write_bytes(whole)
    assert payloads_of(path) == PAYLOADS[:count]
    assert has_records(path)


@pytest.mark.parametrize("size", [10, 460, 1_000, 2_300])
@pytest.mark.parametrize("shift", range(0, SECTOR, 56))
def test_record_without_any_of_its_sectors_is_torn(tmp_path: Path, size: int, shift: int) -> None:
    payloads = [bytes(3_000), b"s" * shift, b"x" * size]
    path, (_, begin, end) = filled(tmp_path, payloads)
    whole = path.read_bytes()
    bounds = [begin, *range(begin - begin % SECTOR + SECTOR, end, SECTOR), end]
    sectors = list(pairwise(bounds))
    for written in product([False, True], repeat=len(sectors)):
        found = bytearray(whole)
        for (start, stop), is_written in zip(sectors, written, strict=True):
            if not is_written:
                found[start:stop] = FILLING * (stop - start)
        path.write_bytes(found)
        assert payloads_of(path) == payloads[: 3 if all(written) else 2]


@given(st.lists(st.binary(max_size=2_000), min_size=3, max_size=6), st.data())
@settings(max_examples=examples(300))
def test_missing_sector_of_earlier_record_is_corruption(
    tmp_path_factory: pytest.TempPathFactory, payloads: Payloads, data: st.DataObject
) -> None:
    path, ends = filled(tmp_path_factory.mktemp("log"), payloads)
    found = bytearray(path.read_bytes())
    start = data.draw(st.integers(ends[0], ends[-2] - 1))
    stop = min(start - start % SECTOR + SECTOR, ends[-2])
    found[start:stop] = FILLING * (stop - start)
    if found == path.read_bytes():
        return
    path.write_bytes(found)
    with pytest.raises(DataCorrupted, match=path.name):
        read_segment(path, 1, 1, None)


@pytest.mark.parametrize("last", [b"x" * 50, b"x" * 5_000])
def test_changed_bit_of_last_record_is_corruption(tmp_path: Path, last: bytes) -> None:
    path, ends = filled(tmp_path, [bytes(6_000), last])
    whole = path.read_bytes()
    for offset in range(*ends):
        found = bytearray(whole)
        found[offset] ^= 1 << offset % 8
        path.write_bytes(found)
        with pytest.raises(DataCorrupted, match=path.name):
            read_segment(path, 1, 1, None)


def test_sealed_segment_ends_before_its_filling(tmp_path: Path) -> None:
    path, ends = filled(tmp_path, PAYLOADS)
    contents = read_segment(path, 1, 1, None)
    assert path.stat().st_size > ends[-1] == contents.length
    sealed = contents.length, contents.checksum
    assert read_segment(path, 1, 1, sealed).records[-1].payload == PAYLOADS[-1]


def test_small_records_seldom_change_the_size_of_their_file(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, 1, 1)
    writer.write(Kind.OPENING, [bytes(5_000)])
    path = tmp_path / writer.name
    sizes = set()
    for _ in range(4_000):
        writer.write(Kind.GROUP, [bytes(100)])
        sizes.add(path.stat().st_size)
        assert path.stat().st_size <= 2 * writer.length + FILLED_BYTES
    assert len(sizes) <= 8
    before = path.stat().st_size
    writer.write(Kind.GROUP, [bytes(2 * FILLED_BYTES)])  # its like is appended, and not filled
    assert path.stat().st_size in (before, writer.length)
    writer.close()


def test_record_is_appended_while_there_is_no_room_for_filling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def pwrite(self, descriptor: int, data: Any, at: int) -> int:
            if bytes(data[:1]) == FILLING:
                os.pwrite(descriptor, bytes(data)[:20], at)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.pwrite(descriptor, data, at)

    monkeypatch.setattr(segment, "os", Full())
    path, ends = filled(tmp_path, PAYLOADS)
    assert payloads_of(path) == PAYLOADS
    assert path.stat().st_size == ends[-1]


def test_segment_written_while_it_is_read_seems_not_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two pages, the first may be read before a record, the second after the next one."""
    path, ends = filled(tmp_path, PAYLOADS)
    whole = path.read_bytes()
    early = whole[: ends[1]] + FILLING * (ends[3] - ends[1]) + whole[ends[3] :]
    reads = [early, early[: ends[2]] + whole[ends[2] :], whole]
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.pop(0))
    with pytest.raises(DataCorrupted, match=f"at offset {ends[1]}$"):
        payloads_of(path)  # twice the same one is missing
    assert reads == [whole]
    reads = [early, whole]
    assert payloads_of(path) == PAYLOADS


def test_segment_of_older_version_has_no_filling(tmp_path: Path) -> None:
    path, ends = filled(tmp_path, PAYLOADS)
    whole = path.read_bytes()[: ends[-1]]
    for length in range(ends[-2], ends[-1] + 1):
        path.write_bytes(whole[:length])
        assert payloads_of(path) == PAYLOADS[: None if length == ends[-1] else -1]
        assert path.name == segment_name(1, 1)
