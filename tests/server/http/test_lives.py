"""Clients without a session that send nothing, little or slowly keep nobody out, and end."""

import asyncio
import gzip
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State
from websockets.server import ServerProtocol

from foreshore.server import turns
from foreshore.server.http import app, lives, protocols, slices
from tests.adapter.harness import until
from tests.server.fake import FakeClient
from tests.server.http.serving import Http, over

MOST = 5
HEAD = "POST /api/webhook/a/b/c HTTP/1.1\r\nHost: localhost\r\n"
SOCKET = (
    "GET /api/sql/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
GET = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
SILENT = {  # what a client sends before it falls silent
    "nothing": "",
    "a byte": "G",
    "a part of a header": "GET /livez HTTP/1.1\r\nHo",
    "headers without an end": "GET /livez HTTP/1.1\r\n" + "a: b\r\n" * 1000,
    "an empty line": "\r\n",
    "a long path": "GET /" + "a" * 60_000,
    "no body": HEAD + "Content-Length: 9\r\n\r\n",
    "a part of a body": HEAD + "Content-Length: 9\r\n\r\nabc",
    "a part of a chunk": HEAD + "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    "trailers without an end": HEAD + "Transfer-Encoding: chunked\r\n\r\n0\r\na: b\r\n",
    "an answer that is not read": GET,
    "half of a second request": GET + GET[:20],
    "a WebSocket without a message": SOCKET,
    "a WebSocket's half of a frame": SOCKET + "\x81",
    "the body of another protocol": "\x16\x03\x01",
}


LATE = {  # without those that wait for a next request, which end after 5 s
    name: text for name, text in SILENT.items() if not text.startswith(GET)
}


async def open_(http: Http, text: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(text.encode("latin-1"))
    return reader, writer


async def lives_(http: Http) -> None:
    reader, writer = await open_(http, GET)
    assert b"200 OK" in await reader.readuntil(b"alive")
    writer.close()


def with_server(scenario: Callable[[Http], Awaitable[None]]) -> None:
    async def go() -> None:
        async with over(FakeClient()) as http:
            await scenario(http)

    asyncio.run(go())


@asynccontextmanager
async def crowded(http: Http, text: str) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open more connections than there are places, each of which sends `text`."""
    opened = []
    for _ in range(2 * MOST):
        opened.append(await open_(http, text))
        await lives_(http)
    yield [reader for reader, _ in opened]
    for _, writer in opened:
        writer.close()


@pytest.mark.parametrize("text", SILENT.values(), ids=list(SILENT))
def test_silent_clients_make_room_for_others(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(app, "MAX_CONNECTIONS", MOST)

    async def go(http: Http) -> None:
        async with crowded(http, text) as readers:
            async with asyncio.timeout(30):
                for reader in readers[:MOST]:
                    await ended(reader)

    with_server(go)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return what a connection is sent until it ends."""
    found = b""
    try:
        while part := await reader.read(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize(
    "text",
    [each for each in SILENT.values() if each != GET],
    ids=[k for k in SILENT if "read" not in k],
)
def test_silent_client_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(lives, "HEADERS_S", 0.05)
    monkeypatch.setattr(lives, "BODY_S", 0.05)
    monkeypatch.setattr(protocols, "CLOSE_S", 0.05)
    monkeypatch.setattr("foreshore.server.http.websocket.LOGIN_S", 0.05)

    async def go(http: Http) -> None:
        async with asyncio.timeout(30):
            reader, writer = await open_(http, text)
            answer = await ended(reader)
            if text.startswith(HEAD):
                assert b"408 Request Timeout" in answer
            writer.close()

    with_server(go)


def test_requests_in_a_row_are_answered_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(http: Http) -> None:
        reader, writer = await open_(http, GET * 1000)
        await reader.readuntil(b"alive")
        await lives_(http)
        for _ in range(999):
            await reader.readuntil(b"alive")
        writer.close()

    with_server(go)


@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_body_that_trickles_is_cut_off(monkeypatch: pytest.MonkeyPatch, framing: str) -> None:
    monkeypatch.setattr(lives, "HEADERS_S", 0.1)
    monkeypatch.setattr(lives, "BODY_S", 0.05)
    monkeypatch.setattr(lives, "SLOWEST", 1 << 20)

    async def go(http: Http) -> None:
        reader, writer = await open_(http, f"{HEAD}{framing}\r\n\r\n")
        answer = asyncio.ensure_future(ended(reader))
        async with asyncio.timeout(30):
            while not answer.done():
                writer.write(b"1\r\n1\r\n")
                await asyncio.wait([answer], timeout=0.01)
        assert b"408" in answer.result()
        writer.close()

    with_server(go)


def test_body_that_comes_at_a_rate_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "HEADERS_S", 0.1)
    monkeypatch.setattr(lives, "BODY_S", 0.2)
    monkeypatch.setattr(lives, "SLOWEST", 50)

    async def go(http: Http) -> None:
        reader, writer = await open_(http, f"{HEAD}Content-Length: 300\r\n\r\n")
        for _ in range(30):  # in all longer than BODY_S
            writer.write(b"0123456789")
            await asyncio.wait([asyncio.ensure_future(reader.read(1))], timeout=0.02)
        writer.close()

    with_server(go)


def test_address_with_fewer_connections_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_CONNECTIONS", MOST)

    async def go(http: Http) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", http.port, local_addr=("127.0.0.2", 0)
        )
        writer.write(GET[:-2].encode())
        async with crowded(http, ""):
            writer.write(b"\r\n")
            assert b"200 OK" in await reader.readuntil(b"alive")
        writer.close()

    with_server(go)


TOO_LARGE = {
    "a path": "GET /" + "a" * 70_000 + " HTTP/1.1\r\nHost: a\r\n\r\n",
    "a header": "GET /livez HTTP/1.1\r\nHost: a\r\nb: " + "c" * 70_000 + "\r\n\r\n",
    "many headers": "GET /livez HTTP/1.1\r\nHost: a\r\n" + "b: c\r\n" * 20_000 + "\r\n",
    "a chunk's name": HEAD + "Transfer-Encoding: chunked\r\n\r\n1;" + "a" * 70_000 + "\r\n",
    "trailers": HEAD + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + "a: b\r\n" * 20_000 + "\r\n",
}


@pytest.mark.parametrize("text", TOO_LARGE.values(), ids=list(TOO_LARGE))
def test_request_with_too_much_beside_its_body_is_refused(text: str) -> None:
    async def go(http: Http) -> None:
        async with asyncio.timeout(30):
            reader, writer = await open_(http, text)
            answer = await ended(reader)
        assert b" 200 " not in answer
        await lives_(http)
        writer.close()

    with_server(go)


def test_compressed_body_is_refused() -> None:
    async def go(http: Http) -> None:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        bomb = gzip.compress(b" " * 1_000_000)
        answer = await http.client.post("/api/sql", content=bomb, headers=headers)
        assert answer.status_code == 415

    with_server(go)


FLOODS = {
    "chunks of a byte": (HEAD + "Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "frames of a WebSocket": (SOCKET, b"\x8a\x80\0\0\0\0"),
    "pings": (SOCKET, b"\x89\x80\0\0\0\0"),
}


@pytest.mark.parametrize(("head", "part"), FLOODS.values(), ids=list(FLOODS))
def test_flood_is_taken_in_slices(monkeypatch: pytest.MonkeyPatch, head: str, part: bytes) -> None:
    """No callback takes more than a slice, whatever comes at once."""
    taken: list[int] = []
    run = slices.Slices._run

    def counted(self: slices.Slices, may_go_on: Callable[[], bool]) -> None:
        before = len(self._rest)
        run(self, may_go_on)
        if not self._transport.is_closing():
            taken.append(before - len(self._rest))

    monkeypatch.setattr(slices.Slices, "_run", counted)
    monkeypatch.setattr(turns, "SLICE_S", 0.0005)

    async def go(http: Http) -> None:
        reader, writer = await open_(http, head)
        if head == SOCKET:
            await reader.readuntil(b"\r\n\r\n")
        flooding = asyncio.ensure_future(ended(reader))
        writer.write(part * (200_000 // len(part)))
        async with asyncio.timeout(60):
            await until(lambda: sum(taken) > 50_000 or flooding.done())
        await lives_(http)
        writer.close()
        await asyncio.wait([flooding])

    with_server(go)
    assert len(taken) > 3
    assert max(taken) < 50_000


def frame(opcode: int, data: bytes) -> bytes:
    return struct.pack("!BB4s", opcode, 0x80 | len(data), b"\0" * 4) + data


def test_message_of_many_fragments_ends_its_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "MOST_FRAGMENTS", 100)

    async def go(http: Http) -> None:
        reader, writer = await open_(http, SOCKET)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(0x01, b"{") + frame(0x00, b"") * 200)
        assert struct.pack("!H", 1009) in await ended(reader)
        writer.close()

    with_server(go)


def test_client_that_reads_no_answers_to_pings_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocols, "MOST_UNREAD", 1 << 16)
    monkeypatch.setattr(protocols, "MOST_EARLY_BYTES", 1 << 40)

    async def go(http: Http) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=1)
        writer.write(SOCKET.encode())
        await reader.read(10)
        pings = frame(0x89, b"x" * 125) * 1000
        (connection,) = http.server._server.server_state.connections
        for _ in range(300):  # 40 MB
            writer.write(pings)
            try:
                async with asyncio.timeout(0.5):
                    await writer.drain()
            except TimeoutError:
                break
        assert connection.transport.get_write_buffer_size() < 1 << 20
        writer.transport.abort()

    with_server(go)


WRONG_FRAMES = {"of no kind": b"\xff\xff", "without a mask": b"\x81\x01x"}


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "not yet open"])
@pytest.mark.parametrize("sent", WRONG_FRAMES.values(), ids=WRONG_FRAMES.keys())
def test_wrong_frame_ends_a_websocket_without_an_error(sent: bytes, is_open: bool) -> None:
    async def go(http: Http) -> None:
        faults: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        reader, writer = await open_(http, SOCKET)
        await reader.readuntil(b"\r\n\r\n")
        (connection,) = http.server._server.server_state.connections
        if not is_open:  # the client did not wait for the answer
            assert isinstance(connection, WebSocketsSansIOProtocol)
            assert isinstance(connection.conn, ServerProtocol)
            connection.conn.state = State.CONNECTING
        writer.write(sent)
        await until(lambda: connection.transport.is_closing())
        writer.close()
        assert faults == []

    with_server(go)
