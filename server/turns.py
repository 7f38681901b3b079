"""Turns: how connections share the processor of the event loop.

A connection that has much to do runs for a slice of 5 ms. Then it waits for its turn: of those that
wait one goes on in each step of the loop, in the order in which they came. So whatever else the
loop has to do waits for one slice a step, however many connections are busy, and each of these has
the same share.

    turn.begin()              after a wait for input
    if turn.is_over:          before the next message, statement or request
        await turn.next()

What is handled in the callbacks that receive it has one more slice in a step, for all connections
together; the rest waits for turns, too.

    if turn.begin_in_callback():    in the callback
    await turn.next()               otherwise, in its task

Of what concerns many connections at once, such as notifications, all have one turn together.

    turn.share(send)
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from weakref import WeakKeyDictionary

SLICE_S = 0.005


class Turns:
    """The connections of one event loop that wait for their turn."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_going_on = False
        self._until: float | None = None  # the end of the slice of this step's callbacks
        self._sharing: deque[Callable[[], object]] = deque()  # who share a turn
        self._is_shared = False

    async def next(self) -> None:
        """Wait for a turn, after those who wait already."""
        turn = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if not turn.done():  # its task has not been cancelled
                turn.set_result(None)

        self.call(begin)
        await turn

    def call(self, begin: Callable[[], object]) -> None:
        """Call `begin` when it is its turn, after those who wait already."""
        self._waiting.append(begin)
        if not self._is_going_on:
            self._is_going_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def share(self, run: Callable[[], object]) -> None:
        """Call `run` in a turn that all who share have together: they may be thousands."""
        self._sharing.append(run)
        if not self._is_shared:
            self._is_shared = True
            self.call(self._share)

    def _share(self) -> None:
        """Call those who share a turn for a slice; the rest have another one."""
        until = perf_counter() + SLICE_S
        try:
            while self._sharing:
                self._sharing.popleft()()
                if perf_counter() >= until:
                    break
        finally:
            self._is_shared = bool(self._sharing)
            if self._is_shared:
                self.call(self._share)

    def has_time(self) -> bool:
        """Return whether callbacks that ask have had less than a slice in this step of the loop."""
        if self._until is None:
            self._until = perf_counter() + SLICE_S
            asyncio.get_running_loop().call_soon(self._end_step)
        return perf_counter() < self._until

    def _end_step(self) -> None:
        self._until = None

    def _go_on(self) -> None:
        """Let the first one go on, and the others in later steps."""
        begin = self._waiting.popleft()
        self._is_going_on = bool(self._waiting)
        if self._is_going_on:
            asyncio.get_running_loop().call_soon(self._go_on)
        begin()


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_of_loop() -> Turns:
    """Return the turns of the running event loop."""
    return _TURNS.setdefault(asyncio.get_running_loop(), Turns())


class Turn:
    """The slice of time of one connection."""

    __slots__ = ("_turns", "_until")

    def __init__(self) -> None:
        self._turns = turns_of_loop()
        self.begin()

    def begin(self) -> None:
        """Begin a slice now."""
        self._until = perf_counter() + SLICE_S

    def begin_in_callback(self) -> bool:
        """Begin a slice; return whether such have lasted less than one in this step of the loop."""
        self.begin()
        return self._turns.has_time()

    @property
    def is_over(self) -> bool:
        """Whether the slice has ended, so that others should have their turn."""
        return perf_counter() >= self._until

    def share(self, run: Callable[[], object]) -> None:
        """Call `run` in a turn that it shares with others of its kind, outside of the slice."""
        self._turns.share(run)

    async def next(self) -> None:
        """Let others have their turn, and begin another slice."""
        await self._turns.next()
        self.begin()
