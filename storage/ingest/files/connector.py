"""The connector of files: each file once, in the order of their names, or of their times.

The position of a file is its time of change in nanoseconds, or its size in a bucket; 0 if it was
read and is gone; minus the number of rows that were read of it if these are not all. So is that of
the newest file of a sink, which may get more rows (`foreshore.sinks.places.GROWING`).
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from foreshore.errors import DatabaseError, FeatureNotSupported, Unavailable
from foreshore.sinks.places import GROWING
from foreshore.sources.files import FilesSource
from foreshore.sources.outputs import ERRORS, OWN_ROWS
from foreshore.storage.ingest.connector import REACHED, Batch, Durable, Position
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.ingest.files.columns import (
    as_relation,
    csv_form,
    partitions_in,
    with_diffs,
    with_partitions,
)
from foreshore.storage.ingest.files.letters import letters_of
from foreshore.storage.lake.bad_lines import BadLine, BadLines
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.reading import WrongColumns, rows_of
from foreshore.types import RelationDesc

BATCH_BYTES = 32 << 20  # a larger file becomes visible in parts
BATCH_FILES = 500  # smaller files that become visible at one time
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
        self._seen: dict[str, int] = {}  # what told that a growing file had changed, when read last

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield the rows of new files, and errors of those that have changed or are gone.

        A file whose columns do not fit is not read, and fails the source when all others are read:
        it is looked at again until it was replaced or removed.
        """
        position = dict(durable.position)
        while True:
            location = await asyncio.to_thread(self._location)
            found, young = await asyncio.to_thread(_stamps, location, self._spec)
            self._unfit = None
            batches = self._batches(location, found, young, dict(position))
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                position |= batch.moved
                yield batch
            if self._unfit is not None:
                raise self._unfit
            yield REACHED
            if not self._spec.follow and not young:
                return
            await asyncio.sleep(self._spec.poll_ms / 1000)

    async def furthest(self) -> Position:
        """Return the position after the files that are there."""
        found, _ = await asyncio.to_thread(lambda: _stamps(self._location(), self._spec))
        grow = _growing(found)  # how many rows these have is not known before they are read
        return {key: stamp for key, stamp in found.items() if key not in grow}

    def committed(self, position: Position) -> None:
        """Do nothing: files stay where they are."""

    def _batches(
        self,
        location: Location,
        found: Mapping[str, int],
        young: Mapping[str, int],
        position: Position,
    ) -> Iterator[Batch]:
        """Yield what has changed. Blocks."""
        errors, moved = [], {}
        for key, then in position.items():
            now = found.get(key) or young.get(key, GONE)
            if then > GONE and now != then:
                said = "it is gone" if now == GONE else "it has changed since it was read"
                errors.append(Unreadable(key, now, f'file "{key}": {said}'))
                moved[key] = now
        if errors:
            yield Batch({ERRORS: error_rows(errors)}, moved)
        grow = _growing({**found, **young})
        yield from _gathered(
            batch
            for key, stamp in found.items()
            if position.get(key, -1) < GONE and not (key in grow and self._seen.get(key) == stamp)
            for batch in self._file(location, key, stamp, -position.get(key, 0), key in grow)
        )
        self._seen = {key: found[key] for key in grow if key in found}

    def _file(
        self, location: Location, key: str, stamp: int, done: int, grows: bool
    ) -> Iterator[Batch]:
        """Yield the rows of a file after the first `done`."""
        names = self._desc.names
        parted = partitions_in(key) if self._spec.hive else {}
        columns = zip(names, self._desc.columns, strict=True)
        own = {name: each.type for name, each in columns if name not in parted}
        bad = BadLines(key, header=self._spec.format == "csv" and self._spec.header)
        letter = letters_of(self._spec, list(own), bad)
        tables: list[pa.Table] = []
        wrong: list[Unreadable] = []
        failure: DatabaseError | None = None
        size = read = 0
        try:
            for each in rows_of(
                location, [key], self._spec.format, csv_form(self._spec), list(own),
                list(own.values()), bad=bad,
            ):  # fmt: skip
                skipped = min(max(done - read, 0), each.rows.num_rows)
                rows = each.rows.slice(skipped)
                first, read = read + skipped + 1, read + each.rows.num_rows
                if not rows.num_rows:
                    continue
                wrong += _letters(key, bad.taken(read), done)
                if parted:
                    rows = with_partitions(rows, key, names)
                tables.append(as_relation(rows, self._desc, key, first, wrong, letter))
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
            failure = error
        wrong += _letters(key, bad.taken(), done)
        if failure is not None:
            wrong.append(Unreadable(key, read, failure.message))
        if grows and failure is None:
            stamp = -max(read, done)
        if stamp != -done or not grows:
            yield _batch(tables, wrong, {key: stamp})


def _letters(key: str, lines: Sequence[BadLine], done: int) -> Iterator[Unreadable]:
    """Yield the dead letters of bad lines. Those before `done` rows were written earlier."""
    for line in lines:
        if line.place >= done:
            yield Unreadable(key, line.number, line.error, line.data)


def _batch(tables: list[pa.Table], wrong: list[Unreadable], moved: Position) -> Batch:
    rows = {}
    if tables:
        rows[OWN_ROWS] = with_diffs(tables)
    if wrong:
        rows[ERRORS] = error_rows(wrong)
    return Batch(rows, moved)


def _gathered(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches, those of small files together."""
    kept: list[Batch] = []
    size = 0
    for batch in batches:
        bytes = sum(table.nbytes for table in batch.rows.values())
        if kept and (size + bytes > BATCH_BYTES or len(kept) >= BATCH_FILES):
            yield _together(kept)
            kept, size = [], 0
        kept.append(batch)
        size += bytes
    if kept:
        yield _together(kept)


def _together(batches: Sequence[Batch]) -> Batch:
    """Return several batches as one."""
    rows: dict[str, pa.Table] = {}
    for reference in {each for batch in batches for each in batch.rows}:
        found = [batch.rows[reference] for batch in batches if reference in batch.rows]
        rows[reference] = pa.concat_tables(found)
    moved = {key: stamp for batch in batches for key, stamp in batch.moved.items()}
    return Batch(rows, moved)


def _growing(found: Iterable[str]) -> frozenset[str]:
    """Return the files that may get more rows: of each sink the newest."""
    newest: dict[str, str] = {}
    for key in found:
        directory, _, name = key.rpartition("/")
        if (match := GROWING.fullmatch(name)) is not None:
            sink = f"{directory}/{match[1]}"
            newest[sink] = max(newest.get(sink, key), key, key=_age)
    return frozenset(newest.values())


def _age(key: str) -> tuple[int, str]:
    """Return what orders the files of one sink; they are named by times of the same length."""
    return len(key), key


def _stamps(location: Location, spec: FilesSource) -> tuple[dict[str, int], dict[str, int]]:
    """Return what tells whether a file has changed, by keys in the order in which they are read.

    Also returns that of local files that were changed a short time ago, which are not read yet.
    """
    keys = location.files(is_deep=spec.hive)
    if location.root is None:
        sizes = dict(location.blob.list(location.key.partition("*")[0]))
        return {key: max(sizes.get(key, 1), 1) for key in keys}, {}
    found = {}
    for key in keys:
        with suppress(FileNotFoundError):  # it went meanwhile
            found[key] = max(os.stat(f"{location.root}/{key}").st_mtime_ns, 1)
    newest = time.time_ns() - spec.age_ms * 1_000_000
    old = {key: stamp for key, stamp in found.items() if not spec.age_ms or stamp <= newest}
    young = {key: stamp for key, stamp in found.items() if key not in old}
    if spec.order == "time":
        old = dict(sorted(old.items(), key=lambda each: (each[1], each[0])))
    return old, young
