"""Slices: a protocol takes the bytes that have come while others get the event loop's time, too.

A client may send 40,000 chunks or frames of one byte in what is read at once, and many clients may
do so. They are taken in parts of SLICE_BYTES, as long as the callbacks of this step of the loop
have time (`turns.py`); the rest waits for its turn, and nothing more is read meanwhile.
"""

import asyncio
from collections.abc import Callable

from foreshore.server.turns import Turn, turns_of_loop

SLICE_BYTES = 4096


class Slices:
    """Gives the bytes of a connection to `take`; `is_paused`: whether it wants no more of them."""

    def __init__(
        self,
        transport: asyncio.Transport,
        take: Callable[[bytes], None],
        is_paused: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._take = take
        self._is_paused = is_paused
        self._rest = bytearray()  # the present slice takes it, or that of the next turn
        self._is_busy = False  # a slice is running or waits for its turn
        self._turns = turns_of_loop()

    def put(self, data: bytes) -> None:
        """Take bytes now, as far as this step of the loop has time, and the rest later."""
        self._rest += data
        if self._is_busy:  # somebody else has let the transport read
            self._transport.pause_reading()
            return
        if self._turns.has_time():
            self._run(self._turns.has_time)
        else:
            self._wait()
        if self._is_busy:
            self._transport.pause_reading()

    def _have_turn(self) -> None:
        turn = Turn()
        self._run(lambda: not turn.is_over)
        if not self._is_busy and not self._transport.is_closing() and not self._is_paused():
            self._transport.resume_reading()

    def _run(self, may_go_on: Callable[[], bool]) -> None:
        """Take a part of the bytes, and others while it may; let the rest wait for a turn."""
        at, rest = 0, self._rest
        self._is_busy = True
        try:
            while at < len(rest) and not self._transport.is_closing():
                part = bytes(rest[at : at + SLICE_BYTES])
                at += SLICE_BYTES
                self._take(part)
                if not may_go_on():
                    break
        finally:
            del rest[:at]
            self._is_busy = False
        if self._transport.is_closing():
            rest.clear()
        elif rest:
            self._wait()

    def _wait(self) -> None:
        self._is_busy = True
        self._turns.call(self._have_turn)
