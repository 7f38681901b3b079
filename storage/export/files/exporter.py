"""Writes the changes of an interval as a file of a directory, named by the sink and the interval.

    place/<sink>-<lower>-<upper>.parquet       visible when it is complete

The rows are put beside first, then the interval is claimed, then they get their name. What ends in
between leaves rows that nobody sees, or a claim, whose rows the next exporter gives their name.
"""

import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import ObjectInUse
from foreshore.sinks.places import FilesTarget
from foreshore.storage.export.files.claims import Claim, Claims
from foreshore.storage.export.files.place import own_columns
from foreshore.storage.export.messages import Export
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.reading import CsvForm
from foreshore.storage.lake.writing import SUFFIXES, File, file_writer
from foreshore.update import Timestamp


class FilesExporter:
    """Writes to one directory, or prefix of a bucket."""

    def __init__(self, export: Export, location: Callable[[], Location]) -> None:
        assert isinstance(export.spec.target, FilesTarget), export
        self._export = export
        self._target = export.spec.target
        self._find = location
        self._claims: Claims | None = None

    async def resume(self) -> Timestamp | None:
        """Complete the last interval, and return its end."""
        return await blocking.run(None, self._resume)

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write an interval as one file."""
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            path = Path(scratch, "rows")
            columns = own_columns(self._export)
            file = self._file(path)
            rows = 0
            async for part in parts:
                rows += part.num_rows
                await blocking.run(None, _write, file, part, list(columns))
            if rows:
                await blocking.run(None, file.close)
            await blocking.run(None, self._commit, path if rows else None, lower, upper)

    async def close(self) -> None:
        """Do nothing: nothing is open between two intervals."""

    # --- on threads ----------------------------------------------------------------------------

    def _file(self, path: Path) -> File:
        columns, target = own_columns(self._export), self._target
        form = CsvForm(delimiter=target.delimiter, header=target.header)
        return file_writer(path, target.format, form, list(columns), list(columns.values()))

    def _resume(self) -> Timestamp | None:
        self._claims = Claims(self._find(), self._export.name)
        found = self._claims.newest()
        if found is None:
            return None
        lower, claim = found
        self._complete(lower, claim)
        for key in list(self._claims.abandoned(claim.upper)):
            self._claims.location.blob.delete(key)
        return claim.upper

    def _commit(self, file: Path | None, lower: Timestamp, upper: Timestamp) -> None:
        """Put the rows beside, claim the interval, and give the rows their name."""
        claims = self._claims
        assert claims is not None, "resume comes first"
        staged = None
        if file is not None:
            staged = f"{claims.prefix}{lower}-{upper}-{uuid.uuid4().hex[:12]}"
            claims.location.blob.put_file(staged, file)
        claim = Claim(upper, staged)
        if not claims.claim(lower, claim):
            if staged is not None:
                claims.location.blob.delete(staged)
            raise ObjectInUse("another exporter writes for this sink")
        self._complete(lower, claim)

    def _complete(self, lower: Timestamp, claim: Claim) -> None:
        """Give the rows of a claimed interval their name, unless they have it already."""
        claims = self._claims
        assert claims is not None, "resume comes first"
        if claim.staged is None:
            return
        location = claims.location
        suffix = SUFFIXES[self._target.format][0]
        name = f"{self._export.name}-{lower}-{claim.upper}{suffix}"
        key = "/".join(filter(None, (location.key, name)))
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            rows = Path(scratch, "rows")
            if location.root is not None:
                rows = location.root / claim.staged
                if not rows.exists():
                    return
            elif not location.blob.fetch(claim.staged, rows):
                return
            location.blob.put_file(key, rows)
        if location.root is None:
            location.blob.delete(claim.staged)


def _write(file: File, part: pa.Table, names: list[str]) -> None:
    """Add updates to a file, in which time and multiplicity have names of their own."""
    for batch in part.combine_chunks().to_batches():
        file.write(pa.RecordBatch.from_arrays(batch.columns, names))
