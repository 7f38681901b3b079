"""A connection: the conversation with one client, once it has been let in.

A `Conversation` takes messages in order, asks the session, and gathers what is to be sent, so that
an answer is usually one write. All errors become messages in one place, `Conversation._failed`.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import assert_never

from foreshore import blocking
from foreshore.adapter.client import (
    Completed,
    CopyIn,
    CopyOut,
    EmptyQuery,
    Execution,
    Portal,
    Rows,
    Session,
)
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    InternalError,
    StatementTooComplex,
    disk_fault,
)
from foreshore.server import copying, message, metrics
from foreshore.server.codec import CHUNK, FEW, RowEncoder, result_formats
from foreshore.server.encodings import ENCODINGS, INLINE
from foreshore.server.parameters import arguments
from foreshore.server.wire import Gone, Wire
from foreshore.types import RelationDesc, oid_of

logger = logging.getLogger(__name__)

IN_A_ROW = 8  # statements of one client, behind which others have their turn


class Conversation:
    """The protocol after the start: messages of an authenticated client, and their answers."""

    def __init__(self, wire: Wire, session: Session) -> None:
        self._wire = wire
        self._reader = wire.reader
        self._session = session
        self._skipping = False  # after an error in the extended protocol, until Sync
        self._encoders: dict[tuple[int, tuple[int, ...]], tuple[RelationDesc, RowEncoder]] = {}
        self._given = 0
        self._owed: Portal | None = None  # described with what it gives: its Execute comes next
        session.when_noticed(self._tell)

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
                            self._skipping, self._owed = True, None
                            self._wire.flush()  # a Flush that follows will be skipped

    # --- simple query ---------------------------------------------------------------------

    async def _query(self, sql: str) -> None:
        try:
            executions = self._session.simple(sql)
            try:
                async for execution in executions:
                    await self._give(execution, simple=True)
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
                owed, self._owed = self._owed, None
                if owed is not None and owed is not bound:
                    session.told()
                    self._describe(owed.desc, owed.formats)
                # What changes something is run when it is known whether more follows.
                last = self._may_be_alone(bound) and await wire.upcoming() == message.SYNC_TYPE
                execution = await session.execute(portal, max_rows, last=last)
                if owed is bound and not isinstance(execution, Rows):
                    wire.put(message.NO_DATA)
                await self._give(execution, bound.formats, describe=owed is bound)
            case message.Parse(name=name, sql=sql, parameter_oids=oids):
                await session.parse(name, sql, oids)
                wire.put(message.PARSE_COMPLETE)
            case message.Describe(kind="S", name=name):
                statement = session.statement(name)
                session.told()
                wire.put(message.parameter_description(list(map(oid_of, statement.parameters))))
                self._describe(statement.desc, ())
            case message.Describe(name=name):
                found = session.portal(name)
                if self._may_be_alone(found) and await wire.upcoming() == message.EXECUTE_TYPE:
                    self._owed = found  # a table may be another when it has been run
                else:
                    session.told()
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

    def _may_be_alone(self, portal: Portal) -> bool:
        """Whether running the portal may be all of a transaction that changes something."""
        return portal.changes and self._session.transaction_status == "I"

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
        self,
        execution: Execution,
        formats: Sequence[int] = (),
        *,
        describe: bool = True,
        simple: bool = False,
    ) -> None:
        """Send what a statement gives: its columns, if it is to `describe` them, and its rows."""
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
                zone = self._session.time_zone
                self._complete(await copying.copy_in(self._wire, execution, zone, simple=simple))
            case _:
                assert_never(execution)
        self._given += 1
        if self._given % IN_A_ROW == 0:
            await asyncio.sleep(0)

    async def _rows(self, rows: Rows, encoder: RowEncoder) -> int:
        wire = self._wire
        zone = self._session.time_zone
        count = 0
        if rows.streaming:
            wire.flush()
        async for batch in rows.batches:
            size = batch.num_rows
            count += size
            if rows.streaming and size <= CHUNK:
                wire.put(await ENCODINGS.of(batch, encoder.form(zone), encoder.encoded(zone)))
            elif size <= FEW:
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

    def _tell(self) -> None:
        """Send notices now, and what was gathered before them."""
        self._notices()
        self._wire.flush()

    def _complete(self, tag: str) -> None:
        metrics.STATEMENTS.inc()
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
