"""A connection: the conversation with one client after authentication.

A `Conversation` handles messages in order, calls the session, and gathers its answers, so that an
answer is usually one write. `Conversation._failed` is the one place where errors become messages.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import assert_never

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.client import (
    Completed,
    CopyIn,
    CopyOut,
    EmptyQuery,
    Execution,
    Notice,
    Portal,
    Rows,
    Session,
)
from foreshore.array_text import ShapeNotSupported
from foreshore.client_encodings import UTF8
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    InternalError,
    StatementTooComplex,
    disk_fault,
)
from foreshore.server import copying, message, metrics
from foreshore.server.client_encoding import ClientEncoding, client_encoding
from foreshore.server.codec import CHUNK, FEW, RowEncoder, result_formats
from foreshore.server.encodings import ENCODINGS, INLINE
from foreshore.server.executions import ExecutionReader, Executions
from foreshore.server.parameters import arguments, with_shapes
from foreshore.server.wire import Disconnected, Wire
from foreshore.types import Datum, RelationDesc, SqlType, oid_of

logger = logging.getLogger(__name__)

WIDE = 1 << 18  # bytes of rows: some milliseconds of encoding
LONG_ARGUMENTS = 1 << 17  # bytes of a Bind message: some ten milliseconds of decoding
NOTICES_PER_TURN = 1000
NOTIFICATIONS_PER_TURN = 256
# These end the connection. Nobody may name them and raise them again: their tracebacks would hold a
# frame that holds them, and with it, until the next collection of garbage, rows.
ENDS = (Disconnected, message.FramingError)


class Conversation:
    """The protocol after startup: messages of an authenticated client, and their answers."""

    def __init__(self, wire: Wire, session: Session) -> None:
        self._wire = wire
        self._session = session
        self._skipping = False  # after an error in the extended protocol, until Sync
        self._encoders: dict[tuple[int, tuple[int, ...]], tuple[RelationDesc, RowEncoder]] = {}
        self._describe_later: Portal | None = None  # described by the Execute that comes next
        # Whether it waits for a request, so that notifications may be sent, or the session ended.
        self._idle = False
        self._streaming = False
        self._encoding = UTF8
        session.news.when_noticed(self._send_notices)
        self._is_notified = False
        session.news.when_notified(self._notified)
        wire.reopened = self._notified
        wire.interruptible = session.interrupts.running
        wire.runs_on = self._runs_on
        self._executions = ExecutionReader(wire, session, self._encoder)

    async def run(self) -> None:
        """Handle messages until the client goes; raises Disconnected or FramingError."""
        self._adopt_encoding()
        self._ready()
        await self._work()
        while True:
            await self._wire.idle(self._work)

    async def _work(self) -> None:
        """Handle what has arrived; raises Disconnected or FramingError."""
        wire = self._wire
        while True:
            executions = None
            if not self._skipping and wire.encoding is None:
                executions = self._executions.next()
            if executions is not None:
                self._idle = False
                await self._run(executions)
            else:
                received = await wire.arrived()
                if received is None:
                    return
                self._idle = False
                await self._handle(received)
            if wire.reader.is_done():
                return
            if executions is not None:
                await wire.share()

    async def _handle(self, received: message.Message) -> None:
        """Handle a message; raises Disconnected if the client says goodbye."""
        match received:
            case message.Terminate():
                raise Disconnected
            case message.Sync():
                self._skipping = False
                await self._sync()
            case message.Query(sql):
                # Only the extended protocol starts skipping, but a Query is skipped too.
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
                    except ENDS:
                        raise
                    except Exception as error:
                        await self._extended_failed(error)

    async def _extended_failed(self, error: Exception) -> None:
        """Send an error of the extended protocol, after which all is skipped up to a Sync."""
        await self._failed(error)
        self._skipping, self._describe_later = True, None
        self._wire.flush()  # a Flush that follows will be skipped

    def _runs_on(self) -> bool:
        """Whether what runs goes on when the client has gone: until it ends, or has to send.

        What follows changes would never end.
        """
        return not self._streaming and self._session.outlives_client()

    def _stream(self) -> None:
        """Note that a statement streams its rows; raises Disconnected if the client has gone."""
        self._streaming = True
        if not self._wire.is_connected:
            raise Disconnected

    @property
    def may_end(self) -> bool:
        """Whether the end of the session interrupts nothing that would end by itself."""
        return self._idle or self._streaming

    # --- simple query ---------------------------------------------------------------------

    async def _query(self, sql: str) -> None:
        try:
            executions, is_first = self._session.simple(sql), True
            try:
                async for execution in executions:
                    if not is_first:
                        await self._wire.share()
                    is_first = False
                    await self._send_result(execution, simple=True)
            finally:
                if (close := getattr(executions, "aclose", None)) is not None:
                    await close()
        except ENDS:
            raise
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
        extended, wire = self._session.extended, self._wire
        match received:
            case message.Bind(portal=portal, statement=name, result_formats=formats):
                statement = extended.statement(name)
                try:
                    args = await self._arguments(received, statement.parameters)
                except ShapeNotSupported:  # the statement may be one that takes such an array
                    statement = extended.statement(
                        name, with_shapes(received, statement.parameters)
                    )
                    args = await self._arguments(received, statement.parameters)
                if statement.desc is not None and (len(formats) > 1 or any(formats)):
                    result_formats(formats, len(statement.desc.columns))
                size = sum(map(len, filter(None, received.values))) if portal else 0
                await extended.bind(portal, statement, args, formats, size)
                wire.put(message.BIND_COMPLETE)
            case message.Execute(portal=portal, max_rows=max_rows):
                bound = extended.portal(portal)
                later, self._describe_later = self._describe_later, None
                if later is not None and later is not bound:
                    extended.told()
                    self._describe(later.desc, later.formats)
                last = bound.changes and await self._comes(message.SYNC_TYPE)
                try:
                    execution = await extended.execute(portal, max_rows, last=last)
                except Exception:
                    if later is bound:  # its Describe has succeeded
                        self._describe(bound.desc, bound.formats)
                    raise
                if later is bound and not isinstance(execution, Rows):
                    wire.put(message.NO_DATA)
                await self._send_result(execution, bound.formats, describe=later is bound)
            case message.Parse(name=name, sql=sql, parameter_oids=oids):
                await extended.parse(name, sql, oids)
                wire.put(message.PARSE_COMPLETE)
            case message.Describe(kind="S", name=name):
                statement = extended.statement(name)
                extended.told()
                wire.put(message.parameter_description(list(map(oid_of, statement.parameters))))
                self._describe(statement.desc, ())
            case message.Describe(name=name):
                found = extended.portal(name)
                if found.changes and await self._comes(message.EXECUTE_TYPE):
                    self._describe_later = found  # until it runs, a table may be altered
                else:
                    extended.told()
                    self._describe(found.desc, found.formats)
            case message.Close(kind="S", name=name):
                await extended.close_statement(name)
                wire.put(message.CLOSE_COMPLETE)
            case message.Close(name=name):
                await extended.close_portal(name)
                wire.put(message.CLOSE_COMPLETE)
            case message.Flush():
                wire.flush()
            case _:
                assert_never(received)

    async def _run(self, executions: Executions) -> None:
        """Run executions of a prepared statement, and answer them."""
        try:
            await self._run_all(executions)
        except ENDS:
            raise
        except Exception as error:
            await self._extended_failed(error)
        if executions.is_last:
            self._skipping = False
            await self._sync()

    async def _run_all(self, executions: Executions) -> None:
        session, wire, form = self._session, self._wire, executions.form
        statement, encoder, many = executions.statement, form.encoder, executions.rows
        description = message.NO_DATA if encoder is None else encoder.description
        done, most = 0, len(many)
        last = executions.is_last or (statement.changes and await self._comes(message.SYNC_TYPE))
        while done < len(many):
            await session.extended.ready(statement)
            given = many[done : done + most]
            is_last = last and done + len(given) == len(many)
            try:
                ran = await session.extended.run(
                    statement, given, form.formats, executions.most, last=is_last
                )
            except Exception:  # its Bind, and its Describe, have succeeded
                wire.put(message.BIND_COMPLETE)
                if executions.described[done]:
                    wire.put(description)
                raise
            most = 2 * len(ran)
            for execution in ran:
                described, before = executions.described[done], message.BIND_COMPLETE
                if described and not isinstance(execution, Rows):
                    before += message.NO_DATA
                await self._send_result(
                    execution, form.formats, form.encoder, describe=described, before=before
                )
                if described or len(form.formats) > 1:
                    session.extended.told()
                done += 1
            if done < len(many):
                await wire.share()

    async def _arguments(self, bind: message.Bind, types: Sequence[SqlType]) -> list[Datum]:
        """Return the values of a Bind message; long ones are decoded on a thread."""
        zone = self._session.time_zone
        if sum(map(len, filter(None, bind.values))) <= LONG_ARGUMENTS:
            return arguments(bind, types, zone, self._wire.encoding)
        return await blocking.run(None, arguments, bind, types, zone, self._wire.encoding)

    async def _comes(self, code: int) -> bool:
        """Whether a message of this type is next, once that is known; in a block it is not asked.

        A statement that writes runs once it is known whether another one follows.
        """
        return self._session.transaction_status == "I" and await self._wire.upcoming() == code

    async def _sync(self) -> None:
        try:
            await self._session.extended.sync()
        except ENDS:
            raise
        except Exception as error:
            await self._failed(error)
        self._ready()

    def _describe(self, desc: RelationDesc | None, formats: Sequence[int]) -> None:
        if desc is None:
            self._wire.put(message.NO_DATA)
        else:
            self._wire.put(self._encoder(desc, formats).description)

    # --- answers --------------------------------------------------------------------------

    def _encoder(self, desc: RelationDesc, formats: Sequence[int]) -> RowEncoder:
        key = (id(desc), tuple(formats))
        found = self._encoders.get(key)
        if found is None:
            if len(self._encoders) >= 256:
                self._encoders.clear()
            encoder = RowEncoder(desc, result_formats(formats, len(desc.columns)))
            found = self._encoders[key] = (desc, encoder)  # `desc` is kept, so its id stays unique
        return found[1]

    async def _send_result(
        self,
        execution: Execution,
        formats: Sequence[int] = (),
        encoder: RowEncoder | None = None,
        *,
        describe: bool = True,
        simple: bool = False,
        before: bytes = b"",
    ) -> None:
        """Send a statement's result: its columns if `describe`, then its rows and its tag.

        They follow the messages `before`. An `encoder` is of the statement's columns and formats.
        """
        match execution:
            case Rows():
                if simple and execution.binary:
                    formats = (1,)
                if encoder is None or encoder.desc is not execution.desc:
                    encoder = self._encoder(execution.desc, formats)
                if describe:
                    before += encoder.description
                tuples = execution.tuples
                if tuples is not None and self._wire.encoding is None:
                    try:
                        style = self._session.output_style(names=encoder.shows_names)
                        before += encoder.tuples(tuples, style)
                    except Exception:
                        self._wire.put(before)
                        raise
                    count = len(tuples)
                else:
                    self._wire.put(before)
                    before, count = b"", await self._rows(execution, encoder)
                if execution.has_more:
                    self._wire.put(before + message.PORTAL_SUSPENDED)
                else:
                    await self._complete(execution.tag(count), before)
            case Completed(tag):
                await self._complete(tag, before)
            case EmptyQuery():
                self._wire.put(before + message.EMPTY_QUERY)
            case CopyOut():
                self._wire.put(before)
                if execution.streaming:
                    self._stream()
                style = self._session.output_style(names=copying.shows_names(execution))
                await self._complete(await copying.copy_out(self._wire, execution, style))
            case CopyIn():
                self._wire.put(before)
                zone = self._session.time_zone
                tag = await copying.copy_in(self._wire, execution, zone, simple=simple)
                await self._complete(tag)
            case _:
                assert_never(execution)

    async def _rows(self, rows: Rows, encoder: RowEncoder) -> int:
        wire = self._wire
        style = self._session.output_style(names=encoder.shows_names)
        if wire.encoding is not None:
            return await self._converted_rows(rows, encoder, wire.encoding)
        count = 0
        if rows.streaming:
            self._stream()
            wire.flush()
        async for batch in rows.batches:
            size = batch.num_rows
            count += size
            if rows.streaming and size <= CHUNK:
                wire.put(await ENCODINGS.of(batch, encoder.form(style), encoder.encoded(style)))
            elif size <= FEW and not _is_wide(batch):
                wire.put(encoder.few(batch, style))
            elif size <= INLINE and not _is_wide(batch):
                wire.put(encoder.chunk(batch, style))
            else:
                pieces = copying.encoded(batch, partial(encoder.chunk, style=style))
                del batch
                async for piece in pieces:
                    wire.put(piece)
                    await wire.relieve()
            if rows.streaming:
                wire.flush()
            await wire.relieve()
        return count

    async def _converted_rows(
        self, rows: Rows, encoder: RowEncoder, encoding: ClientEncoding
    ) -> int:
        """Send rows to a client whose encoding is not UTF8, converted on a thread."""
        if rows.streaming:
            self._stream()
        style, count = self._session.output_style(names=encoder.shows_names), 0
        wire, (types, formats) = self._wire, encoder.columns

        def encode(batch: pa.RecordBatch) -> bytes:
            return encoding.rows(encoder.encoded(style)(batch), types, formats)

        async for batch in rows.batches:
            count += batch.num_rows
            async for piece in copying.encoded(batch, encode):
                wire.put_rows(piece)
                await wire.relieve()
            if rows.streaming:
                wire.flush()
        return count

    def _adopt_encoding(self) -> None:
        """Speak the encoding that the session has set, or has set back."""
        name = self._session.client_encoding
        if name != self._encoding:
            self._encoding = name
            self._wire.set_encoding(client_encoding(name))

    def _put_notices(self) -> None:
        for notice in self._session.news.notices():
            self._put_notice(notice)

    def _put_notice(self, notice: Notice) -> None:
        self._wire.put(
            message.notice_response(
                notice.severity, notice.sqlstate, notice.message, notice.detail, notice.hint
            )
        )

    def _send_notices(self) -> None:
        """Send notices now, after the messages gathered before them."""
        self._put_notices()
        self._wire.flush()

    def _put_notifications(self) -> None:
        """Add some notifications; the others follow when the session is idle."""
        notifications = self._session.news.notifications(NOTIFICATIONS_PER_TURN)
        for each in notifications:
            self._wire.put(message.notification_response(*each))
        if len(notifications) == NOTIFICATIONS_PER_TURN:
            self._notified()

    def _notified(self) -> None:
        """Have notifications sent in a turn, as there may be many listeners."""
        if not self._is_notified:
            self._is_notified = True
            self._wire.turn.share(self._send_notifications)

    def _send_notifications(self) -> None:
        """Send notifications if the session is idle and its client reads."""
        self._is_notified = False
        if self._idle and self._wire.is_open:
            self._put_notifications()
            self._wire.flush()

    async def _complete(self, tag: str, before: bytes = b"") -> None:
        """Add the statement's notices and its tag; others run while many notices are encoded."""
        if self._session.news.may_wait:
            self._wire.put(before)
            for number, notice in enumerate(self._session.news.notices(), 1):
                self._put_notice(notice)
                if number % NOTICES_PER_TURN == 0:
                    await self._wire.share()
            self._wire.put(message.command_complete(tag))
            self._adopt_encoding()
        else:
            self._wire.put(before + message.command_complete(tag))

    def _ready(self) -> None:
        """Send the gathered messages and ReadyForQuery."""
        if self._session.news.may_wait:
            self._adopt_encoding()
            self._put_notices()
            self._put_notifications()
            for name, value in self._session.news.changed_parameters().items():
                self._wire.put(message.parameter_status(name, value))
        self._wire.put(message.READY[self._session.transaction_status])
        self._wire.flush()
        self._idle, self._streaming = True, False

    async def _failed(self, error: Exception) -> None:
        """Send `error` to the client and report it to the session."""
        self._put_notices()
        shown = self._session.explained(client_error(error))
        metrics.ERRORS.labels(shown.sqlstate).inc()
        await self._put_error(shown)
        try:
            await self._session.fail(shown)
        except Exception as second:
            logger.exception("the session failed to fail")
            raise InternalError("the session is lost") from second
        self._adopt_encoding()

    async def _put_error(self, error: DatabaseError) -> None:
        """Send `error`; others run while a long one is encoded."""
        if self._wire.encoding is not None:
            self._wire.put(message.error_response(error))
            return
        pieces = []
        for piece in message.error_pieces(error):
            pieces.append(piece)
            if len(piece) >= message.PIECE:
                await asyncio.sleep(0)
        self._wire.put(message.header(b"E", sum(map(len, pieces))))
        for piece in pieces:
            self._wire.put(piece)
            if len(piece) >= message.PIECE:
                self._wire.flush()


def _is_wide(batch: pa.RecordBatch) -> bool:
    """Return whether encoding a batch would hold up the event loop, however few rows it has."""
    # The first is quick, and too much for a slice.
    return bool(batch.get_total_buffer_size() > WIDE and batch.nbytes > WIDE)


def client_error(error: Exception) -> DatabaseError:
    """Return the error to send to the client; an unforeseen one becomes XX000 without details."""
    match error:
        case InternalError():
            logger.error("internal error", exc_info=error)
            return error
        case DatabaseError():
            return error
        case RecursionError():
            return StatementTooComplex("stack depth limit exceeded")
        case MemoryError():
            return DatabaseError("out of memory", sqlstate="53200")
        case _ if (fault := disk_fault(error)) is not None:
            logger.error("a disk has failed or is full", exc_info=error)
            return fault
        case _:
            logger.error("unforeseen error", exc_info=error)
            return InternalError("internal error", detail="The server's log has the details.")
