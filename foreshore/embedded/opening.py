"""`foreshore.open` and `foreshore.connect`, and their asynchronous forms.

db = foreshore.open("./shop")                     # a server of this process, by a Unix socket
db = foreshore.connect("postgresql://host/shop")  # a server that runs already
"""

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from foreshore.embedded.address import Address
from foreshore.embedded.database import Database, LoopThread
from foreshore.embedded.database_async import AsyncDatabase
from foreshore.embedded.server_process import ServerProcess

MEMORY = ":memory:"  # a directory of its own that goes when the database is closed


class _Closed(Protocol):
    async def close(self) -> None: ...


D = TypeVar("D", bound=_Closed)


class Opening(Awaitable[D], Generic[D]):
    """A database that is being opened: `db = await opening`, or `async with opening as db`."""

    def __init__(self, open: Callable[[], Coroutine[Any, Any, D]]) -> None:
        self._open = open
        self._opened: D | None = None

    def __await__(self) -> Generator[Any, None, D]:
        return self._open().__await__()

    async def __aenter__(self) -> D:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def open(
    path: str | Path = MEMORY, *, listen: str | None = None, options: Sequence[str] = ()
) -> Database:
    """Open the database in a directory, which is made if it is not there.

    Without a path, or with `:memory:`, it is in a temporary directory, which is removed when the
    database is closed. The database runs in a child process, which ends with this one. Other
    processes of this user reach it by `foreshore.connect(path)`; with `listen`, HOST:PORT, also
    PostgreSQL's clients over TCP. `options` are further ones of `foreshore serve`. Raises
    LockFileExists if another server has the directory.
    """
    server = _server(path, listen, options)
    return _database(Address(directory=server.data_dir), server)


def connect(where: str | Path) -> Database:
    """Connect to the server at a URL, or to the one that has a directory of this machine."""
    database = _database(Address.of(where), None)
    try:
        database.execute("SELECT 1")
    except BaseException:
        database.close()
        raise
    return database


def open_async(
    path: str | Path = MEMORY, *, listen: str | None = None, options: Sequence[str] = ()
) -> Opening[AsyncDatabase]:
    """Open the database in a directory, as `open` does, for the running event loop.

    Await the result, or use it by `async with`, which closes the database.
    """

    async def opened() -> AsyncDatabase:
        loop = asyncio.get_running_loop()
        starting = loop.run_in_executor(None, _server, path, listen, options)
        try:
            server = await asyncio.shield(starting)
        except asyncio.CancelledError:  # nobody would end what the thread goes on to start
            starting.add_done_callback(_end_server)
            raise
        return AsyncDatabase(Address(directory=server.data_dir), server)

    return Opening(opened)


def connect_async(where: str | Path) -> Opening[AsyncDatabase]:
    """Connect to a server, as `connect` does, for the running event loop.

    Await the result, or use it by `async with`.
    """

    async def connected() -> AsyncDatabase:
        address = await asyncio.get_running_loop().run_in_executor(None, Address.of, where)
        database = AsyncDatabase(address)
        try:
            await database.execute("SELECT 1")
        except BaseException:
            await database.close()
            raise
        return database

    return Opening(connected)


def _end_server(starting: asyncio.Future[ServerProcess]) -> None:
    """End a server for which nobody waits any more, on a thread."""
    if not starting.cancelled() and starting.exception() is None:
        threading.Thread(target=starting.result().close, name="foreshore server").start()


def _server(path: str | Path, listen: str | None, options: Sequence[str]) -> ServerProcess:
    if str(path) != MEMORY:
        return ServerProcess(Path(path).resolve(), options, listen)
    folder = Path(tempfile.mkdtemp(prefix="foreshore-")).resolve()
    return ServerProcess(folder / "data", options, listen, folder)


def _database(address: Address, server: ServerProcess | None) -> Database:
    loop = LoopThread()

    async def make() -> AsyncDatabase:
        return AsyncDatabase(address, server)

    return Database(loop, loop.wait(make()), owns_loop=True)
