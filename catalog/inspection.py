"""Reports the contents of a data directory with the names of the catalog, as text or JSON.

The catalog's shard is read from the files, as any other. If it is corrupt, only ids are shown.
"""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreshore.catalog.dangling import dangling, describe
from foreshore.catalog.durable import CATALOG_SHARD, load
from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError
from foreshore.storage.batch import read_batch
from foreshore.storage.consolidate import consolidate
from foreshore.storage.directory import batch_files
from foreshore.storage.identity import NAME
from foreshore.storage.inspection import Inspection, ShardReport
from foreshore.storage.lease_file import DIRECTORY, LeaseFile, holding
from foreshore.update import EMPTY, MAX_TIMESTAMP, Timestamp

MAX_SHOWN = 8  # paths of a lease shown in text


def names_of(data_dir: Path, found: Inspection) -> dict[str, str]:
    """Return the full names of collections by id, as far as the catalog is readable."""
    if found.recovered.get(CATALOG_SHARD) is None:
        return {}
    names = {str(CATALOG_SHARD): "the catalog"}
    state = state_of(data_dir, found)
    if state is not None:
        names |= {
            item.id: ".".join(filter(None, state.full_name(item))) for item in state.all(Item)
        }
    return names


def dangling_of(data_dir: Path, found: Inspection) -> tuple[str, ...]:
    """Return a line for each reference of the catalog to what does not exist."""
    state = state_of(data_dir, found)
    return () if state is None else tuple(map(describe, dangling(state)))


def state_of(data_dir: Path, found: Inspection) -> State | None:
    """Return the catalog, None if there is none or it is not readable."""
    shard = found.recovered.get(CATALOG_SHARD)
    if shard is None:
        return None
    files = batch_files(data_dir)

    def updates() -> Iterator[pa.RecordBatch]:
        for batch in shard.batches:
            yield from read_batch(files, batch, shard.schema)
        for part in shard.tail:
            yield from part.updates.to_batches()

    try:
        with tempfile.TemporaryDirectory() as scratch:
            rows = list(consolidate(updates(), shard.schema, MAX_TIMESTAMP, Path(scratch)))
        return load([pa.Table.from_batches(rows, shard.schema)])
    except (DatabaseError, OSError, ValueError, pa.ArrowException):
        return None  # its problems are listed already


def as_json(found: Inspection, names: dict[str, str]) -> dict[str, Any]:
    """Return the report as JSON values. Times are milliseconds since 1970."""
    states = found.states
    return {
        "identity": states.identity if states is not None else None,
        "restored_from": states.restored_from if states is not None else None,
        "epoch": states.epoch if states is not None else None,
        "segments": [
            {
                "file": f"log/{segment.name}",
                "sealed": segment.sealed,
                "bytes": segment.length,
                "torn": segment.torn,
                "records": segment.records,
            }
            for segment in found.segments
        ],
        "collections": [_shard(shard, names) for shard in found.shards],
        "leases": [_lease(lease) for lease in found.leases],
        "unreferenced": found.unreferenced,
        "damages": [
            {
                "file": corruption.file,
                "offset": corruption.offset,
                "message": corruption.message,
                "collection": _collection(corruption.file),
            }
            for corruption in found.corruptions
        ],
    }


def _shard(shard: ShardReport, names: dict[str, str]) -> dict[str, Any]:
    return {
        "id": shard.id,
        "name": names.get(shard.id),
        "since": shard.since,
        "upper": shard.upper,
        "times": None if shard.least is None else [shard.least, shard.greatest],
        "rows": sum(batch.rows for batch in shard.batches) + shard.tail_rows,
        "bytes": sum(batch.bytes for batch in shard.batches),
        "columns": {field.name: str(field.type) for field in shard.schema},
        "batches": [
            {
                "file": f"blob/{batch.key}",
                "lower": batch.lower,
                "upper": batch.upper,
                "since": batch.since,
                "rows": batch.rows,
                "bytes": batch.bytes,
            }
            for batch in shard.batches
        ],
        "tail_rows": shard.tail_rows,
        "capabilities": [
            {"token": grant.token, "mode": grant.mode, "frontier": grant.frontier}
            for grant in shard.grants
        ],
    }


def _collection(file: str) -> str | None:
    """Return the id of the collection that a batch file belongs to, None for other files."""
    match file.split("/"):
        case ["blob", id, *_] if id != NAME:
            return id
        case _:
            return None


def _lease(lease: LeaseFile) -> dict[str, Any]:
    return {
        "file": f"{DIRECTORY}/{lease.name}",
        "holder": lease.holder,
        "holds": list(lease.holds),
        "ends": lease.renewed + lease.lease_ms,
        "amiss": lease.problem,
    }


def as_text(found: Inspection, names: dict[str, str]) -> Iterator[str]:
    """Yield the report as lines of text, corruption last."""
    shown = as_json(found, names)
    if found.states is not None:
        restored = f", restored from {shown['restored_from']}" if shown["restored_from"] else ""
        yield f"database {shown['identity'] or 'without identity'}{restored}"
        yield f"epoch {shown['epoch']}"
    for segment in shown["segments"]:
        state = "sealed" if segment["sealed"] else "open"
        torn = f", {segment['torn']} bytes torn off" if segment["torn"] else ""
        yield (
            f"{segment['file']}  {state}, {segment['records']} records,"
            f" {segment['bytes']} bytes{torn}"
        )
    for shard in shown["collections"]:
        yield ""
        yield f"{shard['id']}  {shard['name'] or '(in no catalog)'}"
        yield f"  since {_time(shard['since'])}, upper {_time(shard['upper'])}"
        if shard["times"]:
            yield f"  updates from {_time(shard['times'][0])} to {_time(shard['times'][1])}"
        yield (
            f"  {shard['rows']} updates, {shard['tail_rows']} of them in the log;"
            f" {len(shard['batches'])} batches of {shard['bytes']} bytes"
        )
        for batch in shard["batches"]:
            yield (
                f"    {batch['file']}  [{batch['lower']}, {batch['upper']})"
                f" since {batch['since']}, {batch['rows']} updates, {batch['bytes']} bytes"
            )
        for grant in shard["capabilities"]:
            yield f"    {grant['mode']} capability {grant['token']} at {_time(grant['frontier'])}"
    for lease in shown["leases"]:
        holder = f"of {lease['holder']!r}" if lease["amiss"] is None else "that is not readable"
        yield f"lease {lease['file']!r} {holder}, until {_time(lease['ends'])} unless renewed"
        for path in lease["holds"][:MAX_SHOWN]:
            yield f"    holds {path!r}"
        if len(lease["holds"]) > MAX_SHOWN:
            yield f"    and {len(lease['holds']) - MAX_SHOWN} more"
    holds = holding(found.leases)
    for file in found.unreferenced:
        yield f"not named by any state: {file}{', held by a lease' if holds(file) else ''}"
    for corruption in found.corruptions:
        at = "" if corruption.offset is None else f", offset {corruption.offset}"
        id = _collection(corruption.file)
        whose = "" if id is None else f", of {id}  {names.get(id, '(in no catalog)')}"
        yield f"DAMAGED {corruption.file}{at}: {corruption.message}{whose}"


def _time(time: Timestamp) -> str:
    if time == EMPTY:
        return "{}"
    try:
        shown = datetime.fromtimestamp(time / 1000, UTC).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time)
    return f"{time} ({shown.removesuffix('+00:00')})" if time >= 1_000_000_000 else str(time)
