"""POST /api/sql: run statements in a session of their own, and return their results as JSON.

    {"query": "SELECT 1; SELECT 2"}                                   the simple protocol
    {"query": "SELECT $1::int", "params": ["1"]}                      the extended protocol
    {"queries": [{"query": "SELECT $1::int", "params": ["1"]}]}       the same, for several

The answer is {"results": [...]}, one for each statement up to the first that fails. It is sent
while it is made, so a large result needs little memory. With a header Accept one result is sent as
Arrow, Parquet or CSV (`download.py`).
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from starlette.types import Receive, Scope, Send

from foreshore import tracing
from foreshore.adapter.client import Completed, EmptyQuery, Execution, Rows
from foreshore.errors import FeatureNotSupported
from foreshore.server import metrics
from foreshore.server.connection import client_error
from foreshore.server.http.columnar import media_type
from foreshore.server.http.download import Download
from foreshore.server.http.ending import Disconnected
from foreshore.server.http.exchange import Exchange, answered, long_lived
from foreshore.server.http.messages import as_json, error_fields, notice_fields
from foreshore.server.http.requests import SqlRequest, option_texts, options_of, sql_request
from foreshore.server.http.sessions import Opened, Sessions, claimed, database_of, named_by_agent
from foreshore.server.http.statements import executions
from foreshore.server.http.values import RowsAsJson, columns_of
from foreshore.server.long_rows import in_slices, is_long

SEND_AT = 64 << 10  # so many gathered bytes are sent before the answer is complete


class SqlEndpoint:
    """The ASGI application; `sessions` returns None until the data is opened."""

    def __init__(self, sessions: Callable[[], Sessions | None]) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await answered(self._sessions(), scope, receive, send, self._post)

    async def _post(self, sessions: Sessions, exchange: Exchange) -> None:
        request = exchange.request
        tracing.take_parent(request.headers.get("traceparent"))
        given = options_of(request.query_params.get("options", ""))
        options = named_by_agent(request) | given
        database = database_of(options, sessions.first)
        claim = claimed(request)
        # Before its body: only who may have a session may send a large one.
        guest = await sessions.admit(request, claim, database)
        asked = await sql_request(await exchange.body())
        options |= option_texts(asked.options)
        async with exchange.watched():
            if (other := database_of(options, database)) != database:
                guest = await sessions.admit(request, claim, other)
            async with sessions.open(guest, options, exchange.ending) as opened:
                with long_lived(request):
                    answer = _answer(exchange, opened)
                    await answer.run(asked)
        # The session's place is free when its client can send the next request.
        await answer.finish()


def _answer(exchange: Exchange, opened: Opened) -> "_Answer | Download":
    """Return the answer in the format that the request wants."""
    kind = media_type(exchange.request.headers.get("accept", ""))
    return _Answer(exchange, opened) if kind is None else Download(exchange, opened, kind)


class _Answer:
    """The results of one request, gathered and sent."""

    def __init__(self, exchange: Exchange, opened: Opened) -> None:
        self._exchange = exchange
        self._session = opened.session
        self._gathered: list[bytes] = []
        self._size = 0
        self._is_begun = False
        self._is_first = True
        self._in_rows = False
        exchange.interruptible = opened.session.interrupts.running

    async def run(self, request: SqlRequest) -> None:
        """Run the statements and send their results."""
        self._add(b'{"results":[')
        try:
            async with aclosing(executions(self._session, request)) as found:
                async for execution in found:
                    await self._result(execution)
        except Disconnected:
            raise
        except Exception as error:
            await self._failed(error)

    async def finish(self) -> None:
        """Send the rest."""
        self._add(b"]}")
        data = b"".join(self._gathered)
        if self._is_begun:
            await self._exchange.write(data, more=False)
        else:
            await self._exchange.answer(data)

    async def _result(self, execution: Execution) -> None:
        match execution:
            case Rows():
                await self._rows(execution)
            case Completed(tag):
                await self._object({"ok": tag, "notices": self._notices()})
            case EmptyQuery():
                await self._object({"ok": "", "notices": self._notices()})
            case _:
                raise AssertionError(execution)
        await self._exchange.share()

    async def _rows(self, rows: Rows) -> None:
        if rows.streaming:
            raise FeatureNotSupported(
                "SUBSCRIBE is not supported by POST /api/sql",
                hint="Use GET /api/subscribe, or a WebSocket at /api/sql/ws.",
            )
        encoder, count = RowsAsJson(rows.desc, self._session.output_style), 0
        self._begin_object()
        self._add(b'"desc":' + as_json(columns_of(rows.desc)) + b',"rows":[')
        self._in_rows = True
        async for batch in rows.batches:
            if is_long(batch):
                held = [batch]
                del batch
                self._add(b"," if count else b"")
                count += held[0].num_rows
                async for part in in_slices(held, lambda rows: encoder.piece(rows).joined()):
                    self._add(part)
                    await self._relieve()
                continue
            async for piece in encoder.parts(batch):
                self._add((b"," if count else b"") + piece.joined())
                count += piece.rows
                await self._relieve()
        self._in_rows = False
        end = {"tag": rows.tag(count), "notices": self._notices()}
        self._add(b"]," + as_json(end)[1:])
        await self._relieve()

    async def _failed(self, error: Exception) -> None:
        """Add an error, to the result whose rows are being sent or as one of its own."""
        shown = self._session.explained(client_error(error))
        metrics.ERRORS.labels(shown.sqlstate).inc()
        await self._session.fail(shown)
        fields = {"error": error_fields(shown), "notices": self._notices()}
        if self._in_rows:
            self._add(b"]," + as_json(fields)[1:])
        else:
            await self._object(fields)

    def _notices(self) -> list[Any]:
        return [notice_fields(each) for each in self._session.news.notices()]

    async def _object(self, fields: dict[str, Any]) -> None:
        self._begin_object()
        self._add(as_json(fields)[1:])
        await self._relieve()

    def _begin_object(self) -> None:
        self._add(b"{" if self._is_first else b",{")
        self._is_first = False

    def _add(self, data: bytes) -> None:
        self._gathered.append(data)
        self._size += len(data)

    async def _relieve(self) -> None:
        """Send what is gathered if it is much, and wait for a client that reads slowly."""
        if self._size < SEND_AT:
            return
        if not self._is_begun:
            self._is_begun = True
            await self._exchange.start("application/json")
        data, self._gathered, self._size = b"".join(self._gathered), [], 0
        await self._exchange.write(data)
