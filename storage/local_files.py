"""Batches as files of this machine, which is how engines read them, each checked before it is read.

    with files.of(batches) as paths:      they are here, and what their state says they are

A batch in a store of local files is read where it is. One that is elsewhere is fetched, whole, into
a directory that keeps what was read last, up to a number of bytes; batches never change, so nothing
in it can be out of date. Whole, since only the checksum of all of it shows that it is what was
written, and since the next query wants another column.

A file is checked the first time that it is used, and again if it looks as if it had been written
to since. What the store has and is not as it was written, or is missing, is `DataCorrupted`; a
fetched file that has suffered here is fetched again. An environment that has been taken over from
misses what the next one has merged: that is no damage, but `Fenced`.
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

_Look = tuple[int, int, int] | None


class StoredFile(Protocol):
    """A batch file as a state names it."""

    @property
    def key(self) -> str:
        """Its key in the blob store."""
        ...

    @property
    def bytes(self) -> int:
        """Its length."""
        ...

    @property
    def checksum(self) -> int:
        """The CRC-32 of all of it."""
        ...


class LocalFiles:
    """The files of one process; `directory` is for what is fetched.

    `check_owned` raises Fenced if the store has become another environment's.
    A process that takes over shares the directory with the one before, until that has ended.
    Its methods block, and may be called by several threads at once.
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
        self._checked: dict[str, _Look] = {}
        self._used: Counter[str] = Counter()
        self._fetched: OrderedDict[str, int] = OrderedDict()  # sizes, the one used last at the end
        self._numbers = count()
        if directory.is_dir():  # what an earlier process has left serves again
            for file in directory.iterdir():
                if file.name.endswith(".parquet"):
                    self._fetched[file.name] = file.stat().st_size
                elif not _is_of_another_process(file.name):
                    file.unlink(missing_ok=True)

    @property
    def root(self) -> Path:
        """The directory below which all of them are."""
        return self._blob.local("") or self._directory

    @contextmanager
    def of(self, files: Sequence[StoredFile]) -> Iterator[list[Path]]:
        """Have the files here for the length of a block; yields their paths in order.

        Raises DataCorrupted, and Determinate where the store does not answer.
        """
        with self._lock:
            self._used.update(_name(file) for file in files)
        try:
            with self.while_ours():
                paths = [self._path(file) for file in files]
            yield paths
        finally:
            with self._lock:
                self._used.subtract(_name(file) for file in files)
                self._used = +self._used  # forgets those at zero
                self._discard()

    def verify(self, file: StoredFile) -> None:
        """Compare what the store has with its state now, whatever was found before.

        Raises as `of` does.
        """
        path = self._blob.local(file.key)
        with self.while_ours():
            if path is not None:
                self._check(file, path)
            else:
                self._fetch(file, self._directory / _name(file))

    @contextmanager
    def while_ours(self) -> Iterator[None]:
        """Let what is found to be amiss in a block be Fenced if the store is not ours any more."""
        try:
            yield
        except DataCorrupted:
            self._check_owned()
            raise

    def adopt(self, key: str, file: Path) -> None:
        """Store a file as the blob `key`, and keep it as if it had been fetched."""
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
        """Keep no file of a blob that was deleted."""
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
            self._checked[path.name] = _look(path)
            self._fetched[path.name] = file.bytes
            self._discard()

    def _is_checked(self, file: StoredFile, path: Path) -> bool:
        with self._lock:
            look = self._checked.get(_name(file))
        return look is not None and look == _look(path)

    def _check(self, file: StoredFile, path: Path) -> None:
        look = _look(path)  # before it is read: what is written to it after is seen
        check_file(path, f'batch "{file.key}"', file.bytes, file.checksum)
        with self._lock:
            self._checked[_name(file)] = look

    def _discard(self) -> None:
        """Remove fetched files that nobody uses, those used longest ago first; holds the lock."""
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
        """Return a name that no other process has, such as the one that this takes over from."""
        return self._directory / f"{os.getpid()}-{id(self)}-{next(self._numbers)}.unfinished"


def _name(file: StoredFile) -> str:
    return file.key.replace("/", "-")


def _is_of_another_process(name: str) -> bool:
    """Whether an unfinished file is that of a process which is still there, and not this one."""
    return is_of_a_live_process(name) and not name.startswith(f"{os.getpid()}-")


def _look(path: Path) -> _Look:
    """Return what changes when a file does; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


def measure(path: Path) -> tuple[int, int]:
    """Return the length of a file and the CRC-32 of all of it."""
    size = checksum = 0
    with path.open("rb") as opened:
        while piece := opened.read(PIECE_BYTES):
            size += len(piece)
            checksum = zlib.crc32(piece, checksum)
    return size, checksum


def check_file(path: Path, name: str, size: int, checksum: int) -> None:
    """Raise DataCorrupted, about `name`, unless the file is there and measures as it should."""
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
