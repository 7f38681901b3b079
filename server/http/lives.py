"""The lives of HTTP connections: how many there may be without a session, and for how long.

A connection that has no session is held to `most` in number and LIFE_S for each request, so that
nobody keeps others out by opening connections. A new connection always has a place: beyond the
number another one ends for it. That is one that waits for a next request, else one of the address
that has most of them (`crowd.py`), which has sent nothing for the longest time. One whose request
is complete ends last.

    headers    must be complete HEADERS_S after the connection, or their first byte
    a body     may take BODY_S, and a second more for each SLOWEST bytes
    a request  may take LIFE_S, unless it gets a session

A connection that has a session is counted among the sessions, and may live as long as these.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Protocol

from foreshore.server.admission.crowd import crowd

HEADERS_S = 10.0
BODY_S = 10.0
SLOWEST = 500  # bytes of a body in a second
LAST_S = 1.0  # for the client to read the end of what it was sent
LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 35\r\nconnection: close\r\n\r\nThe request has not come in time.\r\n"
)


class Phase(Enum):
    """What a connection waits for."""

    IDLE = "a next request"
    HEADERS = "the rest of a request's headers"
    BODY = "the rest of its body"
    ANSWER = "the answer"


class Connected(Protocol):
    """A connection, as the rules see it."""

    def phase(self) -> Phase:
        """Return what it waits for."""
        ...

    def is_held_up(self) -> bool:
        """Return whether the client cannot send now, as the server does not read."""
        ...


@dataclass(eq=False)
class Life:
    """The life of one connection; times are the event loop's."""

    lives: "Lives"
    connection: Connected
    transport: asyncio.Transport
    host: str
    begun: float  # when its present request, or the wait for it, began
    heard: float  # when its client last sent something
    is_limited: bool = True
    has_sent: bool = False  # something of its present request
    body_since: float = 0.0  # when the body of its request began
    body_bytes: int = 0
    _timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def hear(self, size: int) -> None:
        """Note that the client has sent so many bytes; call it before they are looked at."""
        self.heard = asyncio.get_running_loop().time()
        match self.connection.phase():
            case Phase.IDLE:
                self.begun, self.has_sent = self.heard, True
            case Phase.BODY:
                self.body_bytes += size
            case _:
                self.has_sent = True

    def begin_body(self) -> None:
        """Note that the headers of a request are complete."""
        self.body_since, self.body_bytes = asyncio.get_running_loop().time(), 0

    def wait(self) -> None:
        """Note that a request has been answered."""
        self.begun, self.has_sent = asyncio.get_running_loop().time(), False

    def extend(self) -> None:
        """Let the connection live on: it has a session."""
        self.is_limited = False
        self.lives.forget(self)

    def resume(self) -> None:
        """Limit the connection, unless it is closed: its session has ended."""
        if self._timer is not None:
            self.begun = asyncio.get_running_loop().time()
            self.is_limited = True
            self.lives.limit(self)

    def end(self) -> None:
        """Forget the connection, which is closed."""
        self.lives.forget(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self) -> None:
        """End the connection when it is late."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = self._due(now)
        if due <= now:
            self.cut_off()
        else:
            self._timer = loop.call_at(min(due, now + HEADERS_S), self.watch)

    def _due(self, now: float) -> float:
        """Return when the connection is late if nothing happens until then."""
        end = self.begun + self.lives.seconds if self.is_limited else inf
        match self.connection.phase():
            case Phase.HEADERS:
                return min(end, self.begun + HEADERS_S)
            case Phase.BODY:
                if self.connection.is_held_up():
                    return end
                return min(end, self.body_since + BODY_S + self.body_bytes / SLOWEST)
            case Phase.IDLE:
                return inf  # the library closes it
        return end

    def cut_off(self) -> None:
        """End the connection at once, with 408 if a part of a request has come."""
        is_partial = self.connection.phase() in (Phase.HEADERS, Phase.BODY) and self.has_sent
        if is_partial and self.is_limited and not self.transport.get_write_buffer_size():
            self.transport.write(LATE)
            self._close()
        else:
            self.transport.abort()

    def _close(self) -> None:
        """Close the connection, and soon abort it if the client does not read the rest."""
        self.transport.close()
        if self._timer is not None:
            self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LAST_S, self.transport.abort)

    def make_room(self) -> None:
        """End the connection for another one."""
        self.lives.forget(self)
        if self.connection.phase() is Phase.IDLE:
            self._close()
        else:
            self.cut_off()


class Lives:
    """The connections of one server that have no session: at most `most`."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self.seconds = seconds  # for a request without a session
        self._limited: dict[Life, None] = {}

    def begin(self, connection: Connected, transport: asyncio.Transport) -> Life:
        """Return the life of a new connection, for which another one may have to end."""
        now = asyncio.get_running_loop().time()
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        life = Life(self, connection, transport, host, now, now)
        self.limit(life)
        life.watch()
        return life

    def limit(self, life: Life) -> None:
        """Count a connection, and end others beyond the number."""
        self._limited[life] = None
        while len(self._limited) > self._most:
            other = self._dispensable(life)
            if other is None:
                return
            other.make_room()

    def _dispensable(self, new: Life) -> Life | None:
        """Return the connection that ends for a new one; None if there is no other."""
        others = [each for each in self._limited if each is not new]
        idle = [each for each in others if each.connection.phase() is Phase.IDLE]
        if idle:
            return min(idle, key=lambda each: each.heard)
        return min(
            crowd({each: each.host for each in others}),
            key=lambda each: (each.connection.phase() is Phase.ANSWER, each.heard),
            default=None,
        )

    def forget(self, life: Life) -> None:
        """Count a connection no more."""
        self._limited.pop(life, None)
