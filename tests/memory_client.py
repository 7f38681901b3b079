"""A client of a session in this process: its bytes come in a callback of the loop, as from a socket."""

import asyncio
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

from foreshore.adapter.session.session import Session
from foreshore.server.connection import Conversation
from foreshore.server.lease import Lease
from foreshore.server.wire import Disconnected, Wire

READY = b"Z\0\0\0\x05"  # and the transaction's status


class MemoryTransport(asyncio.Transport):
    """A transport whose peer is this process: what is written is kept, and `wrote` is called."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self.wrote: Callable[[], None] = lambda: None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Accept whatever is written."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep what is written."""
        self.written += data
        self.wrote()

    def is_closing(self) -> bool:
        """Return that it is open."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return that nothing waits to be read."""
        return 0

    def close(self) -> None:
        """Do nothing: the transport belongs to the test."""

    def pause_reading(self) -> None:
        """Do nothing: the client waits for its answers."""

    def resume_reading(self) -> None:
        """Do nothing."""


class MemoryClient:
    """A client of a session, connected without a socket."""

    def __init__(self, session: Session, lease: Lease) -> None:
        self.session = session
        self.transport = MemoryTransport()
        self.wire = Wire(lease, self._start)
        self.wire.connection_made(self.transport)

    @classmethod
    async def connect(cls, session: Session) -> "MemoryClient":
        """Return a client that has been greeted, under a lease that does not run out."""
        lease = Lease(lambda: None, lambda: 0.0)
        await lease.renew()
        client = cls(session, lease)
        await client.ready()
        return client

    def _start(self, wire: Wire) -> asyncio.Task[None]:
        wire.reader.open()
        self.task = asyncio.get_running_loop().create_task(self._serve(wire), context=wire.context)
        return self.task

    async def _serve(self, wire: Wire) -> None:
        with suppress(Disconnected):
            await Conversation(wire, self.session).run()

    def receive(self, data: bytes) -> None:
        """Let the server receive bytes in the next step of the loop."""
        asyncio.get_running_loop().call_soon(self.wire.data_received, data)

    def take(self) -> bytes:
        """Return what has been answered since the last call."""
        taken = bytes(self.transport.written)
        self.transport.written.clear()
        return taken

    async def ready(self, times: int = 1) -> bytes:
        """Return what is answered up to so many ReadyForQuery."""
        written, wrote = self.transport.written, asyncio.Event()
        self.transport.wrote = wrote.set
        async with asyncio.timeout(60):
            while written.count(READY) < times:
                wrote.clear()
                await wrote.wait()
        return self.take()

    async def send(self, data: bytes) -> bytes:
        """Return what is answered to bytes up to ReadyForQuery."""
        self.receive(data)
        return await self.ready()

    async def send_at_once(self, data: bytes) -> bytes:
        """Return what the callback that receives bytes answers."""
        await asyncio.sleep(0)
        self.receive(data)
        await asyncio.sleep(0)
        return self.take()

    async def send_until_at_once(self, data: bytes) -> bytes:
        """Return what the callback answers, sending bytes again while its slice was over.

        On a busy machine the process may wait for a processor within the callback.
        """
        async with asyncio.timeout(60):
            while not (answered := await self.send_at_once(data)):
                await self.ready()
        return answered

    async def close(self) -> None:
        """End the conversation and the session."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.session.close()


def frame(code: bytes, body: bytes = b"") -> bytes:
    """Return a message."""
    return code + struct.pack("!i", len(body) + 4) + body


def query(sql: str) -> bytes:
    """Return a Query message."""
    return frame(b"Q", sql.encode() + b"\0")


def parse(name: str, sql: str, oids: Sequence[int] = ()) -> bytes:
    """Return a Parse message."""
    types = struct.pack(f"!h{len(oids)}i", len(oids), *oids)
    return frame(b"P", name.encode() + b"\0" + sql.encode() + b"\0" + types)


def bind(
    name: str,
    args: Sequence[bytes | None] = (),
    formats: Sequence[int] = (),
    results: Sequence[int] = (),
    portal: str = "",
) -> bytes:
    """Return a Bind message."""
    values = [
        struct.pack("!i", -1) if arg is None else struct.pack("!i", len(arg)) + arg for arg in args
    ]
    return frame(
        b"B",
        b"".join(
            (
                *(portal.encode(), b"\0", name.encode(), b"\0"),
                struct.pack(f"!h{len(formats)}h", len(formats), *formats),
                *(struct.pack("!h", len(args)), *values),
                struct.pack(f"!h{len(results)}h", len(results), *results),
            )
        ),
    )


def execute(most: int = 0) -> bytes:
    """Return an Execute message of the unnamed portal."""
    return frame(b"E", b"\0" + struct.pack("!i", most))


DESCRIBE = frame(b"D", b"P\0")  # the unnamed portal
SYNC = frame(b"S")
FLUSH = frame(b"H")
