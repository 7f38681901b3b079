"""Corrupt open shards: the open readers return the correct rows, or name the corrupt file."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

from tests.files.test_inspect import DAMAGES, filled, kinds, size_of
from tests.harness import ROOT
from tests.storage.harness import U1

sys.path.append(str(ROOT / "docs" / "open"))
import foreshore_files
import read_pandas

__all__ = ["filled"]

FLIPS = 25


def read(directory: Path) -> list[tuple[object, ...]]:
    """Return all rows at the last readable time."""
    found = foreshore_files.reading(directory, U1, None, read_pandas.table)
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", ["batch", "sealed", "open", "consensus"])
def test_open_reader_names_corrupt_file(filled: Path, tmp_path: Path, kind: str, how: str) -> None:
    directory = tmp_path / "data"
    shutil.copytree(filled, directory)
    path = kinds(directory)[kind]
    DAMAGES[how](path)
    with pytest.raises(foreshore_files.Unreadable) as raised:
        read(directory)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("kind", ["batch", "sealed", "open", "consensus"])
def test_open_reader_with_flipped_bit_returns_no_wrong_row(
    filled: Path,
    tmp_path: Path,
    kind: str,
) -> None:
    directory = tmp_path / "data"
    shutil.copytree(filled, directory)
    path = kinds(directory)[kind]
    whole = path.read_bytes()
    right = read(filled)
    assert len(right) == 35
    chosen = random.Random(kind)
    refused = 0
    for offset in sorted(chosen.sample(range(size_of(whole)), FLIPS)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << chosen.randrange(8)
        path.write_bytes(damaged)
        try:
            assert read(directory) == right, offset
        except foreshore_files.Unreadable:
            refused += 1
    assert refused == FLIPS or kind in ("open", "consensus")  # SQLite's files have idle bytes
