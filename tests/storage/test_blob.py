"""One contract for every blob store."""

import errno
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from foreshore.errors import InvalidParameterValue
from foreshore.storage.blob import Blob, FileBlob, MemoryBlob, open_blob
from foreshore.storage.fault import Determinate, Indeterminate
from foreshore.storage.s3_blob import S3Blob
from tests.harness import ObjectStore, object_store

Open = Callable[[], Blob]

_prefixes = count(1)


@pytest.fixture(params=["file", "memory", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return a function that opens the same store, each time as another client."""
    match request.param:
        case "file":
            return lambda: FileBlob(tmp_path / "blob")
        case "memory":
            store = MemoryBlob()
            return lambda: store
        case _:
            url = request.getfixturevalue("objects").url(f"contract {next(_prefixes)}")
            return lambda: S3Blob(url)


@pytest.fixture
def blob(opened: Open) -> Blob:
    return opened()


def test_get_returns_last_put(blob: Blob) -> None:
    assert blob.get("a/b") is None
    blob.put("a/b", b"one")
    blob.put("a/b", b"two")
    assert blob.get("a/b") == b"two"


def test_empty_blob_exists(blob: Blob) -> None:
    blob.put("a", b"")
    assert blob.get("a") == b""
    assert list(blob.list("")) == [("a", 0)]


def test_large_blob_is_stored(blob: Blob, tmp_path: Path) -> None:
    data = os.urandom((17 << 20) + 1)  # S3 takes it in parts
    file = tmp_path / "made"
    file.write_bytes(data)
    blob.put_file("large", file)
    assert list(blob.list("large")) == [("large", len(data))]
    assert blob.get("large") == data
    assert blob.fetch("large", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == data


def test_file_is_put_and_fetched(blob: Blob, tmp_path: Path) -> None:
    file = tmp_path / "made"
    file.write_bytes(b"content")
    blob.put_file("x/y/z.parquet", file)
    assert blob.get("x/y/z.parquet") == b"content"
    assert not file.exists()
    assert blob.fetch("x/y/z.parquet", file)
    assert file.read_bytes() == b"content"
    assert not blob.fetch("x/y", tmp_path / "other")
    local = blob.local("x/y/z.parquet")
    assert local is None or local.read_bytes() == b"content"


def test_full_disk_at_fetch_is_not_store_fault(blob: Blob) -> None:
    blob.put("a", bytes(3 << 20))
    with pytest.raises(OSError, match="No space left on device"):
        blob.fetch("a", Path("/dev/full"))


def test_concurrent_creates_have_one_winner(opened: Open) -> None:
    found: list[tuple[bytes, bool]] = []

    def create(name: bytes) -> None:
        found.append((name, opened().create("mark", name)))

    threads = [threading.Thread(target=create, args=(bytes([i]),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [name for name, created in found if created]
    assert len(found) == 6
    assert opened().get("mark") == winner
    assert not opened().create("mark", b"late")
    assert opened().get("mark") == winner


def test_put_is_atomic_for_readers(opened: Open) -> None:
    versions = [bytes([i]) * 300_000 for i in range(8)]
    seen: set[bytes | None] = set()
    done = threading.Event()

    def read() -> None:
        reader = opened()
        while not done.is_set():
            seen.add(reader.get("a"))

    thread = threading.Thread(target=read)
    thread.start()
    writer = opened()
    for version in versions:
        writer.put("a", version)
    done.set()
    thread.join()
    assert seen <= {None, *versions}


def test_delete_is_idempotent(blob: Blob) -> None:
    blob.put("a/b", b"1")
    blob.delete("a/b")
    blob.delete("a/b")
    assert blob.get("a/b") is None
    assert list(blob.list("")) == []
    blob.put("a/b", b"2")
    assert blob.get("a/b") == b"2"


def test_list_yields_keys_and_sizes_by_prefix(blob: Blob) -> None:
    for key in ("u1/a", "u1/b", "u10/a", "u2/a", "u"):
        blob.put(key, key.encode())
    assert sorted(blob.list("u1/")) == [("u1/a", 4), ("u1/b", 4)]
    assert sorted(blob.list("u1")) == [("u1/a", 4), ("u1/b", 4), ("u10/a", 5)]
    assert sorted(key for key, _ in blob.list("")) == ["u", "u1/a", "u1/b", "u10/a", "u2/a"]
    assert list(blob.list("v")) == []


def test_long_list_is_complete(blob: Blob) -> None:
    keys = [f"u1/{i:05}" for i in range(1100)]  # S3 gives a thousand at a time
    for key in keys:
        blob.put(key, b"")
    assert sorted(key for key, _ in blob.list("u1/")) == keys


def test_interrupted_put_leaves_no_blob(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path / "blob")
    blob.put("a", b"1")
    (tmp_path / "blob" / ".scratch" / "999999999-1-1").write_bytes(b"half")
    blob = FileBlob(tmp_path / "blob")
    assert list(blob.list("")) == [("a", 1)]
    blob.put("a", b"2")
    assert list((tmp_path / "blob" / ".scratch").iterdir()) == []


def test_file_from_other_file_system_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "blob"
    replace = Path.replace

    def renamed(file: Path, target: Path) -> Path:
        if not file.is_relative_to(root):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", renamed)
    blob = FileBlob(root)
    file = tmp_path / "made"
    for content in (b"one", b"two"):
        file.write_bytes(content)
        blob.put_file("s/a.parquet", file)
        assert not file.exists()
        assert blob.get("s/a.parquet") == content
    assert list((root / ".scratch").iterdir()) == []


def test_url_selects_service(tmp_path: Path) -> None:
    assert isinstance(open_blob(None, tmp_path), FileBlob)
    blob = open_blob(f"file://{tmp_path}/a%20b", tmp_path)
    blob.put("c", b"")
    assert (tmp_path / "a b" / "c").exists()
    client = open_blob("s3://bucket/prefix?region=eu-west-1", tmp_path)
    assert isinstance(client, S3Blob)
    assert open_blob("s3://bucket/prefix?region=eu-west-1", tmp_path) is client
    assert open_blob("s3://bucket/other?region=eu-west-1", tmp_path) is not client
    for wrong in ("s3:///prefix", "s3://key:secret@bucket/", "s3://b/?secret=x", "gs://secret/"):
        with pytest.raises(InvalidParameterValue) as raised:
            open_blob(wrong, tmp_path)
        assert "secret" not in raised.value.message


# --- S3: what may go wrong between here and there ------------------------------------------------


def test_request_refused_by_s3_is_determinate(objects: ObjectStore, tmp_path: Path) -> None:
    blob = S3Blob(objects.url("p").replace(objects.bucket, "no-such-bucket"))
    with pytest.raises(Determinate, match="no-such-bucket"):
        blob.put("a", b"1")
    with pytest.raises(Determinate, match="no-such-bucket"):
        list(blob.list(""))


def test_unanswered_request_is_indeterminate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreshore.storage.s3_blob.RETRIES", 1)
    with object_store() as gone:
        blob = S3Blob(gone.url("p"))
        blob.put("a", b"1")
    with pytest.raises(Indeterminate, match="cannot store blob a in s3://"):
        blob.put("a", b"2")
    with pytest.raises(Indeterminate, match="cannot delete blob a in s3://"):
        blob.delete("a")
    with pytest.raises(Determinate, match="cannot read blob a"):
        blob.get("a")
    with pytest.raises(Determinate, match="cannot read blob a"):
        blob.fetch("a", tmp_path / "a")
