"""A proxy on the loopback through which libraries reach stores, so that what they dial is checked.

    a library ──► 127.0.0.1:port ──► an address of the host, checked (`dial.py`)

Clients of stores look names up by themselves, and follow redirects: a store that a user names could
lead them to where this machine keeps its own keys, and let a query read the answer. The proxy
connects only to checked addresses. Requests show a token, so that it is of no use to others on the
machine. TLS goes through it as it is; without TLS each request has a connection of its own.
"""

import asyncio
import base64
import hmac
import secrets
import threading
from urllib.parse import urlsplit

from foreshore.errors import DatabaseError
from foreshore.storage.external.dial import addresses_soon, first_that_soon
from foreshore.storage.external.tunnels import HOST, THREAD, LoopbackPort, ended, passed_on

CONNECT_SECONDS = 10
_MOST_HEAD = 65_536  # bytes
_OURS = (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization")
_USER = "foreshore"


class _Refused(Exception):
    """A request is answered by a status and a text, without having been sent anywhere."""


class _CheckingProxy(LoopbackPort):
    """The proxy."""

    def __init__(self) -> None:
        super().__init__()
        token = secrets.token_urlsafe(32)
        self._expected = b"Basic " + base64.b64encode(f"{_USER}:{token}".encode())
        self._token = token

    @property
    def url(self) -> str:
        """Return what clients are to use."""
        return f"http://{_USER}:{self._token}@{HOST}:{self.number}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except _Refused as error:
            status, text = error.args
            size = b"Content-Length: %d" % len(text.encode())
            writer.write(_head_of(b"HTTP/1.1 " + status, [])[:-2] + size + b"\r\n\r\n")
            writer.write(text.encode())
        except (OSError, EOFError, ValueError):
            writer.transport.abort()  # what was not passed on as a whole must not look so
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, fields = await _head(reader)
        method, target, _ = first.split(b" ", 2)
        given = next((v for n, v in fields if n.lower() == b"proxy-authorization"), b"")
        if not hmac.compare_digest(given, self._expected):
            raise _Refused(b"407 Proxy Authentication Required", "a token is missing")
        if method == b"CONNECT":
            place = urlsplit(b"//" + target)
            far_reader, far_writer = await _connected(place.hostname, place.port or 443)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            place = urlsplit(target)
            if place.scheme != b"http":
                raise _Refused(b"400 Bad Request", "no URL of HTTP")
            far_reader, far_writer = await _connected(place.hostname, place.port or 80)
            path = (place.path or b"/") + (b"?" + place.query if place.query else b"")
            far_writer.write(_head_of(b"%s %s HTTP/1.1" % (method, path), fields))
        try:
            if method != b"CONNECT":
                await ended(passed_on(reader, far_writer), _answered(far_reader, writer))
            else:
                await ended(passed_on(reader, far_writer), passed_on(far_reader, writer))
        finally:
            far_writer.close()


async def _connected(
    host: bytes | None, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to a host; raises _Refused, also if its address is link-local."""
    name = (host or b"").decode()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await addresses_soon(name, port)
            return await first_that_soon(found, lambda each: asyncio.open_connection(each, port))
    except DatabaseError as error:
        raise _Refused(b"403 Forbidden", error.message) from error
    except OSError as error:
        raise _Refused(b"502 Bad Gateway", str(error) or "no answer in time") from error


async def _head(reader: asyncio.StreamReader) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the first line of a message and its fields; raises ValueError, EOFError."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError("the head of a message is too long") from error
    if len(text) > _MOST_HEAD:
        raise ValueError("the head of a message is too long")
    first, *lines = text[:-4].split(b"\r\n")
    fields = [line.partition(b":") for line in lines]
    return first, [(name, value.strip()) for name, _, value in fields]


def _head_of(first: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a message after which the connection is closed."""
    kept = [(name, value) for name, value in fields if name.lower() not in _OURS]
    lines = [first, *(b"%s: %s" % each for each in kept), b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass an answer on, and say that the connection ends with it."""
    while True:
        first, fields = await _head(reader)
        is_interim = first.split(b" ", 2)[1:2] == [b"100"]
        writer.write(first + b"\r\n\r\n" if is_interim else _head_of(first, fields))
        if not is_interim:
            break
    await passed_on(reader, writer)


_opening = threading.Lock()
_proxies: list[_CheckingProxy] = []


def proxy_url() -> str:
    """Return the URL of the proxy of this process, which begins to listen. Blocks."""
    with _opening:
        if not _proxies:
            made = _CheckingProxy()
            THREAD.begin(made.open()).result()
            _proxies.append(made)
        return _proxies[0].url
