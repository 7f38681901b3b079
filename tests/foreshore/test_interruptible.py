"""Computations on threads end when nobody waits for them, and take turns."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import thread_time
from typing import Any

import pytest

from foreshore import interruptible
from foreshore.interruptible import (
    FIRST,
    LATER,
    REQUESTS,
    Computation,
    Interrupted,
    are_computing,
    safepoint,
)
from foreshore.sql.parse.parse import parse
from foreshore.sql.planner import plan_statement
from foreshore.turn_queue import TurnQueue
from tests.harness import until
from tests.sql.catalog import TestCatalog


async def start(work: Callable[[], object]) -> "asyncio.Task[object]":
    """Return a task that awaits `work`, once the work has begun."""
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def whole() -> object:
        loop.call_soon_threadsafe(has_begun.set)
        return work()

    task = asyncio.ensure_future(interruptible.run(None, whole))
    await has_begun.wait()
    return task


def test_gives_results_and_errors_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        assert await interruptible.run(None, divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await interruptible.run(None, divmod, 7, 0)

    asyncio.run(main())
    assert not REQUESTS
    assert not are_computing()


def test_computation_of_a_cancelled_task_ends() -> None:
    ended: list[BaseException] = []
    has_ended = threading.Event()

    def work() -> None:
        try:
            while True:
                if REQUESTS:
                    safepoint()
        except BaseException as error:
            ended.append(error)
            has_ended.set()
            raise

    async def main() -> None:
        task = await start(work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(has_ended.wait, 60)

    asyncio.run(main())
    assert [type(each) for each in ended] == [Interrupted]
    assert not REQUESTS
    assert not are_computing()


def busy_until(has_ended: Callable[[], bool]) -> None:
    """Compute, and stop where that is requested, until something is so."""
    while not has_ended():
        if REQUESTS:
            safepoint()


def test_few_computations_run_at_a_time_and_all_of_them_end() -> None:
    running, most, slices, lock = 0, 0, 5, threading.Lock()

    def work() -> None:
        nonlocal running, most
        computation = next(each for each in every if each._thread == threading.get_ident())
        for _ in range(slices):
            with lock:
                running += 1
                most = max(most, running)
            with lock:
                running -= 1
            computation._slice_is_over = True
            computation._request()
            safepoint()

    every = [Computation(work) for _ in range(20)]
    threads = [threading.Thread(target=each.run) for each in every]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads)
    assert 1 <= most <= 3
    assert not REQUESTS
    assert not are_computing()


def test_long_computation_lets_others_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some that would never end by themselves hold up neither short ones nor other long ones."""
    monkeypatch.setattr(interruptible, "SLICE_S", 0.01)
    monkeypatch.setattr(interruptible, "LOOK_S", 0.005)

    def work() -> None:
        began = thread_time()
        busy_until(lambda: thread_time() - began > 0.05)

    async def main() -> None:
        endless = [await start(partial(busy_until, lambda: False)) for _ in range(3)]
        async with asyncio.timeout(120):
            assert await interruptible.run(None, divmod, 7, 2) == (3, 1)
            await asyncio.gather(interruptible.run(None, work), interruptible.run(None, work))
        for each in endless:
            each.cancel()
        await asyncio.gather(*endless, return_exceptions=True)
        await asyncio.to_thread(until, lambda: not are_computing(), "the end")

    asyncio.run(main())


@pytest.fixture(params=[FIRST, LATER])
def no_turns(request: pytest.FixtureRequest) -> Iterator[TurnQueue]:
    """Hold all turns of a queue."""
    queue: TurnQueue = request.param
    held = [queue.request(lambda: None) for _ in range(2 if queue is FIRST else 1)]
    assert all(each.is_given for each in held)
    yield queue
    for each in held:
        queue.end(each)


def test_computation_that_waits_for_a_turn_ends_when_cancelled(no_turns: TurnQueue) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(interruptible.run(None, busy_until, lambda: False))
        await asyncio.to_thread(until, lambda: no_turns.is_wanted, "waiting")
        assert not REQUESTS  # it is no trouble to what the loop plans meanwhile
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until, lambda: not no_turns.is_wanted, "the end")

    asyncio.run(main())


def test_request_while_another_is_complied_with_is_not_lost() -> None:
    """The loop requests the end just after the computation has looked whether it is to end."""

    class Interrupting(Computation):
        looks = 0

        @property
        def _is_interrupted(self) -> bool:
            was, self.looks = self._flag, self.looks + 1
            if self.looks == 2:  # the first one is at the start
                self.interrupt()
            return was

        @_is_interrupted.setter
        def _is_interrupted(self, value: bool) -> None:
            self._flag = value

    def work() -> None:
        REQUESTS[threading.get_ident()] = computation
        safepoint()
        safepoint()

    computation = Interrupting(work)
    with pytest.raises(Interrupted):
        computation.run()
    assert not REQUESTS


def test_one_owner_has_few_threads_and_others_get_one() -> None:
    async def main() -> None:
        may_end, running = threading.Event(), []

        def work() -> None:
            running.append(0)
            busy_until(may_end.is_set)

        every = [asyncio.ensure_future(interruptible.run("greedy", work)) for _ in range(40)]
        waiting = asyncio.ensure_future(interruptible.run("greedy", work))
        assert await interruptible.run("other", divmod, 7, 2) == (3, 1)
        assert await interruptible.run(None, divmod, 7, 2) == (3, 1)
        assert len(running) <= interruptible.OF_OWNER.most
        waiting.cancel()
        may_end.set()
        await asyncio.gather(*every)
        assert len(running) == 40

    asyncio.run(main())
    assert interruptible.OF_OWNER.is_unused


CATALOG = TestCatalog("CREATE TABLE t (a int, s text)")


def _planned(text: str) -> Any:
    return [plan_statement(each, CATALOG) for each in parse(text)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM t WHERE a IN (" + ", ".join(f"a + {i}" for i in range(40_000)) + ")",
        "SELECT 1 FROM t WHERE " + " AND ".join(f"a <> {i} + a" for i in range(40_000)),
        "SELECT CASE " + " ".join(f"WHEN a = {i} THEN {i}" for i in range(40_000)) + " END FROM t",
        "VALUES " + ", ".join(f"({i} + 1, upper('x'))" for i in range(40_000)),
        "GRANT SELECT ON " + ", ".join("t" for _ in range(400_000)) + " TO PUBLIC",
        "SELECT 1; " * 40_000,
    ],
    ids=["in", "and", "case", "values", "grant", "statements"],
)
def test_parsing_and_planning_end_when_cancelled(text: str) -> None:
    has_ended = threading.Event()
    ended: list[type[BaseException]] = []

    def work() -> None:
        try:
            _planned(text)
        except BaseException as error:
            ended.append(type(error))
        finally:
            has_ended.set()

    async def main() -> None:
        task = await start(work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(has_ended.wait, 60)

    asyncio.run(main())
    assert ended == [Interrupted]
