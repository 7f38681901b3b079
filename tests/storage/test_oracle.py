"""The oracle's laws, also across restarts and jumps of the clock."""

import asyncio
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.clock import ManualClock
from foreshore.storage.oracle import MAX_LEAD_MS, RESERVED_MS, TimestampOracle
from tests.effort import examples
from tests.frontier import Antichain
from tests.ptvc import INTEGERS, at_no_event


class Memory:
    """A reservation that survives the oracle."""

    def __init__(self) -> None:
        self.end = 0
        self.stores = 0

    async def load(self) -> int:
        return self.end

    async def store(self, end: int) -> None:
        assert end > self.end
        self.end = end
        self.stores += 1


STEPS = st.lists(
    st.one_of(
        st.just(("write", 0)),
        st.just(("read", 0)),
        st.just(("restart", 0)),
        st.tuples(st.just("clock"), st.integers(-3_000, 6_000)),
    ),
    max_size=40,
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_oracle_times_never_decrease(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        clock, memory = ManualClock(100_000), Memory()
        oracle = await TimestampOracle.open(clock, memory)
        last_write = last_read = 0
        for step, by in steps:
            match step:
                case "write":
                    if oracle.lead_ms() > MAX_LEAD_MS:
                        clock.time += oracle.lead_ms()
                    time = await oracle.write_ts()
                    assert time > last_write
                    assert time > last_read
                    assert time < memory.end
                    oracle.apply_write(time)
                    last_write = time
                case "read":
                    time = oracle.read_ts()
                    assert time >= last_write
                    assert time >= last_read
                    last_read = time
                case "restart":
                    oracle = await TimestampOracle.open(clock, memory)
                case _:
                    clock.time += by

    asyncio.run(play())


@settings(max_examples=examples(60))
@given(st.data(), STEPS)
def test_read_ts_is_frontier_of_complete_events(
    data: st.DataObject, steps: list[tuple[str, int]]
) -> None:
    """Also where writes are complete in another order than that of their times."""

    async def play() -> None:
        clock, memory = ManualClock(100_000), Memory()
        oracle = await TimestampOracle.open(clock, memory)
        state = at_no_event(INTEGERS).after(oracle.read_ts())
        begun: list[int] = []
        for step, by in steps:
            match step:
                case "write":
                    clock.time += max(0, oracle.lead_ms() - MAX_LEAD_MS)
                    begun.append(await oracle.write_ts())
                case "read" if begun:
                    time = begun.pop(data.draw(st.integers(0, len(begun) - 1)))
                    oracle.apply_write(time)
                    state = state.after(time)
                case "restart":  # all that was begun is complete, or will never be
                    oracle = await TimestampOracle.open(clock, memory)
                    for time in begun:
                        state = state.after(time)
                    assert state.completed <= Antichain.of(oracle.read_ts())
                    begun, state = [], state.after(oracle.read_ts())
                case "clock":
                    clock.time += by
            assert state.completed == Antichain.of(oracle.read_ts())
            assert all(time not in state.completed.elements for time in begun)

    asyncio.run(play())


def test_clock_set_back_does_not_delay_writes() -> None:
    async def play() -> None:
        clock, memory = ManualClock(100_000), Memory()
        oracle = await TimestampOracle.open(clock, memory)
        clock.advance(3_600_000)  # set wrong
        last = await oracle.write_ts()
        clock.advance(-3_600_000)  # and right again
        for _ in range(2 * MAX_LEAD_MS):
            clock.advance(1)
            async with asyncio.timeout(1):
                time = await oracle.write_ts()
            assert time == last + 1
            last = time
        oracle = await TimestampOracle.open(clock, memory)
        async with asyncio.timeout(1):
            last = await oracle.write_ts()
        assert last == memory.end - RESERVED_MS
        clock.advance(3_700_000)  # it has caught up
        assert await oracle.write_ts() == clock.now()

    asyncio.run(play())


def test_lead_is_bounded_again_after_clock_catches_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        clock = ManualClock(3_700_000)
        oracle = await TimestampOracle.open(clock, Memory())
        last = await oracle.write_ts()
        clock.advance(-3_600_000)
        while clock.now() <= last:
            last = await oracle.write_ts()
            clock.advance(1_000)
        for _ in range(MAX_LEAD_MS + 2):
            async with asyncio.timeout(1):
                last = await oracle.write_ts()
        assert oracle.lead_ms() > MAX_LEAD_MS
        assert last - clock.now() <= MAX_LEAD_MS + 2

    caplog.set_level(logging.INFO)
    asyncio.run(play())
    assert [record.message for record in caplog.records if record.name.endswith("oracle")] == [
        "the clock is behind times that were given out",
        "the clock has caught up",
    ]


def test_fast_writers_wait_for_the_clock() -> None:
    async def play() -> None:
        clock = ManualClock(100_000)
        oracle = await TimestampOracle.open(clock, Memory())
        for _ in range(MAX_LEAD_MS + 2):
            await oracle.write_ts()
        assert oracle.lead_ms() > MAX_LEAD_MS
        waiting = asyncio.create_task(oracle.write_ts())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        clock.advance(1_000)
        async with asyncio.timeout(10):  # it looks again by itself
            assert await waiting > 100_000

    asyncio.run(play())


def test_one_reservation_serves_many_times() -> None:
    async def play() -> None:
        clock, memory = ManualClock(100_000), Memory()
        oracle = await TimestampOracle.open(clock, memory)
        stores = memory.stores
        for _ in range(RESERVED_MS // 2):
            clock.advance(1)
            await oracle.write_ts()
        assert memory.stores - stores <= 2

    asyncio.run(play())
