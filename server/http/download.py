"""POST /api/sql for one result as Arrow, Parquet or CSV: sent while it is read.

An error before the first bytes is an answer of its own, with its status. A later one cuts the
connection off, so that no client takes a part for the whole.
"""

from foreshore import blocking
from foreshore.adapter.client import Rows
from foreshore.errors import FeatureNotSupported
from foreshore.server.http.columnar import ENCODERS
from foreshore.server.http.exchange import Exchange
from foreshore.server.http.requests import ExtendedQuery, SqlRequest
from foreshore.server.http.sessions import Opened
from foreshore.server.http.statements import bind
from foreshore.server.http.values import pieces

SEND_AT = 64 << 10  # so many bytes are sent at once, if the result has them


class Download:
    """The result of one statement, in a type of `ENCODERS`."""

    def __init__(self, exchange: Exchange, opened: Opened, kind: str) -> None:
        self._exchange = exchange
        self._session = opened.session
        self._kind = kind
        self._gathered = b""
        exchange.interruptible = opened.session.interrupts.running

    async def run(self, request: SqlRequest) -> None:
        """Run the statement and send its rows; raises DatabaseError, Disconnected."""
        rows = await self._begin(_only(request))
        encoder = ENCODERS[self._kind](rows.desc, self._session.output_style)
        async for batch in rows.batches:
            for piece in pieces(batch):
                await self._send(await blocking.run(None, encoder.rows, piece))
        await self._session.extended.close_portal("")
        await self._session.extended.sync()
        self._gathered += await blocking.run(None, encoder.end)

    async def finish(self) -> None:
        """Send the rest; the session may be closed."""
        await self._start()
        await self._exchange.write(self._gathered, more=False)

    async def _begin(self, query: ExtendedQuery) -> Rows:
        statement = await self._session.extended.parse("", query.query, ())
        if statement.desc is None:
            raise FeatureNotSupported(
                f"a statement without rows cannot be answered as {self._kind}",
                hint="Send it without the header Accept.",
            )
        await bind(self._session, statement, query.params)
        found = await self._session.extended.execute("", 0, last=True)
        if not isinstance(found, Rows) or found.streaming:
            raise FeatureNotSupported(
                f"such a statement cannot be answered as {self._kind}",
                hint="SUBSCRIBE is followed by GET /api/subscribe, COPY by the PostgreSQL port.",
            )
        return found

    async def _send(self, data: bytes) -> None:
        self._gathered += data
        if len(self._gathered) >= SEND_AT:
            await self._start()
            gathered, self._gathered = self._gathered, b""
            await self._exchange.write(gathered)

    async def _start(self) -> None:
        if not self._exchange.has_started:
            await self._exchange.start(self._kind)


def _only(request: SqlRequest) -> ExtendedQuery:
    """Return the only statement of a request; a text of several is refused when it is parsed."""
    if request.query is not None:
        return ExtendedQuery(request.query)
    if len(request.queries or ()) == 1:
        return (request.queries or ())[0]
    raise FeatureNotSupported("only one statement can be answered in a format other than JSON")
