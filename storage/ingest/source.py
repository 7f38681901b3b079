"""One source in an ingestion process: a task that reads and sends.

A source that fails is started again from the position that is durable, after a pause that grows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.processes.transport import Tables
from foreshore.storage.external.process import Send
from foreshore.storage.external.process_memory import out_of_memory
from foreshore.storage.external.retries import Pauses, error_text
from foreshore.storage.ingest.connector import (
    Batch,
    Connector,
    Interval,
    Kind,
    Measurable,
    OutputReport,
    Part,
    Position,
    Report,
    Reporting,
)
from foreshore.storage.ingest.messages import (
    PART_BYTES,
    PART_WINDOW,
    WHOLE_BYTES,
    WINDOW,
    AskContents,
    AskInput,
    Contents,
    ContentsTaken,
    Furthest,
    Ingested,
    IngestedPart,
    NextTry,
    OutputCounts,
    Reported,
    SourceState,
    StartSource,
)
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.5  # between two reports


class Source:
    """One source: its connector, and how far it has come."""

    def __init__(self, start: StartSource, kind: Callable[[Any], Kind], send: Send) -> None:
        self._id, self._run_number, self._outputs = start.id, start.run, start.outputs
        self._start, self._kind = start, kind
        self._connector: Connector | None = None
        self._send = send
        self._durable: dict[str, int] = dict(start.position)
        self._sent: deque[Position] = deque()  # what the batches on their way move
        self._room = asyncio.Event()
        self._room.set()
        self._batch = self._parts = (
            0  # the number of the batch to come, and its parts that were sent
        )
        self._parts_away = 0  # parts that are on their way
        self._rows_sent: dict[str, int] = {}  # by references
        self._asked: dict[int, asyncio.Queue[tuple[Contents, Tables]]] = {}
        self._requests = 0
        self._reported = Report({}, {})
        self._pauses = Pauses()
        self._answering: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._report())]

    def stop(self) -> None:
        """Read no more."""
        for task in (*self._tasks, *self._answering):
            task.cancel()

    @property
    def position(self) -> Position:
        """Return the position that is durable."""
        return dict(self._durable)

    def committed(self, run: int) -> None:
        """Note that the oldest batch on its way is durable, if it is one of this run."""
        if run != self._run_number:
            return
        self._durable |= self._sent.popleft()
        self._room.set()
        if self._connector is not None:
            self._connector.committed(self._durable)

    def part_kept(self, run: int) -> None:
        """Note that the oldest part on its way is in a file, if it is one of this run."""
        if run == self._run_number:
            self._parts_away -= 1
            self._room.set()

    def received(self, contents: Contents, tables: Tables) -> None:
        """Take rows that were asked for."""
        if contents.run != self._run_number:
            return
        if (queue := self._asked.get(contents.request)) is not None:
            queue.put_nowait((contents, tables))

    def hurry(self) -> None:
        """Try again at once, if this is a pause after a failure."""
        self._pauses.cut_short()

    def ask(self, request: int) -> None:
        """Answer how far the external system is."""
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, request: int) -> None:
        position: Position = {}
        error, can_say = None, True
        if self._connector is None:
            error = "the source has not begun"
        elif isinstance(self._connector, Measurable):
            try:
                position = await self._connector.furthest()
            except (OSError, DatabaseError) as failed:
                error = error_text(failed)
            except Exception as failed:
                logger.exception("a source cannot say how far it is", extra={"source": self._id})
                error = f"internal error: {failed}"
        else:
            error = "sources of its kind cannot say what their external system has"
            can_say = False
        self._send(Furthest(self._id, request, dict(position), error, can_say))

    async def contents(self, reference: str, columns: int | None = None) -> AsyncIterator[pa.Table]:
        """Yield the rows of an output's relation, with `__diff`, as of `position`."""
        while self._sent:
            await self._has_room()
        request = self._request()
        output = self._outputs[reference].id
        self._send(AskContents(self._id, self._run_number, request, output, columns))
        async for _, table in self._answers(request):
            if table is not None:
                yield table

    async def changes(self, frontier: int | None, *, contents: bool = False) -> Interval:
        """Wait for changes of the relation that the source reads, from `frontier` on."""
        request = self._request()
        self._send(AskInput(self._id, self._run_number, request, frontier, contents))
        answers = self._answers(request)
        upper, first = await anext(answers)

        async def tables() -> AsyncIterator[pa.Table]:
            if first is not None:
                yield first
            async for _, table in answers:
                if table is not None:
                    yield table

        return Interval(upper, tables())

    def _request(self) -> int:
        self._requests += 1
        self._asked[self._requests] = asyncio.Queue()
        return self._requests

    async def _answers(self, request: int) -> AsyncIterator[tuple[int, pa.Table | None]]:
        """Yield the tables that answer a request, with their `upper`; at its end None."""
        queue = self._asked[request]
        try:
            while True:
                answer, tables = await queue.get()
                if answer.error is not None:
                    raise OSError(f"the rows of the source cannot be read: {answer.error}")
                for table in tables:
                    yield answer.upper, table
                    self._send(ContentsTaken(self._id, self._run_number, request))
                if answer.complete:
                    yield answer.upper, None
                    return
        finally:
            del self._asked[request]

    async def _run(self) -> None:
        while True:
            before = self.position
            try:
                await self._read()
                self._send(SourceState(self._id, "finished"))
                return
            except (OSError, DatabaseError) as error:
                logger.warning("a source stalls: %s", error, extra={"source": self._id})
                self._send(SourceState(self._id, "stalled", error_text(error)))
            except MemoryError:
                logger.warning("a source stalls: out of memory", extra={"source": self._id})
                self._send(SourceState(self._id, "stalled", error_text(out_of_memory())))
            except Exception as error:
                logger.exception("a source has failed", extra={"source": self._id})
                self._send(SourceState(self._id, "stalled", f"internal error: {error}"))
            await self._settled()
            if self.position != before:
                self._pauses.begin_anew()  # it got on meanwhile
            await self._pauses.pause(lambda seconds: self._send(NextTry(self._id, seconds)))

    async def _read(self) -> None:
        """Read from the durable position on until there can be nothing more."""
        position = dict(self._durable)
        self._send(SourceState(self._id, "starting"))
        if self._connector is None:
            start = self._start
            kind = await blocking.run(None, self._kind, start.spec)  # may import much
            self._connector = kind.connector(start.spec, start.outputs, start.accesses)
        self._begin_batch()
        is_running = False
        async for batch in self._connector.run(self):
            if isinstance(batch, Part):
                await self._send_part(batch.rows, batch.anew)
                continue
            while len(self._sent) >= WINDOW:
                await self._has_room()
            if batch.moved:
                await self._send_batch(position, batch)
                position |= batch.moved
            if not is_running:
                self._send(SourceState(self._id, "running"))
                is_running = True

    async def _report(self) -> None:
        """Tell what the connector knows, when it has changed."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            await goes_on(self._report_news, "a source does not report what it knows")

    async def _report_news(self) -> None:
        if (found := self._known()) == self._reported:
            return
        self._reported = found
        outputs = {
            self._outputs[reference].id: OutputCounts(
                each.messages,
                each.snapshot_known,
                each.snapshot_staged,
                each.ceased,
                each.waits,
            )
            for reference, each in found.outputs.items()
            if reference in self._outputs
        }
        self._send(
            Reported(
                self._id,
                self._run_number,
                outputs,
                dict(found.known),
                found.slot,
                found.again,
            )
        )

    def _known(self) -> Report:
        """Return what the connector tells; of one that does not, each row is a message."""
        if isinstance(self._connector, Reporting):
            return self._connector.report()
        return Report({each: OutputReport(rows) for each, rows in self._rows_sent.items()}, {})

    def _begin_batch(self) -> None:
        self._batch += 1
        self._parts = 0

    async def _send_part(self, rows: Mapping[str, pa.Table], anew: tuple[str, ...] = ()) -> None:
        """Send rows of the batch to come, in pieces; returns while the last are on their way."""
        if anew:
            await self._send_piece({}, anew)
        for reference, table in rows.items():
            for piece in pieces(table):
                await self._send_piece({reference: piece})

    async def _send_piece(self, rows: Mapping[str, pa.Table], anew: tuple[str, ...] = ()) -> None:
        while self._parts_away >= PART_WINDOW:
            await self._has_room()
        sent, void = self._by_id(rows), [self._outputs[r].id for r in anew if r in self._outputs]
        self._parts += 1
        self._parts_away += 1
        part = IngestedPart(self._id, self._run_number, self._batch, tuple(sent), tuple(void))
        self._send(part, tuple(sent.values()))

    async def _send_batch(self, position: Position, batch: Batch) -> None:
        """Send a batch, and before it in parts what is large."""
        rows = batch.rows
        if sum(int(table.nbytes) for table in rows.values()) > WHOLE_BYTES:
            await self._send_part(rows)
            rows = {}
        while self._parts_away:
            await self._has_room()
        before = {part: position[part] for part in batch.moved if part in position}
        sent = self._by_id(rows)
        self._sent.append(batch.moved)
        message = Ingested(
            self._id,
            self._run_number,
            tuple(sent),
            before,
            dict(batch.moved),
            self._batch,
            self._parts,
        )
        self._send(message, tuple(sent.values()))
        self._begin_batch()

    def _by_id(self, rows: Mapping[str, pa.Table]) -> dict[GlobalId, pa.Table]:
        """Return rows by the ids of their outputs; those of outputs that nobody wants are gone."""
        for reference, table in rows.items():
            self._rows_sent[reference] = self._rows_sent.get(reference, 0) + table.num_rows
        return {self._outputs[r].id: table for r, table in rows.items() if r in self._outputs}

    async def _has_room(self) -> None:
        """Wait until a batch is durable or a part is kept."""
        self._room.clear()
        await self._room.wait()

    async def _settled(self) -> None:
        """Wait until no batch and no part is on its way."""
        while self._sent or self._parts_away:
            await self._has_room()


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in tables of about PART_BYTES at most."""
    count = -(-int(table.nbytes) // PART_BYTES)
    size = max(1, -(-table.num_rows // max(1, count)))
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)
