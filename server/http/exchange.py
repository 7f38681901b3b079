"""An exchange: one request and its answer, which is sent in parts as it is made.

The client's end of the connection ends the request. A client that reads nothing for STALL_S is cut
off, so nobody holds a session by not reading.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.types import Message, Receive, Scope, Send

from foreshore.errors import DatabaseError, ProtocolViolation
from foreshore.logs import logged_request
from foreshore.server.connection import client_error
from foreshore.server.http.ending import Disconnected, Ending
from foreshore.server.http.messages import as_json, error_fields, status_of
from foreshore.server.http.sessions import Sessions, not_ready
from foreshore.server.metrics import HTTP_REQUESTS
from foreshore.server.turns import Turn

MOST_BODY = 16 << 20
STALL_S = 60
_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
LAST_S = 1  # for the reason why a session has ended


class TooLarge(ProtocolViolation):
    """The request has too many bytes."""

    sqlstate = "54000"


class UnsupportedType(ProtocolViolation):
    """The request is not of type application/json, or it is compressed."""


_STATUS: Mapping[type[DatabaseError], int] = {TooLarge: 413, UnsupportedType: 415}


async def answered(
    sessions: Sessions | None,
    scope: Scope,
    receive: Receive,
    send: Send,
    handle: Callable[[Sessions, "Exchange"], Awaitable[None]],
    refuse: Callable[["Exchange", Exception], Awaitable[None]] | None = None,
) -> None:
    """Answer one request by `handle`, and its error by `refuse`, or as an error in JSON.

    Pages of origins that are not allowed are refused, and OPTIONS is answered here. There are no
    `sessions` until the data is opened.
    """
    if sessions is None:
        await _send_not_ready(send)
        return
    exchange = Exchange(sessions, scope, receive, send)
    with logged_request(exchange.id):
        try:
            sessions.origins.check(exchange.request)
            if scope["method"] == "OPTIONS":
                await exchange.answer(b"{}")
            else:
                await handle(sessions, exchange)
        except Disconnected:
            pass
        except Exception as error:
            if refuse is None:
                await exchange.refuse(error)
            else:
                await refuse(exchange, error)


async def _send_not_ready(send: Send) -> None:
    """Send 503."""
    data = as_json({"error": error_fields(not_ready())})
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": data})


class Exchange:
    """The request of a scope, and its answer."""

    def __init__(self, sessions: Sessions, scope: Scope, receive: Receive, send: Send) -> None:
        self.request = Request(scope, receive)
        self.id = _request_id(self.request)
        self.ending = Ending()
        self.turn = Turn()
        self._sessions = sessions
        self._send = send
        self.has_started = False
        # Where a statement's end may be asked for while it waits for the client to read.
        self.interruptible: Callable[[], AbstractContextManager[None]] = nullcontext

    async def body(self) -> bytes:
        """Return the body; raises ProtocolViolation if it is not JSON, compressed or too long."""
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise UnsupportedType(
                "the request must have the type application/json",
                hint="Send the header Content-Type: application/json.",
            )
        if self.request.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnsupportedType("a request's body must not be compressed")
        body = bytearray()
        try:
            async for part in self.request.stream():
                body += part
                if len(body) > MOST_BODY:
                    raise TooLarge(f"a request may have at most {MOST_BODY} bytes")
        except ClientDisconnect:
            raise Disconnected from None
        return bytes(body)

    async def start(self, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """Begin an answer with status 200."""
        await self._begin(200, content_type, headers or {})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send a part of the body, the last one unless there is `more`; waits for a slow reader."""
        await self._sessions.leased()
        await self._put({"type": "http.response.body", "body": data, "more_body": more})
        await self.share()

    async def share(self) -> None:
        """Let others have their turn if this request has had its slice."""
        if self.turn.is_over:
            await self.turn.next()

    async def comment(self, data: bytes) -> None:
        """Send bytes that mean nothing, from another task than that of the statement."""
        try:
            async with asyncio.timeout(STALL_S):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            self.abort()

    async def answer(self, data: bytes, *, status: int = 200) -> None:
        """Send a whole answer of JSON."""
        await self._sessions.leased()
        await self._begin(status, "application/json", {"content-length": str(len(data))})
        await self.write(data, more=False)

    async def refuse(self, error: Exception) -> None:
        """Send an error in place of an answer, or cut an answer that has begun off."""
        if self.has_started:
            self.abort()
            return
        shown = client_error(error)
        status = _STATUS.get(type(shown)) or status_of(shown)
        data = as_json({"error": error_fields(shown)})
        headers = {"content-length": str(len(data))}
        if status == 401:
            # A browser asks its user for a password, but not on behalf of a page's script.
            script = self.request.headers.get("sec-fetch-dest") == "empty"
            scheme = "Bearer" if self._has_token() else f"{'X-' if script else ''}Basic"
            headers["www-authenticate"] = f'{scheme} realm="foreshore"'
        if status == 413:
            headers["connection"] = "close"
        await self._begin(status, "application/json", headers)
        await self._put({"type": "http.response.body", "body": data})

    def _has_token(self) -> bool:
        return self.request.headers.get("authorization", "").lower().startswith("bearer ")

    async def write_last(self, data: bytes) -> None:
        """Send the end of the body, if the client reads it soon."""
        try:
            async with asyncio.timeout(LAST_S):
                await self.write(data, more=False)
        except (TimeoutError, Disconnected):
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.request.scope["state"]["transport"].abort()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Raise Disconnected in the block once the client is gone; its body has been received."""
        task = asyncio.get_running_loop().create_task(self._watch())
        try:
            with self.ending:
                try:
                    yield
                finally:
                    self.ending.finish()
        finally:
            task.cancel()
            self.interruptible = nullcontext

    async def _watch(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        self.ending.end(Disconnected())

    async def _begin(self, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.has_started = True
        HTTP_REQUESTS.labels(self.request.scope["path"], str(status)).inc()
        every = {
            "content-type": content_type,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "x-request-id": self.id,
            **self._sessions.origins.headers(self.request),
            **headers,
        }
        encoded = [(name.encode(), value.encode()) for name, value in every.items()]
        await self._put({"type": "http.response.start", "status": status, "headers": encoded})

    async def _put(self, message: Message) -> None:
        try:
            with self.interruptible():
                async with asyncio.timeout(STALL_S):
                    await self._send(message)
        except TimeoutError:
            self.abort()
            raise Disconnected from None


def _request_id(request: Request) -> str:
    """Return the id that the client or a proxy has given a request, else a new one."""
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


@contextmanager
def long_lived(connection: HTTPConnection) -> Iterator[None]:
    """Let a connection that has a session live for the length of the block."""
    state: dict[str, Any] = connection.scope["state"]
    state["life"].extend()
    try:
        yield
    finally:
        state["life"].resume()
