"""The connector of PostgreSQL: a snapshot of the tables, and then each transaction, whole.

The position has the place in the server's log up to which it was read, the server's identifier, and
for each table where it began, or minus the place where it stopped as it fits no longer.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from dataclasses import replace

import psycopg

from foreshore.errors import ConnectionFailure, DatabaseError, UndefinedObject
from foreshore.sources.outputs import ERRORS
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.libpq import ReplicationSession, open_session
from foreshore.storage.external.postgres_failures import failure
from foreshore.storage.ingest.connector import (
    REACHED,
    Batch,
    Durable,
    OutputReport,
    Part,
    Position,
    Report,
)
from foreshore.storage.ingest.difference import negated
from foreshore.storage.ingest.errors import error_rows
from foreshore.storage.ingest.messages import OutputRelation, SlotState
from foreshore.storage.ingest.postgres.begin import Joining, begin
from foreshore.storage.ingest.postgres.changes import Changes, Gathered, Gatherer
from foreshore.storage.ingest.postgres.layout import layouts
from foreshore.storage.ingest.postgres.overlap import HistoryChanged
from foreshore.storage.ingest.postgres.shapes import PublicationChanged, Watch
from foreshore.storage.ingest.postgres.slot import LSN, PUBLICATION, TRANSACTION, SlotWatch, lsn_of
from foreshore.storage.ingest.postgres.stream import Held, Stream
from foreshore.storage.ingest.postgres.whole import (
    Reading,
    SnapshotCounts,
    all_rows,
)

logger = logging.getLogger(__name__)

SLOT_SECONDS = 10.0  # between two looks at the slot
START_SECONDS = 10.0  # for which a question about the end waits for the stream


class PostgresConnector:
    """Follows the tables of a publication."""

    def __init__(
        self, spec: PostgresSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> None:
        self._spec, self._access = spec, accesses[spec.connection]
        self._tables = layouts(outputs)
        self._stream: Stream | None = None
        self._lost: str | None = None  # why the slot can give no more
        self._moved = asyncio.Event()  # what is durable
        self._ceased: dict[str, str] = {}  # why tables are followed no longer
        self._waits: dict[str, str] = {}  # the states of tables that join later
        self._counts: dict[str, SnapshotCounts] = {}  # of tables whose snapshot was read
        self._messages: dict[str, int] = {}  # of tables, in the stream
        self._slot: SlotState | None = None
        self._again: str | None = None  # why all rows were read again

    async def run(self, durable: Durable) -> AsyncIterator[Batch | Part]:
        """Yield all rows if that is needed, and then what follows, for ever."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="postgres")
        stopping = threading.Event()
        spec, access, tables = self._spec, self._access, self._tables
        position, anew = dict(durable.position), self._lost
        unused: list[ReplicationSession] = []  # that have to be closed
        looking = loop.create_task(self._look_at_slot())
        try:
            begun = await loop.run_in_executor(
                thread, lambda: begin(spec, tables, access, position, anew, stopping.is_set)
            )
            unused.append(begun.session)
            self._lost, self._ceased, self._waits = None, {}, {}
            if begun.why is not None:
                self._again = begun.why
                logger.warning("all rows of a source are read again: %s", begun.why)
            reading = Reading(access, spec.publication, thread, stopping, self._counts)
            joining = begun.joining
            if begun.new is None:
                await self._recall_ceased(position, durable)
                first = {p: now for p, now in begun.identity.items() if p not in position}
                yield Batch({}, first) if first else REACHED
            else:
                async with aclosing(
                    all_rows(begun.new, tables, position, durable, reading)
                ) as rows:
                    async for each in rows:
                        if isinstance(each, Batch):
                            first = {TRANSACTION: each.moved[LSN], **begun.identity}
                            each = Batch(each.rows, {**each.moved, **first})
                            position = dict(each.moved)
                            self._note_ceased(each)
                        yield each
            if joining is not None:
                unused.append(joining.session)
                self._waits = {
                    reference: "refreshing" if each.details.number else "starting"
                    for reference, each in joining.tables.items()
                }
            followed = [t for t in tables.values() if position.get(t.part, 1) > 0]
            since = dict.fromkeys(joining.tables, joining.new.lsn) if joining is not None else {}
            ignored = spec.exclude_columns if spec.applies_changes else None
            gatherer = Gatherer(followed, position[LSN], self._messages, since, ignored)
            hold = None if joining is None else joining.new.lsn
            published = {
                each.published_part: position[each.published_part]
                for each in followed
                if each.published_part in position
            }
            watch = Watch(access, spec.publication, begun.identity[PUBLICATION], published)
            stream = Stream(begun.session, gatherer, watch, stopping, hold, begun.overlap)
            self._stream = stream
            stream.durable = durable.position.get(LSN, 0) if begun.new is None else 0
            unused.remove(begun.session)  # the stream closes it
            following = loop.run_in_executor(
                thread, lambda: stream.follow(spec.slot, spec.publication)
            )
            async for changes in stream.emitted(following):
                if isinstance(changes, Held):
                    assert joining is not None
                    found = self._join(joining, position, durable, reading)
                else:
                    found = self._changed(changes, position[LSN], durable)
                async with aclosing(found) as yielded:
                    async for each in yielded:
                        if isinstance(each, Batch):
                            position |= each.moved
                            self._note_ceased(each)
                        yield each
                if isinstance(changes, Held):
                    self._waits = {}
                    stream.go_on(r for r, t in tables.items() if position.get(t.part, 1) < 0)
                else:
                    stream.taken()
        except DatabaseError as error:
            # There was no publication when something was changed: the slot cannot get beyond that.
            is_lost = error.sqlstate == UndefinedObject.sqlstate
            if is_lost or isinstance(error, PublicationChanged | HistoryChanged):
                self._lost = error.message
            raise
        finally:
            self._stream = None
            looking.cancel()
            stopping.set()
            for session in unused:
                loop.run_in_executor(thread, session.close)
            thread.shutdown(wait=False)

    def report(self) -> Report:
        """Return what is known of the tables, and how far the server's log is."""
        stream, outputs = self._stream, {}
        for each in self._tables:
            counts = self._counts.get(each)
            outputs[each] = OutputReport(
                self._messages.get(each, 0) + (counts.staged if counts else 0),
                counts.known if counts else None,
                counts.staged if counts else None,
                self._ceased.get(each),
                self._waits.get(each),
            )
        known = {LSN: stream.received} if stream is not None else {}
        return Report(outputs, known, self._slot, self._again)

    async def _look_at_slot(self) -> None:
        """Keep what the slot is, until cancelled. While the server is away that is not known."""
        watch, loop = SlotWatch(self._access, self._spec.slot), asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="postgres-slot")
        try:
            while True:
                try:
                    self._slot = await loop.run_in_executor(thread, watch.state)
                except DatabaseError as error:
                    self._slot = None
                    logger.debug("the slot of a source is not known: %s", error)
                await asyncio.sleep(SLOT_SECONDS)
        finally:
            thread.submit(watch.close)
            thread.shutdown(wait=False)

    def _note_ceased(self, batch: Batch) -> None:
        """Keep why tables have stopped, as the batch tells it."""
        if ERRORS in batch.rows:
            for row in batch.rows[ERRORS].select(["output", "error"]).to_pylist():
                self._ceased[row["output"]] = row["error"]

    async def _recall_ceased(self, position: Position, durable: Durable) -> None:
        """Find out why tables have stopped before this start: the last errors about them say it."""
        ceased = {
            each.reference for each in self._tables.values() if position.get(each.part, 0) < 0
        }
        if not ceased:
            return
        found: dict[str, tuple[int, str]] = dict.fromkeys(ceased, (0, "it was stopped"))
        async for rows in durable.contents(ERRORS):
            for row in rows.select(["output", "offset", "error"]).to_pylist():
                if row["output"] in ceased:
                    last = (row["offset"], row["error"])
                    found[row["output"]] = max(found[row["output"]], last)
        self._ceased = {reference: error for reference, (_, error) in found.items()}

    async def furthest(self) -> Position:
        """Return the end of the server's log; raises DatabaseError if it cannot."""
        ends = asyncio.get_running_loop().time() + START_SECONDS
        end = await asyncio.to_thread(self._end)
        while (stream := self._stream) is None:
            if asyncio.get_running_loop().time() > ends:
                raise ConnectionFailure("the server is not read at present")
            await asyncio.sleep(0.05)
        stream.wanted = max(stream.wanted, end)
        return {LSN: end}

    def committed(self, position: Position) -> None:
        """Let the server know, which keeps its log from there on."""
        self._moved.set()
        if self._stream is not None:
            self._stream.durable = position.get(LSN, 0)

    def _end(self) -> int:
        try:
            with closing(open_session(self._access)) as connection:
                row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        except psycopg.Error as error:
            raise failure(error) from error
        else:
            assert row is not None
            return lsn_of(str(row[0]))

    async def _changed(
        self, changes: Gathered, last: int, durable: Durable
    ) -> AsyncGenerator[Batch | Part, None]:
        """Yield changes that follow `last`; those that are not whole are a part of a batch."""
        if not isinstance(changes, Changes):
            yield Part(changes.rows, changes.anew)
            return
        if changes.anew:
            yield Part({}, changes.anew)
        if changes.emptied:
            await self._until_durable(durable, last)
        for reference in changes.emptied:
            schema = self._tables[reference].desc.stored_schema()
            async for each in durable.contents(reference):
                yield Part({reference: negated(each, schema)})
        moved, rows = {LSN: changes.lsn}, dict(changes.rows)
        if changes.commit:
            moved[TRANSACTION] = changes.commit
        if changes.stopped:
            rows[ERRORS] = error_rows(changes.stopped)
            moved |= {each.part: -changes.lsn for each in changes.stopped}
        yield Batch(rows, moved)

    async def _until_durable(self, durable: Durable, lsn: int) -> None:
        while durable.position.get(LSN, 0) < lsn:
            self._moved.clear()
            await self._moved.wait()

    async def _join(
        self, joining: Joining, position: Position, durable: Durable, reading: Reading
    ) -> AsyncGenerator[Batch | Part, None]:
        """Yield the rows of tables that were added, at the place where the stream is held."""
        tables = {r: each for r, each in joining.tables.items() if each.part not in position}
        if any(each.details.number for each in tables.values()):
            await self._until_durable(durable, position[LSN])
        thread = ThreadPoolExecutor(1, thread_name_prefix="postgres-added")
        beside = replace(reading, thread=thread)
        try:
            async with aclosing(all_rows(joining.new, tables, {}, durable, beside)) as rows:
                async for each in rows:
                    yield each
        finally:
            thread.submit(joining.session.close)
            thread.shutdown(wait=False)
