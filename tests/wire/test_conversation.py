"""The protocol, as seen by a client without a library."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from foreshore.adapter.client import Completed, Login, Notice, Rows
from foreshore.errors import DivisionByZero, SyntaxError_
from foreshore.scram import Verifier
from foreshore.server import turns as turns_of_server
from foreshore.types import INT4, TEXT
from tests.server.fake import FakeClient, FakeSession, desc_of
from tests.server.serving import Served, serve
from tests.wire.raw import Raw, fields

X = desc_of(x=INT4)
PARSE = b"\0one\0\0\0"
BIND = b"\0\0" + b"\0" * 6
EXECUTE = b"\0\0\0\0\0"


@pytest.fixture
def talking(served: Served) -> Served:
    served.client.rows("one", X, {"x": [1]})
    served.client.rows("five", X, {"x": [1, 2, 3]}, {"x": [4, 5]})

    def fail(session: FakeSession, args: Any) -> Any:
        raise DivisionByZero("division by zero")

    served.client.does("fail", fail)
    served.client.does("hang", lambda session, _: session.hang())
    return served


def codes(messages: list[tuple[str, bytes]]) -> str:
    return "".join(code for code, _ in messages)


def test_startup_sends_parameters_and_key(talking: Served) -> None:
    raw = Raw(talking.port)
    assert codes(raw.greeting) == "R" + "S" * 13 + "KZ"
    told = dict(body.split(b"\0")[:2] for code, body in raw.greeting if code == "S")
    assert told[b"server_version"] == b"15.0"
    assert told[b"client_encoding"] == b"UTF8"


def test_encryption_request_is_declined_and_startup_goes_on(talking: Served) -> None:
    raw = Raw(talking.port, start=False)
    raw.opening(struct.pack("!i", 80877103))
    assert raw.exactly(1) == b"N"
    raw.opening(struct.pack("!i", 80877104))
    assert raw.exactly(1) == b"N"
    raw.startup(user="foreshore")
    assert codes(raw.until("Z")).startswith("RS")
    assert talking.client.startups[0].database == "foreshore"


def test_newer_minor_version_is_negotiated_down(talking: Served) -> None:
    raw = Raw(talking.port, start=False)
    raw.startup(3 << 16 | 99, user="foreshore", **{"_pq_.x": "1"})
    code, body = raw.receive()
    assert (code, body) == ("v", struct.pack("!ii", 3 << 16 | 2, 1) + b"_pq_.x\0")
    assert codes(raw.until("Z"))[0] == "R"
    assert dict(talking.client.startups[0].parameters) == {}


@pytest.mark.parametrize(
    ("sent", "sqlstate"),
    [
        (struct.pack("!ii", 8, 2 << 16), "0A000"),
        (struct.pack("!i", 7), "08P01"),
        (struct.pack("!i", 2**30), "08P01"),
        (b"GET / HTTP/1.1\r\n\r\n", "08P01"),
        (struct.pack("!ii", 9, 3 << 16) + b"\0", "28000"),
        (struct.pack("!ii", 23, 3 << 16) + b"user\0a\0replic\0\0", "08P01"),
    ],
)
def test_invalid_startup_ends_with_fatal_error(talking: Served, sent: bytes, sqlstate: str) -> None:
    raw = Raw(talking.port, start=False)
    raw.socket.sendall(sent)
    code, body = raw.receive()
    told = fields(body)
    assert (code, told["S"], told["C"]) == ("E", "FATAL", sqlstate)
    assert raw.closed()


def test_connection_that_sends_nothing_is_ignored(talking: Served) -> None:
    for _ in range(10):
        Raw(talking.port, start=False).socket.close()
    assert codes(Raw(talking.port).greeting)[-1] == "Z"


def test_error_skips_to_sync_which_is_answered_once(talking: Served) -> None:
    raw = Raw(talking.port)
    raw.send("P", b"\0fail\0\0\0")
    raw.send("B", BIND)
    raw.send("E", EXECUTE)
    for code, body in (("P", PARSE), ("B", BIND), ("D", b"P\0"), ("E", EXECUTE), ("Q", b"one\0")):
        raw.send(code, body)
    raw.send("S")
    raw.send("P", PARSE)
    raw.send("B", BIND)
    raw.send("D", b"P\0")
    raw.send("E", EXECUTE)
    raw.send("S")
    assert codes(raw.until("Z")) == "12EZ"
    assert codes(raw.until("Z")) == "12TDCZ"
    raw.send("S")
    assert raw.receive() == ("Z", b"I")


def test_error_is_sent_before_sync_arrives(talking: Served) -> None:
    raw = Raw(talking.port)
    raw.send("P", b"\0nothing known\0\0\0")
    raw.send("H")
    assert fields(raw.until("E")[-1][1])["C"] == "42601"


def test_flush_sends_gathered_messages(talking: Served) -> None:
    raw = Raw(talking.port)
    raw.send("P", PARSE)
    raw.send("D", b"S\0")
    raw.send("H")
    assert codes(raw.until("T")) == "1tT"
    raw.send("S")
    assert raw.receive()[0] == "Z"


def test_suspended_portal_goes_on(talking: Served) -> None:
    raw = Raw(talking.port)
    raw.send("P", b"\0five\0\0\0")
    raw.send("B", b"p\0\0" + b"\0" * 6)
    for _ in range(4):
        raw.send("E", b"p\0\0\0\0\x02")
    raw.send("C", b"Pp\0")
    raw.send("E", b"p\0\0\0\0\x02")
    raw.send("S")
    assert codes(raw.until("Z")) == "12DDsDDsDCC3EZ"


@pytest.mark.parametrize("name", ["E", "D"])
def test_unknown_statement_or_portal_is_refused(talking: Served, name: str) -> None:
    raw = Raw(talking.port)
    raw.send(name, b"nope\0\0\0\0\0" if name == "E" else b"Snope\0")
    raw.send("S")
    told = fields(raw.until("Z")[0][1])
    assert told["C"] == ("34000" if name == "E" else "26000")


def test_ready_for_query_shows_transaction_status(talking: Served) -> None:
    raw = Raw(talking.port)
    states = []
    for sql in (b"begin\0", b"one\0", b"fail\0", b"one\0", b"rollback\0", b"fail; one\0"):
        raw.send("Q", sql)
        states.append(raw.until("Z")[-1][1])
    assert states == [b"T", b"T", b"E", b"E", b"I", b"I"]


def test_query_stops_at_first_error(talking: Served) -> None:
    raw = Raw(talking.port)
    raw.send("Q", b"one; fail; one\0")
    assert codes(raw.until("Z")) == "TDCEZ"
    raw.send("Q", b"\0")
    assert codes(raw.until("Z")) == "IZ"


def test_function_call_and_query_not_utf8_are_refused(talking: Served) -> None:
    raw = Raw(talking.port)
    raw.send("F", b"\0\0\0\x01\0\0\0\0\0\0")
    got = raw.until("Z")
    assert codes(got) == "EZ"
    assert fields(got[0][1])["C"] == "0A000"
    raw.send("Q", b"select '\xff'\0")
    got = raw.until("Z")
    assert fields(got[0][1])["C"] == "22021"
    raw.send("P", b"\0select '\xff'\0\0\0")
    raw.send("S")
    assert codes(raw.until("Z")) == "EZ"


@pytest.mark.parametrize(
    "sent",
    [
        b"Q\0\0\0\x03",
        b"Q\x7f\xff\xff\xff",
        b"?\0\0\0\x04",
        b"S\0\0\0\x05x",
        b"Q\0\0\0\x08one\0",  # cut short: the frame holds no terminator
        b"p\0\0\0\x05\0",
        b"B\0\0\0\x0c\0\0\0\0\0\xff\0\0",
    ],
)
def test_broken_frame_ends_connection(talking: Served, sent: bytes) -> None:
    raw = Raw(talking.port)
    sent = b"Q\0\0\0\x07one" if sent.startswith(b"Q\0\0\0\x08") else sent
    raw.socket.sendall(sent + b"Q\0\0\0\x08one\0")
    code, body = raw.receive()
    assert (code, fields(body)["S"], fields(body)["C"]) == ("E", "FATAL", "08P01")
    assert raw.closed()
    assert raw._buffer == b""


def test_thousand_pipelined_statements_are_answered_in_order(talking: Served) -> None:
    talking.client.rows("echo $1", X, lambda x: {"x": [x]}, parameters=(INT4,))
    raw = Raw(talking.port)
    batch = bytearray()

    def add(code: bytes, body: bytes) -> None:
        batch.extend(code + struct.pack("!i", len(body) + 4) + body)

    add(b"P", b"e\0echo $1\0\0\0")
    for i in range(1000):
        argument = struct.pack("!ii", 4, i)
        add(b"B", b"\0e\0\0\x01\0\x01\0\x01" + argument + b"\0\x01\0\x01")
        add(b"E", EXECUTE)
    add(b"S", b"")
    raw.socket.sendall(batch)
    got = raw.until("Z")
    assert [body[-4:] for code, body in got if code == "D"] == [
        struct.pack("!i", i) for i in range(1000)
    ]


def test_client_that_does_not_read_neither_blocks_others_nor_fills_memory(talking: Served) -> None:
    produced = [0]

    def endless(session: FakeSession, args: Any) -> Rows:
        batch = pa.RecordBatch.from_pydict({"t": ["x" * 1000] * 1000}, desc.arrow_schema())

        async def give() -> AsyncIterator[pa.RecordBatch]:
            while True:
                produced[0] += 1
                yield batch

        return Rows(desc, "SELECT", lambda rows: give())

    desc = desc_of(t=TEXT)
    talking.client.does("endless", endless)
    raw = Raw(talking.port)
    raw.send("Q", b"endless\0")
    raw.exactly(100)
    assert codes(Raw(talking.port).greeting)[-1] == "Z"

    async def settled() -> None:
        before = -1
        while before != produced[0]:
            before = produced[0]
            await asyncio.sleep(0.2)

    talking.run(settled())
    assert produced[0] < 40  # megabytes, in our queue and in the kernel's
    raw.socket.close()
    talking.eventually(lambda: not talking.client.sessions)


def test_statement_runs_on_when_its_client_has_gone_unless_it_follows_changes(
    talking: Served,
) -> None:
    for follows in (False, True):
        raw = Raw(talking.port)
        raw.send("Q", b"hang\0")
        talking.eventually(lambda: bool(talking.client.sessions))
        (session,) = talking.client.sessions.values()
        session.follows = follows
        (wire,) = [each._wire for each in talking.listener._conversations.values()]
        raw.socket.close()
        talking.eventually(lambda wire=wire: not wire.is_connected)  # type: ignore[misc]
        assert bool(talking.client.sessions) is not follows
        talking.loop.call_soon_threadsafe(session.cancelled.set)
        talking.eventually(lambda: not talking.client.sessions)


def test_what_has_arrived_when_the_client_goes_is_run(talking: Served) -> None:
    done: list[str] = []

    def note(session: object, args: object) -> Completed:
        done.append("note")
        return Completed("NOTE")

    talking.client.does("note", note)
    for _ in range(20):
        done.clear()
        raw = Raw(talking.port)
        raw.socket.sendall((b"Q" + struct.pack("!i", 9) + b"note\0") * 300 + b"X\0\0\0\4")
        raw.socket.close()
        talking.eventually(lambda: len(done) == 300 and not talking.client.sessions)


def test_cancel_request_needs_key_and_gets_no_answer(talking: Served) -> None:
    raw = Raw(talking.port)
    key = next(body for code, body in raw.greeting if code == "K")
    raw.send("Q", b"hang\0")
    for wrong in (key[:4] + b"\0\0\0\0", b"\0\0\0\x01" + key[4:]):
        other = Raw(talking.port, start=False)
        other.opening(struct.pack("!i", 80877102) + wrong)
        assert other.closed()
    raw.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        raw.receive()
    raw.socket.settimeout(20)
    other = Raw(talking.port, start=False)
    other.opening(struct.pack("!i", 80877102) + key)
    assert other.closed()
    got = raw.until("Z")
    assert fields(got[0][1])["C"] == "57014"
    raw.send("Q", b"one\0")
    assert codes(raw.until("Z")) == "TDCZ"


def test_notices_and_changed_parameters_are_sent_with_answer(talking: Served) -> None:
    def tell(session: FakeSession, args: Any) -> Any:
        session.pending_notices.append(Notice("mind you", detail="d"))
        session.parameters["TimeZone"] = "Asia/Tokyo"
        return session._transact("BEGIN")

    talking.client.does("tell", tell)
    raw = Raw(talking.port)
    raw.send("Q", b"tell\0")
    got = raw.until("Z")
    assert codes(got) == "NCSZ"
    assert fields(got[0][1])["M"] == "mind you"
    assert got[2][1] == b"TimeZone\0Asia/Tokyo\0"


def test_notice_is_sent_before_answer(talking: Served) -> None:
    def tell(session: FakeSession, args: Any) -> Any:
        session.pending_notices.append(Notice("it takes a while"))
        session.tell()
        return session.hang()

    talking.client.does("tell and hang", tell)
    raw = Raw(talking.port)
    raw.send("Q", b"tell and hang\0")
    code, body = raw.receive()
    assert (code, fields(body)["M"]) == ("N", "it takes a while")


def test_result_formats_that_do_not_fit_are_refused(talking: Served) -> None:
    talking.client.does("nothing", lambda session, _: Completed("BEGIN"))
    raw = Raw(talking.port)
    raw.send("P", b"\0nothing\0\0\0")  # without columns, so any fit
    raw.send("B", b"\0\0\0\0\0\0" + b"\0\x02\0\0\0\x07")
    raw.send("E", EXECUTE)
    raw.send("S")
    assert codes(raw.until("Z")) == "12CZ"
    raw.send("P", PARSE)
    for formats in (b"\0\x02\0\0\0\0", b"\0\x01\0\x07"):
        raw.send("B", b"\0\0\0\0\0\0" + formats)
        raw.send("S")
        told = [body for code, body in raw.until("Z") if code == "E"]
        assert fields(told[0])["C"] in ("08P01", "22023")
    raw.send("B", b"\0\0\0\0\0\x01\0\0\0\x01x\0\0")
    raw.send("S")
    told = [body for code, body in raw.until("Z") if code == "E"]
    assert "bind message supplies 1 parameters" in fields(told[0])["M"]


@pytest.fixture
def guarded() -> Iterator[Served]:
    verifier = str(Verifier.of("correct horse"))
    yield from serve(
        FakeClient(roles={"foreshore": Login("o1", "foreshore", verifier=verifier)}),
        max_connections=2,
        login_timeout=0.5,
    )


def test_connection_beyond_maximum_gets_53300(guarded: Served) -> None:
    first, second = Raw(guarded.port), Raw(guarded.port)
    third = Raw(guarded.port, start=False)
    third.startup(user="foreshore")
    assert fields(third.receive()[1])["C"] == "53300"
    assert third.closed()
    first.socket.close()
    guarded.eventually(lambda: len(guarded.client.sessions) == 1)
    assert codes(Raw(guarded.port).greeting)[-1] == "Z"
    second.socket.close()


def test_client_that_does_not_log_in_is_disconnected(guarded: Served) -> None:
    raw = Raw(guarded.port, start=False)
    began = time.monotonic()
    raw.socket.sendall(b"\0\0")
    assert raw.closed()
    assert time.monotonic() - began < 10


@pytest.fixture
def remote(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server with a password, to which all clients seem to be remote."""
    from foreshore.server.wire import Wire

    original = Wire.connection_made

    def made(self: Wire, transport: Any) -> None:
        original(self, transport)
        self.host = "192.0.2.1"

    monkeypatch.setattr(Wire, "connection_made", made)
    return guarded


def test_only_correct_password_is_accepted(remote: Served) -> None:
    with psycopg.connect(remote.dsn(password="'correct horse'")) as connection:
        assert connection.info.backend_pid
    for user, password in (("foreshore", "wrong"), ("nobody", "'correct horse'")):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(remote.dsn(password=password, user=user))
    assert len(remote.client.startups) == 1


def test_remote_client_of_role_without_password_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foreshore.server.wire import Wire

    original = Wire.connection_made

    def made(self: Wire, transport: Any) -> None:
        original(self, transport)
        self.host = "192.0.2.1"

    monkeypatch.setattr(Wire, "connection_made", made)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(served.dsn(password="x"))


def test_query_in_place_of_password_is_refused(remote: Served) -> None:
    raw = Raw(remote.port, start=False)
    raw.startup(user="foreshore")
    assert raw.receive() == ("R", b"\0\0\0\x0aSCRAM-SHA-256\0\0")
    raw.send("Q", b"one\0")
    assert fields(raw.receive()[1])["C"] == "08P01"
    assert raw.closed()


def test_shutdown_sends_57p01(talking: Served) -> None:
    raw = Raw(talking.port)
    busy = Raw(talking.port)
    busy.send("Q", b"hang\0")
    talking.run(talking.listener.close())
    for client in (raw, busy):
        assert fields(client.until("E")[-1][1])["C"] == "57P01"
        assert client.closed()


def test_error_at_commit_is_sent_at_sync(talking: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: FakeSession) -> None:
        with self._call():
            raise SyntaxError_("at the commit")

    monkeypatch.setattr(FakeSession, "sync", fail)
    raw = Raw(talking.port)
    raw.send("P", PARSE)
    raw.send("B", BIND)
    raw.send("E", EXECUTE)
    raw.send("S")
    assert codes(raw.until("Z")) == "12DCEZ"


def test_pipelining_client_lets_others_run_in_between(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_of_server, "SLICE_S", 0.0)
    turns = 0  # of somebody else on the loop
    seen: list[int] = []

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(seen) < 200:
            served.loop.call_soon(turn)

    def answer(session: object, args: object) -> Completed:
        if not seen:
            served.loop.call_soon(turn)
        seen.append(turns)
        return Completed("ONE")

    served.client.does("one", answer)
    raw = Raw(served.port)
    raw.socket.sendall((b"Q" + struct.pack("!i", 8) + b"one\0") * 200)
    for _ in range(200):
        raw.until("Z")
    waited = [later - earlier for earlier, later in pairwise(seen)]
    assert all(waited)
