"""Iceberg tables: the steps between the snapshots of the main branch.

The number of a version is the sequence number of its snapshot. Files are told apart by what they
hold: a data file together with the files that delete rows of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from foreshore.errors import (
    BadCopyFileFormat,
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    UndefinedFile,
)
from foreshore.storage.lake import iceberg
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.steps import Step, step

_WITH_SEQUENCE = 2  # the first version of the format in which snapshots have numbers


def schema(location: Location) -> pa.Schema:
    """Return the schema of the newest version."""
    return _opened(location).schema().as_arrow()


def newest(location: Location) -> int:
    """Return the position after the newest version."""
    current = _opened(location).current_snapshot()
    return _number(current) + 1


def steps(location: Location, following: int | None) -> Iterator[Step]:
    """Yield the steps from a position to the newest version; from None: all of its files.

    Raises ObjectNotInPrerequisiteState if the snapshot before the position has expired.
    """
    table = _opened(location)
    current = table.current_snapshot()
    end = _number(current) + 1
    if following is None:
        yield step({}, _files(location, table, current), end)
        return
    if following == end:
        return
    last = _snapshot(table, following - 1)
    before = None
    for each in _later(table, current, following):
        if not _only_rewrites(last, each):
            before = _files(location, table, last) if before is None else before
            now = _files(location, table, each)
            yield step(before, now, _number(each) + 1)
            before = now
        else:
            before = None
            yield Step((), (), _number(each) + 1)
        last = each


@dataclass(frozen=True, slots=True)
class _DataFile:
    path: str
    table: Any
    schema: Any  # of its snapshot
    task: Any

    def rows(self, names: Sequence[str]) -> pa.Table:
        """Return its rows with columns `names`, without those that are deleted."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        found = [field.name for field in self.schema.fields]
        missing = [name for name in names if name not in found]
        if missing:
            raise BadCopyFileFormat(f'the Iceberg table has no column "{missing[0]}"')
        projected = self.schema.select(*names)
        try:
            scan = ArrowScan(self.table.metadata, self.table.io, projected, AlwaysTrue())
            return scan.to_table([self.task]).select(list(names))
        except (pa.ArrowInvalid, OSError, ValueError, NotImplementedError) as error:
            said = str(error).partition("\n")[0]
            raise BadCopyFileFormat(f'Iceberg file "{self.path}": {said}') from None


def _later(table: Any, current: Any, following: int) -> Sequence[Any]:
    """Return the snapshots at `following` or later that led to the current one, oldest first.

    Where the table was rolled back, or one in between has expired, it is the current one alone, or
    begins after the gap.
    """
    found = [current]
    while found[0] is not None and found[0].parent_snapshot_id is not None:
        parent = table.snapshot_by_id(found[0].parent_snapshot_id)
        if parent is None or _number(parent) < following:
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


def _snapshot(table: Any, number: int) -> Any:
    """Return the snapshot of a sequence number; 0: the table had none."""
    if number == 0:
        return None
    found = next((each for each in table.snapshots() if each.sequence_number == number), None)
    if found is None:
        raise ObjectNotInPrerequisiteState(
            f"the Iceberg table has lost the snapshot with sequence number {number}",
            detail="It has expired before the source read the next one.",
            hint="Drop the source and create it anew.",
        )
    return found


def _files(
    location: Location, table: Any, snapshot: Any
) -> Mapping[tuple[str, tuple[str, ...]], _DataFile]:
    """Return the files of a snapshot, each with those that delete rows of it."""
    if snapshot is None:
        return {}
    iceberg.check_places(location.path, table, snapshot)
    scan = table.scan(snapshot_id=snapshot.snapshot_id)
    found = {}
    for task in scan.plan_files():
        path = task.file.file_path
        key = (path, tuple(sorted(each.file_path for each in task.delete_files)))
        found[key] = _DataFile(path, table, scan.projection(), task)
    return found


def _number(snapshot: Any) -> int:
    """Return the sequence number of a snapshot; 0 for that of a table without any."""
    return 0 if snapshot is None else snapshot.sequence_number or 0


def _opened(location: Location) -> Any:
    """Return the newest version of a table."""
    iceberg.package()
    if location.root is None:
        raise FeatureNotSupported("Iceberg tables in buckets")
    table = iceberg.newest(location.path)
    if table is None:
        raise UndefinedFile(f'"{location.url}" is no Iceberg table')
    if table.metadata.format_version < _WITH_SEQUENCE:
        raise FeatureNotSupported(
            "Iceberg tables of format version 1 cannot be followed",
            hint="Upgrade the table to format version 2.",
        )
    return table
