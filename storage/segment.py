"""Segments: the files of the write-ahead log.

    file header   magic, number, epoch, checksum                                         32 bytes
    record        header: magic, kind, sequence, length and checksum of the payload,
                  checksum of the header                                                 32 bytes
                  payload, padded to a multiple of 8
    ...

All integers are little-endian, checksums are CRC-32, and sequence numbers count up by one through
the file. The first record is an Opening. If the segment was filled, the last one is a Closing. They
state the uppers at both ends of the segment.

A record is written by one write at the end of the file, so a process or machine that dies leaves a
prefix of it. Reading an *open* segment therefore ends at the first incomplete record, the torn
tail. Any other deviation is corruption and raises DataCorrupted with file and offset: a wrong
checksum, a missing record between others, and, in a *sealed* segment, any difference from its
recorded length and checksum.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from foreshore.errors import DataCorrupted, is_disk_full
from foreshore.failpoint import reached
from foreshore.storage.blob import sync_directory
from foreshore.storage.fault import DiskFull

FILE_MAGIC = b"FORESHORELOG\x00\x00\x00\x01"
RECORD_MAGIC = b"FSR1"

_FILE = struct.Struct("<16sQII")  # magic, number, epoch, checksum
_RECORD = struct.Struct("<4sB3xQQII")  # magic, kind, sequence, length, payload's and own checksum
HEADER = _FILE.size
assert _FILE.size == _RECORD.size == 32


class Kind(IntEnum):
    """The kind of a record."""

    OPENING = 1
    GROUP = 2
    CLOSING = 3


@dataclass(frozen=True, slots=True)
class Record:
    """A record as read. `payload` is a view of the file's bytes; `offset` is its position."""

    kind: Kind
    offset: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a segment. `length` and `checksum` cover its valid part."""

    records: tuple[Record, ...]
    length: int
    checksum: int
    torn: int  # bytes of an unfinished record after it


def segment_name(number: int, epoch: int) -> str:
    """Return the file name of the `number`-th segment, begun in `epoch`."""
    return f"{number:012}-{epoch:06}.log"


class SegmentWriter:
    """The segment being written. Its methods block and are called by one thread."""

    def __init__(self, directory: Path, number: int, epoch: int) -> None:
        self.number = number
        self.name = segment_name(number, epoch)
        self.length = 0
        self.checksum = 0
        self.records = 0
        self._path = directory / self.name
        self._descriptor = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        head = _FILE.pack(FILE_MAGIC, number, epoch, 0)[:-4]
        try:
            self._write([head + struct.pack("<I", zlib.crc32(head))])
            sync_directory(directory)
        except BaseException:
            self.discard()
            raise

    def write(self, kind: Kind, payload: Sequence[Any]) -> None:
        """Write a record whose payload is the concatenation of the buffers, and sync the file.

        Raises DiskFull if there is no room for it; the file is then durably as it was before. After
        any other error, in particular one of the sync, the contents of the file are unknown.
        """
        length = checksum = 0
        for part in payload:
            length += memoryview(part).nbytes
            checksum = zlib.crc32(part, checksum)
        head = _RECORD.pack(RECORD_MAGIC, kind, self.records, length, checksum, 0)[:-4]
        parts = [head + struct.pack("<I", zlib.crc32(head)), *payload]
        if length % 8:
            parts.append(bytes(-length % 8))
        before = self.length, self.checksum
        try:
            self._write(parts)
        except OSError as error:
            if not is_disk_full(error):
                raise
            self._cut(*before)
            raise DiskFull("to the log") from error
        reached("log.written")
        os.fdatasync(self._descriptor)
        self.records += 1

    def _cut(self, length: int, checksum: int) -> None:
        """Truncate the file to `length`, durably: records after a torn one would not be found."""
        os.ftruncate(self._descriptor, length)
        os.fsync(self._descriptor)
        self.length, self.checksum = length, checksum

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def discard(self) -> None:
        """Close and remove the file, which no state lists."""
        self.close()
        self._path.unlink()

    def _write(self, parts: list[Any]) -> None:
        # Use one write for small records; avoid the copy for large ones.
        size = sum(memoryview(part).nbytes for part in parts)
        if size <= 1 << 20:
            parts = [b"".join(parts)]
        for part in parts:
            view = memoryview(part).cast("B")
            self.checksum = zlib.crc32(view, self.checksum)
            while view.nbytes:
                view = view[os.write(self._descriptor, view) :]
        self.length += size


def read_segment(
    path: Path,
    number: int,
    epoch: int,
    sealed: tuple[int, int] | None,
    end: int | None = None,
) -> Contents:
    """Read the segment. `sealed` is its length and checksum, None while it is open.

    Bytes of an open segment beyond `end` are ignored; None: all bytes count.
    """
    try:
        data = memoryview(path.read_bytes())
    except FileNotFoundError:
        raise DataCorrupted(f'log segment "{path.name}" is missing') from None
    if sealed is not None:
        length, checksum = sealed
        if len(data) < length:
            raise _corrupt(path, len(data), f"ends before its {length} bytes")
        data = data[:length]  # ignores what a fenced environment wrote after it
        contents = _scan(path, data, number, epoch)
        if contents.torn or contents.checksum != checksum:
            raise _corrupt(path, contents.length, "is not what was sealed")
        return contents
    return _scan(path, data[:end], number, epoch)


def has_records(path: Path) -> bool:
    """Return whether the segment has more than its Opening.

    Raises DataCorrupted if it is not a segment. Only its first headers are read.
    """
    with path.open("rb") as file:
        data = memoryview(file.read(2 * HEADER))
        size = os.fstat(file.fileno()).st_size
    if len(data) < 2 * HEADER:
        return False
    number, _, epoch = path.stem.partition("-")
    _check_file_header(path, data, int(number), int(epoch))
    _, _, _, length, _, own = _RECORD.unpack(data[HEADER:])
    if own != zlib.crc32(data[HEADER:-4]):
        raise _corrupt(path, HEADER, "has a record header with a wrong checksum")
    return size > 2 * HEADER + int(length) + -int(length) % 8


def _scan(path: Path, data: memoryview, number: int, epoch: int) -> Contents:
    _check_file_header(path, data, number, epoch)
    offset, size = HEADER, len(data)
    records: list[Record] = []
    while size - offset >= HEADER:
        head = data[offset : offset + HEADER]
        magic, kind, sequence, length, checksum, own = _RECORD.unpack(head)
        if own != zlib.crc32(head[:-4]) or magic != RECORD_MAGIC:
            raise _corrupt(path, offset, "has a record header with a wrong checksum")
        if sequence != len(records):
            raise _corrupt(path, offset, f"has record {sequence} in the place of {len(records)}")
        end = offset + HEADER + length
        padded = end + -length % 8
        if padded > size:
            break
        payload = data[offset + HEADER : end]
        if zlib.crc32(payload) != checksum or any(data[end:padded]):
            raise _corrupt(path, offset, "has a record with a wrong checksum")
        records.append(Record(Kind(kind), offset, payload))
        offset = padded
    if not records or records[0].kind is not Kind.OPENING:
        raise _corrupt(path, HEADER, "does not begin with a statement of progress")
    for record in records[1:]:
        closing = record.kind is Kind.CLOSING
        if record.kind is Kind.OPENING or (closing and record is not records[-1]):
            raise _corrupt(path, record.offset, "has a statement of progress in its middle")
    return Contents(tuple(records), offset, zlib.crc32(data[:offset]), size - offset)


def _check_file_header(path: Path, data: memoryview, number: int, epoch: int) -> None:
    if len(data) < HEADER:
        raise _corrupt(path, len(data), "ends within its header")
    magic, found, found_epoch, own = _FILE.unpack(data[:HEADER])
    if magic != FILE_MAGIC or own != zlib.crc32(data[: HEADER - 4]):
        raise _corrupt(path, 0, "has a damaged header")
    if (found, found_epoch) != (number, epoch):
        raise _corrupt(path, 0, f"is segment {found} of epoch {found_epoch}")


def _corrupt(path: Path, offset: int, what: str) -> DataCorrupted:
    return DataCorrupted(f'log segment "{path.name}" {what}, at offset {offset}', offset=offset)
