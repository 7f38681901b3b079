"""A connection: one client's conversation, from its first byte to its last.

`Wire` is the transport's side: bytes in and out, both bounded, and an eye on the socket: a client
that is gone while its statement runs ends the task that runs it. `Conversation` is the protocol's
side: it takes messages in order, asks the session, and gathers what is to be sent, so that an
answer is usually one write. All errors become messages in one place, `Conversation._failed`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import assert_never, cast

from foreshore import blocking
from foreshore.adapter.client import (
    Completed,
    CopyIn,
    CopyOut,
    EmptyQuery,
    Execution,
    Rows,
    Session,
)
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    InternalError,
    StatementTooComplex,
)
from foreshore.server import copying, message, metrics
from foreshore.server.codec import CHUNK, FEW, RowEncoder, result_formats
from foreshore.server.parameters import arguments
from foreshore.server.protocol import MessageReader
from foreshore.types import RelationDesc, oid_of

logger = logging.getLogger(__name__)

READ_AHEAD = 4 * 1024 * 1024  # bytes of messages not yet taken, beyond which reading pauses
SEND_AT = 64 * 1024  # bytes gathered, beyond which they are sent before the answer is complete
SEND_QUEUE = 1024 * 1024  # bytes sent that the client has not taken, beyond which we wait
INLINE = 256  # rows, up to which they are encoded on the event loop


class Gone(Exception):
    """The client has closed the connection."""


class Wire(asyncio.Protocol):
    """The bytes of one connection; `run` is the task that uses them."""

    def __init__(self, run: Callable[["Wire"], asyncio.Task[None]]) -> None:
        self.reader = MessageReader()
        self.peer = ""
        self.loopback = False
        self._run = run
        self._out: list[bytes] = []
        self._out_size = 0
        self._waiter: asyncio.Future[None] | None = None  # of whoever waits for input
        self._drained: asyncio.Future[None] | None = None  # of whoever waits to send
        self._busy = True  # whether the task is at work and would not notice the client leave
        self._reading = True
        self._gone = False
        self._done = False

    # --- called by the loop ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the conversation."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self._transport.set_write_buffer_limits(high=SEND_QUEUE)
        address = transport.get_extra_info("peername")
        host = address[0] if address else ""
        self.peer = f"{host}:{address[1]}" if address else ""
        self.loopback = host.startswith("127.") or host in ("::1", "")
        self._task = self._run(self)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes and wake who waits for them."""
        self.reader.feed(data)
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif self.reader.buffered > READ_AHEAD and self._reading:
            self._transport.pause_reading()
            self._reading = False

    def eof_received(self) -> bool:
        """Take it that the client has left; what it did not wait for is not worth finishing."""
        self._leave()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Take note that the client has left."""
        self._leave()
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(Gone())

    def pause_writing(self) -> None:
        """Take note that the client reads more slowly than we write."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let who waits go on sending."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _leave(self) -> None:
        self._gone = True
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif not self._done:
            self._done = True
            self._task.cancel()

    # --- called by the conversation -------------------------------------------------------

    async def more(self) -> None:
        """Wait until more bytes have arrived; raises Gone."""
        if self._gone:
            raise Gone
        if not self._reading:
            self._transport.resume_reading()
            self._reading = True
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._gone and not self.reader.buffered:
            raise Gone

    def put(self, data: bytes) -> None:
        """Add to what will be sent."""
        self._out.append(data)
        self._out_size += len(data)

    def flush(self) -> None:
        """Send what has been added."""
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            if not self._transport.is_closing():
                self._transport.write(data)

    async def relieve(self) -> None:
        """Send what has been added if it is much, and wait while the client takes too little."""
        if self._out_size >= SEND_AT:
            self.flush()
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def close(self) -> None:
        """End the connection when all has been sent."""
        self._done = True
        self.flush()
        self._transport.close()

    def finish(self) -> None:
        """Say that from now on the task ends by itself and is not to be cancelled."""
        self._done = True

    def cancel(self) -> None:
        """End the task; the server is going down."""
        if not self._done:
            self._done = True
            self._task.cancel()


class Conversation:
    """The protocol after the start: messages of an authenticated client, and their answers."""

    def __init__(self, wire: Wire, session: Session) -> None:
        self._wire = wire
        self._reader = wire.reader
        self._session = session
        self._skipping = False  # after an error in the extended protocol, until Sync
        self._encoders: dict[tuple[int, tuple[int, ...]], tuple[RelationDesc, RowEncoder]] = {}

    async def run(self) -> None:
        """Take messages until the client ends; raises Gone, or FramingError."""
        self._ready()
        while True:
            received = self._reader.next()
            if received is None:
                await self._wire.more()
                continue
            match received:
                case message.Terminate():
                    return
                case message.Sync():
                    self._skipping = False
                    await self._sync()
                case message.Query(sql):
                    # Only the extended protocol skips; a Query in a skipped stretch is skipped too.
                    if not self._skipping:
                        await self._query(sql)
                case message.Unreadable(error, simple):
                    if not self._skipping:
                        await self._failed(error)
                        if simple:
                            self._ready()
                        else:
                            self._skipping = True
                case message.FunctionCall():
                    if not self._skipping:
                        await self._failed(
                            FeatureNotSupported("function call messages are not supported")
                        )
                        self._ready()
                case message.CopyData() | message.CopyDone() | message.CopyFail():
                    pass  # the rest of a COPY that has failed
                case message.Password():
                    raise message.FramingError("unexpected password message")
                case _:
                    if not self._skipping:
                        try:
                            await self._extended(received)
                        except Exception as error:
                            await self._failed(error)
                            self._skipping = True
                            self._wire.flush()  # a Flush that follows will be skipped

    # --- simple query ---------------------------------------------------------------------

    async def _query(self, sql: str) -> None:
        try:
            executions = self._session.simple(sql)
            try:
                async for execution in executions:
                    await self._give(execution, describe=True)
            finally:
                if (close := getattr(executions, "aclose", None)) is not None:
                    await close()
        except Exception as error:
            await self._failed(error)
        self._ready()

    # --- extended query -------------------------------------------------------------------

    async def _extended(
        self,
        received: message.Parse
        | message.Bind
        | message.Describe
        | message.Execute
        | message.Close
        | message.Flush,
    ) -> None:
        session, wire = self._session, self._wire
        match received:
            case message.Bind(portal=portal, statement=name, result_formats=formats):
                statement = session.statement(name)
                args = arguments(received, statement.parameters, session.time_zone)
                if len(formats) > 1 or any(formats):
                    desc = statement.desc
                    result_formats(formats, 0 if desc is None else len(desc.columns))
                await session.bind(portal, name, args, formats)
                wire.put(message.BIND_COMPLETE)
            case message.Execute(portal=portal, max_rows=max_rows):
                bound = session.portal(portal)
                await self._give(await session.execute(portal, max_rows), bound.formats)
            case message.Parse(name=name, sql=sql, parameter_oids=oids):
                await session.parse(name, sql, oids)
                wire.put(message.PARSE_COMPLETE)
            case message.Describe(kind="S", name=name):
                statement = session.statement(name)
                wire.put(message.parameter_description(list(map(oid_of, statement.parameters))))
                self._describe(statement.desc, ())
            case message.Describe(name=name):
                found = session.portal(name)
                self._describe(found.desc, found.formats)
            case message.Close(kind="S", name=name):
                await session.close_statement(name)
                wire.put(message.CLOSE_COMPLETE)
            case message.Close(name=name):
                await session.close_portal(name)
                wire.put(message.CLOSE_COMPLETE)
            case message.Flush():
                wire.flush()
            case _:
                assert_never(received)

    async def _sync(self) -> None:
        try:
            await self._session.sync()
        except Exception as error:
            await self._failed(error)
        self._ready()

    def _describe(self, desc: RelationDesc | None, formats: Sequence[int]) -> None:
        if desc is None:
            self._wire.put(message.NO_DATA)
        else:
            self._wire.put(self._encoder(desc, formats).description)

    # --- what is sent ---------------------------------------------------------------------

    def _encoder(self, desc: RelationDesc, formats: Sequence[int]) -> RowEncoder:
        key = (id(desc), tuple(formats))
        found = self._encoders.get(key)
        if found is None:
            if len(self._encoders) >= 256:
                self._encoders.clear()
            encoder = RowEncoder(desc, result_formats(formats, len(desc.columns)))
            found = self._encoders[key] = (desc, encoder)  # which keeps the id its own
        return found[1]

    async def _give(
        self, execution: Execution, formats: Sequence[int] = (), *, describe: bool = False
    ) -> None:
        """Send what a statement gives."""
        match execution:
            case Rows():
                encoder = self._encoder(execution.desc, formats)
                if describe:
                    self._wire.put(encoder.description)
                count = await self._rows(execution, encoder)
                if execution.suspended():
                    self._wire.put(message.PORTAL_SUSPENDED)
                else:
                    self._complete(execution.tag(count))
            case Completed(tag):
                self._complete(tag)
            case EmptyQuery():
                self._wire.put(message.EMPTY_QUERY)
            case CopyOut():
                self._complete(
                    await copying.copy_out(self._wire, execution, self._session.time_zone)
                )
            case CopyIn():
                self._complete(
                    await copying.copy_in(self._wire, execution, self._session.time_zone)
                )
            case _:
                assert_never(execution)

    async def _rows(self, rows: Rows, encoder: RowEncoder) -> int:
        wire = self._wire
        zone = self._session.time_zone
        count = 0
        if rows.streaming:
            wire.flush()
        async for batch in rows.batches:
            size = batch.num_rows
            count += size
            if size <= FEW:
                wire.put(encoder.few(batch, zone))
            elif size <= INLINE:
                wire.put(encoder.chunk(batch, zone))
            else:
                for start in range(0, size, CHUNK):
                    part = batch.slice(start, CHUNK)
                    wire.put(await blocking.run(None, encoder.chunk, part, zone))
                    await wire.relieve()
            if rows.streaming:
                wire.flush()
            await wire.relieve()
        return count

    def _notices(self) -> None:
        for notice in self._session.notices():
            self._wire.put(
                message.notice_response(
                    notice.severity, notice.sqlstate, notice.message, notice.detail, notice.hint
                )
            )

    def _complete(self, tag: str) -> None:
        self._notices()
        self._wire.put(message.command_complete(tag))

    def _ready(self) -> None:
        """Send ReadyForQuery and all that has been gathered."""
        self._notices()
        for name, value in self._session.changed_parameters().items():
            self._wire.put(message.parameter_status(name, value))
        self._wire.put(message.READY[self._session.transaction_status])
        self._wire.flush()

    async def _failed(self, error: Exception) -> None:
        """Send `error`, whatever it is, and let the session know."""
        if isinstance(error, Gone | message.FramingError):
            raise error
        self._notices()
        told = client_error(error)
        metrics.ERRORS.labels(told.sqlstate).inc()
        self._wire.put(message.error_response(told))
        try:
            await self._session.fail()
        except Exception as second:
            logger.exception("the session failed to fail")
            raise InternalError("the session is lost") from second


def client_error(error: Exception) -> DatabaseError:
    """Return what the client hears of `error`: of anything unforeseen, only that it happened."""
    match error:
        case DatabaseError():
            return error
        case RecursionError():
            return StatementTooComplex("stack depth limit exceeded")
        case MemoryError():
            return DatabaseError("out of memory", sqlstate="53200")
        case _:
            logger.error("unforeseen error", exc_info=error)
            return InternalError("internal error", detail="The server's log has the details.")
