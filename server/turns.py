"""Turns: how connections share the processor of the event loop.

A connection that has much to do runs for a slice of 5 ms. Then it waits for its turn: of those that
wait one goes on in each step of the loop, in the order in which they came. So whatever else the
loop has to do waits for one slice a step, however many connections are busy, and each of these has
the same share.

    turn.begin()              after a wait for input
    if turn.is_over:          before the next message, statement or request
        await turn.next()
"""

import asyncio
from collections import deque
from time import perf_counter
from weakref import WeakKeyDictionary

SLICE_S = 0.005


class Turns:
    """The connections of one event loop that wait for their turn."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_going_on = False

    async def next(self) -> None:
        """Wait for a turn, after those who wait already."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_going_on:
            self._is_going_on = True
            loop.call_soon(self._go_on)
        await turn

    def _go_on(self) -> None:
        """Let the first one go on, and the others in later steps."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its task has not been cancelled
                turn.set_result(None)
                break
        self._is_going_on = bool(self._waiting)
        if self._is_going_on:
            asyncio.get_running_loop().call_soon(self._go_on)


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


class Turn:
    """The slice of time of one connection."""

    __slots__ = ("_turns", "_until")

    def __init__(self) -> None:
        self._turns = _TURNS.setdefault(asyncio.get_running_loop(), Turns())
        self.begin()

    def begin(self) -> None:
        """Begin a slice now."""
        self._until = perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Whether the slice has ended, so that others should have their turn."""
        return perf_counter() >= self._until

    async def next(self) -> None:
        """Let others have their turn, and begin another slice."""
        await self._turns.next()
        self.begin()
