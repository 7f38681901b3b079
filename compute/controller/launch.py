"""How a controller gets at a replica: a `Launcher` starts one, or finds the one at an address.

    ProcessLauncher   starts a child process (process.py)
    AddressLauncher   finds the replica that somebody else has started at HOST:PORT

Tests have one of their own, which runs the replica within the test's process.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from foreshore.compute.protocol import Response
from foreshore.compute.transport import SECRET_VARIABLE, Connection


class Launched(Protocol):
    """A replica that has been started."""

    @property
    def pid(self) -> int | None:
        """Its process, if that is a child of this one."""

    @property
    def secret(self) -> str:
        """The secret that its controller has to show."""

    @property
    def exited(self) -> asyncio.Event:
        """Set when it has ended by itself."""

    async def connect(self, connection: Connection[Response]) -> None:
        """Connect as soon as it listens; return without a connection if it ends before that."""


class Launcher(Protocol):
    """Starts a replica, and ends it when the context is left."""

    def start(self) -> AbstractAsyncContextManager[Launched]:
        """Return the context in which the replica runs; entering it may raise OSError."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A replica at an address; it shares the secret of this process's environment."""

    address: str
    secret: str
    pid: None = None
    exited: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self, connection: Connection[Response]) -> None:
        """Connect at once, or raise OSError."""
        host, _, port = self.address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, host, int(port))


@dataclass(frozen=True, slots=True)
class AddressLauncher:
    """Finds the replica that listens at HOST:PORT, which does not end with its controller."""

    address: str

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Launched]:
        """Give the replica."""
        yield Remote(self.address, os.environ.get(SECRET_VARIABLE, ""))
