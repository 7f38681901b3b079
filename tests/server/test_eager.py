"""Work that a callback starts is the work of its task: its context, its time-outs, its end."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import uvloop

from foreshore.server.eager import Rest, start

Work = Callable[[], Coroutine[Any, Any, None]]

VALUE: ContextVar[str] = ContextVar("value", default="none")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Owner:
    """A task that waits for the rest of work that callbacks start."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.rest: Rest | None = None
        self.handed = loop.create_future()
        self.context = copy_context()
        self.task = loop.create_task(self._run(), context=self.context)

    async def _run(self) -> None:
        try:
            await self.handed
        except asyncio.CancelledError:
            if self.rest is None:
                raise
            self.rest.is_cancelled = True
        if self.rest is not None:
            await self.rest

    async def begin(self, work: Work, then: Callable[[], object] = lambda: None) -> bool:
        """Start work in a callback, and call `then` in it; return whether the work waits."""
        await asyncio.sleep(0)
        done = asyncio.Event()

        def call() -> None:
            self.rest = start(self.task, self.context, work())
            if self.rest is not None:
                self.handed.set_result(None)
            then()
            done.set()

        asyncio.get_running_loop().call_soon(call)
        await done.wait()
        return self.rest is not None


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_scenario(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(scenario)

    return run_scenario


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_work_that_waits_for_nothing_ends_in_the_callback(run: Run) -> None:
    async def scenario() -> None:
        owner, seen = Owner(), []

        async def work() -> None:
            seen.append(asyncio.current_task())

        assert not await owner.begin(work)
        assert seen == [owner.task]
        assert not owner.task.done()
        owner.task.cancel()

    run(scenario())


def test_rest_runs_in_the_task_and_its_context(run: Run) -> None:
    async def scenario() -> None:
        owner, opened, seen = Owner(), asyncio.Event(), []

        async def work() -> None:
            VALUE.set("ours")
            await opened.wait()
            await asyncio.sleep(0)
            seen.append((asyncio.current_task(), VALUE.get()))

        assert await owner.begin(work)
        assert VALUE.get() == "none"
        opened.set()
        await owner.task
        assert seen == [(owner.task, "ours")]

    run(scenario())


def test_errors_are_raised_where_the_work_runs(run: Run) -> None:
    async def scenario() -> None:
        owner = Owner()

        async def fail() -> None:
            raise LookupError("first")

        async def fail_later() -> None:
            await asyncio.sleep(0)
            raise KeyError

        def call() -> None:
            with pytest.raises(LookupError, match="first"):
                start(owner.task, owner.context, fail())
            assert asyncio.current_task() is None

        asyncio.get_running_loop().call_soon(call)
        assert await owner.begin(fail_later)
        with pytest.raises(KeyError):
            await owner.task

    run(scenario())


def test_time_out_that_began_in_the_callback_ends_the_wait(run: Run) -> None:
    async def scenario() -> None:
        owner, seen = Owner(), []

        async def work() -> None:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                seen.append("late")

        assert await owner.begin(work)
        await owner.task
        assert seen == ["late"]

    run(scenario())


@pytest.mark.parametrize("is_done", [False, True])
def test_task_that_is_cancelled_before_it_goes_on_cancels_the_work(run: Run, is_done: bool) -> None:
    """Its wait is over already, or is cancelled."""

    async def scenario() -> None:
        owner, waited = Owner(), asyncio.get_running_loop().create_future()
        seen: list[str] = []

        async def work() -> None:
            try:
                await waited
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        def cancel() -> None:
            if is_done:
                waited.set_result(None)
            owner.task.cancel()

        assert await owner.begin(work, cancel)
        with pytest.raises(asyncio.CancelledError):
            await owner.task
        assert seen == ["cancelled"]
        assert waited.cancelled() != is_done

    run(scenario())


def test_within_another_task_nothing_is_started(run: Run) -> None:
    async def scenario() -> None:
        owner, seen = Owner(), []

        async def work() -> None:
            seen.append(asyncio.current_task())

        await asyncio.sleep(0)
        owner.rest = start(owner.task, owner.context, work())
        assert not seen
        owner.handed.set_result(None)
        await owner.task
        assert seen == [owner.task]

    run(scenario())


def test_errors_keep_nothing_of_the_work_alive(run: Run) -> None:
    async def scenario() -> None:
        owner, held = Owner(), []

        class Rows:
            """Rows that the failing work has in a variable."""

        def failing() -> asyncio.Future[None]:
            failed = asyncio.get_running_loop().create_future()
            failed.get_loop().call_soon(failed.set_exception, OSError())
            return failed

        async def work() -> None:
            rows = Rows()
            held.append(weakref.ref(rows))
            with suppress(OSError):
                await failing()

        gc.disable()
        try:
            assert await owner.begin(work)
            await owner.task
            assert held[0]() is None
        finally:
            gc.enable()

    run(scenario())
