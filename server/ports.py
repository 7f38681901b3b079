"""Ports: taken before anything else is begun, so that a second server ends before it touches data.

A bound port is ours, but refuses connections until something listens on it.
"""

import asyncio
import socket

from foreshore.errors import Unavailable


async def bind(host: str, port: int, option: str) -> list[socket.socket]:
    """Return sockets bound at each address that `host` has; raises Unavailable if one is taken.

    With port 0 a free one is chosen. `option` is the one by which another place can be named.
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
            hint=f"Is another server running there? End it, or name another place with {option}.",
        ) from error
    return bound
