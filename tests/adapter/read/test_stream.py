"""StreamSource: batches are computed when they are taken, and what is left costs little."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from foreshore import blocking, scratch_share
from foreshore.adapter.statement import result as adapter_result
from foreshore.adapter.statement.result import BatchSource
from foreshore.compute.engine import Cancellation
from foreshore.compute.finish import streamed_parts
from foreshore.compute.local import stream
from foreshore.compute.local.stream import StreamSource
from foreshore.compute.local.streamed import Pace, streamed
from foreshore.expr.ir import Filter, Finishing, FlatMap, Join, Literal
from foreshore.query_memory import QUERY_MEMORY, QueryMemory, Reservation
from foreshore.types import BOOL, INT8, ColumnType

SERIES = FlatMap(
    Join(()),
    "generate_series(int8,int8)",
    (Literal(1, INT8), Literal(10**12, INT8)),
    (ColumnType(INT8, False),),
)
NOTHING = Filter(SERIES, (Literal(False, BOOL),))


class Counted:
    """Batches of as many bytes as the pace says, and how many were made."""

    def __init__(self, number: int) -> None:
        self.made = 0
        self.number = number

    def parts(self, pace: Pace, cancellation: Cancellation) -> Iterator[pa.RecordBatch]:
        for number in range(self.number):
            cancellation.check()
            self.made += 1
            values = pa.array([number] * (pace.size // 8), pa.int64())
            yield pa.RecordBatch.from_arrays([values], names=["c0"])


async def values_of(source: StreamSource, limit: int = 1 << 20) -> list[int]:
    found: list[int] = []
    while (rows := await source.next(limit)) is not None:
        found += rows.column(0).to_pylist()
    return found


async def test_no_more_than_a_batch_is_computed_ahead() -> None:
    counted = Counted(50)
    with ThreadPoolExecutor(1) as executor:
        source = await StreamSource(counted.parts, executor).begun()
        assert counted.made == 2
        last = -1
        while (rows := await source.next(1000)) is not None:
            last = rows.column(0)[0].as_py()
            assert counted.made <= last + 2
        assert last == 49
        source.close()


async def test_rows_of_parked_streams_are_the_same_from_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = QueryMemory(1)
    made: Callable[..., Reservation] = lambda **given: Reservation(budget, **given)  # noqa: E731
    with ThreadPoolExecutor(1) as executor:
        whole = await values_of(await StreamSource(Counted(5).parts, executor).begun())
        monkeypatch.setattr(stream, "Reservation", made)
        source = await StreamSource(Counted(5).parts, executor).begun()
        found: list[int] = []
        while (rows := await source.next(7)) is not None:
            found += rows.column(0).to_pylist()
            await source.park()
            if len(found) > 70:
                found += await values_of(source)
        assert found == sorted(found)
        assert set(found) == set(whole)
        source.close()
    assert budget.used == 0


async def test_what_is_left_of_rows_from_disk_goes_back_to_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, files = QueryMemory(1), scratch_share._All()
    made: Callable[..., Reservation] = lambda **given: Reservation(budget, **given)  # noqa: E731
    monkeypatch.setattr(stream, "Reservation", made)
    monkeypatch.setattr(adapter_result, "Reservation", made)
    monkeypatch.setattr(scratch_share, "_ALL", files)
    with ThreadPoolExecutor(1) as executor:
        streams = await StreamSource(Counted(5).parts, executor).begun()
        numbers = pa.array(range(10_000), pa.int64())
        batch = BatchSource(pa.RecordBatch.from_arrays([numbers], names=["c0"]))
        sources: list[StreamSource | BatchSource] = [streams, batch]
        for source in sources:
            for _ in range(20):
                assert (await source.next(7)) is not None
                await source.park()
                assert not (streams._rows if source is streams else batch._rows)
                assert files._count <= 2
            source.close()
            assert files._count == 0


async def test_a_closed_stream_holds_nothing() -> None:
    used = QUERY_MEMORY.used
    with ThreadPoolExecutor(1) as executor:
        source = await StreamSource(Counted(50).parts, executor).begun()
        for _ in range(10):
            await source.next(8192)
        await source.park()
        source.close()
        assert await source.next(1) is None
    assert QUERY_MEMORY.used <= used


@pytest.mark.parametrize("from_disk", [False, True])
async def test_a_stream_that_is_closed_during_a_step_has_no_rows(
    monkeypatch: pytest.MonkeyPatch, from_disk: bool
) -> None:
    """The thread goes on with its step, and its rows are nobody's."""
    if from_disk:
        budget = QueryMemory(1)
        made: Callable[..., Reservation] = lambda **given: Reservation(budget, **given)  # noqa: E731
        monkeypatch.setattr(stream, "Reservation", made)
    check, cancel = Cancellation.check, Cancellation.cancel
    checked, closing = threading.Event(), threading.Event()

    def check_and_wait(self: Cancellation) -> None:
        check(self)
        checked.set()
        closing.wait(60)  # the step adds its rows after the close has begun

    def cancel_and_tell(self: Cancellation) -> None:
        cancel(self)
        closing.set()

    batch = pa.RecordBatch.from_arrays([pa.array(range(10_000), pa.int64())], names=["c0"])
    with ThreadPoolExecutor(1) as executor:
        source = await StreamSource(lambda *_: iter([batch] * 50), executor).begun()
        await source.park()
        while source._rows or (source._spilled and not from_disk):
            await source.next(1 << 20)
        monkeypatch.setattr(Cancellation, "check", check_and_wait)
        monkeypatch.setattr(Cancellation, "cancel", cancel_and_tell)
        reading = asyncio.create_task(source.next(1))
        await asyncio.to_thread(checked.wait, 60)
        reading.cancel()
        await asyncio.wait((reading,))
        await blocking.run(executor, int)  # the step has ended
        assert await source.next(1) is None
        assert not source._rows


async def test_a_stream_without_rows_leaves_its_thread_to_others() -> None:
    def parts(pace: Pace, cancellation: Cancellation) -> Iterator[pa.RecordBatch]:
        found = streamed(NOTHING, {}, pace, cancellation.check)
        return streamed_parts(found, Finishing((), None, 0, (0,)))

    with ThreadPoolExecutor(1) as executor:
        running = asyncio.create_task(StreamSource(parts, executor).begun())
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await blocking.run(executor, int)
        assert not running.done()
        running.cancel()
        await asyncio.wait((running,))


async def test_a_stream_without_rows_has_one_batch() -> None:
    def parts(pace: Pace, cancellation: Cancellation) -> Iterator[pa.RecordBatch]:
        yield from 3 * [pa.RecordBatch.from_arrays([pa.array([], pa.int64())], names=["c0"])]

    with ThreadPoolExecutor(1) as executor:
        source = await StreamSource(parts, executor).begun()
        assert source.only_batch is not None
        assert source.only_batch.num_rows == 0
        assert (await source.next(1)) is not None
        assert (await source.next(1)) is None
