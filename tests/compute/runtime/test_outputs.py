"""The outputs of several replicas become one bounded stream without gaps or duplicates."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.controller import error_log, outputs
from foreshore.compute.controller.error_log import ErrorLog, NothingKept
from foreshore.compute.controller.outputs import SinkWriter, Subscription
from foreshore.compute.controller.windows import new_part
from foreshore.compute.engine import ERRORS, output_schema
from foreshore.errors import DatabaseError, DataError, InternalError
from foreshore.ids import GlobalId
from foreshore.storage.controller import (
    Appended,
    ShardWrite,
    StorageController,
    WriteCapability,
)
from foreshore.types import INT4, ColumnType
from foreshore.update import Timestamp
from tests.compute.runtime.harness import id_

SCHEMA = output_schema((ColumnType(INT4),))
NO_ERRORS = output_schema(ERRORS).empty_table()


def updates(*times: int) -> pa.Table:
    return pa.table([[t * 10 for t in times], list(times), [1] * len(times)], schema=SCHEMA)


def errors(*changes: tuple[str, int, int]) -> pa.Table:
    return pa.table([list(c) for c in zip(*changes, strict=True)], schema=output_schema(ERRORS))


def times(table: pa.Table | None) -> list[int]:
    return [] if table is None else table.column("__time").to_pylist()


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=3, max_size=8), min_size=1, max_size=3), st.data()
)
def test_each_update_counts_once_whatever_the_windows(
    sizes: list[list[int]], data: st.DataObject
) -> None:
    pending = []
    for steps in sizes:
        bounds = [sum(steps[:i]) for i in range(len(steps) + 1)]
        pending.append(list(pairwise(bounds)))
    reached = 0
    seen: list[int] = []
    while any(pending):
        which = data.draw(st.sampled_from([i for i, windows in enumerate(pending) if windows]))
        lower, upper = pending[which].pop(0)
        seen += times(new_part(lower, upper, updates(*range(lower, upper)), reached))
        reached = max(reached, upper)
    assert seen == list(range(reached))


def test_gap_in_updates_raises() -> None:
    with pytest.raises(InternalError, match="gap"):
        new_part(5, 8, updates(6), 4)


def test_a_subscription_fails_with_the_error_in_the_data() -> None:
    async def scenario() -> None:
        subscription = Subscription(id_("t1"), 5)
        subscription.put(0, 6, updates(5), errors(("22012 division by zero", 5, 1)))
        with pytest.raises(DataError, match="division by zero"):
            await anext(subscription)

    asyncio.run(scenario())


def test_subscription_fails_with_temporary_error() -> None:
    async def scenario(*, dropped: bool) -> None:
        subscription = Subscription(id_("t1"), 5)
        passing = errors(("22012 division by zero", 8, -1), ("22012 division by zero", 7, 1))
        subscription.put(0, 6, updates(5), NO_ERRORS)
        subscription.put(6, 10, updates(6, 7, 9), passing)
        subscription.put(10, 11, updates(10), NO_ERRORS)
        subscription.progress(20)
        if dropped:
            subscription.fail(InternalError("it is gone"))
        batch = await anext(subscription)  # updates before the error
        assert (batch.upper, times(batch.updates)) == (7, [5, 6])
        for _ in range(2):
            with pytest.raises(DataError, match="division by zero"):
                await anext(subscription)

    asyncio.run(scenario(dropped=False))
    asyncio.run(scenario(dropped=True))


def test_subscription_fails_at_gap() -> None:
    async def scenario() -> None:
        subscription = Subscription(id_("t1"), 5)
        subscription.put(0, 6, updates(5), NO_ERRORS)
        subscription.put(7, 9, updates(8), NO_ERRORS)
        with pytest.raises(DatabaseError, match="from 6 to 7 is not known any more"):
            await anext(subscription)

    asyncio.run(scenario())


def test_slow_reader_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_PENDING_BYTES", 1000)

    async def scenario() -> None:
        subscription = Subscription(id_("t1"), 0)
        for n in range(100):
            subscription.put(n, n + 1, updates(n), NO_ERRORS)
        with pytest.raises(DatabaseError, match="keep up") as error:
            await anext(subscription)
        assert error.value.sqlstate == "53400"

    asyncio.run(scenario())


class Storage:
    """One shard; appends wait until `gate` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.reached = 0
        self.written: list[int] = []

    def upper(self, _: GlobalId) -> Timestamp:
        return self.reached

    def since(self, _: GlobalId) -> Timestamp:
        return 0

    def schema(self, _: GlobalId) -> pa.Schema:
        return pa.schema(list(SCHEMA)[:-2])

    def advance(self, _: Iterable[GlobalId], upper: Timestamp, *, token: str) -> None:
        assert token == "1-1"
        self.reached = max(self.reached, upper)

    async def append(self, writes: Sequence[ShardWrite]) -> Appended:
        await self.gate.wait()
        (write,) = writes
        assert write.lower == self.reached
        assert write.token == "1-1"
        self.written += times(write.updates)
        self.reached = write.upper
        return Appended()


def test_pending_sink_updates_are_kept_once_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = updates(*range(10))
    monkeypatch.setattr(outputs, "MAX_PENDING_BYTES", 8 * window.nbytes)

    async def main() -> None:
        storage = Storage()
        backpressure: list[bool] = []
        writer = SinkWriter(
            WriteCapability("1-1", id_("u1"), 0),
            ErrorLog(id_("u1"), 0, NothingKept()),
            cast(StorageController, storage),
            lambda: 0,
            lambda: backpressure.append(writer.behind),
        )
        running = asyncio.create_task(writer.run())
        for n in range(8):
            lower, upper = 10 * n, 10 * n + 10
            for _ in range(2):  # replicas
                writer.put(lower, upper, updates(*range(lower, upper)))
                writer.progress(upper)
            await asyncio.sleep(0)  # the first is being written now
        for upper in range(81, 1001):
            writer.progress(upper)
        assert len(writer._items) == 7
        assert not backpressure
        writer.put(80, 90, updates(*range(80, 90)))
        writer.put(1000, 1010, updates(*range(1000, 1010)))
        assert backpressure == [True]
        storage.gate.set()
        async with asyncio.timeout(10):
            while storage.reached < 1010:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert storage.written == [*range(80), *range(1000, 1010)]
        assert backpressure == [True, False]
        running.cancel()

    asyncio.run(main())


def test_unstorable_errors_delay_replicas_until_writer_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(error_log, "MAX_STEPS", 8)
    backpressure: list[bool] = []
    log = ErrorLog(id_("u1"), 0, NothingKept())
    writer = SinkWriter(
        WriteCapability("1-1", id_("u1"), 0),
        log,
        cast(StorageController, Storage()),
        lambda: 0,
        lambda: backpressure.append(writer.behind),
    )
    log.add(1, 1, NO_ERRORS, initial=True)
    for n in range(1, 12):
        assert writer.behind == (n > 9)
        log.add(n, n + 1, errors(("22012 x", n, 1 if n % 2 else -1)), initial=False)
        writer.put(n, n + 1, updates())
    assert backpressure == [True]
    writer.stop()
    writer.progress(20)
    assert backpressure == [True, False]
