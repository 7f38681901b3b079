"""Iceberg tables, by the package pyiceberg: a snapshot of one in, a new snapshot out.

    target/part-*.parquet                 rows
    target/metadata/v<N>.metadata.json    a version of the table; the last one counts
    target/metadata/version-hint.text     its number, where readers look first

This is the layout of tables without a catalog (Spark's and Flink's "hadoop" catalogs, DuckDB,
pyiceberg's `StaticTable`). An export to a directory without a table makes version 1. An export to a
table replaces all of its rows by a new snapshot: a version exists when its metadata file does,
which is made by a link, so that one of several writers wins. Columns are found by their names.
"""

import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from foreshore.arrow_errors import describe_file_error
from foreshore.errors import (
    BadCopyFileFormat,
    Conflict,
    FeatureNotSupported,
    UndefinedFile,
)
from foreshore.processes.file_modes import share_new
from foreshore.storage.blob import sync_directory, sync_file
from foreshore.storage.lake.iceberg_plan import planned_files
from foreshore.storage.lake.iceberg_rows import IcebergRows
from foreshore.update import DIFF, TIME

if TYPE_CHECKING:
    from foreshore.storage.lake.writing import Written

METADATA = "metadata"
HINT = "version-hint.text"
FORMAT = 2
NAMES = "schema.name-mapping.default"
_NO_COLUMNS = (2_000_000_001, 2_000_000_002)  # ids that no column of a table has


def package() -> Any:
    """Return the package pyiceberg, which is optional."""
    try:
        import pyiceberg
    except ImportError:
        raise FeatureNotSupported(
            "Iceberg tables need the package pyiceberg", hint="Run: pip install 'foreshore[lake]'"
        ) from None
    return pyiceberg


def is_table(path: Path) -> bool:
    """Whether there is an Iceberg table in the directory."""
    return _last_version(path) is not None


def rows_of(path: Path, version: int | None, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot of a table, None for the current one, with columns `names`.

    All of its files must be below the directory.
    """
    package()
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.schema import Schema

    last = _last_version(path)
    if last is None:
        raise UndefinedFile(f'"{path.name}" is no Iceberg table')
    try:
        table = _opened(last[1])
        scan = table.scan(snapshot_id=version)
        if version is not None and scan.snapshot() is None:
            raise UndefinedFile(f'Iceberg table "{path.name}" has no snapshot {version}')
        found = [field.name for field in scan.projection().fields]
        missing = [name for name in names if name not in found]
        if missing:
            raise BadCopyFileFormat(f'the Iceberg table has no column "{missing[0]}"')
        if scan.snapshot() is not None:
            check_places(path, table, scan.snapshot())
        schema = Schema(*(scan.projection().find_field(name) for name in names))
        with IcebergRows(table) as reader:
            for planned in planned_files(table, scan.snapshot()):
                for batch in reader.rows(planned, schema):
                    yield batch.select(list(names))
    except (ValidationError, pa.ArrowInvalid, OSError, ValueError, NotImplementedError) as error:
        raise BadCopyFileFormat(f'Iceberg table "{path.name}": {reason_of(error)}') from None


def reason_of(error: Exception) -> str:
    """Return why a table cannot be read: libraries' words tell of their own classes."""
    from pyiceberg.exceptions import ValidationError

    if isinstance(error, ValidationError | pa.ArrowException):
        return describe_file_error(error)
    return str(error).partition("\n")[0]


def newest(path: Path) -> Any:
    """Return the last version of a table; None if there is none. Raises BadCopyFileFormat."""
    last = _last_version(path)
    if last is None:
        return None
    package()
    from pyiceberg.exceptions import ValidationError

    try:
        return _opened(last[1])
    except (ValidationError, pa.ArrowInvalid, OSError, ValueError, NotImplementedError) as error:
        raise BadCopyFileFormat(f'Iceberg table "{path.name}": {reason_of(error)}') from None


def _opened(metadata: Path) -> Any:
    """Return a version of a table, whose files are read as local ones.

    Its properties may name a class that reads files, which pyiceberg would import.
    """
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    files, place = PyArrowFileIO(), str(metadata)
    found = FromInputFile.table_metadata(files.new_input(place))
    return StaticTable(("table",), found, place, files, NoopCatalog("none"))


def check_places(path: Path, table: Any, snapshot: Any) -> None:
    """Raise if a snapshot names a file that is not below the table's directory.

    A URL may have more than a path; what counts is the path at which pyiceberg will open it.
    """
    from pyiceberg.io.pyarrow import PyArrowFileIO

    def check(place: str) -> None:
        scheme, _, opened = PyArrowFileIO.parse_location(place)
        real = Path(os.path.realpath(opened))
        if scheme != "file" or not real.is_relative_to(os.path.realpath(path)):
            raise BadCopyFileFormat(f'Iceberg table "{path.name}" has files at another place')

    check(snapshot.manifest_list)
    for manifest in snapshot.manifests(table.io):
        check(manifest.manifest_path)
        for entry in manifest.fetch_manifest_entry(table.io):
            check(entry.data_file.file_path)


def create(
    place: Path, target: Path, files: Sequence["Written"], schema: pa.Schema, id: str
) -> None:
    """Make a table of the Parquet files in a directory, which is moved to `target` then."""
    package()
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

    (place / METADATA).mkdir()
    converted = Catalog._convert_schema_if_needed(schema, FORMAT)
    empty = new_table_metadata(
        converted, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(target),
        {"format-version": str(FORMAT)},
    )  # fmt: skip
    _commit(empty, 1, place, target, files, id)
    _hint(place / METADATA, 1, id)


def replace(
    table: Path, place: Path, files: Sequence["Written"], schema: pa.Schema, id: str
) -> None:
    """Make a snapshot of a table that has the Parquet files of another directory alone."""
    package()
    last = _last_version(table)
    assert last is not None, table
    found = _opened(last[1]).metadata
    changed = _with_schema(found, schema)
    for file in files:
        os.rename(place / file.name, table / file.name)
    sync_directory(table)
    number = last[0] + 1
    try:
        _commit(changed, number, table, table, files, id)
    except BaseException:
        for file in files:
            (table / file.name).unlink(missing_ok=True)
        raise
    _hint(table / METADATA, number, id)  # the version exists, and needs its files, if this fails
    share_new(table / METADATA)


def remove_unnamed(table: Path, id: str) -> None:
    """Remove the files of an export that no version names: a version lists none of them, or all."""
    versions = [*(table / METADATA).glob("*.metadata.json")]
    is_named = any(id.encode() in each.read_bytes() for each in versions)
    found = [*(table / METADATA).glob(f".{id}.*")]
    if not is_named:
        found += [*table.glob(f"part-*-{id}.parquet"), *(table / METADATA).glob(f"*-{id}*.avro")]
    for file in found:
        file.unlink(missing_ok=True)
    for directory in (table, table / METADATA):
        sync_directory(directory)


def _with_schema(found: Any, schema: pa.Schema) -> Any:
    """Return a table's metadata with another schema; what it has had keeps its ids.

    Raises FeatureNotSupported for a table that would not be understood so.
    """
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
    from pyiceberg.table.update import update_table_metadata as updated

    if found.format_version != FORMAT or found.spec().fields:
        raise FeatureNotSupported("COPY TO a partitioned Iceberg table, or one of another version")
    ids = count(found.last_column_id + 1)
    drawn = assign_fresh_schema_ids(
        Catalog._convert_schema_if_needed(schema, FORMAT), lambda: next(ids)
    )
    known = {field.name: field for each in found.schemas for field in each.fields}
    fields = []
    for field in drawn.fields:
        old = known.get(field.name, field)
        if _shape(old.field_type) != _shape(field.field_type):
            raise FeatureNotSupported(
                f'another type of column "{field.name}", which the Iceberg table has as'
                f" {_shape(old.field_type)}",
                hint="Cast it, or export to a new directory.",
            )
        fields.append(old)
    for each in found.schemas:
        if fields == list(each.fields):
            return updated(found, (SetCurrentSchemaUpdate(schema_id=each.schema_id),))
    wanted = Schema(*fields, schema_id=1 + max(each.schema_id for each in found.schemas))
    current = SetCurrentSchemaUpdate(schema_id=wanted.schema_id)
    return updated(found, (AddSchemaUpdate(schema=wanted), current))


def _shape(type: Any) -> str:
    """Return a type without the ids in it."""
    return f"list of {type.element_type}" if hasattr(type, "element_type") else str(type)


def _mapping_of(base: Any, drawn: Any) -> Any:
    """Return which names in files stand for which columns: those of `base`, and `drawn`.

    Time and diff of batch files have names, too, without which readers refuse the files.
    """
    from pyiceberg.table.name_mapping import MappedField

    old = base.name_mapping()
    known = {} if old is None else {name: f.field_id for f in old.root for name in f.names}
    for field in drawn.root:
        if any(known.get(name, field.field_id) != field.field_id for name in field.names):
            raise FeatureNotSupported(f"a column {field.names[0]}, which was renamed, in Iceberg")
    ids = {} if old is None else {field.field_id for field in old.root}
    extra = [
        MappedField(field_id=id, names=[name], fields=[])
        for id, name in zip(_NO_COLUMNS, (TIME, DIFF), strict=True)
    ]
    fields = extra if old is None else list(old.root)
    return type(drawn)([*fields, *(field for field in drawn.root if field.field_id not in ids)])


def _last_version(path: Path) -> tuple[int, Path] | None:
    """Return the number and the metadata file of a table's last version; None: it is no table."""
    found = [
        (int(match[1]), each)
        for each in (path / METADATA).glob("v*.metadata.json")
        if (match := re.fullmatch(r"v(\d+)\.metadata\.json", each.name))
    ]
    return max(found, default=None)


def _commit(
    base: Any, number: int, place: Path, target: Path, files: Sequence["Written"], export: str
) -> None:
    """Write a snapshot of these files over `base` as a version, in what is to be `target`.

    The id of the export is in the names of all files.
    """
    from pyiceberg.io.pyarrow import PyArrowFile
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
        write_manifest,
        write_manifest_list,
    )
    from pyiceberg.table.name_mapping import create_mapping_from_schema
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
        update_table_metadata,
    )
    from pyiceberg.typedef import Record

    def output(name: str) -> Any:
        """Return a file that is written here, and is to be at the target."""
        here, there = place / METADATA / name, target / METADATA / name
        return PyArrowFile(str(there), str(here), LocalFileSystem())

    id = uuid.uuid4().int >> 65
    lists = (f"{id}-{export}-m0.avro", f"snap-{id}-{export}.avro")
    parent = base.current_snapshot()
    schema, spec = base.schema(), base.spec()
    with write_manifest(FORMAT, spec, schema, output(lists[0]), id, "null") as manifest:
        for file in files:
            data = DataFile.from_args(
                content=DataFileContent.DATA, file_path=str(target / file.name),
                file_format=FileFormat.PARQUET, partition=Record(), record_count=file.rows,
                file_size_in_bytes=file.bytes, spec_id=spec.spec_id,
            )  # fmt: skip
            manifest.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=id, data_file=data
                )
            )
    sequence, parent_id = base.next_sequence_number(), parent and parent.snapshot_id
    listed = output(lists[1])
    with write_manifest_list(FORMAT, listed, id, parent_id, sequence, "null") as manifests:
        manifests.add_manifests([manifest.to_manifest_file()])
    rows = str(sum(file.rows for file in files))
    summary = {"total-records": rows, "total-data-files": str(len(files))}
    snapshot = Snapshot(
        snapshot_id=id, parent_snapshot_id=parent_id, sequence_number=sequence,
        timestamp_ms=max(int(time.time() * 1000), base.last_updated_ms),
        manifest_list=listed.location, schema_id=base.current_schema_id,
        summary=Summary(Operation.APPEND if parent is None else Operation.OVERWRITE, **summary),
    )  # fmt: skip
    reference = SetSnapshotRefUpdate(
        ref_name="main", type="branch", snapshot_id=id, max_ref_age_ms=None,
        max_snapshot_age_ms=None, min_snapshots_to_keep=None,
    )  # fmt: skip
    mapping = _mapping_of(base, create_mapping_from_schema(schema))
    properties = SetPropertiesUpdate(updates={NAMES: mapping.model_dump_json()})
    updates = (properties, AddSnapshotUpdate(snapshot=snapshot), reference)
    made = update_table_metadata(base, updates)
    for name in lists:
        sync_file(place / METADATA / name)
    _publish(place / METADATA, number, made.model_dump_json().encode(), export)


def _publish(directory: Path, number: int, metadata: bytes, id: str) -> None:
    """Let a version exist; raises Conflict if there is one of this number."""
    draft, name = directory / f".{id}.json", directory / f"v{number}.metadata.json"
    draft.write_bytes(metadata)
    sync_file(draft)
    try:
        os.link(draft, name)
    except FileExistsError:
        raise Conflict("the Iceberg table was changed meanwhile") from None
    finally:
        with suppress(OSError):  # a version that exists has not failed
            draft.unlink()


def _hint(directory: Path, number: int, id: str) -> None:
    """Say which version is the last one, and make it durable."""
    hint = directory / f".{id}.hint"
    hint.write_text(str(number))
    os.replace(hint, directory / HINT)
    sync_directory(directory)
