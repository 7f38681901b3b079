"""The connector of files: each file once, in the order of their names.

The position of a file is its time of change in nanoseconds, or its size in a bucket; 0 if it was
read and is gone; minus the number of rows that were read of it if these are not all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pyarrow as pa

from foreshore.errors import DatabaseError, FeatureNotSupported, Unavailable
from foreshore.sources.files import FilesSource
from foreshore.sources.outputs import ERRORS, OWN_ROWS
from foreshore.storage.ingest.connector import REACHED, Batch, Durable, Position
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.ingest.files.columns import as_relation, with_diffs
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.reading import CsvForm, WrongColumns, rows_of
from foreshore.types import RelationDesc

BATCH_BYTES = 32 << 20  # a larger file becomes visible in parts
GONE = 0


class FilesConnector:
    """Reads files that were not read yet."""

    def __init__(
        self, spec: FilesSource, desc: RelationDesc, location: Callable[[], Location]
    ) -> None:
        self._spec = spec
        self._desc = desc
        self._location = location
        self._unfit: DatabaseError | None = None  # of the last file whose columns do not fit

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield the rows of new files, and errors of those that have changed or are gone.

        A file whose columns do not fit is not read, and fails the source when all others are read:
        it is looked at again until it was replaced or removed.
        """
        position = dict(durable.position)
        while True:
            location = await asyncio.to_thread(self._location)
            found = await asyncio.to_thread(_stamps, location)
            self._unfit = None
            batches = self._batches(location, found, dict(position))
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                position |= batch.moved
                yield batch
            if self._unfit is not None:
                raise self._unfit
            yield REACHED
            if not self._spec.follow:
                return
            await asyncio.sleep(self._spec.poll_ms / 1000)

    async def furthest(self) -> Position:
        """Return the position after the files that are there."""
        return await asyncio.to_thread(lambda: _stamps(self._location()))

    def committed(self, position: Position) -> None:
        """Do nothing: files stay where they are."""

    def _batches(
        self, location: Location, found: Mapping[str, int], position: Position
    ) -> Iterator[Batch]:
        """Yield what has changed. Blocks."""
        errors, moved = [], {}
        for key, then in position.items():
            now = found.get(key, GONE)
            if then > GONE and now != then:
                said = "it is gone" if now == GONE else "it has changed since it was read"
                errors.append(Unreadable(key, now, f'file "{key}": {said}'))
                moved[key] = now
        if errors:
            yield Batch({ERRORS: error_rows(errors)}, moved)
        for key, stamp in found.items():
            if position.get(key, -1) < GONE:
                yield from self._file(location, key, stamp, -position.get(key, 0))

    def _file(self, location: Location, key: str, stamp: int, done: int) -> Iterator[Batch]:
        """Yield the rows of a file after the first `done`."""
        names = self._desc.names
        form = CsvForm(delimiter=self._spec.delimiter, header=self._spec.header)
        types = [each.type for each in self._desc.columns]
        tables: list[pa.Table] = []
        wrong: list[Unreadable] = []
        size = read = 0
        try:
            for each in rows_of(location, [key], self._spec.format, form, names, types):
                skipped = min(max(done - read, 0), each.rows.num_rows)
                rows = each.rows.slice(skipped)
                first, read = read + skipped + 1, read + each.rows.num_rows
                if not rows.num_rows:
                    continue
                tables.append(as_relation(rows, self._desc, key, first, wrong))
                size += tables[-1].nbytes
                if size >= BATCH_BYTES:
                    yield _batch(tables, wrong, {key: -read})
                    tables, wrong, size = [], [], 0
        except (WrongColumns, FeatureNotSupported) as error:
            said = (
                error.message if f'"{key}"' in error.message else f'file "{key}": {error.message}'
            )
            hint = "Replace or remove the file; other files are read meanwhile."
            self._unfit = type(error)(said, hint=" ".join(filter(None, (error.hint, hint))))
            return
        except Unavailable:
            raise  # the store is away: the file is read again from what was committed of it
        except DatabaseError as error:
            wrong.append(Unreadable(key, read, error.message))
        yield _batch(tables, wrong, {key: stamp})


def _batch(tables: list[pa.Table], wrong: list[Unreadable], moved: Position) -> Batch:
    rows = {}
    if tables:
        rows[OWN_ROWS] = with_diffs(tables)
    if wrong:
        rows[ERRORS] = error_rows(wrong)
    return Batch(rows, moved)


def _stamps(location: Location) -> dict[str, int]:
    """Return what tells whether a file has changed, by keys in order."""
    if location.root is None:
        sizes = dict(location.blob.list(location.key.partition("*")[0]))
        return {key: max(sizes.get(key, 1), 1) for key in location.files()}
    found = {}
    for key in location.files():
        try:
            found[key] = max((location.root / key).stat().st_mtime_ns, 1)
        except FileNotFoundError:
            continue  # it went meanwhile
    return found
