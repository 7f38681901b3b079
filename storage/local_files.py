"""Local files of batches, checked before they are read by engines.

    with files.of(batches) as paths:      the files exist and match the state that names them

A batch in a local store is read in place. A batch in a remote store is fetched as a whole into a
cache directory of bounded size, which keeps the most recently used files. Batches never change, so
the cache is never stale. Whole files are fetched because only the checksum of the whole file proves
its contents, and because the next query usually reads other columns.

A file is checked at its first use, and again if its metadata shows a later write. A file that is
missing from the store or wrong there raises `DataCorrupted`; a wrong cached file is fetched again.
An environment that was taken over may miss files that the new one has merged. That is not
corruption but raises `Fenced`.
"""

import errno
import os
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from foreshore.errors import DataCorrupted
from foreshore.storage.blob import Blob, is_of_a_live_process
from foreshore.storage.fault import writing

KEPT_BYTES = 16 << 30
PIECE_BYTES = 1 << 20

_Stamp = tuple[int, int, int] | None


class StoredFile(Protocol):
    """A batch file as a state names it."""

    @property
    def key(self) -> str:
        """Return the key in the blob store."""
        ...

    @property
    def bytes(self) -> int:
        """Return the length."""
        ...

    @property
    def checksum(self) -> int:
        """Return the CRC-32 of the whole file."""
        ...


class LocalFiles:
    """The local files of one process. `directory` is the cache.

    `check_owned` raises Fenced if another environment owns the store. During a takeover two
    processes share the cache directory. Methods block, and several threads may call them at once.
    """

    def __init__(
        self,
        blob: Blob,
        directory: Path,
        kept_bytes: int = KEPT_BYTES,
        check_owned: Callable[[], None] = lambda: None,
    ) -> None:
        self._blob = blob
        self._check_owned = check_owned
        self._directory = directory
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        self._checked: dict[str, _Stamp] = {}
        self._used: Counter[str] = Counter()
        self._fetched: OrderedDict[str, int] = OrderedDict()  # sizes, most recently used last
        self._numbers = count()
        if directory.is_dir():  # files cached by an earlier process are reused
            for file in directory.iterdir():
                if file.name.endswith(".parquet"):
                    self._fetched[file.name] = file.stat().st_size
                elif not _is_of_another_process(file.name):
                    file.unlink(missing_ok=True)

    @property
    def root(self) -> Path:
        """Return the directory that contains all of the files."""
        return self._blob.local("") or self._directory

    @contextmanager
    def of(self, files: Sequence[StoredFile]) -> Iterator[list[Path]]:
        """Yield the paths of the files in order; they stay available during the block.

        Raises DataCorrupted, and Determinate if the store does not answer.
        """
        with self._lock:
            self._used.update(_name(file) for file in files)
        try:
            with self.detecting_takeover():
                paths = [self._path(file) for file in files]
            yield paths
        finally:
            with self._lock:
                self._used.subtract(_name(file) for file in files)
                self._used = +self._used  # removes the keys with count zero
                self._discard()

    def verify(self, file: StoredFile) -> None:
        """Compare the stored file with its state now, regardless of earlier checks.

        Raises as `of` does.
        """
        path = self._blob.local(file.key)
        with self.detecting_takeover():
            if path is not None:
                self._check(file, path)
            else:
                self._fetch(file, self._directory / _name(file))

    @contextmanager
    def detecting_takeover(self) -> Iterator[None]:
        """Raise Fenced in place of DataCorrupted in the block if the store is no longer owned."""
        try:
            yield
        except DataCorrupted:
            self._check_owned()
            raise

    def adopt(self, key: str, file: Path) -> None:
        """Store a file as the blob `key`, and cache it as if it had been fetched."""
        if self._blob.local(key) is not None:
            self._blob.put_file(key, file)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        kept = self._directory / key.replace("/", "-")
        copy = self._scratch()
        os.link(file, copy)
        try:
            self._blob.put_file(key, file)
            copy.replace(kept)
        finally:
            copy.unlink(missing_ok=True)
        with self._lock:
            self._fetched[kept.name] = kept.stat().st_size
            self._discard()

    def forget(self, key: str) -> None:
        """Remove the cached file of a deleted blob."""
        name = key.replace("/", "-")
        with self._lock:
            self._checked.pop(name, None)
            if self._fetched.pop(name, None) is not None:
                (self._directory / name).unlink(missing_ok=True)

    def _path(self, file: StoredFile) -> Path:
        path = self._blob.local(file.key)
        if path is not None:
            if not self._is_checked(file, path):
                self._check(file, path)
            return path
        path = self._directory / _name(file)
        with self._lock:
            if path.name in self._fetched:
                self._fetched.move_to_end(path.name)
        if self._is_checked(file, path):
            return path
        try:
            self._check(file, path)
        except DataCorrupted:
            self._fetch(file, path)
        return path

    def _fetch(self, file: StoredFile, path: Path) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        scratch = self._scratch()
        try:
            with writing(f"a copy of blob {file.key}"):
                found = self._blob.fetch(file.key, scratch)
            if not found:
                raise DataCorrupted(f'batch "{file.key}" is missing')
            self._check(file, scratch)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
        with self._lock:
            self._checked[path.name] = _stamp_of(path)
            self._fetched[path.name] = file.bytes
            self._discard()

    def _is_checked(self, file: StoredFile, path: Path) -> bool:
        with self._lock:
            stamp = self._checked.get(_name(file))
        return stamp is not None and stamp == _stamp_of(path)

    def _check(self, file: StoredFile, path: Path) -> None:
        stamp = _stamp_of(path)  # taken before reading, so that later writes are noticed
        check_file(path, f'batch "{file.key}"', file.bytes, file.checksum)
        with self._lock:
            self._checked[_name(file)] = stamp

    def _discard(self) -> None:
        """Remove unused cached files, least recently used first; the lock must be held."""
        excess = sum(self._fetched.values()) - self._kept_bytes
        for name, size in list(self._fetched.items()):
            if excess <= 0:
                return
            if not self._used[name]:
                del self._fetched[name]
                self._checked.pop(name, None)
                (self._directory / name).unlink(missing_ok=True)
                excess -= size

    def _scratch(self) -> Path:
        """Return a file name that no other process uses, such as one being taken over from."""
        return self._directory / f"{os.getpid()}-{id(self)}-{next(self._numbers)}.unfinished"


def _name(file: StoredFile) -> str:
    return file.key.replace("/", "-")


def _is_of_another_process(name: str) -> bool:
    """Whether an unfinished file belongs to another process that still runs."""
    return is_of_a_live_process(name) and not name.startswith(f"{os.getpid()}-")


def _stamp_of(path: Path) -> _Stamp:
    """Return the metadata that changes with the file, None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


def measure(path: Path) -> tuple[int, int]:
    """Return the length and the CRC-32 of a file."""
    size = checksum = 0
    with path.open("rb") as opened:
        while piece := opened.read(PIECE_BYTES):
            size += len(piece)
            checksum = zlib.crc32(piece, checksum)
    return size, checksum


def check_file(path: Path, name: str, size: int, checksum: int) -> None:
    """Raise DataCorrupted, naming `name`, unless the file has this size and checksum."""
    try:
        found = measure(path)
    except FileNotFoundError:
        raise DataCorrupted(f"{name} is missing") from None
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DataCorrupted(f"{name} is not readable: {error.strerror}") from error
    if found[0] != size:
        raise DataCorrupted(f"{name} has {found[0]} bytes instead of {size}")
    if found[1] != checksum:
        raise DataCorrupted(f"{name} has a wrong checksum")
