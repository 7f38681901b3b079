"""POST /api/webhook/DATABASE/SCHEMA/NAME: rows for a webhook, from a program without a session.

Who may send is decided by the condition of the webhook (CHECK). Pages of other origins may not, as
a visitor's browser would send for them from within a private network; and without a condition no
page that has given the server a name. 200 says that the rows are durable.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from foreshore.adapter.client import TooManyRequests
from foreshore.errors import (
    DatabaseError,
    InsufficientPrivilege,
    InvalidAuthorization,
    ProtocolViolation,
    Unavailable,
    UndefinedTable,
    UserError,
)
from foreshore.server.connection import client_error
from foreshore.server.http.exchange import TooLarge, long_lived
from foreshore.server.http.messages import error_fields
from foreshore.server.http.sessions import Sessions, not_ready

logger = logging.getLogger(__name__)

MOST_BODY = 2 << 20
LONGEST_S = 60.0
_STATUS: tuple[tuple[type[DatabaseError], int], ...] = (
    (TooLarge, 413),
    (UndefinedTable, 404),
    (InsufficientPrivilege, 403),
    (InvalidAuthorization, 403),
    (TooManyRequests, 429),
    (Unavailable, 503),
    (UserError, 400),
    (ProtocolViolation, 400),
)


class WebhookEndpoint:
    """Takes the requests of webhooks; `sessions` returns None until the data is opened."""

    def __init__(self, sessions: Callable[[], Sessions | None]) -> None:
        self._sessions = sessions

    async def answer(self, request: Request) -> Response:
        """Return the answer to one request."""
        sessions = self._sessions()
        if sessions is None:
            return _refused(503, not_ready())
        path = request.path_params
        name = path["database"], path["schema"], path["name"]
        try:
            sessions.origins.check(request)
            if not sessions.client.has_condition(name):
                sessions.origins.check_name(request, "requests of a webhook without CHECK")
            async with asyncio.timeout(LONGEST_S):
                # Anybody may begin a request: its connection is limited until its body is there.
                body = await _body(request)
                with long_lived(request):
                    await sessions.client.receive(name, _headers(request), body)
        except ClientDisconnect:
            return Response(status_code=400)
        except TimeoutError:
            return _refused(503, Unavailable(f"it has taken more than {LONGEST_S:.0f} seconds"))
        except Exception as error:
            shown = client_error(error)
            status = next((code for kind, code in _STATUS if isinstance(shown, kind)), 500)
            return _refused(status, shown)
        return Response(status_code=200)


async def _body(request: Request) -> bytes:
    """Return the body; raises TooLarge."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise TooLarge(f"a request may have at most {MOST_BODY} bytes")
    return bytes(body)


def _headers(request: Request) -> Mapping[str, bytes]:
    """Return the headers, those with the same name in one value with commas."""
    found: dict[str, bytes] = {}
    for name, value in request.headers.raw:
        key = name.decode("latin-1").lower()
        found[key] = found[key] + b", " + value if key in found else value
    return found


def _refused(status: int, error: DatabaseError) -> Response:
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if status == 413:
        headers["connection"] = "close"
    return JSONResponse({"error": error_fields(error)}, status, headers)
