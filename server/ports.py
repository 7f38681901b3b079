"""Ports: bind the server's ports before it touches any data.

So a server whose port is taken ends without effect. A bound port refuses connections until the
server listens on it.
"""

import asyncio
import socket

from foreshore.errors import Unavailable


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
    except OSError as error:
        for each in bound:
            each.close()
        raise Unavailable(
            f'could not bind address "{host}:{port}": {error.strerror}',
            sqlstate="58000",
            hint=f"Is another server running there? End it, or choose another address by {option}.",
        ) from error
    return bound
