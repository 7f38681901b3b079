"""A collection of a data directory, opened from outside while a server writes and compacts.

    with a lease on everything: states of consensus, then the log, then the log's state again
    what a collection consists of: its batches, and the updates that are in the log only

The result is one moment's: the files that it names never change, and while its lease lives none of
them is deleted. `docs/format.md` says why no half state is ever read.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from foreshore.catalog.durable import CATALOG_SHARD, load
from foreshore.catalog.item import Database, Item, Schema
from foreshore.catalog.state import State
from foreshore.errors import (
    DataCorrupted,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    UndefinedTable,
)
from foreshore.ids import GlobalId
from foreshore.spark.lease import Lease, take
from foreshore.storage.batch import column_names, read_batch
from foreshore.storage.blob import open_blob
from foreshore.storage.consolidate import consolidate
from foreshore.storage.directory import States, decode_states, read_log, read_states
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.postgres_consensus import read_heads
from foreshore.storage.replay import replay
from foreshore.storage.shard import Shard
from foreshore.storage.trace import Batch
from foreshore.update import MAX_TIMESTAMP, Timestamp, decode_schema, encode_schema

TAKEOVER_SECONDS = 10.0  # a takeover that takes longer has died
VIEW_ERRORS = GlobalId("s3")
SYSTEM_TABLES = {  # which are in no catalog
    "mz_internal.mz_wallclock_global_lag_history": GlobalId("s2"),
    "mz_internal.mz_materialized_view_errors": VIEW_ERRORS,
    "mz_catalog.mz_audit_events": GlobalId("s4"),
}


@dataclass(frozen=True, slots=True)
class ViewError:
    """From `at` on, a view that the collection is made of fails with `text`; None: no longer."""

    view: str
    at: Timestamp
    text: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a database is: its directory, and the URLs of what is elsewhere."""

    data_dir: str
    blob: str | None = None  # of the batches
    consensus: str | None = None  # of the metadata; it may have a password, and tasks need none

    def states(self) -> States:
        """Return the states in consensus as of one moment; blocks."""
        if self.consensus is None:
            return read_states(Path(self.data_dir))
        if urlsplit(self.consensus).scheme not in ("postgres", "postgresql"):
            raise InvalidParameterValue('option "consensus" is a URL of PostgreSQL')
        with ThreadPoolExecutor(1) as thread:  # the caller's may run a loop, as Jupyter's does
            return decode_states(thread.submit(asyncio.run, read_heads(self.consensus)).result())

    def files(self, cache: Path) -> LocalFiles:
        """Return the batches as local files; those of a remote store are kept in `cache`."""
        return LocalFiles(open_blob(self.blob, Path(self.data_dir)), cache)


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as of one moment. It can be pickled, and is readable in other processes."""

    place: Place
    id: GlobalId
    name: str
    encoded_schema: bytes  # of updates
    since: Timestamp
    upper: Timestamp
    batches: tuple[Batch, ...]
    tail: bytes  # an IPC stream of the updates that are in no batch
    errors: tuple[ViewError, ...]
    lease: str | None  # the path of its file

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of updates, with the column names of batch files."""
        schema = decode_schema(self.encoded_schema)
        return schema if schema.names == column_names(schema) else _renamed(schema)

    @property
    def latest(self) -> Timestamp:
        """Return the last readable time."""
        return self.upper - 1

    def check(self, first: Timestamp, last: Timestamp) -> None:
        """Raise a DatabaseError unless the rows are known at all times from `first` to `last`."""
        if not self.since <= first or not last < self.upper:
            raise InvalidParameterValue(
                f"{self.name} is readable from {self.since} and before {self.upper}",
                hint="ALTER ... SET (RETAIN HISTORY FOR ...) keeps more history."
                if first < self.since
                else None,
            )
        failing: dict[str, str | None] = {}
        for error in self.errors:
            if error.at <= first or (error.at <= last and error.text is not None):
                failing[error.view] = error.text
        for view, text in failing.items():
            if text is not None:
                raise ObjectNotInPrerequisiteState(f"{self.name} has an error by {view}: {text}")


def open_collection(place: Place, name: str, lease_ms: int) -> tuple[Collection, Lease | None]:
    """Return the collection `[[database.]schema.]name`, or with the id `name`; blocks.

    Its files are held by the lease that is returned with it, which the caller has to renew and to
    end; None if none can be taken. Raises UndefinedTable, and DataCorrupted if files are missing or
    damaged.
    """
    data_dir = Path(place.data_dir)
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while True:
        lease = take(data_dir, lease_ms)
        try:
            found = _open(place, name, lease, deadline)
            if found is not None:
                return found, lease
        except BaseException:
            if lease is not None:
                lease.end()
            raise
        if lease is not None:
            lease.end()
        time.sleep(0.05)


def _open(place: Place, name: str, lease: Lease | None, deadline: float) -> Collection | None:
    """Return the collection; None if what was read has changed hands or was taken away."""
    data_dir = Path(place.data_dir)
    states = place.states()
    takeover = states.takeover_in_progress
    if takeover and time.monotonic() < deadline:
        return None
    try:
        shards = _shards(data_dir, states)
        after = place.states().log
        if after.epoch != states.log.epoch or (takeover and after != states.log):
            return None  # the new owner may have cut off what was read of the log's end
        with tempfile.TemporaryDirectory() as scratch:
            return _collection(place, shards, name, lease, Path(scratch))
    except (DataCorrupted, FileNotFoundError):
        missing = {file for file in states.names() if not (data_dir / file).exists()}
        if place.blob is not None:
            missing = {file for file in missing if file.startswith("log/")}
        if missing <= place.states().names():  # nothing was replaced
            raise
        return None


def _shards(data_dir: Path, states: States) -> Mapping[GlobalId, Shard]:
    log = [(segment.number, read_log(data_dir, segment)) for segment in states.log.segments]
    return replay(log, states.traces, states.epoch + 1).shards


def _collection(
    place: Place, shards: Mapping[GlobalId, Shard], name: str, lease: Lease | None, scratch: Path
) -> Collection:
    files = place.files(scratch / "cache")
    state = _catalog(shards, files, scratch)
    id = _resolved(state, shards, name)
    shard = shards[id]
    item = state.get(id)
    since = shard.since
    if isinstance(item, Item):  # as it is now, it has not been from the first
        since = max(since, item.since, int(item.constrained_since or 0))
    tail = pa.BufferOutputStream()
    with pa.ipc.new_stream(tail, shard.schema) as stream:
        for part in shard.tail:
            stream.write_table(part.updates.cast(shard.schema))
    if lease is not None:
        lease.narrow(f"blob/{batch.key}" for batch in shard.batches)
    return Collection(
        replace(place, consensus=None),
        id,
        name,
        encode_schema(shard.schema),
        since,
        shard.upper,
        tuple(shard.batches),
        tail.getvalue().to_pybytes(),
        tuple(_errors(state, shards, id, files, scratch)),
        None if lease is None else lease.path,
    )


def _catalog(shards: Mapping[GlobalId, Shard], files: LocalFiles, scratch: Path) -> State:
    shard = shards.get(CATALOG_SHARD)
    state = load([_contents(shard, files, scratch)]) if shard is not None else None
    if state is None:
        raise UndefinedTable("the database has no catalog yet")
    return state


def _contents(shard: Shard, files: LocalFiles, scratch: Path) -> pa.Table:
    """Return the last rows of a small collection as updates."""

    def updates() -> Iterator[pa.RecordBatch]:
        for batch in shard.batches:
            yield from read_batch(files, batch, shard.schema)
        for part in shard.tail:
            yield from part.updates.to_batches()

    rows = list(consolidate(updates(), shard.schema, MAX_TIMESTAMP, scratch))
    return pa.Table.from_batches(rows, shard.schema)


def _resolved(state: State, shards: Mapping[GlobalId, Shard], name: str) -> GlobalId:
    """Return the id of the named collection, or the id itself."""
    parts = name.split(".")
    wanted = [*("foreshore", "public")[: 3 - len(parts)], *parts]
    found = SYSTEM_TABLES.get(".".join(wanted[-2:]))
    for item in state.all(Item):
        if item.name != wanted[-1]:
            continue
        schema = state.get(item.schema)
        if not isinstance(schema, Schema) or schema.database is None:
            continue
        database = state.get(schema.database)
        if isinstance(database, Database) and [database.name, schema.name, item.name] == wanted:
            if item.type not in ("table", "materialized view"):
                raise InvalidParameterValue(
                    f"{name} is a {item.type}, which has no rows of its own",
                    hint="Tables and materialized views have.",
                )
            found = item.id
    if found is None and GlobalId(name) in shards:
        found = GlobalId(name)
    if found is None or found not in shards:
        raise UndefinedTable(f'relation "{name}" does not exist')
    return found


def _errors(
    state: State,
    shards: Mapping[GlobalId, Shard],
    id: GlobalId,
    files: LocalFiles,
    scratch: Path,
) -> Iterator[ViewError]:
    """Yield when the views failed that the collection is, or is made of; in order of time."""
    views = _views_below(state, id)
    shard = shards.get(VIEW_ERRORS)
    if not views or shard is None:
        return
    rows = _contents(shard, files, scratch).to_pylist()
    for row in sorted(rows, key=lambda row: int(row["at"])):
        if row["object_id"] in views:
            text = row["error"]
            shown = None if text is None else f"{row['sqlstate']} {text}"
            yield ViewError(views[row["object_id"]], int(row["at"]), shown)


def _views_below(state: State, id: GlobalId) -> dict[str, str]:
    """Return the views that the collection is, or is made of: names by id."""
    found: dict[str, str] = {}
    stack = [id]
    while stack:
        item = state.get(stack.pop())
        if not isinstance(item, Item) or item.type not in ("view", "materialized view"):
            continue
        if item.id not in found:
            found[item.id] = item.name
            stack += item.depends_on
    return found


def _renamed(schema: pa.Schema) -> pa.Schema:
    names = column_names(schema)
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
