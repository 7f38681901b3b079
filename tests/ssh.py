"""An SSH server on the loopback, which lets clients with given keys reach other ports."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import asyncssh

from tests.harness import free_port

HOST = "127.0.0.1"


class SshServer:
    """Runs in a thread; forgets its connections when it is stopped, and may start again."""

    def __init__(self) -> None:
        self.port = free_port()
        self.keys: list[str] = []  # public ones, of those who may log in
        self.opened: list[tuple[str, int]] = []  # the places that clients have reached
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._acceptor: Any = None
        self._clients: set[Any] = set()
        self.start()

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._run(self._start())

    def stop(self) -> None:
        """Cut all connections, and listen no longer."""
        self._run(self._stop())

    def close(self) -> None:
        """End the thread."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self._acceptor = await asyncssh.listen(
            HOST,
            self.port,
            server_factory=lambda: _Server(self),
            server_host_keys=[self.host_key],
            reuse_address=True,
        )

    async def _stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            for each in list(self._clients):
                each.abort()
            await self._acceptor.wait_closed()
            self._acceptor = None


class _Server(asyncssh.SSHServer):
    def __init__(self, owner: SshServer) -> None:
        self._owner = owner

    def connection_made(self, conn: Any) -> None:
        self._connection = conn
        self._owner._clients.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner._clients.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: Any) -> bool:
        known = [asyncssh.import_public_key(each) for each in self._owner.keys]
        return username == "bastion" and key in known

    def connection_requested(self, dest_host: str, dest_port: int, *_: Any) -> bool:
        self._owner.opened.append((dest_host, dest_port))
        return True
