"""uvicorn's protocols of connections, within the bounds of `lives.py` and `slices.py`.

A WebSocket may send MOST_EARLY_BYTES before it has a session, a message of MOST_FRAGMENTS parts,
and no more while MOST_UNREAD bytes wait for its client to read them, so that the answers to pings
have a bound, too.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from foreshore.server.http.lives import Life, Lives, Phase
from foreshore.server.http.slices import Slices

MOST_EARLY_BYTES = 1 << 20
MOST_FRAGMENTS = 16_384
MOST_UNREAD = 4 << 20
CLOSE_S = 2.0  # for the client's answer to the end of a WebSocket


def protocols(lives: Lives) -> tuple[type[H11Protocol], type[WebSocketsSansIOProtocol]]:
    """Return uvicorn's protocols, whose connections are counted in `lives`.

    The state of each request's scope has the connection's `transport`, and its `life`.
    """

    class Connection(H11Protocol):
        """A connection that speaks HTTP."""

        life: Life

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Begin the connection."""
            super().connection_made(transport)
            self._slices = Slices(transport, self._take, lambda: self.flow.read_paused)
            self._is_upgraded = False
            self.life = lives.begin(self, transport)
            self.app_state = _with(self.app_state, self.life, transport)

        def phase(self) -> Phase:
            """Return what the connection waits for."""
            if self.timeout_keep_alive_task is not None:
                return Phase.IDLE
            if self.cycle is None or self.cycle.response_complete:
                return Phase.HEADERS
            return Phase.BODY if self.cycle.more_body else Phase.ANSWER

        def is_held_up(self) -> bool:
            """Return whether the client cannot send, as the request's body is not read."""
            return self.flow.read_paused or self.cycle.waiting_for_100_continue

        def data_received(self, data: bytes) -> None:
            """Take bytes in slices."""
            self.life.hear(len(data))
            self._slices.put(data)

        def _take(self, data: bytes) -> None:
            if not self._is_upgraded:
                super().data_received(data)

        def handle_events(self) -> None:
            """Go on with the bytes that have come, and note a new request."""
            before = self.cycle
            super().handle_events()
            if self.cycle is not before:
                self.life.begin_body()

        def on_response_complete(self) -> None:
            """Wait for the next request."""
            self.life.wait()
            super().on_response_complete()

        def handle_websocket_upgrade(self, event: Any) -> None:
            """Become a WebSocket."""
            self._is_upgraded = True
            super().handle_websocket_upgrade(event)

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            self.life.end()
            super().connection_lost(exc)

    class WebSocket(WebSocketsSansIOProtocol):
        """A connection that has become a WebSocket."""

        life: Life
        _early_bytes = 0
        _is_full = False  # the client does not read what it is sent

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            """Go on with a connection that has been counted."""
            self._slices = Slices(
                cast(asyncio.Transport, transport),
                self._take,
                lambda: self.read_paused or self._is_full,
            )
            self.life = self.app_state["life"]
            self.life.connection = self
            self.close_timeout = CLOSE_S
            super().connection_made(transport)

        def phase(self) -> Phase:
            """Return what it waits for; `websocket.py` limits the time of the first message."""
            return Phase.ANSWER

        def is_held_up(self) -> bool:
            """Return False: it has no body."""
            return False

        def data_received(self, data: bytes) -> None:
            """Take bytes, or abort a connection that sends many before it has a session."""
            self.life.hear(len(data))
            if self.life.is_limited:
                self._early_bytes += len(data)
                if self._early_bytes > MOST_EARLY_BYTES:
                    self.transport.abort()
                    return
            self._slices.put(data)
            self._pause_if_full()

        def _take(self, data: bytes) -> None:
            super().data_received(data)

        def _pause_if_full(self) -> None:
            if not self._is_full and self.transport.get_write_buffer_size() > MOST_UNREAD:
                self._is_full = True
                self.transport.pause_reading()

        def resume_writing(self) -> None:
            """Read on: the client has read what it was sent."""
            super().resume_writing()
            if self._is_full:
                self._is_full = False
                if not self.read_paused and not self.transport.is_closing():
                    self.transport.resume_reading()

        def handle_cont(self, event: Frame) -> None:
            """Take a part of a message, or end a connection that sends too many."""
            if len(self.frames) >= MOST_FRAGMENTS:
                self.conn.fail(1009, "too many fragments")
                self.handle_parser_exception()
                return
            super().handle_cont(event)

        def handle_parser_exception(self) -> None:
            """End a connection whose frames are wrong, or that has ended within one."""
            if self.conn.close_sent is not None:
                super().handle_parser_exception()
                return
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})
            self.close_sent = True
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            self.life.end()
            super().connection_lost(exc)

    return Connection, WebSocket


def _with(state: dict[str, Any], life: Life, transport: object) -> dict[str, Any]:
    return {**state, "life": life, "transport": transport}
