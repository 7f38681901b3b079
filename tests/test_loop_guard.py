"""A step that takes too long is found, whatever else is on the machine."""

import asyncio
from collections.abc import Callable
from decimal import Context, Decimal
from socket import socketpair
from time import thread_time
from typing import Any

import pytest
import uvloop

from foreshore.loop_watchdog import LIMIT_S, Stall, Watchdog, protocol_callback
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


async def in_c() -> None:
    hold()


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
@pytest.mark.parametrize("steps", [in_task, in_callback, in_timer, in_protocol, in_reader, in_c])
def test_slow_step_is_reported(steps: Any, new_loop: Any) -> None:
    found = stalls_of(steps, new_loop)
    stall = next(each for each in found if each.cause == "step")
    assert stall.seconds > LIMIT_S
    assert "test_loop_guard.py" in stall.place


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


def test_other_thread_that_holds_the_interpreter_is_reported() -> None:
    async def main() -> None:
        await asyncio.to_thread(hold)

    assert "interpreter" in {each.cause for each in stalls_of(main, uvloop.new_event_loop)}


def test_step_over_the_limit_is_noted_while_its_loop_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Else a busy machine has a higher limit.
    monkeypatch.setattr(loop_guard, "is_slow", lambda seconds, limit_s: seconds > limit_s)

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        SLOW.watch(loop)
        with SLOW.apart():
            work(2 * SHARED_LIMIT_S)
        await asyncio.sleep(0)
        assert not SLOW.unwatch(loop)
        SLOW.watch(loop)
        await asyncio.create_task(slow())
        return SLOW.unwatch(loop)

    async def slow() -> None:
        work(6 * SHARED_LIMIT_S)

    assert len(asyncio.run(main())) == 1
