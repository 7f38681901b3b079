"""Rows that are computed while the client takes them, so that one batch is in memory.

The next batch is computed when the last one has been taken, on a thread. A client that does not
read its rows, or that has suspended its portal, stops the evaluation. Batches begin small, so that
a few rows are soon there, and grow as far as the memory of queries allows.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Self

import pyarrow as pa

from foreshore import blocking
from foreshore.compute.engine import Cancellation, check_size
from foreshore.compute.finish import MAX_RESULT_BYTES
from foreshore.compute.local.linear import Collections
from foreshore.compute.local.recursion import Steps, in_slices
from foreshore.compute.local.streamed import LEAST_BYTES, MOST_BYTES, Pace, streamed
from foreshore.compute.result import BATCH_ROWS, LARGE_RESULT, LONG_BYTES, SMALL, Result, mapped
from foreshore.expr.ir import Relation
from foreshore.memory import give_back
from foreshore.query_memory import QUERY_MEMORY, Reservation
from foreshore.spill import Spill

Parts = Callable[[Pace, Cancellation], Iterator[pa.RecordBatch]]
GROWTH = 4  # of the size of a batch, from one to the next


class StreamSource:
    """The batches that `parts` returns, computed one by one on threads of `executor`.

    A query may hold `memory` bytes at most; None: its share of what queries of all sessions may.
    """

    streaming = False
    has_ready = False

    def __init__(self, parts: Parts, executor: Executor, memory: int | None = None) -> None:
        self._executor = executor
        self._memory = memory
        self._cancellation = Cancellation()
        self._pace = Pace(most=self._room())
        self._reserved = Reservation(most=memory)
        self._parts: Iterator[pa.RecordBatch] | None = parts(self._pace, self._cancellation)
        self._rows: list[pa.RecordBatch] = []  # computed, and not taken
        self._lock = Lock()  # of adding to them: a thread may still compute when they are forgotten
        self._spilled: list[Result] = []  # rows that come next, those of the last result first
        self._empty: pa.RecordBatch | None = None  # given to the reader if there is no other batch
        self._has_rows = False
        self._size = 0  # of all batches so far

    async def begun(self) -> Self:
        """Compute the first batches; return the source. Raises what the evaluation raises."""
        await self._compute(self._begin)
        return self

    @property
    def only_batch(self) -> pa.RecordBatch | None:
        """All rows, if they are few and nothing is left to compute."""
        return self._rows[0] if self._parts is None and len(self._rows) == 1 else None

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows, computed now if need be."""
        while not self._rows:
            if self._spilled:
                await self._compute(self._read_back)
                continue
            if self._parts is None:
                return None
            self._adapt()
            await self._compute(self._advance)
        rows, limit = self._rows[0], min(limit, BATCH_ROWS)
        if limit < rows.num_rows:
            self._rows[0] = rows.slice(limit)
            return rows.slice(0, limit)
        del self._rows[0]
        return rows

    async def park(self) -> None:
        """Reserve memory for what is left of the batches, or write it to disk."""
        size = sum(each.get_total_buffer_size() for each in self._rows)
        if size <= SMALL or size <= self._reserved.held:
            return
        if self._reserved.try_reserve(size - self._reserved.held):
            return
        spilled = Result(self._rows[0].schema)
        await blocking.run(None, _spill, spilled, tuple(self._rows))
        self._rows = []
        self._spilled.append(spilled)
        self._reserved.close()

    def close(self) -> None:
        """Stop the evaluation, and forget the rows."""
        self._cancellation.cancel()
        self._parts = None
        with self._lock:
            self._rows.clear()
        for each in self._spilled:
            each.close()
        self._reserved.close()
        if self._size > LARGE_RESULT:
            self._size = 0
            self._executor.submit(give_back)

    def _room(self) -> int:
        share = QUERY_MEMORY.share
        return share if self._memory is None else min(share, self._memory)

    def _adapt(self) -> None:
        """Choose the size of the next batch."""
        self._reserved.close()
        size = min(self._pace.size * GROWTH, MOST_BYTES)
        while size > LEAST_BYTES and not self._reserved.try_reserve(2 * size):
            size //= GROWTH
        self._pace.size = max(size, LEAST_BYTES)
        self._pace.most = self._room()

    async def _compute(self, steps: Callable[[], Steps[None]]) -> None:
        try:
            await in_slices(self._executor, steps())
        except BaseException:
            self.close()
            raise

    def _begin(self) -> Steps[None]:
        """Compute two batches, to know whether there is more than one."""
        yield from self._step()
        yield from self._step()

    def _advance(self) -> Steps[None]:
        """Compute a batch; after a short one, which is perhaps the last, the next one, too."""
        before = self._size
        yield from self._step()
        if self._size - before < self._pace.size // 2:
            yield from self._step()

    def _read_back(self) -> Steps[None]:
        rows = self._spilled[-1].take()
        if not self._spilled[-1].parts():
            self._spilled.pop().close()
        if rows is not None:
            self._keep(rows)
        yield from ()

    def _step(self) -> Steps[None]:
        """Compute a batch that has rows, unless there are none; yield after one without."""
        while (rows := self._next()) is not None and not rows.num_rows:
            self._empty = rows
            yield
        if rows is None:
            self._parts = None
            if self._empty is not None and not self._has_rows:
                self._keep(self._empty)
                self._has_rows = True
            return
        self._has_rows = True
        size = rows.nbytes
        self._size += size
        if size > LONG_BYTES:  # rows that cannot be cut
            rows = mapped(rows)
        self._keep(rows)

    def _keep(self, rows: pa.RecordBatch) -> None:
        """Add rows to be taken; raises QueryCanceled if the source is closed."""
        with self._lock:
            self._cancellation.check()
            self._rows.append(rows)

    def _next(self) -> pa.RecordBatch | None:
        parts = self._parts
        return None if parts is None else next(parts, None)


def _spill(result: Result, batches: Iterable[pa.RecordBatch]) -> None:
    for each in batches:
        result.spill(each)


async def gathered(
    relation: Relation,
    collections: Collections,
    executor: Executor,
    scratch: Path,
    most: int | None = None,
) -> pa.Table | None:
    """Return the rows of a relation that can be streamed, with `__diff`; computed in slices.

    Many of them are in a file below `scratch`.

    None if they take more than `most` bytes, or this process has not so much for them. Raises
    OutOfMemory if they take more than a result may.
    """
    cancellation = Cancellation()

    def steps() -> Steps[pa.Table | None]:
        kept: list[pa.Table] = []
        size = 0
        spill = Spill(scratch)
        with closing(Reservation(most=most)) as reserved:
            for part in streamed(relation, collections, Pace(MOST_BYTES), cancellation.check):
                size += part.nbytes
                check_size(size, MAX_RESULT_BYTES)
                if most is not None and not reserved.try_reserve(part.nbytes):
                    return None
                if most is None:
                    spill.add(part)
                if (part.num_rows and most is not None) or not kept:
                    kept.append(part)
                yield
        spill.flush()
        return pa.concat_tables(spill.tables or kept)

    try:
        return await in_slices(executor, steps())
    except BaseException:
        cancellation.cancel()
        raise
