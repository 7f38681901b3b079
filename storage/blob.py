"""Blobs: immutable named bytes, which store batches.

    put(key, data)     store whole and durable, replacing an existing blob
    create(key, data)  the same, but only if there is no such blob
    get(key)           return all of it, or None
    delete(key)        remove the blob if it exists
    list(prefix)       yield keys with their sizes

A database needs nothing else of its store, so any object store will do. Large blobs use files:
`put_file` and `fetch` store and load one, and `local` returns the path of a blob that is a local
file already. `local_files.py` manages the local copies of remote blobs.

Every call blocks and belongs on a thread.
"""

# The Protocol documents the methods.
# ruff: noqa: D102

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from foreshore.errors import InvalidParameterValue, is_disk_full
from foreshore.failpoint import reached
from foreshore.once_per_process import once_per_process
from foreshore.storage.fault import Determinate, DiskFull, Indeterminate


class Blob(Protocol):
    """A store of blobs. Keys are relative paths of letters, digits, `-`, `_`, `.` and `/`."""

    def get(self, key: str) -> bytes | None:
        """Return the blob's bytes, None if there is no such blob."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store `data` durably and atomically."""
        ...

    def put_file(self, key: str, file: Path) -> None:
        """Store the contents of `file` durably and atomically; `file` is removed."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Store `data` if there is no such blob; return whether it was stored."""
        ...

    def fetch(self, key: str, file: Path) -> bool:
        """Write the blob's bytes to `file`; return whether there is such a blob.

        Raises OSError if `file` cannot be written.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove the blob if it exists."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield key and size of each blob whose key starts with `prefix`."""
        ...

    def local(self, key: str) -> Path | None:
        """Return the blob's path on this machine, None in a remote store."""
        ...


class FileBlob:
    """Blobs as files below a directory.

    A blob is written to a temporary file, synced, and renamed into place, and the directories are
    synced. So whatever is found under a key is complete, also after a power failure. A file on
    another file system is copied.
    """

    def __init__(self, root: Path) -> None:
        """Open the store; the directory is created with the first blob."""
        self.root = Path(os.path.abspath(root))
        self._scratch = self.root / ".scratch"
        self._numbers = count()
        self._synced = {Path(self.root.anchor)}  # directories whose entries are durable

    def get(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            return None

    def put(self, key: str, data: bytes) -> None:
        self.put_file(key, self._written(key, lambda file: file.write_bytes(data)))

    def put_file(self, key: str, file: Path) -> None:
        path = self._ready(key, file)
        reached("batch.written")
        try:
            try:
                file.replace(path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(key, file, path)
            sync_directory(path.parent)
        except OSError as error:
            raise Indeterminate(f"cannot store blob {key}: {error.strerror}") from error

    def create(self, key: str, data: bytes) -> bool:
        file = self._written(key, lambda file: file.write_bytes(data))
        path = self._ready(key, file)
        try:
            path.hardlink_to(file)
            sync_directory(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise Indeterminate(f"cannot create blob {key}: {error.strerror}") from error
        finally:
            file.unlink(missing_ok=True)
        return True

    def _copy(self, key: str, file: Path, path: Path) -> None:
        """Store a file from another file system."""
        copy = self._written(key, partial(shutil.copyfile, file))
        self._ready(key, copy)
        copy.replace(path)
        file.unlink()

    def _written(self, key: str, write: Callable[[Path], object]) -> Path:
        """Return a temporary file in the store that `write` has filled."""
        file = self._scratch / f"{os.getpid()}-{id(self)}-{next(self._numbers)}"
        try:
            self._make_directory(self._scratch)
            for leftover in self._scratch.iterdir():
                if not is_of_a_live_process(leftover.name):
                    leftover.unlink(missing_ok=True)
            write(file)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise _not_written(key, error) from error
        return file

    def _ready(self, key: str, file: Path) -> Path:
        """Sync `file`, create the blob's directory durably, and return the blob's path."""
        path = self._path(key)
        try:
            sync_file(file)
            self._make_directory(path.parent)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise _not_written(key, error) from error
        return path

    def fetch(self, key: str, file: Path) -> bool:
        try:
            shutil.copyfile(self._path(key), file)
        except (FileNotFoundError, IsADirectoryError):
            return False
        return True

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise Indeterminate(f"cannot delete blob {key}: {error.strerror}") from error
        with contextlib.suppress(OSError):  # fails unless the directory is empty
            path.parent.rmdir()
            self._synced.discard(path.parent)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        for directory, names, files in os.walk(self.root / prefix.rpartition("/")[0]):
            if ".scratch" in names:
                names.remove(".scratch")
            for file in files:
                path = Path(directory, file)
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        yield key, path.stat().st_size

    def local(self, key: str) -> Path | None:
        return self._path(key)

    def _path(self, key: str) -> Path:
        path = self.root / key
        assert ".." not in key.split("/"), key
        assert not key.startswith("."), key
        return path

    def _make_directory(self, directory: Path) -> None:
        """Create the directory and sync its parent, even if another process created it."""
        if directory.is_dir() and (
            directory in self._synced or not directory.is_relative_to(self.root)
        ):
            return
        self._make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        try:
            sync_directory(directory.parent)
        except PermissionError:  # not readable for us, so created by somebody else
            if directory != self.root:
                raise
        self._synced.add(directory)


def _not_written(key: str, error: OSError) -> Determinate:
    if is_disk_full(error):
        return DiskFull(f"blob {key}")
    return Determinate(f"cannot write blob {key}: {error.strerror}")


class MemoryBlob:
    """Blobs in the memory of one process, for tests. Replica processes cannot see them."""

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

    def create(self, key: str, data: bytes) -> bool:
        with self._lock:
            return self._blobs.setdefault(key, new := bytes(data)) is new

    def fetch(self, key: str, file: Path) -> bool:
        data = self.get(key)
        if data is not None:
            file.write_bytes(data)
        return data is not None

    def local(self, key: str) -> Path | None:
        return None


@once_per_process(64)
def _s3_blob(uri: str) -> Blob:
    """Return the process's client of a bucket, with its connections: one for each URI."""
    from foreshore.storage.s3_blob import S3Blob  # needs an optional package

    return S3Blob(uri)


def open_blob(uri: str | None, data_dir: Path) -> Blob:
    """Return the store for `uri`; None stands for a directory in `data_dir`."""
    if uri is None:
        return FileBlob(data_dir / "blob")
    parts = urlsplit(uri)
    match parts.scheme:
        case "file":
            return FileBlob(Path(unquote(parts.path)))
        case "s3":
            return _s3_blob(uri)
        case scheme:
            raise InvalidParameterValue(
                f'unrecognized blob store "{scheme or uri}"',
                hint="Valid stores are: file:///PATH, s3://BUCKET/PREFIX",
            )


def sync_file(path: Path) -> None:
    """Make the contents of the file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the entries of the directory durable."""
    sync_file(path)


def is_of_a_live_process(name: str) -> bool:
    """Whether the process whose number begins the file's name still runs."""
    pid = name.partition("-")[0]
    return pid.isdecimal() and Path("/proc", pid).exists()
