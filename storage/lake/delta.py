"""Delta tables, by the package deltalake: a version of one in, a new version out.

An export to a directory without a table makes its version 0. An export to a table replaces all of
its rows by a new version, in one commit: readers have the old version or the new one.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.errors import (
    BadCopyFileFormat,
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    UndefinedFile,
)
from foreshore.processes.file_modes import share_new
from foreshore.storage.blob import sync_directory, sync_file
from foreshore.storage.store_errors import told

if TYPE_CHECKING:
    from foreshore.storage.lake.places import Location
    from foreshore.storage.lake.writing import Written

LOG = "_delta_log"
ROWS_AT_ONCE = 1 << 16


def package() -> Any:
    """Return the package deltalake, which is optional."""
    try:
        import deltalake
    except ImportError:
        raise FeatureNotSupported(
            "Delta tables need the package deltalake", hint="Run: pip install 'foreshore[lake]'"
        ) from None
    return deltalake


def is_table(path: Path) -> bool:
    """Whether there is a Delta table in the directory."""
    return (path / LOG).is_dir()


def check_mapping(table: Any) -> None:
    """Raise FeatureNotSupported if columns have other names in files, as they would be NULL."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        raise FeatureNotSupported(
            "Delta tables with column mapping",
            hint="Set delta.columnMapping.mode to none, or copy the table.",
        )


def rows_of(path: Path, version: int | None, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a version of a table, None for the last one, with columns `names`."""
    deltalake = package()
    if not is_table(path):
        raise UndefinedFile(f'"{path.name}" is no Delta table')
    try:
        table = deltalake.DeltaTable(str(path), version=version)
        check_mapping(table)
        dataset = table.to_pyarrow_dataset()
        missing = [name for name in names if name not in dataset.schema.names]
        if missing:
            raise BadCopyFileFormat(f'the Delta table has no column "{missing[0]}"')
        yield from dataset.to_batches(list(names), batch_size=ROWS_AT_ONCE)
    except (deltalake.exceptions.DeltaError, pa.ArrowInvalid, OSError) as error:
        raise BadCopyFileFormat(f'Delta table "{path.name}": {told(error)}') from None


def opened(location: "Location") -> Any:
    """Return a table that is there, to be written; raises DeltaError or UndefinedFile."""
    uri, options = address_of(location)
    deltalake = package()
    try:
        found = deltalake.DeltaTable(uri, storage_options=options)
    except deltalake.exceptions.TableNotFoundError:
        raise UndefinedFile(
            f'"{location.url}" is no Delta table',
            hint="Bring it back; or drop the sink and create it anew, which makes the table.",
        ) from None
    check_mapping(found)
    return found


def made(
    location: "Location",
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Any:
    """Return the table of a place; if it is not there it is made with what else is given.

    Raises DeltaError, and ObjectNotInPrerequisiteState if the place has other files.
    """
    uri, options = address_of(location)
    deltalake = package()
    if deltalake.DeltaTable.is_deltatable(uri, storage_options=options):
        found = deltalake.DeltaTable(uri, storage_options=options)
        check_mapping(found)
        return found
    if location.files():
        raise ObjectNotInPrerequisiteState(
            f'"{location.url}" has files and is no Delta table',
            hint="Name a directory that is empty, or not there.",
        )
    return deltalake.DeltaTable.create(
        uri,
        deltalake.Schema.from_arrow(schema),
        partition_by=list(partition_by) or None,
        configuration=properties,
        raise_if_key_not_exists=False,  # as some are ours
        storage_options=options,
    )


def address_of(location: "Location") -> tuple[str, dict[str, str] | None]:
    """Return the place of a table and the options with which the package reaches it."""
    if location.bucket is None:
        if location.path.is_dir():
            location.check_links()
        return str(location.path), None
    place = urlsplit(location.bucket)
    options = dict(parse_qsl(place.query))
    reached = {"aws_region": options.get("region", "us-east-1")}
    if "endpoint" in options:
        is_open = options["endpoint"].startswith("http://")
        reached |= {"aws_endpoint": options["endpoint"], "allow_http": str(is_open).lower()}
    for name, value in location.credentials.items():
        reached[name if name == "proxy_url" else f"aws_{name}"] = value
    key = "/".join(filter(None, (unquote(place.path).strip("/"), location.key)))
    return f"s3://{place.netloc}/{key}", reached


def sync_versions(table: Path, first: int, last: int) -> None:
    """Make some versions of a local table durable, with the files that they add."""
    for version in range(first, last + 1):
        log = table / LOG / f"{version:020}.json"
        if not log.exists():  # another program has removed it after a checkpoint
            continue
        for line in log.read_bytes().splitlines():
            added = json.loads(line).get("add")
            file = table / unquote(added["path"]) if added else None
            if file is not None and file.exists():
                sync_file(file)
                sync_directory(file.parent)
        sync_file(log)
    sync_directory(table / LOG)


def create(
    place: Path, target: Path, files: Sequence["Written"], schema: pa.Schema, id: str
) -> None:
    """Make a table of the Parquet files in a directory, which is moved to `target` then."""
    deltalake = package()
    (place / LOG).mkdir()
    deltalake.transaction.create_table_with_add_actions(
        str(place), deltalake.Schema.from_arrow(schema), _added(place, files), mode="overwrite"
    )
    sync_directory(place / LOG)


def replace(
    table: Path, place: Path, files: Sequence["Written"], schema: pa.Schema, id: str
) -> None:
    """Make a version of a table that has the Parquet files of another directory alone."""
    deltalake = package()
    found = deltalake.DeltaTable(str(table))
    added = _added(place, files)
    for file in files:
        os.rename(place / file.name, table / file.name)
    sync_directory(table)
    try:
        found.create_write_transaction(added, "overwrite", deltalake.Schema.from_arrow(schema))
    except BaseException:
        found.update_incremental()
        live = {Path(each).name for each in found.file_uris()}
        for file in files:
            if file.name not in live:
                (table / file.name).unlink(missing_ok=True)
        raise
    share_new(table / LOG)
    sync_directory(table / LOG)


def remove_unnamed(table: Path, id: str) -> None:
    """Remove the files of an export that no version names: the log has none of them, or all."""
    drafts = [each for each in (table / LOG).glob("*.tmp") if id.encode() in each.read_bytes()]
    files = [] if _names(table / LOG, id) else list(table.glob(f"part-*-{id}.parquet"))
    for file in (*drafts, *files):
        file.unlink(missing_ok=True)
    sync_directory(table)


def _names(log: Path, id: str) -> bool:
    """Whether a version in the log names, or has named, a file with an id in its name."""
    if any(id.encode() in each.read_bytes() for each in log.glob("*.json")):
        return True
    for checkpoint in log.glob("*.checkpoint*.parquet"):
        actions = pq.read_table(checkpoint, columns=["add.path", "remove.path"])
        for column in actions.columns:
            paths = pc.struct_field(column.combine_chunks(), "path")
            if pc.any(pc.match_substring(paths, id)).as_py():
                return True
    return False


def _added(place: Path, files: Sequence["Written"]) -> list[Any]:
    deltalake = package()
    return [
        deltalake.transaction.AddAction(
            file.name,
            file.bytes,
            {},
            int((place / file.name).stat().st_mtime * 1000),
            True,
            json.dumps({"numRecords": file.rows}),
        )
        for file in files
    ]
