"""The lives of HTTP connections: how many there may be without a session, and for how long.

A connection that has no session is held to `most` in number and `seconds` in time, so that nobody
keeps others out by opening connections. Beyond the number, one that has had its answer and is kept
for a next request makes room for a new one. A connection that has a session is counted among the
sessions, and may live as long as these. A WebSocket that has no session may send little.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_EARLY_BYTES = 1 << 20  # that a WebSocket may send before it has a session


class Lives:
    """The connections of one server that have no session."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._ends: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self._idle: dict[asyncio.Transport, Callable[[], bool]] = {}

    def begin(self, transport: asyncio.Transport, is_idle: Callable[[], bool]) -> bool:
        """Count a new connection, which is aborted after some seconds; False if it is too many.

        `is_idle` returns whether it has had an answer, and waits for a next request.
        """
        if len(self._ends) >= self._most and not self._make_room():
            return False
        self._idle[transport] = is_idle
        self._limit(transport)
        return True

    def _make_room(self) -> bool:
        """Close the oldest connection that is idle; False if there is none."""
        for transport in self._ends:
            if self._idle[transport]():
                self.extend(transport)
                transport.close()
                return True
        return False

    def extend(self, transport: asyncio.Transport) -> None:
        """Let a connection live on: it has a session."""
        if (end := self._ends.pop(transport, None)) is not None:
            end.cancel()

    def is_limited(self, transport: asyncio.Transport) -> bool:
        """Return whether a connection has no session."""
        return transport in self._ends

    def resume(self, transport: asyncio.Transport) -> None:
        """Limit a connection whose session has ended."""
        if transport not in self._ends and transport in self._idle and not transport.is_closing():
            self._limit(transport)

    def end(self, transport: asyncio.Transport) -> None:
        """Forget a connection that is closed."""
        self.extend(transport)
        self._idle.pop(transport, None)

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
            if not lives.begin(transport, self._is_idle):
                self.transport = transport
                transport.abort()
                return
            self.app_state = _with_transport(self.app_state, transport)
            super().connection_made(transport)

        def _is_idle(self) -> bool:
            return self.timeout_keep_alive_task is not None

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            lives.end(self.transport)
            super().connection_lost(exc)

    class WebSocket(WebSocketsSansIOProtocol):
        """A connection that has become a WebSocket."""

        _early_bytes = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            """Go on with a connection that has been counted."""
            self.app_state = _with_transport(self.app_state, transport)
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            """Take bytes, or abort a connection that sends many before it has a session."""
            if lives.is_limited(self.transport):
                self._early_bytes += len(data)
                if self._early_bytes > MOST_EARLY_BYTES:
                    self.transport.abort()
                    return
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            lives.end(self.transport)
            super().connection_lost(exc)

    def _with_transport(state: dict[str, Any], transport: object) -> dict[str, Any]:
        return {**state, "lives": lives, "transport": transport}

    return Connection, WebSocket
