"""Computations on threads end when nobody waits for them, and few of them run for long at once."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from foreshore import interruptible
from foreshore.garbage import collection_paused
from foreshore.interruptible import ASKED, THREADS, TURNS, Interrupted, _Computation, answer
from foreshore.sql.parse.parse import parse
from foreshore.sql.planner import plan_statement
from tests.harness import until
from tests.sql.catalog import TestCatalog


async def begun(work: Callable[[], object]) -> "asyncio.Task[object]":
    """Return a task that awaits `work`, once the work has begun."""
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def whole() -> object:
        loop.call_soon_threadsafe(has_begun.set)
        return work()

    task = asyncio.ensure_future(interruptible.run(whole))
    await has_begun.wait()
    return task


def test_gives_results_and_errors_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        assert await interruptible.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await interruptible.run(divmod, 7, 0)

    asyncio.run(main())
    assert not ASKED


def test_computation_of_a_cancelled_task_ends() -> None:
    ended: list[BaseException] = []
    has_ended = threading.Event()

    def work() -> None:
        try:
            while True:
                if ASKED:
                    answer()
        except BaseException as error:
            ended.append(error)
            has_ended.set()
            raise

    async def main() -> None:
        task = await begun(work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(has_ended.wait, 60)

    asyncio.run(main())
    assert [type(each) for each in ended] == [Interrupted]
    assert not ASKED


def test_few_computations_go_on_when_they_are_long() -> None:
    """Four that are long wait for one of two turns, and all of them are done in the end."""
    held: list[int] = []
    now = 0
    lock = threading.Lock()
    two_hold = threading.Event()

    def work() -> None:
        nonlocal now
        while not ASKED.get(threading.get_ident()):  # until the loop says that this is long
            pass
        answer()
        with lock:
            now += 1
            held.append(now)
            if now == 2:
                two_hold.set()
        two_hold.wait(60)
        with lock:
            now -= 1

    async def main() -> None:
        await asyncio.gather(*(interruptible.run(work) for _ in range(4)))

    asyncio.run(main())
    assert len(held) == 4
    assert max(held) == 2
    assert not ASKED


@pytest.fixture
def no_turns() -> Iterator[None]:
    """Hold all turns."""
    for _ in range(2):
        assert TURNS.acquire(timeout=60)
    yield
    for _ in range(2):
        TURNS.release()


def test_computation_that_waited_for_a_thread_needs_a_turn() -> None:
    is_asked: list[bool] = []

    async def main() -> None:
        may_end, all_busy = threading.Event(), threading.Barrier(THREADS + 1)

        def occupy() -> None:
            all_busy.wait(60)
            may_end.wait(60)

        others = [asyncio.ensure_future(interruptible.run(occupy)) for _ in range(THREADS)]
        await asyncio.to_thread(all_busy.wait, 60)
        late = asyncio.ensure_future(
            interruptible.run(lambda: is_asked.append(threading.get_ident() in ASKED))
        )
        await asyncio.sleep(0)  # it is submitted now
        is_long = asyncio.Event()
        asyncio.get_running_loop().call_later(interruptible.LONG_S, is_long.set)
        await is_long.wait()
        may_end.set()
        await asyncio.gather(late, *others)

    asyncio.run(main())
    assert is_asked == [True]
    assert not ASKED


@pytest.mark.usefixtures("no_turns")
def test_waiting_for_a_turn_neither_asks_others_nor_pauses_collection() -> None:
    waits = threading.Event()

    def wait_for_turn() -> None:
        while not ASKED.get(threading.get_ident()):
            pass
        waits.set()
        answer()

    async def main() -> None:
        task = await begun(collection_paused()(wait_for_turn))
        await asyncio.to_thread(waits.wait, 60)
        await asyncio.to_thread(until, lambda: not ASKED and gc.isenabled(), "waiting")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(until, lambda: not ASKED, "the end")

    asyncio.run(main())


def test_request_during_an_answer_is_not_lost() -> None:
    """The loop asks for the end just after the computation has looked whether it is to end."""

    class Asked(_Computation):
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
        answer()
        answer()

    computation = Asked(work)

    def begin() -> None:
        ASKED[threading.get_ident()] = computation
        work()

    computation._work = begin
    with pytest.raises(Interrupted):
        computation.run()
    assert not ASKED


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
        task = await begun(work)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(has_ended.wait, 60)

    asyncio.run(main())
    assert ended == [Interrupted]
