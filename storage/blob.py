"""Blobs: immutable named bytes, where batches live.

    put(key, data)   whole and durable when it returns, replacing what was there
    get(key)         all of it, or None
    delete(key)      nothing is there afterwards, whether or not something was
    list(prefix)     keys with their sizes

That is all a shard asks of its store, so that any object store will do. Two conveniences change
nothing of it: `put_file` hands over a file instead of its bytes, and `location` and `open` tell
engines, which read Parquet in pieces, where a blob is.

Every call blocks and belongs on a thread.
"""

# What the methods do is said once, by the Protocol.
# ruff: noqa: D102

import contextlib
import os
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from foreshore.errors import InvalidParameterValue
from foreshore.failpoint import reached
from foreshore.storage.fault import Determinate, Indeterminate


class Blob(Protocol):
    """A store of blobs; keys are relative paths of letters, digits, `-`, `_`, `.` and `/`."""

    def get(self, key: str) -> bytes | None:
        """Return the blob's bytes, None if there is none."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, durably and whole."""
        ...

    def put_file(self, key: str, file: Path) -> None:
        """Store the contents of `file`, durably and whole; `file` is gone afterwards."""
        ...

    def delete(self, key: str) -> None:
        """Remove the blob, if there is one."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield key and size of each blob whose key starts with `prefix`."""
        ...

    def location(self, key: str) -> str:
        """Return the path or URL under which engines read the blob."""
        ...

    def open(self, key: str) -> pa.NativeFile:
        """Open the blob for reading in pieces; raises FileNotFoundError."""
        ...


class FileBlob:
    """Blobs as files below a directory.

    A blob is written beside its place, synced and renamed into it, and the directories are synced,
    so that whatever is there under a key is all of it, also after power was lost.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._scratch = root / ".scratch"
        self._scratch.mkdir(parents=True, exist_ok=True)
        sync_directory(root.parent)
        for leftover in self._scratch.iterdir():
            if not _belongs_to_a_live_process(leftover.name):
                leftover.unlink(missing_ok=True)
        self._numbers = count()

    def get(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, key: str, data: bytes) -> None:
        file = self._scratch / f"{os.getpid()}-{id(self)}-{next(self._numbers)}"
        try:
            file.write_bytes(data)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise Determinate(f"cannot write blob {key}: {error.strerror}") from error
        self.put_file(key, file)

    def put_file(self, key: str, file: Path) -> None:
        path = self._path(key)
        try:
            sync_file(file)
            self._make_directory(path.parent)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise Determinate(f"cannot write blob {key}: {error.strerror}") from error
        reached("batch.written")
        try:
            file.replace(path)
            sync_directory(path.parent)
        except OSError as error:
            raise Indeterminate(f"cannot store blob {key}: {error.strerror}") from error

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise Indeterminate(f"cannot delete blob {key}: {error.strerror}") from error
        with contextlib.suppress(OSError):  # only an empty directory goes
            path.parent.rmdir()

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        for directory, names, files in os.walk(self.root):
            if ".scratch" in names:
                names.remove(".scratch")
            for file in files:
                path = Path(directory, file)
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        yield key, path.stat().st_size

    def location(self, key: str) -> str:
        return str(self._path(key))

    def open(self, key: str) -> pa.NativeFile:
        return pa.OSFile(str(self._path(key)), "rb")

    def _path(self, key: str) -> Path:
        path = self.root / key
        assert ".." not in path.parts, key
        assert not key.startswith("."), key
        return path

    def _make_directory(self, directory: Path) -> None:
        if not directory.is_dir():
            self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True)
            sync_directory(directory.parent)


class MemoryBlob:
    """Blobs in memory, for tests and for databases that are to be forgotten."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        return self._blobs.get(key)

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._blobs[key] = bytes(data)

    def put_file(self, key: str, file: Path) -> None:
        self.put(key, file.read_bytes())
        file.unlink()

    def delete(self, key: str) -> None:
        with self._lock:
            self._blobs.pop(key, None)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._lock:
            found = [(k, len(v)) for k, v in self._blobs.items() if k.startswith(prefix)]
        yield from found

    def location(self, key: str) -> str:
        return f"memory:{key}"

    def open(self, key: str) -> pa.NativeFile:
        data = self.get(key)
        if data is None:
            raise FileNotFoundError(key)
        return pa.BufferReader(data)


def open_blob(uri: str | None, data_dir: Path) -> Blob:
    """Return the store that `uri` names; None is a directory in `data_dir`."""
    if uri is None:
        return FileBlob(data_dir / "blob")
    parts = urlsplit(uri)
    match parts.scheme:
        case "file":
            return FileBlob(Path(unquote(parts.path)))
        case "memory":
            return MemoryBlob()
        case _:
            raise InvalidParameterValue(f'unrecognized blob store "{uri}"')


def sync_file(path: Path) -> None:
    """Make the contents of the file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in the directory durable."""
    sync_file(path)


def _belongs_to_a_live_process(name: str) -> bool:
    pid = name.partition("-")[0]
    return pid.isdecimal() and Path("/proc", pid).exists()
