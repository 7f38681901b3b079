"""A scratch file: bytes that wait for whoever needs them, in a file without a name.

Its space is freed when it is closed, or when its process ends. It counts for the session that runs
when it is made (`scratch_share.py`).
"""

import mmap
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from foreshore.scratch_share import SCRATCH

LARGE = 16 << 20  # freeing the space of such a file takes long
MAPPED = 2 << 20  # so many bytes are not read into memory, but mapped
ALIGNMENT = 64  # of data, as Arrow wants it

_CLOSER = ThreadPoolExecutor(1, "close-scratch")


class ScratchFile:
    """One file. One thread at a time uses it; all methods block."""

    def __init__(self) -> None:
        self._share = SCRATCH.get()
        self._share.add_file()
        self._end = 0
        self._counted = 0
        try:
            self._file: BinaryIO | None = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        except BaseException:
            self._share.remove_file(0)
            raise

    @property
    def closed(self) -> bool:
        """Whether it is."""
        return self._file is None

    def add(self, data: memoryview) -> int:
        """Write data; return where it is. Raises SessionLimitExceeded."""
        start = self._end = self._end + -self._end % ALIGNMENT
        self.extend(data)
        return start

    def extend(self, data: memoryview) -> None:
        """Write data right behind the last; raises SessionLimitExceeded."""
        assert self._file is not None
        self._share.add(len(data))
        self._counted += len(data)
        descriptor = self._file.fileno()
        while data:
            count = os.pwrite(descriptor, data, self._end)
            data, self._end = data[count:], self._end + count

    def read(self, place: int, size: int) -> "bytes | memoryview":
        """Return bytes; many of them are mapped, and so take no memory that nobody else may have.

        What is mapped outlives the file.
        """
        assert self._file is not None
        descriptor = self._file.fileno()
        if size < MAPPED:
            return os.pread(descriptor, size, place)
        start = place - place % mmap.ALLOCATIONGRANULARITY
        length = place - start + size
        mapped = mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=start)
        return memoryview(mapped)[place - start :]

    def close(self) -> None:
        """Free the file; on a thread if that takes long."""
        file, self._file = self._file, None
        if file is None:
            return
        self._share.remove_file(self._counted)
        if self._end > LARGE:
            _CLOSER.submit(file.close)
        else:
            file.close()
