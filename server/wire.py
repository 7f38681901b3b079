"""The wire: the bytes of one connection, in and out, both bounded.

A task uses the wire. While it waits for requests (`idle`), the callback that receives input begins
the work on it, and the task goes on with what waits (eager.py). If the client disconnects while the
task waits for input, the task gets `Disconnected`. If the task is busy, `runs_on` decides: it goes
on with what has arrived, in its turns like every other (turns.py), until it has used all input; or
it is cancelled. Once a send has failed, it goes on for `SEND_AT` bytes more of answers, and for
`RUN_ON_S` at most.

All answers to clients go through `flush`, and only under a lease (lease.py). If the lease has run
out, they are held back until it is renewed.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from typing import Any, cast

from foreshore import blocking
from foreshore.loop_watchdog import protocol_callback
from foreshore.server.client_encoding import ClientEncoding
from foreshore.server.eager import Rest, start
from foreshore.server.lease import Lease
from foreshore.server.message import PIECE, Bytes, LongMessage, Message, parse_long
from foreshore.server.protocol import MessageReader
from foreshore.server.tls import HANDSHAKE_LIMIT, Credentials, TlsLayer
from foreshore.server.turns import Turn

READ_AHEAD = 4 * 1024 * 1024  # reading pauses beyond so many bytes of messages not yet handled
SEND_AT = 64 * 1024  # so many gathered bytes are sent before the answer is complete
SEND_QUEUE = 1024 * 1024  # sending waits beyond so many bytes that the client has not read
RUN_ON_S = 5  # how long what has arrived may run once its answers cannot be sent
LINGER_S = 10  # how long a client may take to read what is left when its connection is closed


class Disconnected(Exception):
    """The client has closed the connection."""


class Wire(asyncio.Protocol):
    """The bytes of one connection; `run` begins the task that uses them, in the wire's context."""

    def __init__(self, lease: Lease, run: Callable[["Wire"], asyncio.Task[None]]) -> None:
        self.reader = MessageReader()
        self.context: Context = copy_context()
        self.encoding: ClientEncoding | None = None
        self.peer = ""
        self.host = ""  # the client's address
        self.tls: TlsLayer | None = None  # what encrypts the connection
        self._lease = lease
        self._run = run
        # Where a statement's end may be asked for while it waits for the client to read.
        self.interruptible: Callable[[], AbstractContextManager[None]] = nullcontext
        self.reopened: Callable[[], None] = lambda: None  # called when `is_open` is true again
        self._out: list[Bytes] = []
        self._out_size = 0
        self._waiter: asyncio.Future[None] | None = None  # done when input arrives
        self._begin: Callable[[], Coroutine[Any, Any, None]] | None = None  # see `idle`
        self._begun: asyncio.Future[None] | None = None  # done when the task is to go on
        self._rest: Rest | None = None  # of what has begun
        self._drained: asyncio.Future[None] | None = None  # done when the client has read enough
        self._held_back: asyncio.Future[None] | None = None  # done when the lease is renewed
        self._reading = True
        # Whether the busy task goes on when its client has gone.
        self.runs_on: Callable[[], bool] = lambda: False
        self._disconnected = False
        self._lost_at: float | None = None  # since when nothing can be sent any more
        self._unsent = 0  # bytes of answers that could not be sent
        self._done = False  # the task must not be cancelled any more

    # --- called by the loop ---------------------------------------------------------------

    @protocol_callback
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the conversation."""
        socket = cast(asyncio.Transport, transport)  # uvloop's type does not say so
        socket.set_write_buffer_limits(high=SEND_QUEUE)
        self._transport: asyncio.Transport | TlsLayer = socket
        address = transport.get_extra_info("peername")
        self.host = address[0] if address else ""
        self.peer = f"{self.host}:{address[1]}" if address else ""
        self.turn = Turn()
        self._task = self._run(self)

    @protocol_callback
    def data_received(self, data: bytes) -> None:
        """Keep the bytes, and begin the work on them or wake the task if it waits for input."""
        self.reader.feed(data)
        if self._begin is not None:
            self._start()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self.reader.buffered > READ_AHEAD and self._reading:
            self._transport.pause_reading()
            self._reading = False

    def _start(self) -> None:
        """Work on what has arrived, while the task waits in `idle`."""
        assert self._begin is not None
        assert self._begun is not None
        begin, self._begin = self._begin, None
        try:
            if self.turn.begin_in_callback():
                self._rest = start(self._task, self.context, begin())
            else:
                self._rest = Rest(self._in_turn(begin))
        except asyncio.CancelledError:
            self._task.cancel()
            return
        except Exception as error:
            if not self._begun.done():
                self._begun.set_exception(error)
            return
        if self._begun.done():  # the task has been cancelled meanwhile
            return
        if self._rest is None:
            self._begin = begin
        else:
            self._begun.set_result(None)

    async def _in_turn(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin work when it is this connection's turn."""
        await self.turn.next()
        await begin()

    def eof_received(self) -> bool:
        """Treat the end of input as a disconnect; answers are sent as long as they can be."""
        self._disconnect()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """End the task if it waits to receive or to send."""
        self._lost_at = asyncio.get_running_loop().time()
        self._disconnect()
        if self._drained is not None and not self._drained.done():
            # No exception: its traceback would keep the rows of whoever waits.
            self._drained.set_result(None)

    def pause_writing(self) -> None:
        """Make `relieve` wait: the client reads more slowly than the server writes."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let `relieve` go on."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)
        self.reopened()

    def _disconnect(self) -> None:
        self._disconnected = True
        if self._begin is not None:
            self._begin = None
            if self._begun is not None and not self._begun.done():
                self._begun.set_result(None)
        elif self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif not self._done and not self.runs_on():
            self._done = True
            self._task.cancel()

    # --- called by the conversation -------------------------------------------------------

    async def start_tls(self, credentials: Credentials) -> None:
        """Encrypt the connection; the bytes that have arrived begin the client's handshake.

        Raises Disconnected and SSLError.
        """
        assert self.tls is None
        socket = cast(asyncio.Transport, self._transport)
        layer = TlsLayer(socket, self, credentials)
        received, complete = 0, False
        while not complete:
            if not self.reader.buffered:
                await self.more()
            received += self.reader.buffered
            layer.feed(self.reader.take())
            if received > HANDSHAKE_LIMIT:
                raise ssl.SSLError("the handshake is too long")
            try:
                complete = await blocking.run(None, layer.step)
            except ssl.SSLError:
                layer.send()  # the alert
                raise
            layer.send()  # not if this is cancelled: the thread works at the layer then
        layer.feed(self.reader.take())
        socket.set_protocol(layer)
        self._transport = self.tls = layer
        layer.deliver()

    @property
    def is_connected(self) -> bool:
        """Whether the client has not closed the connection."""
        return not self._disconnected

    @property
    def is_open(self) -> bool:
        """Whether an answer can be sent now."""
        return not (self._disconnected or self._done or self._held_back or self._drained)

    async def idle(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have `begin()` work on all that arrives, up to the end of work that had to wait.

        Nothing has arrived yet that can be worked on. Raises Disconnected, and the work's errors.
        """
        if self._disconnected:
            raise Disconnected
        self._resume_reading()
        self._begin, self._begun = begin, asyncio.get_running_loop().create_future()
        try:
            await self._begun
        except asyncio.CancelledError:
            if self._rest is None:
                raise
            self._rest.is_cancelled = True
        finally:
            self._begin = self._begun = None
            rest, self._rest = self._rest, None
        if rest is None:
            raise Disconnected
        await rest

    async def more(self) -> None:
        """Wait until more bytes have arrived; raises Disconnected."""
        if self._disconnected:
            raise Disconnected
        self._resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        self.turn.begin()
        if self._disconnected and not self.reader.buffered:
            raise Disconnected

    def _resume_reading(self) -> None:
        if not self._reading:
            self._transport.resume_reading()
            self._reading = True

    async def next(self) -> Message:
        """Return the next message once it has arrived; raises Disconnected.

        A long one is parsed on a thread.
        """
        while (received := await self.arrived()) is None:
            await self.more()
        return received

    async def arrived(self) -> Message | None:
        """Return the next message if it has arrived, else None; others have their turn before."""
        await self.share()
        received = self.reader.next()
        if isinstance(received, LongMessage):
            return await blocking.run(None, parse_long, received, self.reader.recode)
        return received

    def require_reader(self) -> None:
        """Raise Disconnected if the session is to end: nobody reads what it answers."""
        if self._lost_at is None:
            return
        seconds = asyncio.get_running_loop().time() - self._lost_at
        if self._unsent >= SEND_AT or seconds >= RUN_ON_S:
            raise Disconnected

    async def share(self) -> None:
        """Let other connections have their turn if this one has had its slice.

        Waits also while the client reads too slowly. Raises Disconnected.
        """
        self.require_reader()
        if self._out_size >= SEND_AT or self._drained is not None or self._held_back is not None:
            await self.relieve()
        if self.turn.is_over:
            await self.turn.next()

    async def upcoming(self) -> int:
        """Return the type of the next message once its first byte is there; raises Disconnected.

        This cannot deadlock: a client that waits for an answer has sent Sync or Flush.
        """
        while (code := self.reader.upcoming()) is None:
            await self.more()
        return code

    def set_encoding(self, encoding: ClientEncoding | None) -> None:
        """Convert texts of messages from now on; None: the client's encoding is UTF8."""
        self.encoding = encoding
        self.reader.recode = None if encoding is None else encoding.incoming

    def put(self, data: Bytes) -> None:
        """Add bytes to be sent by the next `flush`: whole messages if an encoding is set."""
        if self.encoding is not None:
            data = self.encoding.outgoing(data)
        self._out.append(data)
        self._out_size += len(data)

    def put_rows(self, data: Bytes) -> None:
        """Add bytes whose texts are in the client's encoding."""
        self._out.append(data)
        self._out_size += len(data)

    def flush(self) -> None:
        """Send the added bytes, now or when the lease is renewed."""
        if self._out:
            if not self._lease.is_valid():
                self._hold_back()
                return
            if self._transport.is_closing():
                self._unsent += self._out_size
            else:
                out = self._out
                for data in out if len(out) == 1 else _joined(out, self._out_size):
                    self._transport.write(data)
            self._out.clear()
            self._out_size = 0

    def _hold_back(self) -> None:
        if self._held_back is None:
            self._held_back = self._lease.next_renewal()
            self._held_back.add_done_callback(self._send_held_back)

    def _send_held_back(self, renewed: asyncio.Future[None]) -> None:
        self._held_back = None
        self.flush()
        self.reopened()

    async def sent(self) -> None:
        """Send the added bytes, and wait for the lease if it has run out."""
        self.flush()
        while self._held_back is not None:
            await asyncio.shield(self._held_back)

    async def relieve(self) -> None:
        """Send the added bytes if there are many, and wait while the client reads too slowly.

        Raises Disconnected if there are many and nobody is there to read them.
        """
        if self._out_size >= SEND_AT:
            if self._lost_at is not None:
                raise Disconnected
            self.flush()
        if self._held_back is None and self._drained is None:
            return
        with self.interruptible():
            while self._held_back is not None:
                await asyncio.shield(self._held_back)
            if self._drained is not None:
                await asyncio.shield(self._drained)
        if self._lost_at is not None:
            raise Disconnected

    def close(self, last: bytes = b"") -> None:
        """Close the connection after sending everything, and then `last`, the reason.

        `last` needs no lease. Answers that are held back are discarded.
        """
        self._done = True
        self.flush()
        self._out.clear()
        if last and not self._transport.is_closing():
            self._transport.write(last)
        self._transport.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def finish(self) -> None:
        """Protect the task from being cancelled: it is ending by itself."""
        self._done = True

    def cancel(self) -> None:
        """Cancel the task, to end its session."""
        if not self._done:
            self._done = True
            self._task.cancel()


def _joined(pieces: list[Bytes], size: int) -> list[Bytes]:
    """Return pieces of `size` bytes joined to one; long ones are left, as copying takes long."""
    if size <= PIECE:
        return [b"".join(pieces)]
    joined: list[Bytes] = []
    short: list[Bytes] = []
    for piece in pieces:
        if len(piece) <= SEND_AT:
            short.append(piece)
        else:
            joined += [b"".join(short), piece]
            short = []
    return [each for each in (*joined, b"".join(short)) if each]
