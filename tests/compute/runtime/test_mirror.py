"""A mirror has the rows of its index at every time that it knows, however they reach it."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange import arrangement as arrangement_module
from foreshore.compute.controller import mirror as module
from foreshore.compute.controller.mirror import Mirror
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.engine import ERRORS, output_schema
from foreshore.errors import DatabaseError, DataError
from foreshore.expr.ir import Column, Finishing, Get, Literal
from foreshore.types import INT4, Datum
from tests.compute.runtime.harness import KV, id_
from tests.effort import examples

FEW = 8
Row = tuple[int, str]
Update = tuple[Row, int, int]
ALL = Get(id_("u0"), KV)
FINISHING = Finishing((), None, 0, (0, 1))
NO_ERRORS = pa.Table.from_batches([], output_schema(ERRORS))


def mirror(as_of: int = 0) -> Mirror:
    return Mirror(id_("t1"), id_("u9"), KV, (Column(0, INT4),), as_of, lambda _: None)


def table(updates: Sequence[Update]) -> pa.Table:
    schema = output_schema(KV)
    columns = list(zip(*((*row, time, diff) for row, time, diff in updates), strict=True))
    arrays = [pa.array(c, f.type) for c, f in zip(columns or [()] * 4, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def errors(text: str, time: int, diff: int) -> pa.Table:
    schema = output_schema(ERRORS)
    columns = [[text], [time], [diff]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def whole(subject: Mirror, time: int) -> "Counter[tuple[Datum, ...]]":
    found = subject.answer(PeekRequest(time, ALL, FINISHING, id_("u9")), is_repeated=True)
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


def under(subject: Mirror, key: int, time: int) -> "Counter[tuple[Datum, ...]]":
    peek = PeekRequest(time, ALL, FINISHING, id_("u9"), ((Literal(key, INT4),),))
    found = subject.answer(peek)
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


def contents(model: Sequence[Update], time: int) -> "Counter[Row]":
    found: Counter[Row] = Counter()
    for row, at, diff in model:
        if at <= time:
            found[row] += diff
    return +found


@settings(max_examples=examples(60))
@given(st.data())
def test_mirror_equals_the_model_at_every_time(data: st.DataObject) -> None:
    async def scenario() -> None:
        subject, model = mirror(), list[Update]()
        now: Counter[Row] = Counter()
        end = 0
        sent = [0, 0]  # by two replicas
        rows = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]))
        for _ in range(data.draw(st.integers(2, 12))):
            for time in range(end, end + data.draw(st.integers(1, 3))):
                for row in data.draw(st.lists(rows, max_size=4)):
                    diff = data.draw(st.sampled_from([1, 1, 2, -1]))
                    if now[row] + diff >= 0:
                        now[row] += diff
                        model.append((row, time, diff))
                end = time + 1
            which = data.draw(st.integers(0, 1))
            lower, upper = sent[which], data.draw(st.integers(sent[which], end))
            sent[which] = upper
            window = [each for each in model if lower <= each[1] < upper]
            if upper > lower and (window or lower == 0):
                subject.put(lower, upper, table(window), NO_ERRORS)
            else:
                subject.progress(upper)
            if data.draw(st.booleans()):  # otherwise its thread is still at work
                while subject._arranging is not None:
                    await asyncio.wait([subject._arranging])
            if (merge := subject.due_merge()) is not None:
                await merge
            if data.draw(st.booleans()) and subject.upper:
                subject.compact(data.draw(st.integers(0, subject.upper - 1)))
            for time in range(end):
                if not subject.knows(time):
                    continue
                expected = contents(model, time)
                assert whole(subject, time) == expected
                for key in range(4):
                    mine = Counter({row: n for row, n in expected.items() if row[0] == key})
                    assert under(subject, key, time) == mine
                    tuples = subject.rows_under((key,), time)
                    assert tuples is None or Counter(tuples) == mine
            if subject._arranging is None and subject.upper:
                last = subject.upper - 1
                few = sum(n for row, n in contents(model, last).items() if row[0] == 0) <= FEW
                assert (subject.rows_under((0,), last) is not None) == few

    with pytest.MonkeyPatch.context() as patch:
        for name in ("TAIL_ROWS", "TAIL_PARTS"):
            patch.setattr(arrangement_module, name, 3)
        patch.setattr(module, "TAIL_ROWS", 3)
        patch.setattr(module, "FEW", FEW)
        patch.setattr(module, "MOST_UNDER", FEW)
        asyncio.run(scenario())


def test_an_error_is_raised_at_its_times_and_no_tuples_are_given() -> None:
    async def scenario() -> None:
        subject = mirror()
        subject.put(0, 1, table([((1, "a"), 0, 1)]), NO_ERRORS)
        assert subject.rows_under((1,), 0) == ((1, "a"),)
        subject.put(1, 3, table([]), errors("22012 division by zero", 1, 1))
        subject.put(3, 4, table([]), errors("22012 division by zero", 3, -1))
        for time in (1, 2):
            with pytest.raises(DataError, match="division by zero"):
                whole(subject, time)
        assert subject.rows_under((1,), 3) is None
        assert whole(subject, 0) == whole(subject, 3) == Counter([(1, "a")])

    asyncio.run(scenario())


def test_a_gap_ends_it() -> None:
    async def scenario() -> None:
        subject, told = mirror(), list[DatabaseError]()
        subject.when_failed(lambda _, error: told.append(error))
        subject.put(0, 2, table([]), NO_ERRORS)
        waiting = asyncio.create_task(subject.passed(4, 60))
        await asyncio.sleep(0)
        subject.put(3, 5, table([]), NO_ERRORS)
        assert "from 2 to 3" in told[0].message
        async with asyncio.timeout(10):
            assert not await waiting  # it does not wait for one that has ended
        assert not subject.knows(1)

    asyncio.run(scenario())


def test_a_read_waits_for_its_time_as_long_as_it_is_patient() -> None:
    async def scenario() -> None:
        subject = mirror()
        subject.put(0, 2, table([((1, "a"), 0, 1)]), NO_ERRORS)
        assert await subject.passed(1, 60)
        assert not await subject.passed(2, 0.001)
        waiting = asyncio.create_task(subject.passed(4, 60))
        await asyncio.sleep(0)
        subject.progress(4)
        await asyncio.sleep(0)
        assert not waiting.done()
        subject.put(4, 5, table([((1, "a"), 4, -1)]), NO_ERRORS)
        assert await waiting
        assert whole(subject, 4) == Counter()
        cancelled = asyncio.create_task(subject.passed(9, 60))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert not subject._waiting

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [1, 5])
def test_a_window_that_cannot_be_arranged_ends_it(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """One row is inserted on the event loop, five on a thread."""
    monkeypatch.setattr(module, "TAIL_ROWS", 3)

    async def scenario() -> None:
        subject, ended = mirror(), list[DatabaseError]()
        subject.when_failed(lambda _, error: ended.append(error))
        subject.put(0, 1, table([((1, "a"), 0, 1)]), NO_ERRORS)
        with monkeypatch.context() as exhausted:
            exhausted.setattr(subject._rows, "insert", out_of_memory)
            subject.put(1, 2, table([((n, "b"), 1, 1) for n in range(size)]), NO_ERRORS)
            waiting = asyncio.create_task(subject.passed(2, 60))
            while subject._arranging is not None:
                await asyncio.wait([subject._arranging])
        subject.put(2, 3, table([((9, "c"), 2, 1)]), NO_ERRORS)
        async with asyncio.timeout(10):
            assert not await waiting  # it does not wait for one that has ended
        assert subject.failed
        assert not subject.knows(2)
        assert len(ended) == 1

    asyncio.run(scenario())


def out_of_memory(*_: object) -> None:
    raise MemoryError
