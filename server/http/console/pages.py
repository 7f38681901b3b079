"""The console's files, served as they are.

    /             sends a browser to the console
    /console/     the page; all else below it is what the page loads

The files know nothing about the database. They ask it by the same interface for programs that
anybody may use (POST /api/sql, /api/sql/ws), under the rights of who has signed in. A browser runs
no script and loads nothing that did not come from here, and no other site may frame the page.
"""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FILES = Path(__file__).parent / "static"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # keep, but ask whether it changed: an upgrade shows at once
}


class _Files(StaticFiles):
    """The files, each with the headers that bound what a page may do."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the answer to a request for `path`."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


async def _to_console(request: Request) -> Response:
    return RedirectResponse("console/", status_code=302)


def routes() -> list[BaseRoute]:
    """Return the routes of the console."""
    return [
        Route("/", _to_console),
        Mount("/console", _Files(directory=FILES, html=True), name="console"),
    ]
