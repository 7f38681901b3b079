"""A step that takes too long is found, whatever else is on the machine."""

import asyncio
import threading
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from socket import socketpair
from threading import Event
from time import thread_time
from types import FunctionType
from typing import Any

import pytest
import uvloop

from foreshore import loop_watchdog
from foreshore.loop_watchdog import LIMIT_S, Stall, Watchdog, protocol_callback
from foreshore.run_queue import RunQueue
from foreshore.thread_sleep import ThreadSleep
from tests import loop_guard
from tests.loop_guard import SHARED_LIMIT_S, SLOW

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.new_event_loop,
    uvloop.new_event_loop,
]


def work(seconds: float = 3 * LIMIT_S) -> None:
    """Use the processor for so long."""
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def hold(seconds: float = 3 * LIMIT_S) -> None:
    """Hold the interpreter's lock for at least so long, in one call of C."""
    digits = 1000
    began = thread_time()
    while thread_time() - began < seconds:
        began, digits = thread_time(), 2 * digits
        Decimal(2).exp(Context(prec=digits))


class Peer(asyncio.Protocol):
    """Works when it receives something."""

    @protocol_callback
    def data_received(self, data: bytes) -> None:
        work()


async def in_task() -> None:
    await asyncio.sleep(0)
    work()


async def in_callback() -> None:
    asyncio.get_running_loop().call_soon(work)


async def in_timer() -> None:
    asyncio.get_running_loop().call_later(0.001, work)


async def in_protocol() -> None:
    ours, theirs = socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(Peer, sock=ours)
    theirs.send(b"x")
    await asyncio.sleep(0.01)
    theirs.close()
    transport.close()


async def in_reader() -> None:
    ours, theirs = socketpair()
    loop = asyncio.get_running_loop()

    def read() -> None:
        ours.recv(1)
        work()

    loop.add_reader(ours, read)
    theirs.send(b"x")
    await asyncio.sleep(0.01)
    loop.remove_reader(ours)
    theirs.close()
    ours.close()


def stalls_of(
    steps: Callable[[], Any], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> list[Stall]:
    """Return what a watchdog finds while a coroutine runs, and a while after."""
    found: list[Stall] = []

    async def main() -> None:
        watchdog = Watchdog(found.append)
        watchdog.start()
        await steps()
        await asyncio.sleep(0.05)
        watchdog.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    return found


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("steps", [in_task, in_callback, in_timer, in_protocol, in_reader])
def test_slow_step_is_reported(steps: Any, new_loop: Any) -> None:
    found = stalls_of(steps, new_loop)
    stall = next(each for each in found if each.cause == "step")
    assert stall.seconds > LIMIT_S
    assert "test_loop_guard.py" in stall.place


class Seen(ThreadSleep):
    """Lets `wait` return when a watchdog has looked at a sleep of twice the limit several times.

    The look that lets it return may see a loop that is awake, and the first one only sends a probe.
    """

    seen = Event()
    long_looks = 0

    def look(self) -> float:
        if Seen.long_looks >= 4:
            self.seen.set()
        rests = super().look()
        Seen.long_looks += rests > 2 * LIMIT_S and self.could_not_run()
        return rests


def wait() -> None:
    Seen.long_looks = 0
    Seen.seen.clear()
    assert Seen.seen.wait(20)


async def waits_in_task() -> None:
    wait()


async def waits_in_callback() -> None:
    asyncio.get_running_loop().call_soon(wait)


async def waits_after_rest() -> None:
    await asyncio.sleep(LIMIT_S)
    wait()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell")
@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("steps", [waits_in_task, waits_in_callback, waits_after_rest])
def test_step_that_sleeps_is_reported(
    steps: Any, new_loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watchdog, "ThreadSleep", Seen)
    found = stalls_of(steps, new_loop)
    stall = next(each for each in found if each.cause == "wait")
    assert stall.seconds > LIMIT_S
    assert "test_loop_guard.py" in stall.place


@pytest.mark.parametrize("new_loop", LOOPS)
def test_loop_that_rests_is_not_reported(new_loop: Any) -> None:
    async def rests() -> None:
        for seconds in (0, 0.01, 3 * LIMIT_S):
            await asyncio.sleep(seconds)

    assert "wait" not in {each.cause for each in stalls_of(rests, new_loop)}


@pytest.mark.parametrize("new_loop", LOOPS)
def test_loop_that_waits_for_the_interpreter_is_not_asleep(new_loop: Any) -> None:
    async def shares() -> None:
        others = [asyncio.to_thread(work) for _ in range(4)]
        await asyncio.gather(*others)
        work(LIMIT_S / 2)

    assert "wait" not in {each.cause for each in stalls_of(shares, new_loop)}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what is set once the watchdog looks, which does not know of waits for a processor.

    On a busy machine it may wait for one for longer than a call takes, and report nothing.
    """
    looks = threading.Event()

    class Idle(RunQueue):
        def seconds(self) -> float:
            looks.set()
            return 0.0

    monkeypatch.setattr(loop_watchdog, "RunQueue", Idle)
    return looks


@pytest.mark.parametrize("new_loop", LOOPS)
def test_call_that_keeps_the_watchdog_waiting_is_reported(
    new_loop: Any, looks: threading.Event
) -> None:
    """It may have ended when the watchdog goes on, so its place is not known."""

    async def in_c() -> None:
        for _ in range(3):  # a call that begins while it looks may be over before it does again
            await asyncio.to_thread(looks.wait, 60)
            hold()
            looks.clear()
            await asyncio.to_thread(looks.wait, 60)

    found = stalls_of(in_c, new_loop)
    assert any(each.cause == "step" and each.seconds > LIMIT_S for each in found)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_many_quick_steps_are_not_reported(new_loop: Any) -> None:
    async def quick() -> None:
        for _ in range(10):
            work(LIMIT_S / 10)
            await asyncio.sleep(0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(20):
            loop.call_soon(work, LIMIT_S / 50)
        await asyncio.gather(*(quick() for _ in range(3)))

    assert not stalls_of(main, new_loop)


def test_other_thread_that_holds_the_interpreter_is_reported(looks: threading.Event) -> None:
    def hold_later() -> None:
        looks.wait(60)
        hold()

    async def main() -> None:
        await asyncio.to_thread(hold_later)

    assert "interpreter" in {each.cause for each in stalls_of(main, uvloop.new_event_loop)}


def of_product(work: Callable[[float], None]) -> Callable[[float], None]:
    """Return a function of the product that calls nothing else and does what `work` does."""
    code = work.__code__.replace(co_filename=loop_watchdog.__file__)
    return FunctionType(code, work.__globals__, argdefs=work.__defaults__)


def test_step_over_the_limit_is_noted_while_its_loop_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Else a busy machine has a higher limit.
    monkeypatch.setattr(loop_guard, "is_slow", lambda seconds, limit_s: seconds > limit_s)

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        SLOW.watch(loop)
        work(2 * SHARED_LIMIT_S)  # of the test itself
        with SLOW.apart():
            of_product(work)(2 * SHARED_LIMIT_S)
        await asyncio.sleep(0)
        assert not SLOW.unwatch(loop)
        SLOW.watch(loop)
        await asyncio.create_task(slow())
        return SLOW.unwatch(loop)

    async def slow() -> None:
        of_product(work)(6 * SHARED_LIMIT_S)

    assert len(asyncio.run(main())) == 1


class Delayed(threading.Thread):
    """A thread that gets no processor before the watchdog has seen it wanting."""

    def run(self) -> None:
        """Do nothing."""

    def _bootstrap(self) -> None:
        wait()
        super()._bootstrap()  # type: ignore[misc]


def test_wait_for_the_start_of_a_thread_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watchdog, "ThreadSleep", Seen)

    async def starts() -> None:
        thread = Delayed()
        thread.start()
        thread.join()

    assert "wait" not in {each.cause for each in stalls_of(starts, uvloop.new_event_loop)}
