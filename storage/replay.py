"""Replay: rebuilds shards from the segments of the log and the traces.

Replay is pure: it maps what was read to the recovered state. It starts from the first segment's
Opening and applies every later event. Updates that are in a trace already are skipped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from foreshore.errors import DataCorrupted
from foreshore.few_updates import FewUpdates, decoded, together
from foreshore.ids import GlobalId
from foreshore.storage.capability import Capabilities, epoch_of
from foreshore.storage.record import (
    Advanced,
    Appended,
    Created,
    Downgraded,
    Dropped,
    Event,
    Expired,
    Grant,
    Granted,
    Opening,
    Rows,
    Write,
    decode_group,
    decode_opening,
)
from foreshore.storage.segment import Contents, Kind
from foreshore.storage.shard import Shard
from foreshore.storage.trace import TraceState
from foreshore.update import MAX_TIMESTAMP, T0, decode_schema


@dataclass(slots=True)
class Recovered:
    """The state recovered from the log and the traces."""

    shards: dict[GlobalId, Shard] = field(default_factory=dict)
    dropped: set[GlobalId] = field(default_factory=set)


def replay(
    segments: Sequence[tuple[int, Contents]], traces: Mapping[GlobalId, TraceState], epoch: int
) -> Recovered:
    """Return the shards as of the end of the log. `segments` are numbered, oldest first."""
    recovered = Recovered()
    replayer = _Replayer(recovered, traces, epoch)
    for number, contents in segments:
        replayer.segment(number, contents)
    for id, state in traces.items():
        if state.dropped:
            if id in recovered.shards:
                raise DataCorrupted(f"trace of {id}: dropped, which the log does not know")
            recovered.dropped.add(id)
        elif id not in recovered.shards and id not in recovered.dropped:
            raise DataCorrupted(f"trace of {id}: the log knows no such shard")
    for shard in recovered.shards.values():
        trace = traces.get(shard.id)
        if trace is not None:
            shard.batches = trace.batches
            shard.sealed = trace.upper
            shard.since = max(shard.since, trace.since)
            shard.set_upper(max(shard.upper, trace.upper))
        shard.update_since()
        # Not the logged upper: writes before a downgrade may be logged after it.
        shard.set_upper(max(shard.upper, shard.write_frontier()))
        shard.durable_since = shard.since
    return recovered


class _Replayer:
    def __init__(
        self, recovered: Recovered, traces: Mapping[GlobalId, TraceState], epoch: int
    ) -> None:
        self._shards = recovered.shards
        self._dropped = recovered.dropped
        self._sealed = {
            id: MAX_TIMESTAMP if state.dropped else state.upper for id, state in traces.items()
        }
        self._epoch = epoch
        self._first = True
        self._batches: dict[GlobalId, list[pa.RecordBatch]] = {}
        self._few: dict[GlobalId, list[FewUpdates]] = {}  # after these
        self._place = ""

    def segment(self, number: int, contents: Contents) -> None:
        for record in contents.records:
            self._place = f"log segment {number}, offset {record.offset}"
            match record.kind:
                case Kind.OPENING:
                    self._opening(decode_opening(record.payload))
                case Kind.GROUP:
                    events, messages = decode_group(record.payload)
                    for event in events:
                        messages = self._event(event, messages)
                case Kind.CLOSING:
                    pass
        for id in list(self._few):
            self._columns_of_few(id)
        for id, batches in self._batches.items():
            if id in self._shards:  # otherwise dropped later in the segment
                shard = self._shards[id]
                updates = pa.Table.from_batches(batches, shard.schema)
                if len(batches) > 1:
                    updates = updates.combine_chunks()
                shard.add(number, shard.upper, updates)
        self._batches = {}

    def _opening(self, opening: Opening) -> None:
        if not self._first and self._shards.keys() != {entry.id for entry in opening.shards}:
            raise self._corrupt("lists other shards than the segment before")
        self._dropped.update(opening.dropped)
        for entry in opening.shards:
            if self._first:
                self._shards[entry.id] = Shard(entry.id, decode_schema(entry.schema))
            shard = self._shards[entry.id]
            if entry.upper < shard.upper:
                raise self._corrupt(f"takes the upper of {entry.id} back")
            if self._sealed.get(entry.id, T0) < entry.sealed:
                raise DataCorrupted(
                    f"trace of {entry.id}: ends at {self._sealed.get(entry.id, T0)}"
                    f" where the log relies on it up to {entry.sealed}"
                )
            shard.set_upper(entry.upper)
            shard.since = entry.since
            shard.capabilities = _capabilities(entry.id, entry.grants)
        self._first = False

    def _event(self, event: Event, messages: memoryview) -> memoryview:
        """Apply the event; return the remaining messages."""
        match event:
            case Appended(writes):
                for write in writes:
                    messages = self._write(write, messages)
            case Rows():
                self._rows(event)
            case Advanced(uppers):
                for id, upper in uppers:
                    shard = self._shard(id)
                    shard.set_upper(max(shard.upper, upper))
            case Created(id, schema, grants):
                if id in self._shards or id in self._dropped:
                    raise self._corrupt(f"creates {id} again")
                self._shards[id] = Shard(id, decode_schema(schema))
                self._shards[id].capabilities = _capabilities(id, grants)
            case Dropped(id):
                self._shard(id)
                del self._shards[id]
                self._dropped.add(id)
            case Granted(grants, taking_over):
                for id, grant in grants:
                    capabilities = self._shard(id).capabilities
                    if taking_over:
                        self._shard(id).update_since()
                        capabilities.end_earlier_epochs(epoch_of(grant.token))
                    if not capabilities.has(grant.token):
                        capabilities.add(grant)
            case Downgraded(frontiers):
                for id, token, frontier in frontiers:
                    if id not in self._shards:
                        continue  # dropped in the same record
                    shard = self._shards[id]
                    if frontier is not None:
                        shard.capabilities.advance(token, frontier)
                    else:
                        shard.capabilities.drop(token)
                    shard.update_since()
            case Expired(tokens):
                for id, token in tokens:
                    if id in self._shards:
                        self._shards[id].capabilities.expire(token)
                        self._shards[id].update_since()
        return messages

    def _write(self, write: Write, messages: memoryview) -> memoryview:
        shard, needed = self._appends(write)
        for size in write.batches:
            if needed:
                self._columns_of_few(write.id)
                batch = pa.ipc.read_record_batch(pa.py_buffer(messages[:size]), shard.schema)
                self._batches.setdefault(write.id, []).append(batch)
            messages = messages[size:]
        return messages

    def _rows(self, rows: Rows) -> None:
        shard, needed = self._appends(rows)
        if needed:
            few = decoded(shard.schema, rows.time, bytes(rows.rows), rows.diffs)
            self._few.setdefault(rows.id, []).append(few)

    def _columns_of_few(self, id: GlobalId) -> None:
        """Let the few updates of a shard that have been read precede what follows."""
        if few := self._few.pop(id, None):
            self._batches.setdefault(id, []).extend(together(few).to_batches())

    def _appends(self, write: Write | Rows) -> tuple[Shard, bool]:
        """Move a shard's upper; return the shard, and whether its batches lack these updates."""
        shard = self._shard(write.id)
        if write.lower < shard.upper:
            raise self._corrupt(
                f"appends to {write.id} from {write.lower} where its upper is {shard.upper}"
            )
        shard.set_upper(write.upper)
        return shard, write.upper > self._sealed.get(write.id, T0)

    def _shard(self, id: GlobalId) -> Shard:
        shard = self._shards.get(id)
        if shard is None:
            raise self._corrupt(f"tells of {id}, which does not exist")
        return shard

    def _corrupt(self, what: str) -> DataCorrupted:
        return DataCorrupted(f"{self._place}: {what}")


def _capabilities(id: GlobalId, grants: Iterable[Grant]) -> Capabilities:
    capabilities = Capabilities(id)
    for grant in grants:
        capabilities.add(grant)
    return capabilities
