"""Slices: a protocol takes the bytes that have come while others get the event loop's time, too.

A client may send 40,000 chunks or frames of one byte in what is read at once. They are taken in
parts of SLICE_BYTES; after SLICE_S of the loop's time the rest waits, and nothing more is read.
"""

import asyncio
from collections.abc import Callable
from time import thread_time

SLICE_BYTES = 4096
SLICE_S = 0.005


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
        self._rest = bytearray()  # a callback takes it
        self._is_running = False

    def put(self, data: bytes) -> None:
        """Take bytes now, as far as a slice reaches, and the rest later."""
        if self._is_running or self._rest:
            self._rest += data
        elif len(data) <= SLICE_BYTES:
            self._take(data)
        else:
            self._rest += data
            self._run(is_waiting=False)

    def _run(self, *, is_waiting: bool = True) -> None:
        end, at, rest = thread_time() + SLICE_S, 0, self._rest
        self._is_running = True
        try:
            while at < len(rest) and not self._transport.is_closing() and thread_time() < end:
                part = bytes(rest[at : at + SLICE_BYTES])
                at += SLICE_BYTES
                self._take(part)
        finally:
            self._is_running = False
            del rest[:at]
        if self._transport.is_closing():
            rest.clear()
        elif rest:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._run)
        elif is_waiting and not self._is_paused():
            self._transport.resume_reading()
