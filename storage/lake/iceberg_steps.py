"""Iceberg tables: the steps between the snapshots of the main branch.

The position has the snapshot that was read last. The number of a version, which grows, is the
sequence number of its snapshot and one; all snapshots that a table had in version 1 of the format
have the number 0. Of a data file that two snapshots have, with other files that delete rows of it,
the rows come or go that are deleted in one of them only. Columns keep their ids, so one that is
renamed stays the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from foreshore.errors import (
    BadCopyFileFormat,
    FeatureNotSupported,
    UndefinedFile,
)
from foreshore.sources.lake import LakeDetails
from foreshore.storage.lake import iceberg
from foreshore.storage.lake.iceberg import reason_of
from foreshore.storage.lake.iceberg_filter import RowFilter
from foreshore.storage.lake.iceberg_plan import Planned, planned_files
from foreshore.storage.lake.iceberg_rows import IcebergRows
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.steps import (
    SNAPSHOT,
    TABLE,
    VERSION,
    Position,
    Step,
    number_of,
)

_WITH_SEQUENCE = 2  # the first version of the format in which snapshots have numbers


@dataclass(frozen=True, slots=True)
class Opened:
    """The newest version of a table; `check` raises if a snapshot has files it may not have.

    Within `errors` those of the package, and of stores, become DatabaseErrors.
    """

    table: Any
    check: Callable[[Any], None]
    errors: Callable[[], AbstractContextManager[None]]


class IcebergTable:
    """An Iceberg table. `ids` are those of the columns that are read, by their names here.

    Without ids columns are found by the names that they have in a snapshot.
    """

    def __init__(
        self, opened: Callable[[], Opened], details: str = "", row_filter: str | None = None
    ) -> None:
        self._opened = opened
        self._filter = row_filter
        self._ids = LakeDetails.read(details).ids

    def columns(self) -> tuple[pa.Schema, str]:
        """Return the schema of the newest version, and the ids of its columns."""
        found = self._open().table.schema()
        self._row_filter(found)
        ids = {field.name: field.field_id for field in found.fields}
        return found.as_arrow(), LakeDetails(ids).text()

    def newest(self) -> Position:
        """Return the position after the newest version."""
        return {VERSION: _number(self._open().table.current_snapshot()) + 1}

    def steps(self, position: Position) -> Iterator[Step]:
        """Yield the steps from a position to the newest version.

        If the snapshot before the position has expired, that is all of its files.
        """
        opened = self._open()
        row_filter = self._row_filter(opened.table.schema())
        with IcebergRows(opened.table, row_filter) as reader:
            yield from self._steps(opened, reader, row_filter, position)

    def _row_filter(self, schema: Any) -> RowFilter | None:
        return None if self._filter is None else RowFilter(self._filter, schema)

    def _steps(
        self, opened: Opened, reader: IcebergRows, row_filter: RowFilter | None, position: Position
    ) -> Iterator[Step]:
        table = opened.table
        files = partial(self._files, opened, reader, row_filter)
        current = table.current_snapshot()
        is_other = position.get(TABLE, _table(table)) != _table(table)
        if VERSION not in position or is_other:
            found = _step({}, files(current), _after(table, current))
            yield replace(found, anew=is_other)
            return
        if not _is_known(table, position):
            yield replace(_step({}, files(current), _after(table, current)), anew=True)
            return
        last = _last(table, position)
        if last == current:
            if SNAPSHOT not in position:
                yield Step((), (), _after(table, current))
            return
        before = None
        for each in _later(table, last, current):
            after = _after(table, each)
            if not _only_rewrites(last, each):
                before = files(last) if before is None else before
                now = files(each)
                yield _step(before, now, after)
                before = now
            else:
                before = None
                yield Step((), (), after)
            last = each

    def _open(self) -> Opened:
        opened = self._opened()
        if opened.table.metadata.format_version < _WITH_SEQUENCE:
            raise FeatureNotSupported(
                "Iceberg tables of format version 1 cannot be followed",
                hint="Upgrade the table to format version 2.",
            )
        return opened

    def _files(
        self, opened: Opened, reader: IcebergRows, row_filter: RowFilter | None, snapshot: Any
    ) -> Mapping[str, "_DataFile"]:
        """Return the files of a snapshot that may have rows of the filter, by their paths."""
        if snapshot is None:
            return {}
        with opened.errors():
            opened.check(snapshot)
            scan = opened.table.scan(snapshot_id=snapshot.snapshot_id)
            wanted = None if row_filter is None else row_filter.expression
            planned = list(planned_files(opened.table, snapshot, wanted))
        schema = scan.projection()
        return {each.path: _DataFile(opened, reader, schema, each, self._ids) for each in planned}


def _step(
    before: Mapping[str, "_DataFile"], now: Mapping[str, "_DataFile"], moved: Position
) -> Step:
    """Return the step between the files of two snapshots."""
    gone = [before[path] for path in before.keys() - now.keys()]
    come = [now[path] for path in now.keys() - before.keys()]
    for path in before.keys() & now.keys():
        was, is_there = before[path], now[path]
        if was.planned.deletes != is_there.planned.deletes:
            gone.append(replace(was, other=is_there.planned))
            come.append(replace(is_there, other=was.planned))
    return Step(tuple(gone), tuple(come), moved)


@dataclass(frozen=True, slots=True)
class _DataFile:
    opened: Opened
    reader: IcebergRows
    schema: Any  # of its snapshot
    planned: Planned
    ids: Mapping[str, int] | None
    other: Planned | None = None  # only the rows count that are not there with its deletes

    @property
    def path(self) -> str:
        """Return its name."""
        return self.planned.path

    def rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows with columns `names`, without those that are deleted."""
        projected = self._projected(names)
        if self.other is None:
            batches = self.reader.rows(self.planned, projected)
        else:
            batches = self.reader.fewer(self.planned, self.other, projected)
        while True:
            with self.opened.errors():
                batch = next(batches, None)
            if batch is None:
                return
            yield pa.RecordBatch.from_arrays(batch.columns, list(names))

    def _projected(self, names: Sequence[str]) -> Any:
        """Return the schema of the columns, in order."""
        from pyiceberg.schema import Schema

        schema, fields = self.schema, []
        if self.ids is not None:
            schema = self.opened.table.schema()
        for name in names:
            id = None if self.ids is None else self.ids.get(name)
            found = (
                field
                for field in schema.fields
                if (field.name == name if id is None else field.field_id == id)
            )
            if (field := next(found, None)) is None:
                raise BadCopyFileFormat(
                    f'the Iceberg table has no column "{name}"',
                    hint="It was dropped. Drop the source and create it anew.",
                )
            fields.append(field)
        return Schema(*fields)


def local_table(location: Callable[[], Location]) -> Callable[[], Opened]:
    """Return what opens the newest version of a table in a directory, without a catalog."""

    def opened() -> Opened:
        iceberg.package()
        place = location()
        if place.root is None:
            raise FeatureNotSupported(
                "Iceberg tables in buckets without a catalog",
                hint="Create a connection TO ICEBERG CATALOG.",
            )
        place.check_links()
        table = iceberg.newest(place.path)
        if table is None:
            raise UndefinedFile(f'"{place.url}" is no Iceberg table')
        return Opened(
            table, lambda snapshot: iceberg.check_places(place.path, table, snapshot), _errors
        )

    return opened


@contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of local files."""
    try:
        yield
    except (pa.ArrowInvalid, OSError, ValueError, NotImplementedError) as error:
        raise BadCopyFileFormat(f"the Iceberg table: {reason_of(error)}") from None


def _later(table: Any, last: Any, current: Any) -> Sequence[Any]:
    """Return the snapshots after `last` that led to the current one, oldest first.

    Where the table was rolled back, or one in between has expired, it is the current one alone, or
    begins after the gap.
    """
    found = [current]
    while found[0] is not None and found[0].parent_snapshot_id is not None:
        parent = table.snapshot_by_id(found[0].parent_snapshot_id)
        if parent is None or parent == last or _number(parent) < _number(last):
            break
        found.insert(0, parent)
    return found


def _only_rewrites(last: Any, snapshot: Any) -> bool:
    """Whether a snapshot has the rows of the one before in other files."""
    from pyiceberg.table.snapshots import Operation

    return (
        snapshot is not None
        and last is not None
        and snapshot.parent_snapshot_id == last.snapshot_id
        and snapshot.summary is not None
        and snapshot.summary.operation == Operation.REPLACE
    )


def _last(table: Any, position: Position) -> Any:
    """Return the snapshot that was read last; None: the table had none, or it has expired."""
    id = position.get(SNAPSHOT)
    if id is None:
        return _by_number(table, position[VERSION] - 1)
    return table.snapshot_by_id(id) if id else None


def _is_known(table: Any, position: Position) -> bool:
    """Whether the snapshot that was read last is still there, or there was none."""
    was_empty = position.get(SNAPSHOT, position[VERSION] - 1) == 0
    return was_empty or _last(table, position) is not None


def _by_number(table: Any, number: int) -> Any:
    """Return the newest snapshot of a sequence number, the one to which a source had come."""
    found = [each for each in table.snapshots() if _number(each) == number]
    return max(found, key=lambda each: int(each.timestamp_ms), default=None)


def _after(table: Any, snapshot: Any) -> Position:
    """Return the position after a snapshot."""
    id = 0 if snapshot is None else snapshot.snapshot_id
    return {VERSION: _number(snapshot) + 1, TABLE: _table(table), SNAPSHOT: id}


def _table(table: Any) -> int:
    return number_of(table.metadata.table_uuid)


def _number(snapshot: Any) -> int:
    """Return the sequence number of a snapshot; 0 for that of a table without any."""
    return 0 if snapshot is None else snapshot.sequence_number or 0
