"""Ports: one that is bound is nobody else's, before the server listens on it and after."""

import asyncio
import socket

import pytest

from foreshore.errors import Unavailable
from foreshore.server.ports import bind, listen


async def _bound(port: int) -> socket.socket:
    (found,) = await bind("127.0.0.1", port, "--pg-listen")
    return found


def test_bound_port_cannot_be_bound_again() -> None:
    with asyncio.run(_bound(0)) as first:
        port = first.getsockname()[1]
        for _ in range(2):
            with pytest.raises(Unavailable, match=f'could not bind address "127.0.0.1:{port}"'):
                asyncio.run(_bound(port))
            listen(first, 1)


def test_port_can_be_bound_while_old_connections_wait() -> None:
    """The side that closes first keeps its connection in TIME_WAIT."""
    with asyncio.run(_bound(0)) as first:
        port = first.getsockname()[1]
        listen(first, 1)
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = first.accept()
            accepted.close()
            assert client.recv(1) == b""
    asyncio.run(_bound(port)).close()
