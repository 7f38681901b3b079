"""The HTTP application: `/health` for whoever restarts us, `/metrics` for Prometheus."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def application(is_ready: Callable[[], bool]) -> Starlette:
    """Return the application; `is_ready` says whether SQL connections are taken."""

    async def health(request: Request) -> Response:
        ready = is_ready()
        return JSONResponse(
            {"status": "ready" if ready else "starting"}, status_code=200 if ready else 503
        )

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/health", health), Route("/metrics", metrics)])


class _Server(uvicorn.Server):
    """Uvicorn's server, which leaves the signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """The application on a port of its own, on the running loop."""

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        config = uvicorn.Config(
            application(is_ready),
            log_config=None,
            log_level="warning",
            lifespan="off",
            access_log=False,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def listen(self, ports: list[socket.socket]) -> int:
        """Begin to serve on sockets that are bound; return the first one's port."""
        for port in ports:
            port.listen()  # so that whoever has just bound the same one is found out here
        self._task = asyncio.get_running_loop().create_task(self._server.serve(ports))
        number: int = ports[0].getsockname()[1]
        return number

    async def close(self) -> None:
        """Serve no more."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
