"""Calls of a memo's function that do not end, and large intervals of its input."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa
import pytest

from foreshore.errors import DatabaseError
from foreshore.sources.python import MemoSource
from foreshore.storage.ingest.connector import Interval
from foreshore.storage.ingest.python import calls as module
from foreshore.storage.ingest.python import memo_connector
from foreshore.storage.ingest.python.calls import Calls, TooManyCalls
from foreshore.types import INT8, TEXT, ColumnType, RelationDesc

INPUTS = RelationDesc(("n",), (ColumnType(INT8),))
RESULTS = RelationDesc(("answer",), (ColumnType(TEXT),))
ROW = pa.table({"n": pa.array([1], pa.int64())})


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What hanging calls wait for."""
    monkeypatch.setattr(module, "_given_up", type(module._given_up)())
    found = threading.Event()
    yield found
    found.set()


def _calls(function: Any, timeout_ms: int = 50) -> Calls:
    spec = MemoSource("m:f", (), (), retries=0, timeout_ms=timeout_ms)
    return Calls(spec, function, INPUTS, RESULTS)


async def test_call_on_a_thread_is_given_up_in_time(gate: threading.Event) -> None:
    calls = _calls(lambda row: gate.wait() and "late")
    with pytest.raises(DatabaseError, match="the call has taken longer than TIMEOUT"):
        await calls.results(ROW)
    assert module._given_up["m:f"] == 1
    gate.set()
    async with asyncio.timeout(60):
        while module._given_up["m:f"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    assert (await _calls(lambda row: "x", 60_000).results(ROW)).to_pylist() == [{"answer": "x"}]


async def test_calls_that_never_end_are_bounded(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_GIVEN_UP", 3)
    for _ in range(3):
        with pytest.raises(DatabaseError, match="TIMEOUT"):
            await _calls(lambda row: gate.wait()).results(ROW)
    with pytest.raises(TooManyCalls):
        await _calls(lambda row: "x").results(ROW)


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt, ValueError])
async def test_what_a_call_on_a_thread_raises_is_the_error(
    gate: threading.Event, error: type[BaseException]
) -> None:
    def fails(row: object) -> None:
        raise error("no")

    with pytest.raises(DatabaseError, match=f"{error.__name__}: no"):
        await _calls(fails, 60_000).results(ROW)


async def test_large_interval_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo_connector, "PART_BYTES", 3 * ROW.nbytes)

    async def tables() -> AsyncIterator[pa.Table]:
        for _ in range(10):
            yield ROW

    async def sizes(*, whole: bool) -> list[int]:
        found = memo_connector._bounded(Interval(1, tables()), whole=whole)
        return [len(each) async for each in found]

    assert await sizes(whole=True) == [4, 4, 2]
    assert await sizes(whole=False) == [1] * 10
