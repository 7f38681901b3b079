"""Frames: for any bytes, split anywhere, the reader returns messages or raises FramingError."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.errors import DatabaseError
from foreshore.server import message
from foreshore.server.message import PIECE, FramingError, LongMessage, Message, parse_long
from foreshore.server.protocol import (
    GATHERED,
    LIMIT_BEFORE_LOGIN,
    MessageReader,
    TooMuchGathered,
)


def framed(code: bytes, body: bytes = b"") -> bytes:
    return code + struct.pack("!i", len(body) + 4) + body


def parsed(received: Message | LongMessage) -> Message:
    return parse_long(received) if isinstance(received, LongMessage) else received


def read_all(data: bytes, step: int) -> list[Message]:
    reader = MessageReader()
    reader.open()
    got: list[Message] = []
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        while (received := reader.next()) is not None:
            got.append(parsed(received))
    assert reader.buffered == 0
    return got


CONVERSATION = [
    (framed(b"Q", b"select 1\0"), message.Query("select 1")),
    (
        framed(b"P", b"s\0select $1\0\0\x01\0\0\0\x17"),
        message.Parse("s", "select $1", (23,)),
    ),
    (
        framed(b"B", b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x02\0\0\0\x01"),
        message.Bind("p", "s", (1,), [b"x", None], (0, 1)),
    ),
    (framed(b"B", b"\0\0\0\0\0\0\0\0"), message.Bind("", "", (), [], ())),
    (framed(b"D", b"Ss\0"), message.Describe("S", "s")),
    (framed(b"D", b"P\0"), message.Describe("P", "")),
    (framed(b"E", b"p\0\0\0\0\x05"), message.Execute("p", 5)),
    (framed(b"C", b"Ps\0"), message.Close("P", "s")),
    (framed(b"S"), message.SYNC),
    (framed(b"H"), message.FLUSH),
    (framed(b"d", b"\0\x01"), message.CopyData(b"\0\x01")),
    (framed(b"c"), message.COPY_DONE),
    (framed(b"f", b"why\0"), message.CopyFail("why")),
    (framed(b"F", b"\0"), message.FUNCTION_CALL),
    (framed(b"p", b"x\0"), message.Password(b"x\0")),
    (framed(b"X"), message.TERMINATE),
]


@given(st.lists(st.sampled_from(CONVERSATION)), st.integers(1, 50))
def test_input_split_anywhere_gives_same_messages(
    parts: list[tuple[bytes, Message]], step: int
) -> None:
    assert read_all(b"".join(data for data, _ in parts), step) == [m for _, m in parts]


@pytest.mark.parametrize("step", [1_000, 65_536, 200_000, 1_000_000])
def test_large_copy_data_is_returned_in_parts(step: int) -> None:
    bodies = [bytes([i]) * size for i, size in enumerate((3, 70_000, 200_000, 5, 65_536, 65_533))]
    reader = MessageReader()
    reader.open()
    copied = b""
    after: list[Message] = []
    data = b"".join(framed(b"d", body) for body in bodies) + framed(b"c") + framed(b"S")
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        while (received := reader.next()) is not None:
            if isinstance(received, message.CopyData):
                assert not after
                copied += received.data
            else:
                after.append(parsed(received))
        assert reader.buffered < 65_536 + 5  # no more than a message that is put together
    assert copied == b"".join(bodies)
    assert after == [message.COPY_DONE, message.SYNC]


@pytest.mark.parametrize("step", [65_536, 1_000_000, 10_000_000])
def test_long_frame_is_returned_unparsed_and_gives_the_same_message(step: int) -> None:
    text = "aé€" * PIECE  # in which pieces end within characters
    long, value = f"select '{text}'", text.encode()
    size = struct.pack("!i", len(value))
    data = framed(b"Q", long.encode() + b"\0") + framed(
        b"B", b"\0s\0\0\0\0\x02" + size + value + b"\0\0\0\x01x\0\0"
    )
    query, bind, sync = read_all(data + framed(b"S"), step)
    assert query == message.Query(long)
    assert isinstance(bind, message.Bind)
    first, second = bind.values
    assert (first, second) == (value, b"x")
    assert first is not None
    assert message.decode_text(first) == text
    assert sync == message.SYNC


def test_long_text_that_is_not_utf8_is_unreadable() -> None:
    broken = b"a" * PIECE + b"\xe2\x82"  # the start of a character, at the end of the text
    (received,) = read_all(framed(b"Q", broken + b"\0"), 100_000)
    assert isinstance(received, message.Unreadable)
    assert received.error.message == 'invalid byte sequence for encoding "UTF8": 0xe2 0x82'


@given(st.binary(max_size=200), st.integers(1, 64))
def test_random_bytes_give_messages_or_framing_error(data: bytes, step: int) -> None:
    reader = MessageReader()
    reader.open()
    try:
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
            while reader.next() is not None:
                pass
    except FramingError:
        pass


@given(st.sampled_from(b"QPBDECSHdcfFpX"), st.binary(max_size=60))
def test_random_body_gives_message_or_framing_error(code: int, body: bytes) -> None:
    with contextlib.suppress(FramingError):
        message.parse_message(code, body)


@given(st.sampled_from([data for data, m in CONVERSATION if not isinstance(m, message.CopyData)]))
def test_bytes_left_over_in_frame_raise_framing_error(data: bytes) -> None:
    body = data[5:] + b"\0"
    if data[:1] in b"Fp":  # whose bodies are not looked into
        return
    with pytest.raises(FramingError):
        message.parse_message(data[0], body)


@pytest.mark.parametrize(
    "body",
    [
        b"p\0s\0\xff\xff",  # 65535 formats, none of them there
        b"p\0s\0\0\0\xff\xff",  # 65535 values
        b"p\0s\0\0\0\0\x01\x7f\xff\xff\xff",  # a value of 2 GiB
        b"p\0s\0\0\0\0\x01\xff\xff\xff\xfe",  # a value of -2 bytes
        b"p\0s",
        b"",
    ],
)
def test_counts_and_lengths_beyond_frame_raise_framing_error(body: bytes) -> None:
    with pytest.raises(FramingError):
        message.parse_message(ord("B"), body)


@pytest.mark.parametrize("length", [-1, 0, 3, 2**30])
def test_length_out_of_bounds_is_refused_without_allocation(length: int) -> None:
    reader = MessageReader()
    reader.open()
    reader.feed(b"Q" + struct.pack("!i", length))
    with pytest.raises(FramingError, match="invalid message length"):
        reader.next()


def test_large_message_before_login_is_refused() -> None:
    header = b"p" + struct.pack("!i", LIMIT_BEFORE_LOGIN + 1)
    reader = MessageReader()
    reader.feed(header)
    with pytest.raises(FramingError):
        reader.next()
    reader = MessageReader()
    reader.open()
    reader.feed(header)
    assert reader.next() is None


@pytest.mark.parametrize("code", list("QPBFSHXCDEcfd"))
def test_length_of_message_is_bounded_by_its_type(code: str) -> None:
    most = 1 << 20
    bound = {"d": 0x3FFFFFFF}.get(code, 10_000 if code in "SHXCDEcf" else most)
    for length in (bound, bound + 1):
        reader = MessageReader()
        reader.open(most)
        reader.feed(code.encode() + struct.pack("!i", length))
        if length > bound:
            with pytest.raises(FramingError, match="invalid message length"):
                reader.next()
        else:
            assert reader.next() is None


@pytest.mark.parametrize("length", [-5, 0, 7, 10_001, 2**31 - 1])
def test_startup_packet_with_wrong_length_is_refused(length: int) -> None:
    reader = MessageReader()
    reader.feed(struct.pack("!i", length))
    with pytest.raises(FramingError, match="invalid length of startup packet"):
        reader.opening()


def opening(body: bytes) -> object:
    reader = MessageReader()
    reader.feed(struct.pack("!i", len(body) + 4) + body)
    return reader.opening()


def test_first_frame_is_parsed_by_its_code() -> None:
    assert opening(struct.pack("!i", 80877103)) == message.SslRequest()
    assert opening(struct.pack("!i", 80877104)) == message.GssRequest()
    assert opening(struct.pack("!iiI", 80877102, 7, 0xDEADBEEF)) == message.CancelRequest(
        7, b"\xde\xad\xbe\xef"
    )
    started = opening(struct.pack("!i", 3 << 16 | 2) + b"user\0a\0x\0y\0\0")
    assert started == message.StartupMessage(2, {"user": "a", "x": "y"})
    with pytest.raises(DatabaseError, match=r"unsupported frontend protocol 2\.0"):
        opening(struct.pack("!i", 2 << 16) + b"user\0a\0\0")
    for body in (b"user\0a\0\0x", b"user\0a\0", b"user\0a"):
        with pytest.raises(FramingError):
            opening(struct.pack("!i", 3 << 16) + body)


def test_text_not_utf8_gives_unreadable_message() -> None:
    got = message.parse_message(ord("Q"), b"select '\xff'\0")
    assert isinstance(got, message.Unreadable)
    assert got.simple
    assert got.error.sqlstate == "22021"
    assert got.error.message == 'invalid byte sequence for encoding "UTF8": 0xff'


@given(st.binary(max_size=300))
def test_random_first_frame_gives_request_or_error(body: bytes) -> None:
    reader = MessageReader()
    reader.feed(struct.pack("!i", len(body) + 4) + body)
    with contextlib.suppress(DatabaseError):
        reader.opening()


LONG_QUERY = framed(b"Q", b"x" * (3 << 20) + b"\0")


def test_long_messages_of_all_connections_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GATHERED, "all", 8 << 20)
    before, readers = GATHERED.bytes, [MessageReader() for _ in range(6)]
    refused = 0
    for each in readers:
        each.open()
        for at in range(0, len(LONG_QUERY) - 1, 1 << 16):
            each.feed(LONG_QUERY[:-1][at : at + (1 << 16)])
            try:
                assert each.next() is None
            except TooMuchGathered:
                refused += 1
                each.close()
                break
    assert refused == 4
    assert TooMuchGathered.sqlstate == "53200"
    assert GATHERED.bytes - before < 8 << 20
    for each in readers:
        each.close()
    assert GATHERED.bytes == before


def test_long_message_counts_until_it_is_done() -> None:
    before, reader = GATHERED.bytes, MessageReader()
    reader.open()
    for _ in range(3):
        reader.feed(LONG_QUERY[:100])
        assert reader.next() is None
        reader.feed(LONG_QUERY[100:])
        assert isinstance(reader.next(), LongMessage)
        assert GATHERED.bytes - before == len(LONG_QUERY) - 5
        assert reader.next() is None
        assert GATHERED.bytes == before
