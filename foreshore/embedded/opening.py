"""`foreshore.open` and `foreshore.connect`, and their asynchronous forms.

db = foreshore.open("./shop")                     # a server of this process, by a Unix socket
db = foreshore.connect("postgresql://host/shop")  # a server that runs already
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from foreshore.embedded.address import Address
from foreshore.embedded.database import Database, LoopThread
from foreshore.embedded.database_async import AsyncDatabase
from foreshore.embedded.server_process import ServerProcess


def open(path: str | Path, *, listen: str | None = None, options: Sequence[str] = ()) -> Database:
    """Open the database in a directory, which is made if it is not there.

    The database runs in a child process, which ends with this one. Other processes of this user
    reach it by `foreshore.connect(path)`; with `listen`, HOST:PORT, also PostgreSQL's clients over
    TCP. `options` are further ones of `foreshore serve`. Raises LockFileExists if another server
    has the directory.
    """
    server = ServerProcess(Path(path).resolve(), options, listen)
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


async def open_async(
    path: str | Path, *, listen: str | None = None, options: Sequence[str] = ()
) -> AsyncDatabase:
    """Open the database in a directory, as `open` does, for the running event loop."""
    loop = asyncio.get_running_loop()
    directory = await loop.run_in_executor(None, Path(path).resolve)
    server = await loop.run_in_executor(None, ServerProcess, directory, options, listen)
    return AsyncDatabase(Address(directory=directory), server)


async def connect_async(where: str | Path) -> AsyncDatabase:
    """Connect to a server, as `connect` does, for the running event loop."""
    address = await asyncio.get_running_loop().run_in_executor(None, Address.of, where)
    database = AsyncDatabase(address)
    await database.execute("SELECT 1")
    return database


def _database(address: Address, server: ServerProcess | None) -> Database:
    loop = LoopThread()

    async def make() -> AsyncDatabase:
        return AsyncDatabase(address, server)

    return Database(loop, loop.wait(make()), owns_loop=True)
