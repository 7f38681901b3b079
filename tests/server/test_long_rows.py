"""Long rows on their way to a client take memory for one of them, and only while it is encoded."""

import asyncio
import threading
import weakref

import pyarrow as pa

from foreshore.server.copying import encoded
from foreshore.server.long_rows import LONG, SLICE, in_slices, is_long

ROWS = 3


def rows(size: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(["x" * size] * ROWS)], names=["c0"])


def encode(batch: pa.RecordBatch) -> bytes:
    return b"".join(each.encode() + b"\n" for each in batch.column(0).to_pylist())


def test_pieces_of_long_rows_are_those_of_the_whole_and_short() -> None:
    async def scenario() -> None:
        for size in (LONG // ROWS + 1, 6 * SLICE + 7):
            assert is_long(rows(size))
            pieces = [piece async for piece in encoded(rows(size), encode)]
            assert b"".join(pieces) == encode(rows(size))
            assert max(map(len, pieces)) <= SLICE
        assert not is_long(rows(1000))

    asyncio.run(scenario())


def test_long_rows_are_let_go_of_before_the_first_piece_is_sent() -> None:
    async def scenario() -> None:
        held = [rows(LONG)]
        gone = weakref.ref(held[0])
        pieces = in_slices(held, encode)
        assert await anext(pieces)
        assert gone() is None
        assert not held
        await pieces.aclose()

    asyncio.run(scenario())


def test_one_batch_is_encoded_at_a_time_and_none_waits_for_a_client() -> None:
    async def scenario() -> None:
        running, most = threading.Semaphore(1), []

        def alone(batch: pa.RecordBatch) -> bytes:
            most.append(running.acquire(blocking=False))
            try:
                return encode(batch)
            finally:
                running.release()

        unread = [in_slices([rows(LONG)], alone) for _ in range(5)]
        first = await asyncio.gather(*(anext(each) for each in unread))  # and they read no more
        assert len(first) == 5
        assert most == [True] * 5
        for each in unread:
            await each.aclose()

    asyncio.run(scenario())


def test_failure_of_an_encoding_leaves_no_file_and_no_turn_taken() -> None:
    async def scenario() -> None:
        def fails(batch: pa.RecordBatch) -> bytes:
            raise MemoryError

        for _ in range(3):
            try:
                await anext(in_slices([rows(LONG)], fails))
            except MemoryError:
                continue
            raise AssertionError("it does not fail")
        assert await anext(in_slices([rows(LONG)], encode))

    asyncio.run(scenario())
