"""The data files of a snapshot of an Iceberg table, and the files that delete rows of each.

The package pyiceberg plans deletes by position only, so files are planned here from the entries of
its manifests. By the rules of the format a file of deletes applies to

    by position     the data files that are not younger, of its partition; or of its path
    by value        the data files that are older, of its partition; without partitions, to all
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from foreshore.errors import FeatureNotSupported

PATH_ID = 2147483546  # of the column with paths in files of deletes by position


@dataclass(frozen=True, slots=True)
class Planned:
    """A data file, and the files that delete rows of it, by position and by value."""

    file: Any
    positions: tuple[Any, ...]
    values: tuple[Any, ...]

    @property
    def path(self) -> str:
        """Return the path of the data file."""
        return str(self.file.file_path)

    @property
    def deletes(self) -> frozenset[str]:
        """Return the paths of the files that delete rows."""
        return frozenset(each.file_path for each in (*self.positions, *self.values))


def planned_files(table: Any, snapshot: Any, row_filter: Any = None) -> Iterator[Planned]:
    """Yield the data files of a snapshot that may have rows which meet a filter."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.manifest import DataFileContent
    from pyiceberg.table import ManifestGroupPlanner
    from pyiceberg.table.delete_file_index import DeleteFileIndex

    if snapshot is None:
        return
    planner = ManifestGroupPlanner(table.metadata, table.io, row_filter or AlwaysTrue())
    data, positions, values = [], DeleteFileIndex(), _Values(table)
    manifests = snapshot.manifests(table.io)
    for entry in chain.from_iterable(planner.plan_manifest_entries(manifests)):
        match entry.data_file.content:
            case DataFileContent.DATA:
                data.append(entry)
            case DataFileContent.POSITION_DELETES:
                positions.add_delete_file(entry, partition_key=entry.data_file.partition)
            case DataFileContent.EQUALITY_DELETES:
                values.add(entry)
            case other:
                raise FeatureNotSupported(f"Iceberg files with the content {other}")
    for entry in data:
        file, sequence = entry.data_file, entry.sequence_number or 0
        by_position = positions.for_data_file(sequence, file, partition_key=file.partition)
        ordered = sorted(by_position, key=lambda each: str(each.file_path))
        yield Planned(file, tuple(ordered), values.of(file, sequence))


class _Values:
    """Files of deletes by value, by the partitions to which they apply."""

    def __init__(self, table: Any) -> None:
        self._specs = table.metadata.specs()
        self._types = {
            field.field_id: field.field_type
            for schema in table.metadata.schemas
            for field in schema.fields
        }
        self._everywhere: list[tuple[int, Any]] = []
        self._of: dict[Any, list[tuple[int, Any]]] = defaultdict(list)

    def add(self, entry: Any) -> None:
        file = entry.data_file
        found = (entry.sequence_number or 0, file)
        if _is_unpartitioned(self._specs[file.spec_id or 0]):
            self._everywhere.append(found)
        else:
            self._of[file.spec_id, file.partition].append(found)

    def of(self, file: Any, sequence: int) -> tuple[Any, ...]:
        """Return the deletes of a data file in the order of their paths."""
        if not self._everywhere and not self._of:
            return ()
        near = self._of.get((file.spec_id, file.partition), [])
        found = [
            each
            for number, each in (*self._everywhere, *near)
            if number > sequence and self._may_delete(each, file)
        ]
        return tuple(sorted(found, key=lambda each: str(each.file_path)))

    def _may_delete(self, delete: Any, file: Any) -> bool:
        """Whether the bounds of the values to delete overlap those of a file."""
        for id in delete.equality_ids:
            if (delete.null_value_counts or {}).get(id, 1):
                continue
            deleted, there = self._bounds(delete, id), self._bounds(file, id)
            if deleted and there and (deleted[1] < there[0] or there[1] < deleted[0]):
                return False
        return True

    def _bounds(self, file: Any, id: int) -> tuple[Any, Any] | None:
        from pyiceberg.conversions import from_bytes

        low, high = (file.lower_bounds or {}).get(id), (file.upper_bounds or {}).get(id)
        type = self._types.get(id)
        if low is None or high is None or not _has_exact_bounds(type):
            return None
        return from_bytes(type, low), from_bytes(type, high)


def _is_unpartitioned(spec: Any) -> bool:
    """Whether a table has no partitions; `void` is what stays of a field that was removed."""
    from pyiceberg.transforms import VoidTransform

    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def _has_exact_bounds(type: Any) -> bool:
    """Whether values are ordered as their bounds are; floats are not, for NaN."""
    from pyiceberg import types as of

    ordered = (of.IntegerType, of.LongType, of.DateType, of.StringType, of.TimestampType)
    return isinstance(type, (*ordered, of.TimestamptzType))


def only_path(delete_file: Any) -> str | None:
    """Return the path of the only data file of which a file deletes rows, if its bounds say so."""
    low = (delete_file.lower_bounds or {}).get(PATH_ID)
    high = (delete_file.upper_bounds or {}).get(PATH_ID)
    return low.decode() if low is not None and low == high else None
