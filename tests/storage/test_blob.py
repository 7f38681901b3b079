"""One contract for every blob store."""

from pathlib import Path

import pytest

from foreshore.storage.blob import Blob, FileBlob, MemoryBlob, open_blob


@pytest.fixture(params=["file", "memory"])
def blob(request: pytest.FixtureRequest, tmp_path: Path) -> Blob:
    return FileBlob(tmp_path / "blob") if request.param == "file" else MemoryBlob()


def test_a_blob_is_what_was_put_last(blob: Blob) -> None:
    assert blob.get("a/b") is None
    blob.put("a/b", b"one")
    blob.put("a/b", b"two")
    assert blob.get("a/b") == b"two"


def test_an_empty_blob_is_there(blob: Blob) -> None:
    blob.put("a", b"")
    assert blob.get("a") == b""


def test_a_file_is_handed_over(blob: Blob, tmp_path: Path) -> None:
    file = tmp_path / "made"
    file.write_bytes(b"content")
    blob.put_file("x/y/z.parquet", file)
    assert blob.get("x/y/z.parquet") == b"content"
    assert not file.exists()


def test_a_deleted_blob_is_gone_and_deleting_again_is_no_fault(blob: Blob) -> None:
    blob.put("a/b", b"1")
    blob.delete("a/b")
    blob.delete("a/b")
    assert blob.get("a/b") is None
    assert list(blob.list("")) == []


def test_list_gives_keys_and_sizes_by_prefix(blob: Blob) -> None:
    for key in ("u1/a", "u1/b", "u10/a", "u2/a"):
        blob.put(key, key.encode())
    assert sorted(blob.list("u1/")) == [("u1/a", 4), ("u1/b", 4)]
    assert sorted(key for key, _ in blob.list("")) == ["u1/a", "u1/b", "u10/a", "u2/a"]


def test_a_blob_can_be_read_in_pieces(blob: Blob) -> None:
    blob.put("a", b"0123456789")
    with blob.open("a") as file:
        file.seek(4)
        assert file.read(3) == b"456"
    with pytest.raises(FileNotFoundError):
        blob.open("missing")


def test_what_an_interrupted_put_left_is_no_blob(tmp_path: Path) -> None:
    FileBlob(tmp_path / "blob")
    (tmp_path / "blob" / ".scratch" / "999999999-1-1").write_bytes(b"half")
    blob = FileBlob(tmp_path / "blob")
    assert list(blob.list("")) == []
    assert list((tmp_path / "blob" / ".scratch").iterdir()) == []


def test_uris_choose(tmp_path: Path) -> None:
    assert isinstance(open_blob(None, tmp_path), FileBlob)
    assert isinstance(open_blob(f"file://{tmp_path}/a%20b", tmp_path), FileBlob)
    assert (tmp_path / "a b").is_dir()
    assert isinstance(open_blob("memory:", tmp_path), MemoryBlob)
