"""SSH tunnels: ports of the loopback that lead through an SSH server to an external system.

    a client ──► 127.0.0.1:port ──► SSH connection ──► SSH server ──► host:port

A thread has an event loop for all tunnels of the process, so that clients that block can use them.
A tunnel has one SSH connection, which is made when it is needed, and anew after it broke. What was
open through it ends then, so a source or sink sees its own connection fail and tries again.
"""

import asyncio
import concurrent.futures
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

from foreshore.errors import ConnectionFailure, FeatureNotSupported
from foreshore.storage.external.access import Tunnel

HOST = "127.0.0.1"
MOST_PORTS = 64  # that lead somewhere; the one that was asked for longest ago is closed
CHUNK = 65_536
LONGEST_SECONDS = 25.0  # for an SSH connection, in its several steps

T = TypeVar("T")


class LoopbackPort(ABC):
    """A port of the loopback for clients of this machine; its `number` is 0 until it is open."""

    def __init__(self) -> None:
        self.number = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.number = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listen no longer; clients that are connected go on."""
        if self._server is not None:
            self._server.close()

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client."""


class Port(LoopbackPort):
    """A port that leads to a place beyond a tunnel."""

    def __init__(self, tunnel: Tunnel, host: str, port: int) -> None:
        super().__init__()
        # Of the last client: why the place was not reached.
        self.failure: ConnectionFailure | None = None
        self._tunnel, self._place = tunnel, (host, port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await ssh().connected(self._tunnel)
            far_reader, far_writer = await ssh().opened(connection, self._tunnel, *self._place)
            self.failure = None
            try:
                await ended(passed_on(reader, far_writer), passed_on(far_reader, writer))
            finally:
                far_writer.close()
        except ConnectionFailure as error:
            self.failure = error
        except (OSError, ssh().Error) as error:
            self.failure = ConnectionFailure(str(error) or "the SSH connection was lost")
        finally:
            writer.close()


def ssh() -> Any:
    """Return the module that connects; raises FeatureNotSupported if its package is missing."""
    try:
        return import_module("foreshore.storage.external.ssh")
    except ModuleNotFoundError as error:
        if error.name != "asyncssh":
            raise
        raise FeatureNotSupported(
            'the Python package "asyncssh" is not installed',
            hint="SSH tunnels need pip install 'foreshore[ssh]'.",
        ) from None


async def ended(*works: Coroutine[Any, Any, None]) -> None:
    """Run all of these until one of them ends; raise what it raised."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for each in done:
        each.result()


async def passed_on(reader: Any, writer: Any) -> None:
    """Pass on bytes until there are no more."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


class _Thread:
    """The event loop of all tunnels, in a thread that begins with the first of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()
        self._ports: OrderedDict[tuple[Tunnel, str, int], Port] = OrderedDict()

    def begin(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run something in the loop; return the result to come."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="tunnels", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def port(self, tunnel: Tunnel, host: str, port: int) -> Port:
        """Return a port that leads to a place, once the SSH connection is there."""
        await ssh().connected(tunnel)
        key = (tunnel, host, port)
        found = self._ports.get(key)
        if found is None:
            found = Port(tunnel, host, port)
            await found.open()
            self._ports[key] = found
            if len(self._ports) > MOST_PORTS:
                self._ports.popitem(last=False)[1].close()
        self._ports.move_to_end(key)
        return found


THREAD = _Thread()


def waited_for(tunnel: Tunnel, work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine of the tunnels' thread returns. Blocks; raises ConnectionFailure."""
    future = THREAD.begin(work)
    try:
        return future.result(LONGEST_SECONDS)
    except TimeoutError:
        future.cancel()
        raise _late(tunnel) from None


def port_to(tunnel: Tunnel, host: str, port: int) -> Port:
    """Return a port that leads through a tunnel. Blocks; raises ConnectionFailure."""
    return waited_for(tunnel, THREAD.port(tunnel, host, port))


async def opened_port(tunnel: Tunnel, host: str, port: int) -> Port:
    """Return a port that leads through a tunnel; raises ConnectionFailure."""
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            return await asyncio.wrap_future(THREAD.begin(THREAD.port(tunnel, host, port)))
    except TimeoutError:
        raise _late(tunnel) from None


async def validate(tunnel: Tunnel) -> None:
    """Reach the SSH server and log in; raises ConnectionFailure."""
    await asyncio.wrap_future(THREAD.begin(ssh().connected(tunnel, anew=True)))


def _late(tunnel: Tunnel) -> ConnectionFailure:
    return ConnectionFailure(
        f"the SSH server at {tunnel.host}:{tunnel.port} has not answered within"
        f" {LONGEST_SECONDS:.0f} seconds"
    )
