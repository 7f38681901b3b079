"""Files that delete rows of Iceberg tables, which pyiceberg reads and does not write."""

import json
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

_PATH, _POSITION = 2147483546, 2147483545  # ids of columns, as the format reserves them


def by_position(table: Any, path: str, *positions: int) -> None:
    """Delete rows of a data file by their numbers, from 0, in a new snapshot."""
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION)}),
    ]
    columns = [pa.array([path] * len(positions)), pa.array(positions, pa.int64())]
    _commit(table, pa.table(columns, schema=pa.schema(fields)), ())


def by_value(table: Any, column: str, *values: object, partition: Any = None) -> None:
    """Delete rows that have one of these values in a column, in a new snapshot.

    Of a table with partitions, these are the rows of one of them.
    """
    id = table.schema().find_field(column).field_id
    of = table.schema().as_arrow().field(column)
    field = pa.field(column, of.type, of.nullable, {"PARQUET:field_id": str(id)})
    _commit(
        table, pa.table([pa.array(values, of.type)], schema=pa.schema([field])), (id,), partition
    )


def by_vectors(table: Any, positions: Mapping[str, Sequence[int]]) -> None:
    """Delete rows of data files by deletion vectors in one Puffin file, in a new snapshot.

    They are written here as version 3 of the format has them. Positions beyond 2^32 are in further
    bitmaps.
    """
    blobs, body = [], b"PFA1"
    for path, of in positions.items():
        bitmaps: dict[int, list[int]] = {}
        for each in of:
            bitmaps.setdefault(each >> 32, []).append(each & 0xFFFFFFFF)
        vector = len(bitmaps).to_bytes(8, "little")
        for key, low in sorted(bitmaps.items()):
            vector += key.to_bytes(4, "little") + BitMap(low).serialize()
        framed = b"\xd1\xd3\x39\x64" + vector
        blob = len(framed).to_bytes(4, "big") + framed + zlib.crc32(framed).to_bytes(4, "big")
        blobs.append(
            {
                "type": "deletion-vector-v1", "fields": [_POSITION], "snapshot-id": -1,
                "sequence-number": -1, "offset": len(body), "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(of))},
            }
        )  # fmt: skip
        body += blob
    footer = json.dumps({"blobs": blobs}).encode()
    size = len(footer).to_bytes(4, "little")
    puffin = body + b"PFA1" + footer + size + bytes(4) + b"PFA1"
    _commit(table, puffin, (), count=sum(map(len, positions.values())))


def _commit(
    table: Any,
    rows: pa.Table | bytes,
    equality_ids: tuple[int, ...],
    partition: Any = None,
    count: int = 0,
) -> None:
    """Commit a snapshot that has the files of the one before, and a file of deletes."""
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestWriterV2,
        write_manifest_list,
    )
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        AssertRefSnapshotId,
        SetSnapshotRefUpdate,
    )
    from pyiceberg.typedef import Record

    class Deletes(ManifestWriterV2):  # type: ignore[misc]
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    def output(kind: str, suffix: str) -> Any:
        return table.io.new_output(f"{table.location()}/{kind}/{uuid.uuid4()}.{suffix}")

    content = DataFileContent.EQUALITY_DELETES if equality_ids else DataFileContent.POSITION_DELETES
    before, id = table.current_snapshot(), uuid.uuid4().int >> 66
    file = output("data", "puffin" if isinstance(rows, bytes) else "parquet")
    with file.create() as stream:
        if isinstance(rows, bytes):
            stream.write(rows)
        else:
            pq.write_table(rows, stream)
            count = rows.num_rows
    made = DataFile.from_args(
        content=content, file_path=file.location, 
        file_format=FileFormat.PUFFIN if isinstance(rows, bytes) else FileFormat.PARQUET,
        partition=partition or Record(), record_count=count, file_size_in_bytes=len(file),
        equality_ids=list(equality_ids) or None, spec_id=table.spec().spec_id,
    )  # fmt: skip
    with Deletes(table.spec(), table.schema(), output("metadata", "avro"), id, "null") as manifest:
        status = ManifestEntryStatus.ADDED
        manifest.add_entry(ManifestEntry.from_args(status=status, snapshot_id=id, data_file=made))
    sequence, listed = table.metadata.next_sequence_number(), output("metadata", "avro")
    with write_manifest_list(2, listed, id, before.snapshot_id, sequence, "null") as manifests:
        manifests.add_manifests([*before.manifests(table.io), manifest.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=id, parent_snapshot_id=before.snapshot_id, sequence_number=sequence,
        timestamp_ms=max(int(time.time() * 1000), table.metadata.last_updated_ms),
        manifest_list=listed.location, summary=Summary(Operation.DELETE),
        schema_id=table.metadata.current_schema_id,
    )  # fmt: skip
    reference = SetSnapshotRefUpdate(
        ref_name="main", type="branch", snapshot_id=id, max_ref_age_ms=None,
        max_snapshot_age_ms=None, min_snapshots_to_keep=None,
    )  # fmt: skip
    table.catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=before.snapshot_id),),
        (AddSnapshotUpdate(snapshot=snapshot), reference),
    )
