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

from foreshore.errors import Unavailable

POLL_SECONDS = 0.05

Address = tuple[str, int, str]  # host, port, and the option that gives them


def listen(port: socket.socket, backlog: int) -> None:
    """Let a bound socket accept connections, at most `backlog` of them before they are served."""
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

    Port 0 chooses a free port. `option` is the command-line option that the error's hint names.
    """
    loop = asyncio.get_running_loop()
    bound: list[socket.socket] = []
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
