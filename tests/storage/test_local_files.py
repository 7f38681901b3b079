"""Local files of a remote store: checked, cached and bounded in size."""

import os
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from foreshore.errors import DataCorrupted
from foreshore.storage.blob import MemoryBlob
from foreshore.storage.fault import Determinate
from foreshore.storage.local_files import LocalFiles
from tests.storage.faulty import Faults, FaultyBlob, Rates


@dataclass(frozen=True)
class File:
    key: str
    bytes: int
    checksum: int


class Counting(MemoryBlob):
    """A store that counts fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def fetch(self, key: str, file: Path) -> bool:
        self.fetched.append(key)
        return super().fetch(key, file)


def stored(blob: MemoryBlob, name: str, size: int = 100) -> File:
    data = name.encode() * size
    blob.put(f"u1/{name}.parquet", data)
    return File(f"u1/{name}.parquet", len(data), zlib.crc32(data))


def kept(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_fetched_once_and_also_serves_the_next_process(tmp_path: Path) -> None:
    blob = Counting()
    a, b = stored(blob, "a"), stored(blob, "b")
    for files in (LocalFiles(blob, tmp_path / "c"), LocalFiles(blob, tmp_path / "c")):
        for _ in range(3):
            with files.of([b, a]) as paths:
                assert [path.read_bytes()[:1] for path in paths] == [b"b", b"a"]
    assert sorted(blob.fetched) == [a.key, b.key]


def test_wrong_file_in_store_is_never_returned(tmp_path: Path) -> None:
    blob = Counting()
    a, b = stored(blob, "a"), stored(blob, "b")
    files = LocalFiles(blob, tmp_path / "c")
    whole = blob.get(a.key)
    assert whole is not None
    for wrong, said in (
        (whole[:50] + b"x" + whole[51:], "wrong checksum"),
        (whole[:-1], "99 bytes instead of 100"),
        (None, "missing"),
    ):
        blob.delete(a.key)
        if wrong is not None:
            blob.put(a.key, wrong)
        with pytest.raises(DataCorrupted, match=f'batch "{a.key}".*{said}'), files.of([b, a]):
            pytest.fail("it is handed out")
    assert kept(tmp_path / "c") == ["u1-b.parquet"]
    blob.put(a.key, whole)
    with files.of([a]) as (path,):
        assert path.read_bytes() == whole


def test_corrupt_cached_file_is_fetched_again(tmp_path: Path) -> None:
    blob = Counting()
    a = stored(blob, "a")
    files = LocalFiles(blob, tmp_path / "c")
    for damaged in (b"x" * 100, b"", None):
        with files.of([a]) as (path,):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
        with files.of([a]) as (path,):
            assert path.read_bytes() == b"a" * 100
    assert len(blob.fetched) == 4


def test_full_cache_drops_least_recently_used_unused_files(
    tmp_path: Path,
) -> None:
    blob = Counting()
    a, b, c, d = (stored(blob, name) for name in "abcd")
    files = LocalFiles(blob, tmp_path / "c", kept_bytes=250)
    for file in (a, b, a, c):
        with files.of([file]):
            pass
    assert kept(tmp_path / "c") == ["u1-a.parquet", "u1-c.parquet"]
    with files.of([a]) as (path,):
        with files.of([b, c, d]) as paths:
            assert all(each.exists() for each in (path, *paths))
        assert path.exists()
    assert sum(file.stat().st_size for file in (tmp_path / "c").iterdir()) <= 250


def test_stored_files_are_cached_until_deleted(tmp_path: Path) -> None:
    blob = Counting()
    files = LocalFiles(blob, tmp_path / "c")
    made = tmp_path / "made"
    made.write_bytes(b"content")
    files.adopt("u1/new.parquet", made)
    assert blob.get("u1/new.parquet") == b"content"
    with files.of([File("u1/new.parquet", 7, zlib.crc32(b"content"))]) as (path,):
        assert path.read_bytes() == b"content"
    assert blob.fetched == []
    files.forget("u1/new.parquet")
    assert kept(tmp_path / "c") == []


def test_unavailable_store_leaves_no_partial_file(tmp_path: Path) -> None:
    blob = Counting()
    a = stored(blob, "a")
    faults = Faults(1, Rates(reads=1.0))
    files = LocalFiles(FaultyBlob(blob, faults), tmp_path / "c")
    with pytest.raises(Determinate), files.of([a]):
        pytest.fail("it is handed out")
    assert kept(tmp_path / "c") == []
    faults.rates = Rates()
    with files.of([a]) as (path,):
        assert path.exists()


def test_file_being_fetched_by_other_process_is_kept(tmp_path: Path) -> None:
    """During a takeover the previous process still reads and fetches for a while."""
    blob = Counting()
    a = stored(blob, "a")
    blob.put(a.key, b"damaged")  # so that this process, too, leaves what it fetches unfinished
    (tmp_path / "c").mkdir()
    its = tmp_path / "c" / f"{os.getppid()}-0-0.unfinished"
    left = tmp_path / "c" / "999999999-0-0.unfinished"
    for file in (its, left):
        file.write_bytes(b"half")
    files = LocalFiles(blob, tmp_path / "c")
    with pytest.raises(DataCorrupted), files.of([a]):
        pytest.fail("it is handed out")
    assert kept(tmp_path / "c") == [its.name]


def test_concurrent_readers_get_files_in_small_cache(tmp_path: Path) -> None:
    blob = Counting()
    all_files = [stored(blob, name) for name in "abcdefgh"]
    files = LocalFiles(blob, tmp_path / "c", kept_bytes=300)
    failures: list[BaseException] = []

    def read(first: int) -> None:
        try:
            for i in range(60):
                wanted = [all_files[(first + i + k) % 8] for k in range(2)]
                with files.of(wanted) as paths:
                    for file, path in zip(wanted, paths, strict=True):
                        assert zlib.crc32(path.read_bytes()) == file.checksum
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(file.stat().st_size for file in (tmp_path / "c").iterdir()) <= 300
