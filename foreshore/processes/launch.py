"""Launchers: how a controller starts a replica, or finds the one at an address.

    ProcessLauncher   starts a child process (process.py)
    AddressLauncher   finds a replica that was started by hand at HOST:PORT

Tests have their own launcher, which runs the replica in the test's process.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.processes.handshake import LEAST_SECRET
from foreshore.processes.transport import SECRET_VARIABLE, Connection


class Launched(Protocol):
    """A started replica."""

    @property
    def pid(self) -> int | None:
        """Return the process id, if it is a child of this process."""

    @property
    def secret(self) -> str:
        """Return the secret that both ends show each other that they know."""

    @property
    def exited(self) -> asyncio.Event:
        """Return the event that is set when the replica ends."""

    async def connect(self, connection: Connection[Any]) -> None:
        """Connect as soon as it listens; return without a connection if it ends before."""


class Launcher(Protocol):
    """Starts a replica, and ends it when the context is left."""

    def start(self) -> AbstractAsyncContextManager[Launched]:
        """Return the context in which the replica runs; entering it may raise OSError."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A replica at an address, with the secret of this process's environment."""

    address: str
    secret: str
    pid: None = None
    exited: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self, connection: Connection[Any]) -> None:
        """Connect at once, or raise OSError."""
        host, _, port = self.address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, host, int(port))


@dataclass(frozen=True, slots=True)
class AddressLauncher:
    """Finds the replica at HOST:PORT, which outlives its controller."""

    address: str

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Launched]:
        """Yield the replica; entering it may raise ObjectNotInPrerequisiteState."""
        yield Remote(self.address, replica_secret())


def replica_secret() -> str:
    """Return the secret that replicas at an address have to know.

    Raises ObjectNotInPrerequisiteState if this process has none, or a short one.
    """
    secret = os.environ.get(SECRET_VARIABLE, "")
    if len(secret) < LEAST_SECRET:
        raise ObjectNotInPrerequisiteState(
            f"{SECRET_VARIABLE} is not set",
            detail="A replica at an address and the server show each other that both know it.",
            hint=f"Start both with the same secret of at least {LEAST_SECRET} characters.",
        )
    return secret
