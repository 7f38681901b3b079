"""Writes the changes of an interval as a file of a directory, named by the sink and the interval.

    place/<sink>-<lower>.parquet               gets the rows of later intervals while it is small
    place/<sink>-<lower>-<upper>.parquet       without MERGE: has one interval

The rows are put beside first, then the interval is claimed, then they get their name. What ends in
between leaves rows that nobody sees, or a claim, whose rows the next exporter gives their name.
"""

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from foreshore import blocking
from foreshore.errors import ObjectInUse
from foreshore.sinks.places import FilesTarget
from foreshore.storage.export.files.claims import Claim, Claims
from foreshore.storage.export.files.growing import append_rows, is_full
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
        self._newest: Claim | None = None

    async def resume(self) -> Timestamp | None:
        """Complete the last interval, and return its end."""
        return await blocking.run(None, self._resume)

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write an interval as one file, or add it to the newest one."""
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            path, begin = Path(scratch, "rows"), Path(scratch, "begin")
            columns = list(own_columns(self._export))
            goes_on = await blocking.run(None, self._copy_newest, begin)
            file = self._file(path, goes_on=goes_on)
            rows = 0
            async for part in parts:
                rows += part.num_rows
                await blocking.run(None, _write, file, part, columns)
            if rows:
                await blocking.run(None, file.close)
            if rows and goes_on:
                await blocking.run(None, append_rows, begin, path, self._target.format)
            begins, grows = self._newest.begins if self._newest else None, goes_on
            if rows and self._target.merge:
                begins = begins if goes_on else lower
                grows = not await blocking.run(None, is_full, path)
            claim = Claim(upper, None, begins, grows)
            await blocking.run(None, self._commit, path if rows else None, lower, claim)

    async def close(self) -> None:
        """Do nothing: nothing is open between two intervals."""

    # --- on threads ----------------------------------------------------------------------------

    def _copy_newest(self, copy: Path) -> bool:
        """Copy the newest file if it gets the next rows, too; return whether it does.

        A reader may have removed it.
        """
        claims, newest = self._claims, self._newest
        assert claims is not None, "resume comes first"
        if newest is None or newest.begins is None or not newest.grows:
            return False
        location, key = claims.location, self._key(newest.begins, None)
        if location.root is None:
            return location.blob.fetch(key, copy)
        try:
            shutil.copyfile(location.root / key, copy)
        except FileNotFoundError:
            return False
        return True

    def _key(self, lower: Timestamp, upper: Timestamp | None) -> str:
        """Return the key of a file that has an interval; None: that may get more."""
        claims = self._claims
        assert claims is not None, "resume comes first"
        bounds = f"{lower}" if upper is None else f"{lower}-{upper}"
        name = f"{self._export.name}-{bounds}{SUFFIXES[self._target.format][0]}"
        return "/".join(filter(None, (claims.location.key, name)))

    def _file(self, path: Path, *, goes_on: bool) -> File:
        """Return a new file; one that goes on another has no header."""
        columns, target = own_columns(self._export), self._target
        form = CsvForm(delimiter=target.delimiter, header=target.header and not goes_on)
        return file_writer(path, target.format, form, list(columns), list(columns.values()))

    def _resume(self) -> Timestamp | None:
        self._claims = Claims(self._find(), self._export.name)
        found = self._claims.newest()
        if found is None:
            self._newest = None
            return None
        lower, claim = found
        self._complete(lower, claim)
        self._newest = claim
        for key in list(self._claims.abandoned(claim.upper)):
            self._claims.location.blob.delete(key)
        return claim.upper

    def _commit(self, file: Path | None, lower: Timestamp, claim: Claim) -> None:
        """Put the rows beside, claim the interval, and give the rows their name."""
        claims = self._claims
        assert claims is not None, "resume comes first"
        staged = None
        if file is not None:
            staged = f"{claims.prefix}{lower}-{claim.upper}-{uuid.uuid4().hex[:12]}"
            claims.location.blob.put_file(staged, file)
        claim = replace(claim, staged=staged)
        if not claims.claim(lower, claim):
            if staged is not None:
                claims.location.blob.delete(staged)
            raise ObjectInUse("another exporter writes for this sink")
        self._complete(lower, claim)
        self._newest = claim

    def _complete(self, lower: Timestamp, claim: Claim) -> None:
        """Give the rows of a claimed interval their name, unless they have it already."""
        claims = self._claims
        assert claims is not None, "resume comes first"
        if claim.staged is None:
            return
        location, begins = claims.location, claim.begins
        key = self._key(lower, claim.upper) if begins is None else self._key(begins, None)
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            rows = Path(scratch, "rows")
            if location.root is not None:
                rows = location.root / claim.staged
                if not rows.exists():
                    return  # it has its name: a file that was moved there once is not again
            elif not location.blob.fetch(claim.staged, rows):
                return
            elif begins is not None and claims.newest() != (lower, claim):
                return  # another exporter has completed it, and the file has more rows now
            location.blob.put_file(key, rows)
        if location.root is None:
            location.blob.delete(claim.staged)


def _write(file: File, part: pa.Table, names: list[str]) -> None:
    """Add updates to a file, in which time and multiplicity have names of their own."""
    for batch in part.combine_chunks().to_batches():
        file.write(pa.RecordBatch.from_arrays(batch.columns, names))
