"""Frames do not depend on how the bytes arrive, and malformed frames are rejected."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.protocol import Command, Feed, Frontiers, Response
from foreshore.few_updates import FewUpdates, few_updates, packed_updates
from foreshore.ids import GlobalId
from foreshore.processes import transport
from foreshore.processes.messages import Message
from foreshore.processes.transport import Connection, FrameError, Frames, encode_frame
from tests.effort import examples

U1 = GlobalId("u1")


def table(rows: int) -> pa.Table:
    return pa.table({"a": pa.array(range(rows), pa.int32()), "b": [str(i) for i in range(rows)]})


TYPES = pa.schema(
    {
        "a": pa.int32(),
        "b": pa.string(),
        "c": pa.decimal128(10, 2),
        "time": pa.int64(),
        "diff": pa.int64(),
    }
)


def tuples(rows: int) -> FewUpdates:
    given = [(i if i % 2 else None, str(i), f"{i}.50") for i in range(rows)]
    found = few_updates(TYPES, 7, given, [1 - 2 * (i % 2) for i in range(rows)])
    assert found is not None
    return found


def bytes_of(message: Message, *tables: transport.Sent) -> bytes:
    return b"".join(bytes(part) for part in encode_frame(message, tables))


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=5), st.data()
)
def test_frames_do_not_depend_on_read_sizes(
    shape: list[tuple[int, int]], data: st.DataObject
) -> None:
    sent = [
        (Frontiers({GlobalId(f"u{i}"): i}), tuple(table(rows + k) for k in range(count)))
        for i, (count, rows) in enumerate(shape)
    ]
    stream = b"".join(bytes_of(message, *tables) for message, tables in sent)
    got: list[tuple[Message, transport.Tables]] = []
    connection: Connection[Message] = Connection(
        Response, lambda _, message, tables: got.append((message, tables)), lambda _: None
    )
    position = 0
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream)))
        connection.data_received(stream[position : position + size])
        position += size
    assert got == sent


def test_a_frame_too_large_is_refused_before_anything_is_allocated() -> None:
    frames = Frames(limit=1000)
    with pytest.raises(FrameError):
        list(frames.receive((2**32 - 1).to_bytes(4, "little") + b"\0" * 8))


def test_leftover_bytes_raise() -> None:
    frame = bytearray(bytes_of(Frontiers({U1: 1}), table(3)) + b"\0" * 8)
    frame[:4] = (len(frame) - 4).to_bytes(4, "little")
    lost: list[bool] = []
    got: list[Message] = []
    connection: Connection[Message] = Connection(
        Response, lambda _, message, __: got.append(message), lambda _: lost.append(True)
    )
    connection.data_received(bytes(frame))
    assert not got
    assert connection.closed


def test_tuples_arrive_as_a_table() -> None:
    """Beside tables, in their place."""
    sent: list[transport.Sent] = [table(3), tuples(5), tuples(1), table(0)]
    frame = memoryview(bytes_of(Frontiers({U1: 1}), *sent))
    got: list[transport.Tables] = []
    connection: Connection[Message] = Connection(
        Response, lambda _, __, tables: got.append(tables), lambda _: None
    )
    connection.data_received(bytes(frame))
    expected = [each.table if isinstance(each, FewUpdates) else each for each in sent]
    assert [[*each] for each in got] == [expected]


@pytest.mark.parametrize("wrong", [b"\x00", b"\xc1", b"\x93\x07\x91\x01\x91\x91\x01"])
def test_tuples_that_do_not_fit_close_the_connection(wrong: bytes) -> None:
    """Neither what is no MessagePack nor rows of another width."""
    good = packed_updates(tuples(1))
    frame = bytes_of(Frontiers({U1: 1}), tuples(1))
    bad = wrong + bytes(len(good) - len(wrong))
    lost: list[bool] = []
    got: list[Message] = []
    connection: Connection[Message] = Connection(
        Response, lambda _, message, __: got.append(message), lambda _: lost.append(True)
    )
    connection.data_received(frame.replace(good, bad))
    assert not got
    assert connection.closed


def test_messages_round_trip() -> None:
    command = Feed(((U1, 0, 5, True), (GlobalId("u2"), 3, 4, False)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(command), type=Command) == command
