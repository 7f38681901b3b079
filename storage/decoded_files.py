"""Small batch files in memory, decoded: batches never change."""

from collections import OrderedDict
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

KEPT_BYTES = 64 << 20
AT_ONCE = 512  # rows
MOST_BYTES = 4 << 20  # of a file, decoded


class TooLong(Exception):
    """The file is not small."""


class DecodedFiles:
    """The most recently used files; any thread may use them."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, pa.Table] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def table(self, key: str, path: str) -> pa.Table:
        """Return the updates in the file at `path`, which has the key `key`; raises TooLong."""
        with self._lock:
            found = self._tables.get(key)
            if found is not None:
                self._tables.move_to_end(key)
                return found
        with pq.ParquetFile(path) as file:
            batches = []
            left = MOST_BYTES
            for batch in file.iter_batches(AT_ONCE):  # which may be much longer than in the file
                left -= batch.nbytes
                if left < 0:
                    raise TooLong(key)
                batches.append(batch)
            found = pa.Table.from_batches(batches, file.schema_arrow).combine_chunks()
        with self._lock:
            if key not in self._tables:
                self._tables[key] = found
                self._bytes += found.nbytes
            while self._bytes > KEPT_BYTES:
                self._bytes -= self._tables.popitem(last=False)[1].nbytes
        return found
