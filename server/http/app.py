"""The HTTP application.

    /livez, /readyz, /health, /metrics    for supervisors and Prometheus (`probes.py`)
    /check      200 if the server's state is consistent, else 500; for operators
    /api/..., /foreshore.js    SQL for programs (`programs.py`)
    /console/   pages for a browser; / sends it there

At most MAX_CONNECTIONS without a session are open at a time, and a request without one may take
LIFE_S (`lives.py`). The end of the server waits at most ENDING_S for them.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from foreshore.errors import InvalidAuthorization
from foreshore.server.http import programs
from foreshore.server.http.console.pages import routes as console_routes
from foreshore.server.http.lives import Lives
from foreshore.server.http.messages import error_fields
from foreshore.server.http.origins import Origins
from foreshore.server.http.probes import Observed, Probes
from foreshore.server.http.protocols import protocols
from foreshore.server.http.sessions import Sessions
from foreshore.server.http.shared import Shared
from foreshore.server.ports import listen
from foreshore.server.turns import Turn

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 50
LIFE_S = 60
ENDING_S = 3
MOST_MESSAGE = 16 << 20  # bytes of a message of a WebSocket
PING_TIMEOUT_S = 60  # a WebSocket ends whose client answers no ping for so long
BACKLOG = 128  # connections that are not accepted yet


def application(
    is_ready: Callable[[], bool],
    check_consistency: Callable[[], Awaitable[None]],
    sessions: Callable[[], Sessions | None],
    observed: Callable[[], Observed | None] = lambda: None,
    origins: Origins | None = None,
) -> Starlette:
    """Return the application.

    `is_ready` says whether SQL connections are accepted; `check_consistency` raises AssertionError
    if an invariant does not hold; `sessions` returns those of programs, None until it is ready,
    and `observed` what `/metrics` is about; `origins` says who may see it.
    """
    known = origins or Origins()
    consistency = Shared(check_consistency)

    async def check(request: Request) -> Response:
        if not is_ready():
            return JSONResponse({"status": "starting"}, status_code=503)
        try:
            known.check(request)
            known.check_name(request, "requests to check the state")
        except InvalidAuthorization as refusal:
            return JSONResponse({"error": error_fields(refusal)}, status_code=403)
        try:
            await consistency.get()
        except AssertionError as error:
            logger.exception("the state is not consistent")
            return JSONResponse({"consistent": False, "violated": str(error)}, status_code=500)
        return JSONResponse({"consistent": True})

    return Starlette(
        routes=[
            *Probes(is_ready, observed, known).routes(),
            Route("/check", check),
            *programs.routes(sessions),
            *console_routes(),
        ],
        middleware=[Middleware(_InTurns)],
    )


class _InTurns:
    """Has each request, of whatever route, wait for its turn among all connections."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await Turn().next()
        await self._app(scope, receive, send)


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
        origins: Origins | None = None,
    ) -> None:
        self._sessions: Sessions | None = None
        self._observed: Observed | None = None
        connection, web_socket = protocols(Lives(MAX_CONNECTIONS, LIFE_S))
        config = uvicorn.Config(
            application(
                is_ready, check_consistency, lambda: self._sessions, lambda: self._observed, origins
            ),
            log_config=None,
            log_level="warning",
            lifespan="off",
            access_log=False,
            proxy_headers=False,
            http=connection,
            ws=web_socket,
            ws_per_message_deflate=False,  # it would take the loop's time for each row
            ws_max_size=MOST_MESSAGE,
            ws_ping_timeout=PING_TIMEOUT_S,
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

    def open(self, sessions: Sessions, observed: Observed | None = None) -> None:
        """Let programs open sessions from now on, and probes see the environment."""
        self._sessions, self._observed = sessions, observed

    async def close(self) -> None:
        """Stop serving and close all connections."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
