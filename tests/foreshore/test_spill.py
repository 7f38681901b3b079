"""Rows that were spilled are those that were added, and their file goes with the last of them."""

import errno
import gc
import os
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore import spill
from foreshore.errors import OutOfDisk
from foreshore.spill import MappedFile, Spill
from tests.descriptors import open_below

ROWS = pa.table({"x": pa.array(range(5_000)), "s": [None, *(f"row {i}" for i in range(4_999))]})


def mapped(directory: Path) -> int:
    """Return how many pieces of files that were in a directory this process has mapped."""
    return sum(str(directory) in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("kept", [0, 20_000, 1 << 30])
def test_rows_come_back_and_their_file_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(spill, "KEPT_BYTES", kept)
    monkeypatch.setattr(spill, "PIECE_ROWS", 300)
    rows = Spill(tmp_path)
    for start, length in ((0, 1), (1, 2_000), (2_001, 299), (2_300, 2_700)):
        rows.add(ROWS.slice(start, length))
    rows.flush()
    assert pa.concat_tables(rows.tables).equals(ROWS)
    assert rows.num_rows == 5_000
    assert max(table.num_rows for table in rows.tables) <= 300
    assert os.listdir(tmp_path) == []
    assert bool(mapped(tmp_path)) == (kept < 1 << 30)
    last = rows.tables[-1]
    del rows
    gc.collect()
    assert last.equals(ROWS.slice(5_000 - last.num_rows))
    del last
    gc.collect()
    assert mapped(tmp_path) == 0


def test_file_of_many_pieces_has_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "WINDOW_BYTES", 1 << 16)
    file = MappedFile(tmp_path)
    sizes = [1 + 977 * i % 20_000 for i in range(500)] + [1 << 22, 5]
    pieces = [file.add(pa.py_buffer(bytes([i % 251]) * size)) for i, size in enumerate(sizes)]
    assert 0 < len(open_below(tmp_path)) < 15
    for i, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
        assert piece.address % 64 == 0
        assert piece.to_pybytes() == bytes([i % 251]) * size
    file.close()
    del pieces, piece
    gc.collect()
    assert not open_below(tmp_path)
    assert mapped(tmp_path) == 0


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill, "KEPT_BYTES", 0)
    monkeypatch.setattr(os, "pwrite", full)
    rows = Spill(tmp_path)
    rows.add(ROWS)
    with pytest.raises(OutOfDisk):
        rows.flush()


def test_a_file_leaves_room_on_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = os.statvfs(tmp_path)
    monkeypatch.setattr(spill, "SPARED_BYTES", disk.f_blocks * disk.f_frsize)
    monkeypatch.setattr(spill, "SPARED_PART", 1)
    monkeypatch.setattr(spill, "KEPT_BYTES", 0)
    rows = Spill(tmp_path)
    rows.add(ROWS)
    with pytest.raises(OutOfDisk):
        rows.flush()
