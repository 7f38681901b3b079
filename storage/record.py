"""Records: the log's events, in the order in which they happened.

A group is a list of events that become durable together. Events are encoded by msgspec. A few
updates of plain types are a `Rows` event, which has their data. Other updates are those of an
`Appended`, and follow as Arrow IPC record batches without their schema, which is in the shard's
`Created` event or the segment's `Opening`. Batches of many rows are compressed with LZ4, which
takes less CPU time than writing the bytes it saves.

    payload   length of what follows (4 bytes), the events in MessagePack, padding to 8, batches

Replay is idempotent where it has to be: uppers and frontiers only advance.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from foreshore.errors import OutOfDisk
from foreshore.few_updates import FewUpdates
from foreshore.ids import GlobalId
from foreshore.spill import MappedFile
from foreshore.update import Timestamp, encode_schema

ROWS_IN_PLACE = 1000  # chunks with fewer rows are combined before they are written
ROWS_COMPRESSED = 4096  # smaller batches are not compressed
MESSAGES_KEPT = 32 << 20  # bytes in memory, of one record
_LENGTH = struct.Struct("<I")
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")

Mode = Literal["read", "write"]


class ShardWrite(msgspec.Struct, frozen=True, eq=False):
    """Updates to append to a shard whose upper is `lower`: all updates before `upper`.

    `token` is the token of the write capability used, None for the environment's own right.
    """

    id: GlobalId
    lower: Timestamp
    upper: Timestamp
    updates: pa.Table | FewUpdates  # of the shard's update schema, lower <= time < upper
    token: str | None = None


class _Struct(msgspec.Struct, frozen=True, array_like=True):
    """A value encoded as an array."""


class _Event(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An event of the log."""


class Grant(_Struct, frozen=True):
    """A capability. It expires without a heartbeat within `lease_ms`; None: it never expires."""

    token: str
    mode: Mode
    frontier: Timestamp
    lease_ms: int | None = None


class Write(_Struct, frozen=True):
    """The updates of one shard from `lower` to `upper`, and the byte length of each batch."""

    id: GlobalId
    lower: Timestamp
    upper: Timestamp
    batches: tuple[int, ...]


class Appended(_Event, frozen=True):
    """Updates were appended to some shards, atomically."""

    writes: tuple[Write, ...]


class Rows(_Event, frozen=True):
    """A few updates at `time` were appended to a shard; `rows` are as in `FewUpdates.encoded`."""

    id: GlobalId
    lower: Timestamp
    upper: Timestamp
    time: Timestamp
    diffs: tuple[int, ...]
    rows: msgspec.Raw


class Advanced(_Event, frozen=True):
    """Uppers advanced without updates."""

    uppers: tuple[tuple[GlobalId, Timestamp], ...]


class Created(_Event, frozen=True):
    """A shard was created. `schema` is the Arrow schema of its updates in IPC form."""

    id: GlobalId
    schema: bytes
    grants: tuple[Grant, ...]


class Dropped(_Event, frozen=True):
    """A shard was dropped. Its id is never used again."""

    id: GlobalId


class Granted(_Event, frozen=True):
    """Capabilities were granted. `taking_over` ends those of earlier epochs without a lease."""

    grants: tuple[tuple[GlobalId, Grant], ...]
    taking_over: bool


class Downgraded(_Event, frozen=True):
    """Capabilities were downgraded; None: dropped."""

    frontiers: tuple[tuple[GlobalId, str, Timestamp | None], ...]


class Expired(_Event, frozen=True):
    """Capabilities ended because their leases ran out."""

    tokens: tuple[tuple[GlobalId, str], ...]


Event = Appended | Rows | Advanced | Created | Dropped | Granted | Downgraded | Expired


class ShardEntry(_Struct, frozen=True):
    """A shard at the beginning of a segment. `sealed` is the upper of its trace."""

    id: GlobalId
    schema: bytes
    since: Timestamp
    upper: Timestamp
    sealed: Timestamp
    grants: tuple[Grant, ...]


class Opening(_Struct, frozen=True):
    """The complete state at the beginning of a segment, so that earlier ones may be removed."""

    epoch: int
    shards: tuple[ShardEntry, ...]
    dropped: tuple[GlobalId, ...]  # their tombstones may not be in consensus yet


class Closing(_Struct, frozen=True):
    """The uppers at the end of a segment."""

    uppers: tuple[tuple[GlobalId, Timestamp], ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_events = msgspec.msgpack.Decoder(tuple[Event, ...]).decode
_decode_opening = msgspec.msgpack.Decoder(Opening).decode


def _encode_updates(updates: pa.Table, compressor: "_Compressor") -> Iterator[pa.Buffer]:
    """Yield the rows of the table as messages of Arrow's IPC format."""
    if updates.num_rows == 0:
        return
    batches = updates.to_batches()
    if len(batches) > 1 and updates.num_rows < ROWS_IN_PLACE * len(batches):
        batches = updates.combine_chunks().to_batches()
    for batch in batches:
        if batch.num_rows:
            is_long = batch.num_rows >= ROWS_COMPRESSED
            yield compressor.message(batch) if is_long else batch.serialize()


class _Compressor:
    """Compresses batches into messages, reusing one buffer because allocation is expensive."""

    def __init__(self) -> None:
        self.saved = 0  # bytes
        self._place = pa.py_buffer(b"")

    def message(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return the batch as a message."""
        start = len(encode_schema(batch.schema))  # the stream writes it first
        plain = pa.ipc.get_record_batch_size(batch)
        buffers = sum(len(column.buffers()) for column in batch.columns)
        bound = start + plain + plain // 64 + 256 * (buffers + 1)  # more than LZ4 can add
        if self._place.size < bound:
            self._place = pa.allocate_buffer(bound)
        sink = pa.FixedSizeBufferWriter(self._place)
        with pa.ipc.new_stream(sink, batch.schema, options=_LZ4) as stream:
            stream.write_batch(batch)
            end = sink.tell()
        self.saved += max(0, plain - (end - start))
        return pa.py_buffer(self._place.slice(start, end - start).to_pybytes())


class NotEncoded(Exception):
    """Some entries of a group cannot be encoded: those at `places`. Nothing has been written."""

    def __init__(self, places: Sequence[int], why: Exception) -> None:
        super().__init__(f"{type(why).__name__}: {why}")
        self.places = places


def encoded(group: Sequence[Event | Sequence[ShardWrite]], scratch: Path) -> tuple[list[Any], int]:
    """Return what `encode_group` returns; raises OutOfDisk, and NotEncoded for any other error."""
    try:
        return encode_group(group, scratch)
    except (OutOfDisk, OSError):
        raise
    except Exception as error:
        wrong = [place for place, entry in enumerate(group) if not _is_encoded(entry, scratch)]
        raise NotEncoded(wrong or range(len(group)), error) from error


def _is_encoded(entry: Event | Sequence[ShardWrite], scratch: Path) -> bool:
    try:
        encode_group([entry], scratch)
    except (OutOfDisk, OSError):
        raise
    except Exception:  # NotEncoded reports the error of the group
        return False
    return True


def shards_of(entry: Event | Sequence[ShardWrite]) -> set[GlobalId]:
    """Return the shards that an entry with writes is about."""
    return set() if isinstance(entry, _Event) else {write.id for write in entry}


def encode_group(
    group: Iterable[Event | Sequence[ShardWrite]], scratch: Path
) -> tuple[list[Any], int]:
    """Return the payload of a group, as consecutive buffers, and the bytes compression saved.

    Messages beyond `MESSAGES_KEPT` are mapped from a file without a name in `scratch`. Raises
    OutOfDisk.
    """
    compressor = _Compressor()
    file: MappedFile | None = None
    kept = 0
    events: list[Event] = []
    messages: list[pa.Buffer] = []
    for entry in group:
        if isinstance(entry, _Event):
            events.append(entry)
            continue
        writes = []
        for write in entry:
            updates = write.updates
            if isinstance(updates, FewUpdates):
                events.append(_rows(write, updates))
                continue
            sizes: list[int] = []
            for message in _encode_updates(updates, compressor):
                sizes.append(message.size)
                kept += message.size
                if kept > MESSAGES_KEPT:
                    file = file or MappedFile(scratch)
                messages.append(message if file is None else file.add(message))
            writes.append(Write(write.id, write.lower, write.upper, tuple(sizes)))
        if writes:
            events.append(Appended(tuple(writes)))
    return [_framed(_encode(events)), *messages], compressor.saved


def _rows(write: ShardWrite, updates: FewUpdates) -> Rows:
    return Rows(
        write.id,
        write.lower,
        write.upper,
        updates.time,
        tuple(updates.diffs),
        msgspec.Raw(updates.encoded),
    )


def decode_group(payload: memoryview) -> tuple[tuple[Event, ...], memoryview]:
    """Return the events and the messages of a group."""
    (length,) = _LENGTH.unpack_from(payload)
    end = _LENGTH.size + length
    return _decode_events(payload[_LENGTH.size : end]), payload[end + -end % 8 :]


def encode_statement(statement: Opening | Closing) -> list[Any]:
    """Return the payload of an Opening or a Closing."""
    return [_encode(statement)]


def decode_opening(payload: memoryview) -> Opening:
    """Return the Opening of a segment."""
    return _decode_opening(payload)


def _framed(data: bytes) -> bytes:
    head = _LENGTH.pack(len(data)) + data
    return head + bytes(-len(head) % 8)
