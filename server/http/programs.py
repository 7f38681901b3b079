"""The routes for programs: statements, a WebSocket, live queries, and what describes them."""

from collections.abc import Callable

from starlette.routing import BaseRoute, Route, WebSocketRoute

from foreshore.server.http.mcp.endpoint import McpEndpoint
from foreshore.server.http.mcp.tools import BOTH
from foreshore.server.http.messages import as_json
from foreshore.server.http.openapi import document
from foreshore.server.http.script import public
from foreshore.server.http.script import routes as script_routes
from foreshore.server.http.sessions import Sessions
from foreshore.server.http.sql import SqlEndpoint
from foreshore.server.http.subscribe import SubscribeEndpoint
from foreshore.server.http.webhooks import WebhookEndpoint
from foreshore.server.http.websocket import SocketEndpoint

WEBHOOK = "/api/webhook/{database}/{schema}/{name}"
POSTED = ["POST", "OPTIONS"]


def routes(sessions: Callable[[], Sessions | None]) -> list[BaseRoute]:
    """Return the routes; `sessions` returns None until the data is opened."""
    socket = SocketEndpoint(sessions)
    return [
        Route("/api/sql", SqlEndpoint(sessions), methods=POSTED),
        Route("/api/subscribe", SubscribeEndpoint(sessions), methods=["GET", "OPTIONS"]),
        *(Route(f"/api/mcp/{each}", McpEndpoint(sessions, each), methods=POSTED) for each in BOTH),
        WebSocketRoute("/api/sql/ws", socket),
        WebSocketRoute("/api/experimental/sql", socket),
        public("/api/openapi.json", as_json(document()), "application/json"),
        *script_routes(),
        Route(WEBHOOK, WebhookEndpoint(sessions).answer, methods=["POST"]),
    ]
