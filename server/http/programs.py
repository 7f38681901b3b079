"""The routes for programs: statements, a WebSocket, live queries, and what describes them."""

from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from foreshore.server.http.mcp.endpoint import McpEndpoint
from foreshore.server.http.mcp.tools import BOTH
from foreshore.server.http.messages import as_json
from foreshore.server.http.openapi import document
from foreshore.server.http.sessions import Sessions
from foreshore.server.http.sql import SqlEndpoint
from foreshore.server.http.subscribe import SubscribeEndpoint
from foreshore.server.http.webhooks import WebhookEndpoint
from foreshore.server.http.websocket import SocketEndpoint

WEBHOOK = "/api/webhook/{database}/{schema}/{name}"
SCRIPT = Path(__file__).parent / "static" / "foreshore.js"
POSTED = ["POST", "OPTIONS"]
_PUBLIC = {"cache-control": "no-cache", "access-control-allow-origin": "*"}


def routes(sessions: Callable[[], Sessions | None]) -> list[BaseRoute]:
    """Return the routes; `sessions` returns None until the data is opened."""
    script, description = SCRIPT.read_bytes(), as_json(document())

    async def foreshore_js(request: Request) -> Response:
        return Response(script, media_type="text/javascript", headers=_PUBLIC)

    async def openapi(request: Request) -> Response:
        return Response(description, media_type="application/json", headers=_PUBLIC)

    socket = SocketEndpoint(sessions)
    return [
        Route("/api/sql", SqlEndpoint(sessions), methods=POSTED),
        Route("/api/subscribe", SubscribeEndpoint(sessions), methods=["GET", "OPTIONS"]),
        *(Route(f"/api/mcp/{each}", McpEndpoint(sessions, each), methods=POSTED) for each in BOTH),
        WebSocketRoute("/api/sql/ws", socket),
        WebSocketRoute("/api/experimental/sql", socket),
        Route("/api/openapi.json", openapi),
        Route("/foreshore.js", foreshore_js),
        Route(WEBHOOK, WebhookEndpoint(sessions).answer, methods=["POST"]),
    ]
