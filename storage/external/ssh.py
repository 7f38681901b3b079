"""Connections to SSH servers: by our keys, to servers with the host key that they had at first.

All of this runs in the event loop of the tunnels.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncssh

from foreshore.errors import ConnectionFailure, InvalidParameterValue
from foreshore.storage.blob import sync_file
from foreshore.storage.external.access import Tunnel
from foreshore.storage.external.dial import addresses_soon, first_that_soon
from foreshore.storage.external.reasons import reasons

Error = asyncssh.Error
CONNECT_SECONDS = 10
SILENT_SECONDS = 15  # of a server that does not answer, after which it is asked again; thrice

_connections: dict[Tunnel, asyncssh.SSHClientConnection] = {}
_locks: dict[Tunnel, asyncio.Lock] = {}
MOST_TUNNELS = 64  # whose connections are kept; the oldest is closed


class _Client(asyncssh.SSHClient):
    """Knows a server by its host key."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel
        self.shown: str | None = None  # the key of another server than the one that was expected

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Return whether a server that is not known by its key may be the right one."""
        shown = _line(key)
        known = known_key(self._tunnel)
        if known is None:
            known = _keep(self._tunnel, shown)
        if _same(known, shown):
            return True
        self.shown = shown
        return False


def known_key(tunnel: Tunnel) -> str | None:
    """Return the host key that a server must have: the one that was given, or had at first."""
    if tunnel.host_key is not None:
        return tunnel.host_key
    try:
        return Path(tunnel.kept).read_text()
    except FileNotFoundError:
        return None


def _keep(tunnel: Tunnel, shown: str) -> str:
    """Keep the key that a server has at first; return it, or that which another kept before."""
    path = Path(tunnel.kept)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f"{path.name}.{os.getpid()}")
    whole.write_text(shown)
    sync_file(whole)
    try:
        os.link(whole, path)  # whole, or not at all
    except FileExistsError:
        return path.read_text()
    finally:
        whole.unlink()
    return shown


async def connected(tunnel: Tunnel, *, anew: bool = False) -> asyncssh.SSHClientConnection:
    """Return the connection of a tunnel, a new one if it broke; raises ConnectionFailure."""
    lock = _locks.setdefault(tunnel, asyncio.Lock())
    async with lock:
        found = _connections.get(tunnel)
        if found is not None and not found.is_closed() and not anew:
            return found
        made = await _connect(tunnel)
        if anew and found is not None and not found.is_closed():
            made.close()  # it was a trial
            return found
        _connections[tunnel] = made
        while len(_connections) > MOST_TUNNELS:
            oldest = next(iter(_connections))
            _connections.pop(oldest).close()
            _locks.pop(oldest, None)
        return made


async def _connect(tunnel: Tunnel) -> asyncssh.SSHClientConnection:
    where = f"{tunnel.host}:{tunnel.port}"
    client = _Client(tunnel)
    known = known_key(tunnel)
    try:
        trusted = [] if known is None else [asyncssh.import_public_key(known)]
    except asyncssh.KeyImportError:
        raise InvalidParameterValue(
            "the option HOST KEY of the connection to the SSH tunnel is no public key",
            hint="Write it as in a file known_hosts, without the host: ssh-ed25519 AAAA...",
        ) from None
    keys = [asyncssh.import_private_key(each) for each in tunnel.private_keys]
    try:
        return await first_that_soon(
            await addresses_soon(tunnel.host, tunnel.port),
            lambda address: asyncssh.connect(
                address,
                tunnel.port,
                username=tunnel.user,
                client_keys=keys,
                client_factory=lambda: client,
                known_hosts=(trusted, [], []),
                config=None,
                agent_path=None,
                preferred_auth="publickey",
                connect_timeout=CONNECT_SECONDS,
                login_timeout=CONNECT_SECONDS,
                keepalive_interval=SILENT_SECONDS,
            ),
        )
    except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
        if client.shown is None:
            raise _failure(where, str(error)) from error
        raise ConnectionFailure(
            f"the SSH server at {where} has another host key than before: {client.shown}",
            hint="If this is right, ALTER CONNECTION ... SET (HOST KEY '...') with this key.",
        ) from error
    except asyncssh.PermissionDenied as error:
        raise ConnectionFailure(
            f"the SSH server at {where} refuses the keys of user {tunnel.user}",
            hint="Add the public keys in mz_ssh_tunnel_connections to the user's authorized_keys.",
        ) from error
    except (asyncssh.Error, OSError, TimeoutError) as error:
        raise _failure(where, str(error) or "connection timeout expired") from error


async def opened(
    connection: asyncssh.SSHClientConnection, tunnel: Tunnel, host: str, port: int
) -> tuple[Any, Any]:
    """Return a reader and a writer for a place as the SSH server reaches it.

    Raises ConnectionFailure.
    """
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await connection.open_connection(host, port, encoding=None)
    except (asyncssh.Error, OSError, TimeoutError) as error:
        why = str(error) or "connection timeout expired"
        raise ConnectionFailure(
            f"the SSH server at {tunnel.host}:{tunnel.port} does not reach {host}:{port}: {why}",
            hint="Check HOST and PORT of the connection: they are as the SSH server sees them.",
        ) from error


def _failure(where: str, why: str) -> ConnectionFailure:
    return ConnectionFailure(
        f"could not connect to the SSH server at {where}: {reasons(why)}",
        hint="Check HOST and PORT of the connection to the SSH tunnel, and that the server runs.",
    )


def _line(key: asyncssh.SSHKey) -> str:
    """Return a public key as one line, without a comment."""
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


def _same(known: str, shown: str) -> bool:
    return known.split()[:2] == shown.split()[:2]
