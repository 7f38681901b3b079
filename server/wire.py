"""A wire: the bytes of one connection, in and out, both bounded, and an eye on the socket.

Whoever converses over it is a task. While that waits for input it hears of the client's leaving as
`Gone`; while it is busy, with a statement that may run for long, it is cancelled.

All that clients hear goes out here, and only under a lease (lease.py): where that has run out it is
kept back until the lease holds again.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from foreshore.server.lease import Lease
from foreshore.server.protocol import MessageReader

READ_AHEAD = 4 * 1024 * 1024  # bytes of messages not yet taken, beyond which reading pauses
SEND_AT = 64 * 1024  # bytes gathered, beyond which they are sent before the answer is complete
SEND_QUEUE = 1024 * 1024  # bytes sent that the client has not taken, beyond which we wait


class Gone(Exception):
    """The client has closed the connection."""


class Wire(asyncio.Protocol):
    """The bytes of one connection; `run` is the task that uses them."""

    def __init__(self, lease: Lease, run: Callable[["Wire"], asyncio.Task[None]]) -> None:
        self.reader = MessageReader()
        self.peer = ""
        self.loopback = False
        self._lease = lease
        self._run = run
        self._out: list[bytes] = []
        self._out_size = 0
        self._waiter: asyncio.Future[None] | None = None  # of whoever waits for input
        self._drained: asyncio.Future[None] | None = None  # of whoever waits to send
        self._kept_back: asyncio.Future[None] | None = None  # until the lease is renewed
        self._reading = True
        self._gone = False
        self._done = False

    # --- called by the loop ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the conversation."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self._transport.set_write_buffer_limits(high=SEND_QUEUE)
        address = transport.get_extra_info("peername")
        host = address[0] if address else ""
        self.peer = f"{host}:{address[1]}" if address else ""
        self.loopback = host.startswith("127.") or host in ("::1", "")
        self._task = self._run(self)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes and wake who waits for them."""
        self.reader.feed(data)
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif self.reader.buffered > READ_AHEAD and self._reading:
            self._transport.pause_reading()
            self._reading = False

    def eof_received(self) -> bool:
        """Take it that the client has left; what it did not wait for is not worth finishing."""
        self._leave()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Take note that the client has left."""
        self._leave()
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(Gone())

    def pause_writing(self) -> None:
        """Take note that the client reads more slowly than we write."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let who waits go on sending."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _leave(self) -> None:
        self._gone = True
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif not self._done:
            self._done = True
            self._task.cancel()

    # --- called by the conversation -------------------------------------------------------

    async def more(self) -> None:
        """Wait until more bytes have arrived; raises Gone."""
        if self._gone:
            raise Gone
        if not self._reading:
            self._transport.resume_reading()
            self._reading = True
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._gone and not self.reader.buffered:
            raise Gone

    async def upcoming(self) -> int:
        """Return the type of the next message, which has not to be there as a whole; raises Gone.

        A client that has to be answered before it sends more says so by a message.
        """
        while (code := self.reader.upcoming()) is None:
            await self.more()
        return code

    def put(self, data: bytes) -> None:
        """Add to what will be sent."""
        self._out.append(data)
        self._out_size += len(data)

    def flush(self) -> None:
        """Send what has been added, as soon as the lease holds."""
        if self._out:
            if not self._lease.holds():
                self._keep_back()
                return
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            if not self._transport.is_closing():
                self._transport.write(data)

    def _keep_back(self) -> None:
        if self._kept_back is None:
            self._kept_back = self._lease.renewed()
            self._kept_back.add_done_callback(self._go_on)

    def _go_on(self, renewed: asyncio.Future[None]) -> None:
        self._kept_back = None
        self.flush()

    async def relieve(self) -> None:
        """Send what has been added if it is much, and wait while the client takes too little."""
        if self._out_size >= SEND_AT:
            self.flush()
        while self._kept_back is not None:
            await asyncio.shield(self._kept_back)
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def close(self, last: bytes = b"") -> None:
        """End the connection when all has been sent, and at the end `last`, why it ends.

        That is told in any case; what was kept back is not.
        """
        self._done = True
        self.flush()
        self._out.clear()
        if last and not self._transport.is_closing():
            self._transport.write(last)
        self._transport.close()

    def finish(self) -> None:
        """Say that from now on the task ends by itself and is not to be cancelled."""
        self._done = True

    def cancel(self) -> None:
        """End the task, whatever it does; its session is to end."""
        if not self._done:
            self._done = True
            self._task.cancel()
