"""Snapshots of Iceberg tables in which files of rows, and files that delete rows, come and go.

pyiceberg writes no files of deletes. Here they are written by position, each for one data file, as
the second version of the format has them. So that planning stays cheap, small manifests are merged.
Import it where the package is known to be there.
"""

import struct
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer

from foreshore.storage.lake.iceberg_plan import PATH_ID

POSITION_ID = 2147483545  # of the column with positions in files of deletes
MOST_MANIFESTS = 8  # with few files, before they are merged
FEW_FILES = 500
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that a snapshot adds, and those of rows or of deletes that it removes.

    One that only `merges` files changes no row.
    """

    added: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    merges: bool = False


def written_positions(table: Any, file: DataFile, positions: np.ndarray) -> DataFile:
    """Write a file that deletes rows of a data file by their numbers, which are in order."""
    name = f"00000-0-{uuid.uuid4()}-deletes.parquet"
    output = table.io.new_output(table.location_provider().new_data_location(name))
    paths = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(positions), np.int8)), pa.array([file.file_path])
    )
    rows = pa.Table.from_arrays([paths.cast(pa.string()), pa.array(positions)], schema=_SCHEMA)
    with output.create(overwrite=True) as stream:
        pq.write_table(
            rows, stream, compression="zstd", use_dictionary=["file_path"],
            column_encoding={"pos": "DELTA_BINARY_PACKED"},
        )  # fmt: skip
    path = file.file_path.encode()
    low, high = (struct.pack("<q", int(positions[place])) for place in (0, -1))
    made = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=len(positions),
        file_size_in_bytes=len(output),
        lower_bounds={PATH_ID: path, POSITION_ID: low},
        upper_bounds={PATH_ID: path, POSITION_ID: high},
    )
    made.spec_id = file.spec_id
    return made


def add_snapshot(transaction: Any, changes: FileChanges, properties: Mapping[str, str]) -> None:
    """Add a snapshot with these changes to a transaction."""
    with _FileSnapshot(transaction, changes, properties):
        pass


class _Deletes(ManifestWriterV2):  # type: ignore[misc]
    """Writes the entries of files of deletes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _FileSnapshot(_SnapshotProducer[Any]):  # type: ignore[misc]
    """A snapshot in the making; the package commits it, and removes its manifests if it fails."""

    def __init__(
        self, transaction: Any, changes: FileChanges, properties: Mapping[str, str]
    ) -> None:
        is_append = not changes.removed and not changes.deletes
        operation = Operation.APPEND if is_append else Operation.OVERWRITE
        operation = Operation.REPLACE if changes.merges else operation
        table = transaction._table
        super().__init__(operation, transaction, table.io, snapshot_properties=dict(properties))
        self._changes = changes

    def _existing_manifests(self) -> list[ManifestFile]:
        raise NotImplementedError

    def _deleted_entries(self) -> list[ManifestEntry]:
        raise NotImplementedError

    def _manifests(self) -> list[ManifestFile]:
        kept, entries = self._inherited()
        for content, files in (
            (ManifestContent.DATA, self._changes.added),
            (ManifestContent.DELETES, self._changes.deletes),
        ):
            for file in files:
                entries[content, file.spec_id].append(("add", _entry(file)))
        return [self._written(*key, found) for key, found in entries.items()] + kept

    def _inherited(
        self,
    ) -> tuple[list[ManifestFile], dict[tuple[ManifestContent, int], list[tuple[str, Any]]]]:
        """Return the manifests that stay as they are, and the entries of all others."""
        metadata = self._transaction.table_metadata
        id = self._parent_snapshot_id
        snapshot = None if id is None else metadata.snapshot_by_id(id)
        found = [] if snapshot is None else snapshot.manifests(io=self._io)
        live = [each for each in found if each.has_added_files() or each.has_existing_files()]
        small = [each for each in live if _files(each) < FEW_FILES]
        merged = set(small) if len(small) >= MOST_MANIFESTS else set()
        removed = {each.file_path for each in self._changes.removed}
        kept = []
        entries: dict[tuple[ManifestContent, int], list[tuple[str, Any]]] = defaultdict(list)
        for manifest in live:
            if manifest not in merged and not removed:
                kept.append(manifest)
                continue
            inside = self.fetch_manifest_entry(manifest)
            is_changed = any(each.data_file.file_path in removed for each in inside)
            if manifest not in merged and not is_changed:
                kept.append(manifest)
                continue
            entries[manifest.content, manifest.partition_spec_id] += (
                ("delete" if each.data_file.file_path in removed else "existing", each)
                for each in inside
            )
        return kept, entries

    def _written(
        self, content: ManifestContent, spec_id: int, entries: Sequence[tuple[str, Any]]
    ) -> ManifestFile:
        """Write a manifest; each entry is added, existing, or deleted."""
        spec, output = self.spec(spec_id), self.new_manifest_output()
        schema = _schema_of(self._transaction.table_metadata, spec)
        kind = ManifestWriterV2 if content == ManifestContent.DATA else _Deletes
        manifest = kind(spec, schema, output, self._snapshot_id, self._compression)
        with manifest as writer:
            for how, entry in entries:
                getattr(writer, how)(entry)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        metadata, counted = self._transaction.table_metadata, SnapshotSummaryCollector()
        specs = metadata.specs()
        schemas = {id: _schema_of(metadata, spec) for id, spec in specs.items()}
        for file in (*self._changes.added, *self._changes.deletes):
            counted.add_file(file, schemas[file.spec_id], specs[file.spec_id])
        for file in self._changes.removed:
            counted.remove_file(file, schemas[file.spec_id], specs[file.spec_id])
        id = self._parent_snapshot_id
        before = None if id is None else metadata.snapshot_by_id(id)
        said = {**counted.build(), **(snapshot_properties or {})}
        # The package adds up the amounts of a merge as those of an overwrite only.
        counted_as = Operation.OVERWRITE if self._changes.merges else self._operation
        added = update_snapshot_summaries(
            summary=Summary(operation=counted_as, **said),
            previous_summary=None if before is None else before.summary,
        )
        return Summary(operation=self._operation, **added.additional_properties)


def _schema_of(metadata: Any, spec: Any) -> Any:
    """Return the last schema that has the columns of a spec, which may have been dropped later.

    Without them the package would not know the types of its partitions.
    """
    wanted = {field.source_id for field in spec.fields}
    schemas = (metadata.schema(), *reversed(metadata.schemas))
    return next((each for each in schemas if wanted <= each.field_ids), metadata.schema())


def _entry(file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(sequence_number=None, data_file=file)


def _files(manifest: ManifestFile) -> int:
    """Return how many files a manifest has."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
