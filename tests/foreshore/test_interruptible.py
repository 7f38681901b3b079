"""Computations on threads end when nobody waits for them, and few of them run for long at once."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from foreshore import interruptible
from foreshore.interruptible import ASKED, Interrupted, answer
from foreshore.sql.parse.parse import parse
from foreshore.sql.planner import plan_statement
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
