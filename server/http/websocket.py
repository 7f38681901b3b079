"""The WebSocket: a session whose requests and answers are messages of JSON.

    client   {"user": "ann", "password": "...", "options": {}}      first
    server   ParameterStatus ..., BackendKeyData, ReadyForQuery
    client   {"query": "SELECT 1"}                                  as POST /api/sql takes it
    server   CommandStarting, Rows, Row ..., CommandComplete, ReadyForQuery
    client   {"cancel": true}                                       while a statement runs

Each message of the server is {"type": ..., "payload": ...}. SUBSCRIBE streams until it is
cancelled. Requests are run in order; at most WAITING of them wait.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from foreshore.adapter.client import Completed, EmptyQuery, Execution, Rows
from foreshore.errors import DatabaseError, ProtocolViolation, QueryCanceled
from foreshore.server import metrics
from foreshore.server.connection import client_error
from foreshore.server.http.ending import Disconnected, Ending
from foreshore.server.http.exchange import LAST_S, STALL_S, long_lived
from foreshore.server.http.messages import as_json, error_fields, notice_fields, status_of
from foreshore.server.http.requests import SocketStart, option_texts, socket_request, socket_start
from foreshore.server.http.sessions import (
    Claim,
    Opened,
    Sessions,
    claimed,
    database_of,
    named_by_agent,
    not_ready,
)
from foreshore.server.http.statements import executions
from foreshore.server.http.values import RowsAsJson, columns_of
from foreshore.server.shared_bytes import KeptBytes, SharedBytes
from foreshore.server.turns import Turn

NOTIFICATIONS_PER_TURN = 256
LOGIN_S = 10  # until the first message
WAITING = 64  # requests that wait for the running one
ROWS_PER_BATCH = 500  # in a message, for clients that ask for batches
REFUSED = 1008  # the code with which a socket is closed after an error


class SocketEndpoint:
    """The ASGI application; `sessions` returns None until the data is opened."""

    def __init__(self, sessions: Callable[[], Sessions | None]) -> None:
        self._sessions = sessions
        self._waiting = SharedBytes(all=64 << 20, always=256 << 10, each=16 << 20)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket to its end."""
        socket = WebSocket(scope, receive, send)
        sessions = self._sessions()
        try:
            if sessions is None:
                raise not_ready()
            sessions.origins.check(socket)
            claim = claimed(socket)
        except DatabaseError as error:
            data = as_json({"error": error_fields(error)})
            await socket.receive()
            await socket.send_denial_response(
                Response(data, status_of(error), media_type="application/json")
            )
            return
        await socket.accept()
        waiting = KeptBytes(self._waiting)
        conversation = _Conversation(sessions, socket, claim, waiting)
        reader = asyncio.get_running_loop().create_task(conversation.read())
        try:
            await conversation.run()
        except Disconnected:
            pass
        except Exception as error:
            with suppress(Disconnected):
                await conversation.refuse(error)
        finally:
            reader.cancel()
            conversation.forget()
            waiting.clear()


class _Conversation:
    """The messages of one WebSocket."""

    def __init__(
        self, sessions: Sessions, socket: WebSocket, claim: Claim, waiting: KeptBytes
    ) -> None:
        self._sessions = sessions
        self._socket = socket
        self._claim = claim
        self._ending = Ending()
        # None stands for notifications that have come.
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING + 1)
        self._is_notified = False
        self._opened: Opened | None = None
        self._waiting = waiting
        self._taken = 0  # messages that were taken and whose answers are not complete
        self._is_running = False  # a request's statements
        self._cancels_next = False  # a cancel request came before its request ran
        self._turn = Turn()
        self._batches = False

    async def read(self) -> None:
        """Take the client's messages as they come, until it is gone."""
        turn = Turn()
        while True:
            received = await self._socket.receive()
            if turn.is_over:
                await turn.next()
            if received["type"] == "websocket.disconnect":
                self._ending.end(Disconnected())
                return
            text: str | None = received.get("text")
            data: bytes = received["bytes"] if text is None else text.encode()
            if (self._opened is not None or self._taken) and _is_cancel(data):
                self._cancel()
                continue
            self._taken += 1
            has_room = self._waiting.change(self._waiting.bytes + len(data))
            if self._requests.qsize() >= WAITING or not has_room:
                self._ending.end(ProtocolViolation("too many requests wait for the running one"))
                return
            self._requests.put_nowait(data)

    def _cancel(self) -> None:
        """Cancel what runs, else the next of the requests that have come before."""
        if self._opened is not None and self._is_running:
            session = self._opened.session
            self._sessions.client.cancel(session.pid, session.backend.secret)
            return
        starts = self._opened is None  # the first message is no request
        self._cancels_next = self._taken > starts

    async def _next(self) -> bytes:
        """Return the next request; waits for it, and sends notifications meanwhile."""
        while (data := await self._requests.get()) is None:
            await self._turn.next()  # there may be many listeners
            self._is_notified = False
            await self._notifications()
        self._waiting.change(self._waiting.bytes - len(data))
        if self._turn.is_over:
            await self._turn.next()
        return data

    def forget(self) -> None:
        """Drop the requests that wait."""
        while not self._requests.empty():
            self._requests.get_nowait()

    def _wake(self) -> None:
        """Have notifications sent once no statement runs."""
        if not self._is_notified:
            self._is_notified = True
            self._requests.put_nowait(None)

    async def run(self) -> None:
        """Open the session and serve its requests; raises Disconnected and DatabaseError."""
        socket = self._socket
        with self._ending:
            try:
                async with asyncio.timeout(LOGIN_S):
                    start = socket_start(await self._next())
            except TimeoutError:
                raise ProtocolViolation("the first message has not come in time") from None
            claim = _claim_of(start, self._claim)
            self._batches = start.batches
            options = named_by_agent(socket) | option_texts(start.options)
            database = database_of(options, self._sessions.first)
            guest = await self._sessions.admit(socket, claim, database)
            async with self._sessions.open(guest, options, self._ending) as opened:
                self._opened = opened
                self._taken -= 1
                with long_lived(socket):
                    await self._serve(opened)

    async def _serve(self, opened: Opened) -> None:
        session = opened.session
        session.news.when_notified(self._wake)
        await self._parameters()
        secret = int.from_bytes(session.backend.secret, "big")
        await self._send("BackendKeyData", {"conn_id": session.pid, "secret_key": secret})
        while True:
            await self._ready()
            opened.may_end = True
            data = await self._next()
            opened.may_end = False
            try:
                request = await socket_request(data)
                if request.options:
                    raise ProtocolViolation("options belong to the first message")
                if not request.cancel:  # nothing runs that could be cancelled
                    if self._cancels_next:
                        raise QueryCanceled
                    self._is_running = True
                    async with aclosing(executions(session, request)) as found:
                        async for execution in found:
                            await self._result(execution)
            except Disconnected:
                raise
            except Exception as error:
                await self._failed(error)
            finally:
                self._is_running = self._cancels_next = False
                self._taken -= 1

    async def _result(self, execution: Execution) -> None:
        match execution:
            case Rows():
                await self._rows(execution)
            case Completed(tag):
                await self._send("CommandStarting", {"has_rows": False, "is_streaming": False})
                await self._complete(tag)
            case EmptyQuery():
                await self._complete("")
            case _:
                raise AssertionError(execution)

    async def _rows(self, rows: Rows) -> None:
        opened = self._opened
        assert opened is not None
        starting = {"has_rows": True, "is_streaming": rows.streaming}
        await self._send("CommandStarting", starting)
        await self._send("Rows", columns_of(rows.desc))
        encoder, count = RowsAsJson(rows.desc, opened.session.output_style), 0
        opened.may_end = rows.streaming
        async for batch in rows.batches:
            async for piece in encoder.parts(batch):
                count += piece.rows
                for start in range(0, piece.rows, ROWS_PER_BATCH):
                    await self._some(piece.texts.slice(start, ROWS_PER_BATCH).to_pylist())
        opened.may_end = False
        await self._complete(rows.tag(count))

    async def _some(self, rows: list[str]) -> None:
        if self._batches:
            await self._send_text(f'{{"type":"RowBatch","payload":[{",".join(rows)}]}}')
            return
        for row in rows:
            await self._send_text(f'{{"type":"Row","payload":{row}}}')

    async def _complete(self, tag: str) -> None:
        await self._notices()
        await self._send("CommandComplete", tag)

    async def _failed(self, error: Exception) -> None:
        assert self._opened is not None
        self._opened.may_end = False
        shown = self._opened.session.explained(client_error(error))
        metrics.ERRORS.labels(shown.sqlstate).inc()
        await self._opened.session.fail(shown)
        await self._notices()
        await self._send("Error", error_fields(shown))

    async def _ready(self) -> None:
        assert self._opened is not None
        await self._notices()
        await self._notifications()
        await self._parameters()
        await self._send("ReadyForQuery", self._opened.session.transaction_status)

    async def _notifications(self) -> None:
        assert self._opened is not None
        while found := self._opened.session.news.notifications(NOTIFICATIONS_PER_TURN):
            for conn_id, channel, payload in found:
                fields = {"conn_id": conn_id, "channel": channel, "payload": payload}
                await self._send("Notification", fields)

    async def _parameters(self) -> None:
        assert self._opened is not None
        for name, value in self._opened.session.news.changed_parameters().items():
            await self._send("ParameterStatus", {"name": name, "value": value})

    async def _notices(self) -> None:
        assert self._opened is not None
        for each in self._opened.session.news.notices():
            await self._send("Notice", notice_fields(each))

    async def refuse(self, error: Exception) -> None:
        """Send the error that ends the conversation, and close the socket."""
        self._opened = None
        try:
            async with asyncio.timeout(LAST_S):
                await self._send("Error", error_fields(client_error(error)))
                await self._socket.close(REFUSED)
        except TimeoutError:
            self._socket.scope["state"]["transport"].abort()

    async def _send(self, type: str, payload: Any) -> None:
        await self._send_text(as_json({"type": type, "payload": payload}).decode())

    async def _send_text(self, text: str) -> None:
        """Send a message under the lease; raises Disconnected if the client does not read."""
        await self._sessions.leased()
        if self._turn.is_over:
            await self._turn.next()
        try:
            async with asyncio.timeout(STALL_S):
                if self._opened is None:
                    await self._socket.send_text(text)
                    return
                with self._opened.session.interrupts.running():
                    await self._socket.send_text(text)
        except TimeoutError:
            self._socket.scope["state"]["transport"].abort()
            raise Disconnected from None
        except Exception as error:
            if isinstance(error, DatabaseError):
                raise
            raise Disconnected from error  # the socket is closed


def _is_cancel(data: bytes) -> bool:
    """Return whether a message cancels the running statement."""
    if len(data) > 100:
        return False
    with suppress(msgspec.DecodeError):
        return bool(msgspec.json.decode(data) == {"cancel": True})
    return False


def _claim_of(start: SocketStart, claim: Claim) -> Claim:
    """Return who the client is by its first message, else by the headers of its request."""
    if start.token is not None:
        return Claim(token=start.token)
    if start.user is None and start.password is None:
        return claim
    return Claim(start.user, start.password)
