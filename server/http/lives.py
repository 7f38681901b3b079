"""The lives of HTTP connections: how many there may be without a session, and for how long.

A connection that has no session is held to `most` in number and `seconds` in time, so that nobody
keeps others out by opening connections. One that has a session is counted among the sessions, and
may live as long as these.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class Lives:
    """The connections of one server that have no session."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._ends: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def begin(self, transport: asyncio.Transport) -> bool:
        """Count a new connection, which is aborted after some seconds; False if it is too many."""
        if len(self._ends) >= self._most:
            return False
        self._limit(transport)
        return True

    def extend(self, transport: asyncio.Transport) -> None:
        """Let a connection live on: it has a session."""
        if (end := self._ends.pop(transport, None)) is not None:
            end.cancel()

    def resume(self, transport: asyncio.Transport) -> None:
        """Limit a connection whose session has ended."""
        if transport not in self._ends and not transport.is_closing():
            self._limit(transport)

    def end(self, transport: asyncio.Transport) -> None:
        """Forget a connection that is closed."""
        self.extend(transport)

    def _limit(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._ends[transport] = loop.call_later(self._seconds, transport.abort)


def protocols(lives: Lives) -> tuple[type[H11Protocol], type[WebSocketsSansIOProtocol]]:
    """Return uvicorn's protocols, whose connections are counted in `lives`.

    The state of each request's scope has the connection's `transport`, and `lives`.
    """

    class Connection(H11Protocol):
        """A connection that speaks HTTP."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Begin the connection, or abort it if there are too many."""
            if not lives.begin(transport):
                self.transport = transport
                transport.abort()
                return
            self.app_state = _with_transport(self.app_state, transport)
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            lives.end(self.transport)
            super().connection_lost(exc)

    class WebSocket(WebSocketsSansIOProtocol):
        """A connection that has become a WebSocket."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            """Go on with a connection that has been counted."""
            self.app_state = _with_transport(self.app_state, transport)
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            lives.end(self.transport)
            super().connection_lost(exc)

    def _with_transport(state: dict[str, Any], transport: object) -> dict[str, Any]:
        return {**state, "lives": lives, "transport": transport}

    return Connection, WebSocket
