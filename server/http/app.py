"""The HTTP application.

    /health     200 if SQL connections are accepted, else 503; for supervisors
    /metrics    for Prometheus
    /check      200 if the server's state is consistent, else 500; for operators

At most MAX_CONNECTIONS are open at a time, each for at most LIFE_S, even if its client neither
sends nor reads. The end of the server waits at most ENDING_S for them.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from foreshore.server.ports import listen

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 50
LIFE_S = 60
ENDING_S = 3
BACKLOG = 128  # connections that are not accepted yet


def application(
    is_ready: Callable[[], bool], check_consistency: Callable[[], Awaitable[None]]
) -> Starlette:
    """Return the application.

    `is_ready` says whether SQL connections are accepted; `check_consistency` raises AssertionError
    if an invariant does not hold.
    """

    async def health(request: Request) -> Response:
        ready = is_ready()
        return JSONResponse(
            {"status": "ready" if ready else "starting"}, status_code=200 if ready else 503
        )

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def check(request: Request) -> Response:
        if not is_ready():
            return JSONResponse({"status": "starting"}, status_code=503)
        try:
            await check_consistency()
        except AssertionError as error:
            logger.exception("the state is not consistent")
            return JSONResponse({"consistent": False, "violated": str(error)}, status_code=500)
        return JSONResponse({"consistent": True})

    return Starlette(
        routes=[Route("/health", health), Route("/metrics", metrics), Route("/check", check)]
    )


class _Connection(H11Protocol):
    """Uvicorn's connection, with bounds on their number and on the life of each."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the connection, or abort it if there are too many."""
        if len(self.connections) >= MAX_CONNECTIONS:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._end = self.loop.call_later(LIFE_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer that would end the connection."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Uvicorn's server without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves the application on a port of its own, on the running loop."""

    def __init__(
        self,
        is_ready: Callable[[], bool],
        check_consistency: Callable[[], Awaitable[None]],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            application(is_ready, check_consistency),
            log_config=None,
            log_level="warning",
            lifespan="off",
            access_log=False,
            http=_Connection,
            timeout_graceful_shutdown=ENDING_S,
        )
        config.load()
        config.ssl = tls
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def listen(self, ports: list[socket.socket]) -> int:
        """Begin to serve on bound sockets; return the first one's port."""
        for port in ports:
            listen(port, BACKLOG)
        self._task = asyncio.get_running_loop().create_task(self._server.serve(ports))
        number: int = ports[0].getsockname()[1]
        return number

    async def close(self) -> None:
        """Stop serving and close all connections."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
