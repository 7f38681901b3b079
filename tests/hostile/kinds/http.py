"""HTTP clients without credentials that hold connections, send slowly, or flood them."""

import asyncio
from contextlib import suppress
from random import Random

from tests.hostile.kinds.registry import Target, kind

PATIENCE_S = 5.0
AT_ONCE = 60  # more than there are places for connections without a session
FLOOD = 1 << 20  # bytes
HEAD = "POST /api/webhook/a/b/c HTTP/1.1\r\nHost: localhost\r\n"
SOCKET = (
    "GET /api/sql/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
GET = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
SILENT = (
    "",
    "GET /livez HTTP/1.1\r\nHo",
    "GET /" + "a" * 10_000,
    HEAD + "Content-Length: 9\r\n\r\nabc",
    HEAD + "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    GET,
    SOCKET,
)
FLOODS = (
    (HEAD + "Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    (HEAD + "Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a:b\r\n"),
    ("GET /livez HTTP/1.1\r\n", b"a:b\r\n"),
    ("", GET.encode()),
    (SOCKET, b"\x89\x80\0\0\0\0"),
    (SOCKET, b"\x8a\x80\0\0\0\0"),
    (SOCKET, b"\x01\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 100),
)
WRONG = (
    "POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Authorization: GIVEN\r\nContent-Length: 20\r\n\r\n" + '{"query":"select 1"}'
)


async def sent(target: Target, data: bytes, seconds: float) -> None:
    """Send bytes on a connection of its own, and hold it for some time without reading."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection("127.0.0.1", target.http_port)
            try:
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(seconds)
            finally:
                writer.transport.abort()


@kind("http: connections that fall silent")
async def silent(target: Target, chance: Random) -> None:
    """Hold more connections than there are places."""
    text = chance.choice(SILENT).encode()
    await asyncio.gather(*(sent(target, text, 1.0) for _ in range(AT_ONCE)))


@kind("http: floods of small parts")
async def flood(target: Target, chance: Random) -> None:
    """Send many small parts of one request at once."""
    head, part = chance.choice(FLOODS)
    await sent(target, head.encode() + part * (FLOOD // len(part)), PATIENCE_S)


@kind("http: wrong passwords and tokens")
async def wrong(target: Target, chance: Random) -> None:
    """Guess at credentials of roles that are not there."""
    given = chance.choice(("Basic bm9ib2R5Ong=", "Bearer fs_nobody_x", "Basic !", "Digest x"))
    await sent(target, WRONG.replace("GIVEN", given).encode(), 1.0)


@kind("http: what is no request")
async def noise(target: Target, chance: Random) -> None:
    """Send bytes that are no HTTP."""
    await sent(target, chance.randbytes(chance.randrange(1, 10_000)), 0.5)
