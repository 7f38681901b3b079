"""The connector of PostgreSQL: a snapshot of the tables, and then each transaction, whole.

The position has the place in the server's log up to which it was read, the server's identifier, and
for each table where it began, or minus the place where it stopped as it fits no longer.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import ConnectionFailure, DatabaseError, UndefinedObject
from foreshore.sources.outputs import ERRORS
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.consolidate import consolidate
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.libpq import open_session
from foreshore.storage.external.postgres_failures import failure
from foreshore.storage.ingest.connector import (
    REACHED,
    Batch,
    Durable,
    OutputReport,
    Position,
    Report,
)
from foreshore.storage.ingest.errors import error_rows
from foreshore.storage.ingest.messages import OutputRelation
from foreshore.storage.ingest.postgres.begin import Begun, begin
from foreshore.storage.ingest.postgres.changes import Changes, Gatherer
from foreshore.storage.ingest.postgres.layout import TableLayout, layouts
from foreshore.storage.ingest.postgres.slot import LSN, lsn_of
from foreshore.storage.ingest.postgres.stream import Stream
from foreshore.update import DIFF, TIME_FIELD

START_SECONDS = 10.0  # for which a question about the end waits for the stream


class PostgresConnector:
    """Follows the tables of a publication."""

    def __init__(
        self, spec: PostgresSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> None:
        self._spec, self._access = spec, accesses[spec.connection]
        self._tables = layouts(outputs)
        self._stream: Stream | None = None
        self._is_lost = False  # whether the slot can give no more
        self._moved = asyncio.Event()  # what is durable
        self._ceased: dict[str, str] = {}  # why tables are followed no longer

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield all rows if that is needed, and then what follows, for ever."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="postgres")
        stopping = threading.Event()
        spec, access, tables = self._spec, self._access, self._tables
        before, anew = dict(durable.position), self._is_lost
        try:
            starting = loop.run_in_executor(
                thread, lambda: begin(spec, tables, access, before, anew, stopping)
            )
            begun = await starting
            self._is_lost = False
            self._ceased = {each.output: each.error for each in begun.stopped if each.output}
            if begun.rows is None:
                await self._recall_ceased(before, durable)
                yield REACHED
            else:
                yield await self._first(begun, before, durable)
            followed = [t for t in tables.values() if begun.position[t.part] > 0]
            found: asyncio.Queue[Changes | BaseException] = asyncio.Queue()

            def emit(each: Changes | BaseException) -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits for it
                    loop.call_soon_threadsafe(found.put_nowait, each)

            gatherer = Gatherer(followed, begun.position[LSN])
            stream = self._stream = Stream(begun.session, gatherer, emit, stopping)
            stream.durable = durable.position.get(LSN, 0) if begun.rows is None else 0
            following = loop.run_in_executor(
                thread, lambda: stream.follow(spec.slot, spec.publication)
            )
            following.add_done_callback(lambda done: found.put_nowait(_why(done)))
            last = begun.position[LSN]
            while True:
                changes = await found.get()
                if isinstance(changes, BaseException):
                    raise changes
                if changes.emptied:
                    while durable.position.get(LSN, 0) < last:
                        self._moved.clear()
                        await self._moved.wait()
                yield await self._batch(changes, durable)
                last = changes.lsn
                stream.taken()
        except DatabaseError as error:
            # There was no publication when something was changed: the slot cannot get beyond that.
            self._is_lost |= error.sqlstate == UndefinedObject.sqlstate
            raise
        finally:
            self._stream = None
            stopping.set()
            thread.shutdown(wait=False)

    def report(self) -> Report:
        """Return which tables are followed no longer."""
        return Report(
            {each: OutputReport(ceased=self._ceased.get(each)) for each in self._tables}, {}
        )

    async def _recall_ceased(self, position: Position, durable: Durable) -> None:
        """Find out why tables have stopped before this start: the last errors about them say it."""
        ceased = {each.reference for each in self._tables.values() if position[each.part] < 0}
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

    async def _first(self, begun: Begun, before: Position, durable: Durable) -> Batch:
        """Return the batch from the rows that are here to those of the snapshot."""
        assert begun.rows is not None
        rows = dict(begun.rows)
        if before:
            for reference, now in begun.rows.items():
                here = [each async for each in durable.contents(reference)]
                layout = self._tables[reference]
                rows[reference] = await asyncio.to_thread(_difference, layout, now, here)
        if begun.stopped:
            rows[ERRORS] = error_rows(begun.stopped)
        return Batch(rows, begun.position)

    async def _batch(self, changes: Changes, durable: Durable) -> Batch:
        rows = dict(changes.rows)
        for reference in changes.emptied:
            schema = self._tables[reference].desc.stored_schema()
            parts = [_negated(each, schema) async for each in durable.contents(reference)]
            if reference in rows:
                parts.append(rows[reference])
            if parts:
                rows[reference] = pa.concat_tables(parts)
        moved = {LSN: changes.lsn}
        if changes.stopped:
            self._ceased |= {each.output: each.error for each in changes.stopped if each.output}
            rows[ERRORS] = error_rows(changes.stopped)
            moved |= {each.part: -changes.lsn for each in changes.stopped}
        return Batch(rows, moved)


def _why(done: "asyncio.Future[None]") -> BaseException:
    """Return why the stream has ended."""
    if done.cancelled():
        return ConnectionFailure("the source was stopped")
    return done.exception() or ConnectionFailure("the source was stopped")


def _negated(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with `__diff` in the columns of `schema`, with the opposite diffs."""
    diffs = pc.negate(rows[DIFF])
    kept = rows.select(schema.names).cast(schema)
    return kept.append_column(pa.field(DIFF, pa.int64(), nullable=False), diffs)


def _difference(layout: TableLayout, now: pa.Table, here: list[pa.Table]) -> pa.Table:
    """Return the updates from the rows that are here to those that are there now. Blocks."""
    schema = layout.desc.stored_schema()
    timed = pa.schema([*schema, TIME_FIELD, now.schema.field(DIFF)])
    parts = [now, *(_negated(each, schema) for each in here)]
    updates = (
        pa.RecordBatch.from_arrays(
            [
                *batch.columns[:-1],
                pa.repeat(pa.scalar(0, pa.int64()), len(batch)),
                batch.columns[-1],
            ],
            schema=timed,
        )
        for part in parts
        for batch in part.to_batches()
    )
    with tempfile.TemporaryDirectory() as scratch:
        found = list(consolidate(updates, timed, 0, Path(scratch)))
    return pa.Table.from_batches(found, timed).drop_columns([TIME_FIELD.name])
