"""What supervisors and Prometheus ask: whether the server lives, is ready, and how it does.

    /livez               200 while the event loop answers
    /readyz              200 if SQL connections are accepted, else 503
    /readyz?hydrated=1   200 if also each maintained view can be read
    /health, /healthz    the same as /readyz, without the views
    /api/livez, /api/readyz   /livez and /readyz, as Materialize calls them
    /metrics             for Prometheus (docs/metrics.md)

All but the views' part answer before the data is opened. /metrics says what the database is about,
so it does not answer to a page that has given the server a name (`origins.py`).
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from foreshore import blocking
from foreshore.errors import InvalidAuthorization
from foreshore.server.http.messages import error_fields
from foreshore.server.http.origins import Origins
from foreshore.server.http.shared import Shared

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that say when a counter began

MOST_SHOWN = 20  # names of views that are not hydrated


class Observed(Protocol):
    """An environment, as probes see it."""

    async def metrics(self) -> list[Metric]:
        """Return its metrics."""
        ...

    def not_hydrated(self) -> list[str]:
        """Return the names of the maintained views that cannot be read yet."""
        ...


@dataclass(frozen=True, slots=True)
class _Collected:
    """Metrics that have been collected, as a registry of the library."""

    metrics: list[Metric]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics, after those of the process."""
        yield from REGISTRY.collect()
        yield from self.metrics


@dataclass
class Probes:
    """The probes; `observed` returns the environment, None until SQL connections are accepted."""

    is_ready: Callable[[], bool]
    observed: Callable[[], Observed | None]
    origins: Origins = field(default_factory=Origins)
    _text: Shared[bytes] = field(init=False)  # of /metrics
    _not_hydrated: Shared[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self._text = Shared(self._find_text)
        self._not_hydrated = Shared(self._find_not_hydrated)

    def routes(self) -> list[Route]:
        """Return the routes of the application."""
        handlers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/health": self._health,
            "/healthz": self._health,
            "/api/livez": self._livez,
            "/api/readyz": self._readyz,
            "/metrics": self._metrics,
        }
        return [Route(path, handler) for path, handler in handlers.items()]

    async def _livez(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _health(self, request: Request) -> Response:
        ready = self.is_ready()
        return JSONResponse(
            {"status": "ready" if ready else "starting"}, status_code=200 if ready else 503
        )

    async def _readyz(self, request: Request) -> Response:
        asked = request.query_params.get("hydrated", "0") not in ("", "0", "false", "off")
        observed = self.observed()
        if not self.is_ready() or (asked and observed is None):
            return JSONResponse({"status": "starting"}, status_code=503)
        left = await self._not_hydrated.get() if asked else []
        if left:
            shown = {"status": "hydrating", "count": len(left), "views": left[:MOST_SHOWN]}
            return JSONResponse(shown, status_code=503)
        return JSONResponse({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        try:
            self.origins.check(request)
            self.origins.check_name(request, "requests of metrics")
        except InvalidAuthorization as refusal:
            return JSONResponse({"error": error_fields(refusal)}, status_code=403)
        return Response(await self._text.get(), media_type=CONTENT_TYPE_LATEST)

    async def _find_text(self) -> bytes:
        observed = self.observed()
        found = _Collected([] if observed is None else await observed.metrics())
        return await blocking.run(None, generate_latest, found)

    async def _find_not_hydrated(self) -> list[str]:
        observed = self.observed()
        return [] if observed is None else observed.not_hydrated()
