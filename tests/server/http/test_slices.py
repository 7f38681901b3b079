"""Bytes of many connections that come at once take one slice of a step of the loop, in all."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, ParamSpec

import pytest

from foreshore.server import turns
from foreshore.server.http.slices import SLICE_BYTES, Slices

P = ParamSpec("P")

PART_S = turns.SLICE_S / 5  # that a part takes, by the clock of these tests


class Connection:
    """A transport and the protocol that takes what it receives, PART_S for each part."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self.clock = clock
        self.taken = bytearray()
        self.is_reading = True
        self.is_ended = False
        self.slices = Slices(self, self.take, lambda: False)  # type: ignore[arg-type]

    def take(self, data: bytes) -> None:
        self.taken += data
        self.clock.now += PART_S

    def is_closing(self) -> bool:
        return self.is_ended

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(test(*args, **options))

    return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(turns, "perf_counter", lambda: clock.now)
    return clock


def data(parts: int) -> bytes:
    return bytes(range(256)) * (parts * SLICE_BYTES // 256)


async def steps(clock: SimpleNamespace, done: Callable[[], bool]) -> list[float]:
    """Return how long each step of the loop took until `done`, the present one first."""
    spent, before = [clock.now], clock.now
    while not done():
        await asyncio.sleep(0)
        spent.append(clock.now - before)
        before = clock.now
    return spent


@pytest.mark.parametrize("parts", [1, 3, 40])
@in_loop
async def test_connections_share_the_slices_of_a_step(clock: SimpleNamespace, parts: int) -> None:
    connections = [Connection(clock) for _ in range(50)]
    sent = data(parts)
    for each in connections:
        each.slices.put(sent)
    spent = await steps(clock, lambda: all(each.is_reading for each in connections))
    assert [bytes(each.taken) for each in connections] == [sent] * 50
    assert max(spent) <= turns.SLICE_S + PART_S


@in_loop
async def test_connections_have_equal_shares(clock: SimpleNamespace) -> None:
    connections = [Connection(clock) for _ in range(10)]
    for each in connections:
        each.slices.put(data(40))
    least = 0
    while not all(each.is_reading for each in connections):
        await asyncio.sleep(0)
        taken = [len(each.taken) for each in connections[1:]]  # the first began at once
        assert max(taken) - min(taken) <= 6 * SLICE_BYTES
        least = max(least, min(taken))
    assert least == len(data(40))


@in_loop
async def test_bytes_that_come_meanwhile_stay_in_order(clock: SimpleNamespace) -> None:
    one, other = Connection(clock), Connection(clock)
    other.slices.put(data(20))
    one.slices.put(b"a" * 10 * SLICE_BYTES)
    assert not one.is_reading
    one.slices.put(b"b" * SLICE_BYTES)
    await steps(clock, lambda: one.is_reading)
    assert bytes(one.taken) == b"a" * 10 * SLICE_BYTES + b"b" * SLICE_BYTES


@in_loop
async def test_connection_that_is_resumed_meanwhile_is_paused_again(
    clock: SimpleNamespace,
) -> None:
    one = Connection(clock)
    one.slices.put(data(40))
    for _ in range(3):
        one.resume_reading()  # as uvicorn does when a body is read
        one.slices.put(data(1))
        assert not one.is_reading
    await steps(clock, lambda: one.is_reading)
    assert len(one.taken) == len(data(43))


@in_loop
async def test_connection_that_has_ended_holds_up_no_other(clock: SimpleNamespace) -> None:
    connections = [Connection(clock) for _ in range(3)]
    for each in connections:
        each.slices.put(data(20))
    connections[1].is_ended = True
    await steps(clock, lambda: connections[2].is_reading)
    assert len(connections[1].taken) < len(data(20))
    assert bytes(connections[2].taken) == data(20)
