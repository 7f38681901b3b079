"""Segments: the files of the write-ahead log.

    file header   magic, number, epoch, checksum                                         32 bytes
    record        header: magic, kind, sequence, length and checksum of the payload,
                  checksum of the header                                                 32 bytes
                  payload, padded to a multiple of 8
    ...

All integers are little-endian, checksums are CRC-32, and sequence numbers count up by one through
the file. The first record is an Opening. If the segment was filled, the last one is a Closing. They
state the uppers at both ends of the segment.

After the last record, the file is filled with bytes C1, and the next records overwrite them. So the
sync of a small record writes its data only, neither a length nor the place of a block. The file is
filled further, durably, when a record has no place in it; a record larger than what is filled in
one go is appended to the file. No MessagePack and no text has a byte C1, and rows seldom end in it.

A process or machine that dies leaves some sectors of the last record unwritten, or all from some
byte on. Reading an *open* segment therefore ends at the first record of which a part is missing or
still filled, if no other record follows: the torn tail. Any other deviation is corruption and
raises DataCorrupted with file and offset: a wrong checksum, a missing record between others, and,
in a *sealed* segment, any difference from its recorded length and checksum.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
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
FILLING = b"\xc1"
FILLED_BYTES = 256 << 10  # in one go, at most; as much as the segment has, while it is small
SECTOR = 512  # bytes that a disk writes as one
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
        self._size = 0  # of the file; it is filled from `length` on
        self._descriptor = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
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
        self._fill(_size(length))
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

    def _fill(self, size: int) -> None:
        """Fill the file further, durably, if that gives a record of `size` bytes its place."""
        filling = min(self.length, FILLED_BYTES)
        if self.length + size <= self._size or size > filling:
            return
        try:
            self._size += os.pwrite(self._descriptor, FILLING * filling, self._size)
        except OSError as error:
            if not is_disk_full(error):
                raise
            self._cut(self.length, self.checksum)
            return
        os.fdatasync(self._descriptor)

    def _cut(self, length: int, checksum: int) -> None:
        """Truncate the file to `length`, durably: records after a torn one would not be found."""
        os.ftruncate(self._descriptor, length)
        os.fsync(self._descriptor)
        self.length, self.checksum, self._size = length, checksum, length

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
        at = self.length
        for part in parts:
            view = memoryview(part).cast("B")
            self.checksum = zlib.crc32(view, self.checksum)
            while view.nbytes:
                written = os.pwrite(self._descriptor, view, at)
                at += written
                view = view[written:]
        self.length += size
        self._size = max(self._size, self.length)


def read_segment(
    path: Path,
    number: int,
    epoch: int,
    sealed: tuple[int, int] | None,
    end: int | None = None,
) -> Contents:
    """Read the segment. `sealed` is its length and checksum, None while it is open.

    Bytes of an open segment beyond `end` are ignored; None: all bytes count. It may be written
    meanwhile: the file is read again where a record is missing that was there before later ones.
    """
    if sealed is None:
        suspect = None
        while True:
            try:
                return _scan(path, _bytes_of(path)[:end], number, epoch)
            except DataCorrupted as error:
                if error.offset == suspect:
                    raise
                suspect = error.offset
    data = _bytes_of(path)
    length, checksum = sealed
    if len(data) < length:
        raise _corrupt(path, len(data), f"ends before its {length} bytes")
    data = data[:length]  # ignores what a fenced environment wrote after it
    contents = _scan(path, data, number, epoch)
    if contents.length != length or contents.checksum != checksum:
        raise _corrupt(path, contents.length, "is not what was sealed")
    return contents


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataCorrupted(f'log segment "{path.name}" is missing') from None


def has_records(path: Path) -> bool:
    """Return whether the segment has more than its Opening.

    Raises DataCorrupted if it is not a segment. Only its first headers are checked.
    """
    data = path.read_bytes()
    if len(data) < 2 * HEADER:
        return False
    number, _, epoch = path.stem.partition("-")
    _check_file_header(path, data, int(number), int(epoch))
    _, _, _, length, _, own = _RECORD.unpack_from(data, HEADER)
    if own != zlib.crc32(data[HEADER : 2 * HEADER - 4]):
        raise _corrupt(path, HEADER, "has a record header with a wrong checksum")
    return len(data.rstrip(FILLING)) > HEADER + _size(length)


def _scan(path: Path, data: bytes, number: int, epoch: int) -> Contents:
    _check_file_header(path, data, number, epoch)
    written = len(data.rstrip(FILLING))
    offset = HEADER
    records: list[Record] = []
    while offset < written:
        found = _record_at(data, offset, len(records), written)
        if isinstance(found, str):
            raise _corrupt(path, offset, found)
        if found is None:
            if _has_later_record(data, offset, len(records)):
                raise _corrupt(path, offset, "has a record of which a part is missing")
            break
        records.append(found)
        offset += _size(len(found.payload))
    if not records or records[0].kind is not Kind.OPENING:
        raise _corrupt(path, HEADER, "does not begin with a statement of progress")
    for record in records[1:]:
        closing = record.kind is Kind.CLOSING
        if record.kind is Kind.OPENING or (closing and record is not records[-1]):
            raise _corrupt(path, record.offset, "has a statement of progress in its middle")
    checksum = zlib.crc32(memoryview(data)[:offset])
    return Contents(tuple(records), offset, checksum, max(0, written - offset))


def _record_at(data: bytes, offset: int, number: int, written: int) -> Record | str | None:
    """Return the record at `offset`, the `number`-th; None: it is torn; a text: its fault.

    From `written` on, all is filling.
    """
    payload = offset + HEADER
    if payload > len(data):
        return None
    magic, kind, sequence, length, checksum, own = _RECORD.unpack_from(data, offset)
    if own != zlib.crc32(data[offset : payload - 4]) or magic != RECORD_MAGIC:
        is_torn = written < payload or _has_unwritten_sector(data, offset, payload)
        return None if is_torn else "has a record header with a wrong checksum"
    if sequence != number:
        return f"has record {sequence} in the place of {number}"
    end = offset + _size(length)
    if end > len(data):
        return None
    record = Record(Kind(kind), offset, memoryview(data)[payload : payload + length])
    if zlib.crc32(record.payload) != checksum or any(data[payload + length : end]):
        is_torn = written < end or _has_unwritten_sector(data, offset, end)
        return None if is_torn else "has a record with a wrong checksum"
    return record


def _size(length: int) -> int:
    """Return the size of a record whose payload has this length."""
    return HEADER + length + -length % 8


def _has_unwritten_sector(data: bytes, start: int, end: int) -> bool:
    """Return whether all that a sector has of `data[start:end]` is filling."""
    bounds = [start, *range(start - start % SECTOR + SECTOR, end, SECTOR), end]
    return any(not data[one:other].strip(FILLING) for one, other in pairwise(bounds))


def _has_later_record(data: bytes, offset: int, number: int) -> bool:
    """Return whether a record after the `number`-th, at `offset`, is beyond that.

    Its payload may look like records, so it is left out if the header says how long it is.
    """
    head = data[offset : offset + HEADER]
    if len(head) == HEADER and head[-4:] == struct.pack("<I", zlib.crc32(head[:-4])):
        offset += _size(_RECORD.unpack(head)[3]) - 1
    while (offset := data.find(RECORD_MAGIC, offset + 1)) >= 0:
        head = data[offset : offset + HEADER]
        if offset % 8 == 0 and len(head) == HEADER:
            _, _, sequence, _, _, own = _RECORD.unpack(head)
            if sequence > number and own == zlib.crc32(head[:-4]):
                return True
    return False


def _check_file_header(path: Path, data: bytes, number: int, epoch: int) -> None:
    if len(data) < HEADER:
        raise _corrupt(path, len(data), "ends within its header")
    magic, found, found_epoch, own = _FILE.unpack(data[:HEADER])
    if magic != FILE_MAGIC or own != zlib.crc32(data[: HEADER - 4]):
        raise _corrupt(path, 0, "has a damaged header")
    if (found, found_epoch) != (number, epoch):
        raise _corrupt(path, 0, f"is segment {found} of epoch {found_epoch}")


def _corrupt(path: Path, offset: int, what: str) -> DataCorrupted:
    return DataCorrupted(f'log segment "{path.name}" {what}, at offset {offset}', offset=offset)
