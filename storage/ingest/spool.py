"""Parts of a batch of which the rest has not arrived, in a file without a name.

So a batch may be larger than memory. The file goes with the last of its rows, or with the process.
All methods block, and one thread at a time calls.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from foreshore.ids import GlobalId
from foreshore.processes.transport import Tables
from foreshore.spill import MappedFile, Spill
from foreshore.storage.ingest.messages import IngestedPart

GATHERED_BYTES = 32 << 20  # of all outputs, until they are written


class Spool:
    """The parts of one batch, which is named by its number."""

    def __init__(self, directory: Path, batch: int) -> None:
        self.batch = batch
        self.parts = 0
        self._directory = directory
        self._file: MappedFile | None = None
        self._rows: dict[GlobalId, Spill] = {}
        self._gathered = 0

    def add(self, part: IngestedPart, tables: Tables) -> None:
        """Keep the rows of a part; raises OutOfDisk."""
        if self._file is None:
            self._file = MappedFile(self._directory)
        self.parts += 1
        for output in part.anew:
            self._rows.pop(output, None)
        for output, rows in zip(part.outputs, tables, strict=True):
            if output not in self._rows:
                self._rows[output] = Spill(self._directory, self._file)
            self._rows[output].add(rows)
            self._gathered += int(rows.nbytes)
        if self._gathered > GATHERED_BYTES:
            self._flush()

    def taken(self) -> Mapping[GlobalId, Sequence[pa.Table]]:
        """Return all rows by outputs; raises OutOfDisk."""
        self._flush()
        return {output: spill.tables for output, spill in self._rows.items()}

    def _flush(self) -> None:
        for spill in self._rows.values():
            spill.flush()
        self._gathered = 0
