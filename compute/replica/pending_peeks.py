"""Pending peeks: the peeks that a replica has not answered yet.

A peek waits until the indexes that it reads are past its time. Then it is answered on the event
loop if that takes little work, otherwise on a thread, where it can be cancelled. A large answer is
sent in parts, no faster than the parts are taken, so that a replica never holds all of it.
"""

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import Executor
from threading import Semaphore

import pyarrow as pa

from foreshore import blocking
from foreshore.compute.arrange.arrangement import TooManyRows
from foreshore.compute.engine import Cancellation, check_memory
from foreshore.compute.inputs import arrived
from foreshore.compute.peek import (
    LocalIndex,
    answer_by_engine,
    answer_from_index,
    failure_of,
)
from foreshore.compute.protocol import PEEK_WINDOW, Failure, Peek, PeekResponse
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.instance import Instance
from foreshore.compute.result import sized
from foreshore.errors import QueryCanceled
from foreshore.ids import GlobalId
from foreshore.memory import giving_back
from foreshore.processes.transport import Tables
from foreshore.python_functions.patience import patient


class PendingPeeks:
    """The peeks of one replica, by number; belongs to the event loop.

    `exporters` are the replica's dataflows by export; `threads` evaluate. A fault in `tasks` ends
    the replica.
    """

    def __init__(
        self,
        instance: Instance,
        exporters: Mapping[GlobalId, DataflowState],
        threads: Executor,
        tasks: asyncio.TaskGroup,
        answer: Callable[[PeekResponse, Tables], None],
    ) -> None:
        self._instance = instance
        self._exporters = exporters
        self._threads = threads
        self._tasks = tasks
        self._answer = answer
        self._waiting: dict[int, tuple[Peek, Tables]] = {}
        self._evaluations: dict[int, _Evaluation] = {}

    def ask(self, peek: Peek, tables: Tables) -> None:
        """Answer a peek as soon as its inputs are past its time."""
        self._waiting[peek.number] = (peek, tables)
        self._try(peek.number)

    def cancel(self, number: int) -> None:
        """Cancel a peek."""
        if self._waiting.pop(number, None) is not None:
            self._failed(number, QueryCanceled())
        evaluation = self._evaluations.get(number)
        if evaluation is not None:
            evaluation.cancel()

    def part_taken(self, number: int) -> None:
        """Allow one more part of an answer to be sent."""
        evaluation = self._evaluations.get(number)
        if evaluation is not None:
            evaluation.window.release()

    def forget(self) -> None:
        """Forget all peeks, because their controller has disconnected."""
        self._waiting.clear()
        for evaluation in self._evaluations.values():
            evaluation.cancel()
        self._evaluations.clear()  # the next peek with the same number is another one

    def wake_waiters(self, indexes: Container[GlobalId] | None = None) -> None:
        """Answer the peeks that read one of `indexes` (None: all) and can be answered now."""
        for number, (peek, _) in list(self._waiting.items()):
            if indexes is None or any(id in indexes for id in _read_by(peek)):
                self._try(number)

    def _try(self, number: int) -> None:
        """Answer a waiting peek if its inputs are past its time."""
        peek, tables = self._waiting[number]
        indexes: dict[GlobalId, LocalIndex] = {}
        for id in _read_by(peek):
            running = self._exporters.get(id)
            if running is None or id not in running.indexes:
                self._refuse(number, "55000", f'index "{id}" does not exist')
                return
            if running.state == "stalled":
                assert running.failure is not None, id
                del self._waiting[number]
                self._refused(number, running.failure)
                return
            index = running.indexes[id].rows
            if running.state == "failed" and running.failures > 1 and index.upper <= peek.as_of:
                assert running.failure is not None, id
                text = f"index {id} cannot be maintained: {running.failure.message}"
                self._refuse(number, "XX000", text)
                return
            if index.upper <= peek.as_of or not running.indexes_ready:
                return
            indexes[id] = LocalIndex(index, running.errors, id)
        if peek.index is None and self._instance.engine is None:
            if (why := self._instance.failure) is not None:
                self._refuse(number, "57P03", f"the engine is not up: {why}")
            return
        del self._waiting[number]
        if peek.index is not None:
            try:
                self._answered(number, answer_from_index(peek, indexes[peek.index], small=True))
                return
            except TooManyRows:
                pass  # too large for the event loop
            except Exception as error:
                self._failed(number, error)
                return
        self._tasks.create_task(self._evaluate(peek, tables, indexes))

    async def _evaluate(
        self, peek: Peek, tables: Tables, indexes: Mapping[GlobalId, LocalIndex]
    ) -> None:
        number = peek.number
        evaluation = _Evaluation()
        self._evaluations[number] = evaluation
        try:
            answer: Iterator[pa.RecordBatch]
            if peek.index is not None:
                answer = _parts_from_index(peek, indexes[peek.index], evaluation.cancellation)
            else:
                assert self._instance.engine is not None
                contents = arrived(peek.snapshots, iter(tables), self._instance.files)
                answer = answer_by_engine(
                    peek,
                    self._instance.engine,
                    {c.snapshot.id: c for c in contents},
                    {id: indexes[index] for id, index in peek.indexes.items()},
                    evaluation.cancellation,
                )
            loop = asyncio.get_running_loop()

            def send(rows: pa.RecordBatch) -> None:
                loop.call_soon_threadsafe(self._part, number, evaluation, rows)

            send_all_but_last = giving_back(evaluation.send_all_but_last)
            last = await blocking.run(self._threads, send_all_but_last, answer, send)
        except Exception as error:
            await self._instance.check()
            if self._is_over(number, evaluation):
                self._failed(number, error)
        else:
            if self._is_over(number, evaluation):
                self._answered(number, last)

    def _part(self, number: int, evaluation: "_Evaluation", rows: pa.RecordBatch) -> None:
        """Send a part of an answer that is not the last."""
        if self._evaluations.get(number) is evaluation:
            self._answer(PeekResponse(number, 1, more=True), (pa.Table.from_batches([rows]),))

    def _is_over(self, number: int, evaluation: "_Evaluation") -> bool:
        """Forget an evaluation that has ended; return whether its requester is still connected."""
        if self._evaluations.get(number) is not evaluation:
            return False
        del self._evaluations[number]
        return True

    def _refuse(self, number: int, sqlstate: str, message: str) -> None:
        """Fail a waiting peek."""
        del self._waiting[number]
        self._refused(number, Failure(sqlstate, message))

    def _answered(self, number: int, rows: pa.RecordBatch) -> None:
        self._answer(PeekResponse(number, 1), (pa.Table.from_batches([rows]),))

    def _failed(self, number: int, error: Exception) -> None:
        self._refused(number, failure_of(error))

    def _refused(self, number: int, failure: Failure) -> None:
        self._answer(PeekResponse(number, 0, failure), ())


class _Evaluation:
    """An evaluation on a thread: how to stop it, and how many parts it may send."""

    def __init__(self) -> None:
        self.cancellation = Cancellation()
        self.window = Semaphore(PEEK_WINDOW)

    def cancel(self) -> None:
        """Stop the evaluation, also while it waits to send parts."""
        self.cancellation.cancel()
        self.window.release()

    def send_all_but_last(
        self, answer: Iterator[pa.RecordBatch], send: Callable[[pa.RecordBatch], object]
    ) -> pa.RecordBatch:
        """Send the parts of an answer as allowed; return the last one."""
        last = next(answer)
        for part in answer:
            self.window.acquire()
            self.cancellation.check()
            send(last)
            last = part
        return last


def _parts_from_index(
    peek: Peek, index: LocalIndex, cancellation: Cancellation
) -> Iterator[pa.RecordBatch]:
    if peek.keys is None and peek.span is None:
        check_memory(index.rows.size[2], peek.memory)
    with patient(cancellation.check):
        rows = answer_from_index(peek, index)
    yield from sized([rows])


def _read_by(peek: Peek) -> Iterator[GlobalId]:
    """Yield the indexes that the peek reads."""
    if peek.index is not None:
        yield peek.index
    else:
        yield from peek.indexes.values()
