"""The connector of memos: calls a function for each distinct row of a relation, once.

A reader takes the changes of the input, an interval at a time, and puts the rows that have no
answer into a bounded queue. Calls take them from there. Answers are written as soon as they are
there; the position moves behind an interval when all of its rows are answered. After a kill the
interval is read again, and its rows that have an answer or an error are left out: so only calls
whose results were not durable are made again, at most CONCURRENCY of them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from foreshore.errors import DatabaseError
from foreshore.sources.outputs import ERRORS, OWN_ROWS
from foreshore.sources.python import INPUT, UPDATES, MemoSource
from foreshore.storage.ingest.connector import Batch, Durable, Interval, Position
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.ingest.python.calls import Calls
from foreshore.storage.ingest.python.memo import ForgottenAnswers, KeptAnswers
from foreshore.storage.ingest.python.memo_rows import NetRows, key_of, net_rows, row_words
from foreshore.types import RelationDesc
from foreshore.update import DIFF

PART_BYTES = 64 << 20  # of the changes of an interval that are taken at once


@dataclass(slots=True)
class _Read:
    """An interval whose rows are being answered."""

    lower: int
    upper: int
    open: int = 0  # chunks without an answer
    is_whole: bool = False  # whether all of its chunks are known


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows for one call."""

    rows: pa.Table
    texts: Sequence[str]
    keys: Sequence[bytes]
    interval: _Read


@dataclass(frozen=True, slots=True)
class _Answer:
    chunk: _Chunk
    results: pa.Table | DatabaseError


class MemoConnector:
    """Reads the input and calls the function, from the durable position on in each run."""

    def __init__(
        self, spec: MemoSource, desc: RelationDesc, function: Callable[[], Callable[..., Any]]
    ) -> None:
        self._spec, self._desc, self._function = spec, desc, function
        self._run: _Run | None = None

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield answers as they come, for ever."""
        function = await asyncio.to_thread(self._function)
        run = self._run = _Run(self._spec, self._desc, function, durable)
        try:
            async for batch in run.batches():
                yield batch
        finally:
            run.stop()

    def committed(self, position: Position) -> None:
        """Note that answers are durable, so that further calls may begin."""
        if self._run is not None:
            self._run.committed(position)


class _Run:
    """What is known and under way since the source was started."""

    def __init__(
        self, spec: MemoSource, desc: RelationDesc, function: Callable[..., Any], durable: Durable
    ) -> None:
        self._spec, self._durable = spec, durable
        self._schema = desc.stored_schema()
        width, results = len(spec.inputs), len(spec.columns)
        self._inputs = RelationDesc(desc.names[:width], desc.columns[:width])
        ends = width + results
        self._results = RelationDesc(desc.names[width:ends], desc.columns[width:ends])
        self._calls = Calls(spec, function, self._inputs, self._results)
        self._memo = ForgottenAnswers(self._schema) if spec.forget else KeptAnswers()
        self._lock = asyncio.Lock()  # of the memo, which threads change
        self._failed: set[bytes] = set()  # keys whose errors are durable, to be read again
        self._updates = durable.position.get(UPDATES, 0)
        self._chunks: asyncio.Queue[_Chunk] = asyncio.Queue(spec.concurrency)
        self._intervals: deque[_Read] = deque()
        self._taken_back: list[pa.Table] = []
        self._running: set[asyncio.Task[_Answer]] = set()
        self._sent: deque[tuple[int, int]] = deque()  # the count of updates, and chunks, of batches
        self._not_durable = 0  # chunks that were sent
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """End all calls and the reader."""
        for task in (*self._running, *([self._reader] if self._reader else [])):
            task.cancel()

    def committed(self, position: Position) -> None:
        """Note what is durable."""
        while self._sent and self._sent[0][0] <= position.get(UPDATES, 0):
            self._not_durable -= self._sent.popleft()[1]
        self._changed.set()

    # --- what is to be asked ---------------------------------------------------------------------

    async def _load(self, frontier: int | None) -> None:
        """Learn which rows have answers, which have failed, and what the input has."""
        width = len(self._inputs.names)
        columns = None if self._memo.needs_rows else width
        async for rows in self._durable.contents(OWN_ROWS, columns):
            table = rows.drop_columns([DIFF])
            table = table.cast(pa.schema(list(self._schema)[: columns or len(self._schema)]))
            self._memo.load(await asyncio.to_thread(row_words, table, self._inputs), table)
        async for rows in self._durable.contents(ERRORS):
            for each in rows.select(["offset", "data"]).to_pylist():
                if each["offset"] >= (frontier or 0) and each["data"] is not None:
                    self._failed.add(key_of(each["data"].decode()))
        if self._spec.forget and frontier is not None:
            before = await self._durable.changes(frontier, contents=True)
            async for table in before.tables:
                net = await asyncio.to_thread(net_rows, [table], self._inputs)
                self._memo.begin(net.keys, net.nets)

    async def _read(self, frontier: int | None) -> None:
        """Take intervals for ever, as fast as their rows are answered."""
        while True:
            found = await self._durable.changes(frontier)
            interval = _Read(frontier or 0, found.upper)
            self._intervals.append(interval)
            async for tables in _bounded(found, whole=frontier is not None):
                net = await asyncio.to_thread(net_rows, tables, self._inputs)
                await self._ask(interval, net)
            async with self._lock:
                self._take_back(await asyncio.to_thread(self._memo.settle, self._schema))
            interval.is_whole = True
            self._changed.set()
            frontier = found.upper

    async def _ask(self, interval: _Read, net: NetRows) -> None:
        async with self._lock:
            asked, taken_back = await asyncio.to_thread(self._memo.change, net, self._schema)
            self._take_back(taken_back)
            asked = self._without_failed(net, asked)
        size = self._spec.batch or 1
        for start in range(0, len(asked), size):
            places = asked[start : start + size]
            chunk = _Chunk(
                net.rows.take(pa.array(places)),
                [net.texts[place] for place in places],
                [net.keys[place] for place in places],
                interval,
            )
            interval.open += 1
            await self._chunks.put(chunk)
            self._changed.set()

    def _without_failed(self, net: NetRows, asked: list[int]) -> list[int]:
        """Return the rows that have not failed before in this interval."""
        again = [place for place in asked if net.keys[place] in self._failed]
        keys = [net.keys[place] for place in again]
        self._failed.difference_update(keys)
        self._memo.fail(keys)
        return sorted(set(asked).difference(again)) if again else asked

    def _take_back(self, updates: pa.Table) -> None:
        if updates.num_rows:
            self._taken_back.append(updates)

    # --- answers ---------------------------------------------------------------------------------

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield answers, and positions when whole intervals are answered."""
        loop = asyncio.get_running_loop()
        frontier = self._durable.position.get(INPUT)
        await self._load(frontier)
        yield Batch({}, {})  # what is needed is there
        self._reader = loop.create_task(self._read(frontier))
        self._reader.add_done_callback(lambda _: self._changed.set())
        while True:
            self._changed.clear()
            if self._reader.done():
                self._reader.result()  # it ends by an error only
            while self._has_room() and not self._chunks.empty():
                task = loop.create_task(self._answer(self._chunks.get_nowait()))
                task.add_done_callback(lambda _: self._changed.set())
                self._running.add(task)
            done = [task for task in self._running if task.done()]
            if self._sent and self._is_few(done):
                await self._changed.wait()  # more answers go with the next commit
                continue
            self._running.difference_update(done)
            batch = await self._batch([task.result() for task in done])
            if batch is not None:
                yield batch
            elif not done:
                await self._changed.wait()

    def _has_room(self) -> bool:
        """Return whether another call may begin: so few would be made again after a kill."""
        return len(self._running) + self._not_durable < self._spec.concurrency

    def _is_few(self, done: Sequence[object]) -> bool:
        """Return whether answers should wait for others while a commit is under way."""
        return self._spec.batch is None and len(done) < self._spec.concurrency // 2

    async def _answer(self, chunk: _Chunk) -> _Answer:
        try:
            return _Answer(chunk, await self._calls.results(chunk.rows))
        except DatabaseError as error:
            return _Answer(chunk, error)

    async def _batch(self, answers: Sequence[_Answer]) -> Batch | None:
        """Return answers as a batch; None if there is nothing to write."""
        async with self._lock:
            rows, wrong = await asyncio.to_thread(self._written, answers)
        rows, self._taken_back = self._taken_back + rows, []
        for each in answers:
            each.chunk.interval.open -= 1
        moved: dict[str, int] = {}
        while self._intervals and self._intervals[0].is_whole and not self._intervals[0].open:
            moved[INPUT] = self._intervals.popleft().upper
        written = sum(each.num_rows for each in rows) + len(wrong)
        if not written:
            return Batch({}, moved) if moved else None
        self._updates += written
        self._sent.append((self._updates, len(answers)))
        self._not_durable += len(answers)
        found = {OWN_ROWS: pa.concat_tables(rows)} if rows else {}
        if wrong:
            found[ERRORS] = error_rows(wrong)
        return Batch(found, {**moved, UPDATES: self._updates})

    def _written(self, answers: Sequence[_Answer]) -> tuple[list[pa.Table], list[Unreadable]]:
        """Return updates and errors; under the lock, as the reader uses the memo as well."""
        rows, wrong = list[pa.Table](), list[Unreadable]()
        for each in answers:
            if isinstance(each.results, DatabaseError) and self._spec.error_column is None:
                self._memo.fail(each.chunk.keys)
                wrong += _errors(each.chunk, each.results)
            else:
                rows.append(self._memo.answer(each.chunk.keys, self._rows(each)))
        return rows, wrong

    def _rows(self, answer: _Answer) -> pa.Table:
        """Return the rows of a chunk with their results."""
        count = answer.chunk.rows.num_rows
        columns = list(answer.chunk.rows.columns)
        error = None
        if isinstance(answer.results, DatabaseError):
            error = answer.results.message
            columns += [pa.nulls(count, self._schema.field(at).type) for at in self._result_places]
        else:
            columns += answer.results.columns
        if self._spec.error_column is not None:
            columns.append(pa.array([error] * count, pa.string()))
        return pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)

    @property
    def _result_places(self) -> range:
        return range(len(self._inputs.names), len(self._inputs.names) + len(self._results.names))


def _errors(chunk: _Chunk, error: DatabaseError) -> list[Unreadable]:
    """Return the errors of a chunk's rows, which are in `data`."""
    lower = chunk.interval.lower
    return [Unreadable(INPUT, lower, error.message, text.encode()) for text in chunk.texts]


async def _bounded(found: Interval, *, whole: bool) -> AsyncIterator[list[pa.Table]]:
    """Yield the tables of an interval: together, as only so rows that come and go cancel out.

    What is larger than `PART_BYTES` comes in parts: there a row that comes in one part and goes in
    another may be asked for. Contents have each row once, and come one table at a time.
    """
    tables: list[pa.Table] = []
    size = 0
    async for table in found.tables:
        tables.append(table)
        size += table.nbytes
        if not whole or size > PART_BYTES:
            yield tables
            tables, size = [], 0
    if tables:
        yield tables
