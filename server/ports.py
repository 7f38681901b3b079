"""Ports: bind the server's ports before it touches any data.

So a server whose port is taken ends without effect. Only a server that takes over may find its
ports at the live server: it binds them once that has ended. A bound port refuses connections until
the server listens on it.

SO_REUSEADDR is set while binding, so that connections of an ended server in TIME_WAIT do not
matter, and while listening, so that accepted connections inherit it. Between the two it is cleared,
as Linux lets several processes bind one port if each has set it, and only one of them listen.
"""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from foreshore.errors import Unavailable
from foreshore.processes.owner import socket_name
from foreshore.processes.socket_path import short_path

POLL_SECONDS = 0.05

Address = tuple[str, int, str]  # host, port, and the option that gives them


def listen(port: socket.socket, backlog: int) -> None:
    """Let a bound socket accept connections, at most `backlog` of them before they are served."""
    if port.family != socket.AF_UNIX:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.listen(backlog)


async def bind_all(addresses: Sequence[Address]) -> list[list[socket.socket]]:
    """Return the sockets of each address; raises Unavailable, with none bound, if one is in use."""
    bound: list[list[socket.socket]] = []
    try:
        for each in addresses:
            bound.append(await bind(*each))
    except Unavailable:
        for port in (port for ports in bound for port in ports):
            port.close()
        raise
    return bound


async def bind_all_within(
    seconds: float, addresses: Sequence[Address]
) -> list[list[socket.socket]]:
    """Return what `bind_all` returns once it succeeds; raises its error after so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            return await bind_all(addresses)
        except Unavailable:
            if loop.time() > end:
                raise
        await asyncio.sleep(POLL_SECONDS)


async def bind(host: str, port: int, option: str) -> list[socket.socket]:
    """Return sockets bound to each address of `host`; raises Unavailable if one is in use.

    Port 0 chooses a free port; an empty host binds none. `option` is the command-line option that
    the error's hint names.
    """
    loop = asyncio.get_running_loop()
    bound: list[socket.socket] = []
    if not host:
        return bound
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bound.append(socket.socket(family, kind, protocol))
            bound[-1].setblocking(False)
            bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound[-1].bind(address)
            bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError as error:
        for each in bound:
            each.close()
        raise Unavailable(
            f'could not bind address "{host}:{port}": {error.strerror}',
            sqlstate="58000",
            hint=f"Is another server running there? End it, or choose another address by {option}.",
        ) from error
    return bound


def bind_unix(directory: Path) -> socket.socket:
    """Return a socket bound in a directory, for this user alone; raises Unavailable.

    It replaces a socket that is there: whoever has the lock on the data has the place of the
    socket, too. Close it with `unlink_unix`.
    """
    path = directory / socket_name()
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with short_path(str(path)) as short:
            found.bind(short)
        path.chmod(0o600)
    except OSError as error:
        found.close()
        raise Unavailable(
            f'could not bind Unix address "{path}": {error.strerror or error}',
            sqlstate="58000",
            hint="Choose another directory by --socket-dir.",
        ) from error
    found.setblocking(False)
    return found


def unlink_unix(directory: Path) -> None:
    """Remove the socket in a directory."""
    (directory / socket_name()).unlink(missing_ok=True)
