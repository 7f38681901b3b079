"""GET /api/subscribe: a live query, as server-sent events.

    /api/subscribe?query=SELECT * FROM totals[&params=["text", 1, null]][&options={...}]

The events are `rows`, changes of one time, and `progress`: all changes up to its time have been
sent, and add up to the query's result as of it. The first `progress` ends the snapshot. Its id is a
token: the time, and the meaning of the query. A client that comes back with it, as `Last-Event-ID`,
gets every later change once. If the history since then is not kept any more, or the query means
something else, a `reset` precedes a new snapshot. `end` follows the last change of a query that can
never change, `error` what ends the stream.

The rows wait where they are until the client reads: a slow client costs no memory here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foreshore.adapter.client import HistoryGone, Rows
from foreshore.errors import DatabaseError, ProtocolViolation
from foreshore.server import metrics
from foreshore.server.connection import client_error
from foreshore.server.encodings import ENCODINGS
from foreshore.server.http.ending import Disconnected
from foreshore.server.http.exchange import Exchange, answered, long_lived
from foreshore.server.http.live_query import HEAD, Token, by_time, subscription, token_of
from foreshore.server.http.messages import as_json, error_fields
from foreshore.server.http.params import check_values
from foreshore.server.http.requests import ExtendedQuery, options_of, params_of
from foreshore.server.http.sessions import (
    READ_ONLY,
    Opened,
    Sessions,
    claimed,
    database_of,
    named_by_agent,
)
from foreshore.server.http.values import RowsAsJson, columns_of
from foreshore.types import RelationDesc

KEEP_ALIVE_S = 15  # a comment follows if nothing was sent for so long
IDLE_S = 1  # between two events of progress without changes
RETRY_MS = 1000  # after which a browser connects again


class SubscribeEndpoint:
    """The ASGI application; `sessions` returns None until the data is opened."""

    def __init__(self, sessions: Callable[[], Sessions | None]) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] == "HEAD":
            await Response(status_code=405)(scope, receive, send)
            return
        sessions = self._sessions()
        await answered(sessions, scope, receive, send, self._stream, _refuse)

    async def _stream(self, sessions: Sessions, exchange: Exchange) -> None:
        request = exchange.request
        claim = claimed(request)
        query, token = _query_of(request), _token(request)
        given = options_of(request.query_params.get("options", ""))
        options = named_by_agent(request) | given | READ_ONLY
        database, ending = database_of(options, sessions.first), exchange.ending
        guest = await sessions.admit(request, claim, database)
        async with exchange.watched(), sessions.open(guest, options, ending) as opened:
            opened.may_end = True
            with long_lived(request):
                try:
                    await _Stream(exchange, opened, query).run(token)
                except DatabaseError as error:
                    raise opened.session.explained(error) from None


async def _refuse(exchange: Exchange, error: Exception) -> None:
    """Send an error: as the last event, if there may have been others."""
    if exchange.has_started:
        await exchange.write_last(_error_event(client_error(error)))
    else:
        await exchange.refuse(error)


def _query_of(request: Request) -> ExtendedQuery:
    text = request.query_params.get("query", "").strip().rstrip(";")
    if not text:
        raise ProtocolViolation('the parameter "query" is missing')
    params = params_of(request.query_params.get("params", ""))
    check_values((text, *params))
    return ExtendedQuery(text, params)


def _token(request: Request) -> Token | None:
    """Return after what the client wants changes; None: all rows first."""
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    return token_of(text) if text else None


class _Stream:
    """The events of one request."""

    def __init__(self, exchange: Exchange, opened: Opened, query: ExtendedQuery) -> None:
        self._exchange = exchange
        self._session = opened.session
        self._query = query
        self._pending: int | None = None  # the time whose rows were sent, without its progress
        self._done = -1  # the time of the last progress
        self._told_at = 0.0  # when that was sent
        self._meaning = ""  # of the query
        self._sending = asyncio.Lock()
        self._sent_at = asyncio.get_running_loop().time()
        exchange.interruptible = opened.session.interrupts.running

    async def run(self, token: Token | None) -> None:
        """Send events until the query can change no more; raises Disconnected."""
        try:
            rows = await self._begin(token)
        except HistoryGone as error:
            if token is None:
                raise
            await self._session.fail(error)
            rows = await self._begin(None)
            is_reset = True
        else:
            is_reset = token is not None and token.meaning not in (None, self._meaning)
            if is_reset:
                await self._session.extended.close_portal("")
                await self._session.extended.sync()
                rows = await self._begin(None)
            elif token is not None:
                self._done = token.time
        await self._exchange.start("text/event-stream", {"x-accel-buffering": "no"})
        await self._send(f"retry: {RETRY_MS}\n\n".encode())
        if is_reset:
            await self._send(_event("reset", b"{}"))
        keeping = asyncio.get_running_loop().create_task(self._keep_alive())
        try:
            await self._events(rows)
            await self._send(_event("end", b"{}"))
        except Disconnected:
            raise
        except Exception as error:
            shown = self._session.explained(client_error(error))
            await self._send(_error_event(shown))
        finally:
            keeping.cancel()
        async with self._sending:
            await self._exchange.write(b"", more=False)

    async def _begin(self, token: Token | None) -> Rows:
        """Return the rows of the subscription, all of them or the changes after the token."""
        after = None if token is None else token.time
        execution = await subscription(self._session, self._query, after)
        self._meaning = self._session.extended.meaning("")
        return execution

    async def _events(self, rows: Rows) -> None:
        columns = RelationDesc(rows.desc.names[HEAD + 1 :], rows.desc.columns[HEAD + 1 :])
        changes = RelationDesc(rows.desc.names[HEAD:], rows.desc.columns[HEAD:])
        encoder = RowsAsJson(changes, self._session.output_style, is_change=True)
        order = [
            {"column": column, "descending": descending, "nulls_first": nulls_first}
            for column, descending, nulls_first in self._session.extended.reading("").order
        ]
        shown = b',"desc":' + as_json({**columns_of(columns), "order": order})
        is_first = True
        async for batch in rows.batches:
            for time, is_progress, part in by_time(batch):
                if is_first:  # the time of AS OF, before its rows
                    await self._rows(time, shown, b"")
                    is_first = False
                elif is_progress:
                    await self._progress(time - 1)
                else:
                    if self._pending is not None and self._pending < time:
                        await self._progress(self._pending)
                    self._pending = time
                    async for piece in self._pieces(batch, part, encoder):
                        await self._rows(time, b"", piece)

    async def _pieces(
        self, batch: pa.RecordBatch, part: pa.RecordBatch, encoder: RowsAsJson
    ) -> AsyncIterator[bytes]:
        """Yield the encoded rows of a part of a batch.

        All subscribers to the same query are given the same batches, which are encoded once.
        """
        if part.num_rows == batch.num_rows and encoder.is_one_piece(part):
            yield await ENCODINGS.of(batch, encoder.form, lambda _: encoder.piece(part).joined())
            return
        async for piece in encoder.parts(part):
            yield piece.joined()

    async def _rows(self, time: int, desc: bytes, rows: bytes) -> None:
        await self._send(_event("rows", b'{"time":"%d"%b,"rows":[%b]}' % (time, desc, rows)))

    async def _progress(self, time: int) -> None:
        """Send progress up to a time; if nothing has changed, once a second."""
        is_idle, self._pending = self._pending is None and self._done >= 0, None
        now = asyncio.get_running_loop().time()
        if time > self._done and (not is_idle or now - self._told_at >= IDLE_S):
            self._done, self._told_at = time, now
            await self._send(_event("progress", b'{"time":"%d"}' % time, f"{time}-{self._meaning}"))

    async def _send(self, data: bytes) -> None:
        async with self._sending:
            await self._exchange.write(data)
        self._sent_at = asyncio.get_running_loop().time()

    async def _keep_alive(self) -> None:
        """Send a comment whenever nothing else was sent for a while."""
        loop = asyncio.get_running_loop()
        while True:
            quiet = loop.time() - self._sent_at
            if quiet < KEEP_ALIVE_S:
                await asyncio.sleep(KEEP_ALIVE_S - quiet)
                continue
            async with self._sending:
                await self._exchange.comment(b": keep-alive\n\n")
            self._sent_at = loop.time()


def _event(name: str, data: bytes, id: str | None = None) -> bytes:
    line = "" if id is None else f"id: {id}\n"
    return f"event: {name}\n{line}data: ".encode() + data + b"\n\n"


def _error_event(shown: DatabaseError) -> bytes:
    metrics.ERRORS.labels(shown.sqlstate).inc()
    return _event("error", as_json(error_fields(shown)))
