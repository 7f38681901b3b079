"""POST /api/mcp/agent and /api/mcp/developer: one message of the protocol, and its answer.

A call that reads the database has a session of its own, like POST /api/sql, so the rights, limits
and time-outs of its role hold, and it ends when its client closes the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from foreshore import blocking
from foreshore.errors import DatabaseError, InvalidParameterValue, QueryCanceled
from foreshore.json_errors import describe_json_error
from foreshore.server import metrics
from foreshore.server.connection import client_error
from foreshore.server.http.ending import Disconnected
from foreshore.server.http.exchange import Exchange, answered, long_lived
from foreshore.server.http.mcp import protocol, resources
from foreshore.server.http.mcp.protocol import Call, RpcError
from foreshore.server.http.mcp.queries import subscribe
from foreshore.server.http.mcp.tools import Run, tools_for
from foreshore.server.http.mcp.work import Audience, Work
from foreshore.server.http.messages import as_json, error_fields
from foreshore.server.http.requests import LONG
from foreshore.server.http.sessions import READ_ONLY, Guest, Sessions, claimed

TIMEOUT_S = 30  # of a call that has no time-out of its own
LATER_S = 10  # for what such a call does besides waiting
FRESH_MS = 300_000  # for which a client may keep the list of tools
_INSTRUCTIONS = {
    "agent": "A database that keeps views up to date. Find data with list_objects, look at its "
    "columns with describe_object, then use query; subscribe waits for changes.",
    "developer": "A database that keeps views up to date. list_objects and describe_object say "
    "what there is, show_states how it does, explain why a query takes its time.",
}


class McpEndpoint:
    """The ASGI application for one audience; `sessions` returns None until the data is opened."""

    def __init__(self, sessions: Callable[[], Sessions | None], audience: Audience) -> None:
        self._sessions = sessions
        self._audience: Audience = audience
        self._tools = tools_for(audience)
        self._listed = [each.listed() for each in self._tools.values()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await answered(self._sessions(), scope, receive, send, self._post)

    async def _post(self, sessions: Sessions, exchange: Exchange) -> None:
        request = exchange.request
        database = request.query_params.get("database", sessions.first)
        # Before its body: only who may have a session may send a large one.
        guest = await sessions.admit(request, claimed(request), database)
        body, id, call = await exchange.body(), None, None
        try:
            if len(body) > LONG:
                message = await blocking.run(None, protocol.decoded, body)
            else:
                message = protocol.decoded(body)
            id = message.id
            if message.method is not None:
                call = protocol.call_of(message, request.headers)
            if call is None or call.id is None:
                await exchange.answer(b"", status=202)
                return
            answer = protocol.result(call, await self._result(sessions, exchange, guest, call))
        except RpcError as error:
            status = protocol.status_of(call, error)
            await exchange.answer(protocol.failure(id, error), status=status)
        else:
            await exchange.answer(answer)

    async def _result(
        self, sessions: Sessions, exchange: Exchange, guest: Guest, call: Call
    ) -> Mapping[str, Any]:
        """Return the result of a request; raises RpcError."""

        async def run(work: Run, args: Any) -> Mapping[str, Any]:
            return await self._run(sessions, exchange, guest, work, args)

        match call.method:
            case "initialize" if not call.is_stateless:
                version = protocol.agreed(call.params.get("protocolVersion"))
                return {"protocolVersion": version, **self._server(), "serverInfo": _info()}
            case "ping" if not call.is_stateless:
                return {}
            case "server/discover" if call.is_stateless:
                return {
                    "supportedVersions": protocol.SUPPORTED,
                    **self._server(),
                    **_kept(FRESH_MS, "public"),
                    "_meta": {"io.modelcontextprotocol/serverInfo": _info()},
                }
            case "tools/list":
                return {"tools": self._listed, **_kept(FRESH_MS, "public")}
            case "tools/call":
                return await self._called(run, call)
            case "resources/list":
                found = await _or_error(run(resources.listed, None))
                return {**found, **_kept(0, "private")}
            case "resources/templates/list":
                return {"resourceTemplates": [resources.TEMPLATE], **_kept(FRESH_MS, "public")}
            case "resources/read":
                found = await _or_error(run(resources.read, call.params.get("uri")))
                return {**found, **_kept(0, "private")}
            case _:
                raise RpcError(protocol.METHOD_NOT_FOUND, f"unknown method: {call.method[:100]}")

    async def _called(
        self, run: Callable[[Run, Any], Awaitable[Mapping[str, Any]]], call: Call
    ) -> Mapping[str, Any]:
        """Return the result of a tool; errors that a client can mend are results."""
        tool = self._tools.get(str(call.params.get("name")))
        if tool is None:
            raise RpcError(protocol.INVALID_PARAMS, f"unknown tool: {call.params.get('name')}")
        try:
            args = msgspec.convert(call.params.get("arguments") or {}, tool.arguments)
        except msgspec.ValidationError as error:
            return _failed(
                InvalidParameterValue(f"invalid arguments: {describe_json_error(error)}")
            )
        try:
            found = await run(tool.run, args)
        except DatabaseError as error:
            return _failed(error)
        return {**_text(found), "structuredContent": found, "isError": False}

    async def _run(
        self, sessions: Sessions, exchange: Exchange, guest: Guest, run: Run, args: Any
    ) -> Mapping[str, Any]:
        """Run a tool in a session of its own; raises DatabaseError."""
        variables = {**READ_ONLY, "application_name": f"foreshore mcp {self._audience}"}
        seconds = getattr(args, "timeout_seconds", TIMEOUT_S)
        async with exchange.watched(), sessions.open(guest, variables, exchange.ending) as opened:
            with long_lived(exchange.request):
                try:
                    async with asyncio.timeout(seconds + LATER_S * (run is subscribe)):
                        return await run(Work(exchange, opened.session, self._audience), args)
                except Disconnected:
                    raise
                except Exception as error:
                    shown = opened.session.explained(_shown(error))
                    metrics.ERRORS.labels(shown.sqlstate).inc()
                    await opened.session.fail(shown)
                    raise shown from None
        raise AssertionError("the block has returned or raised")

    def _server(self) -> Mapping[str, Any]:
        return {
            "capabilities": {"tools": {}, "resources": {}},
            "instructions": _INSTRUCTIONS[self._audience],
        }


def _shown(error: Exception) -> DatabaseError:
    if isinstance(error, TimeoutError):
        return QueryCanceled("canceling statement due to statement timeout")
    return client_error(error)


async def _or_error(found: Awaitable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what a tool returns, for a request that is none of a tool; raises RpcError."""
    try:
        return await found
    except DatabaseError as error:
        code = protocol.INVALID_PARAMS if error.sqlstate == "42P01" else protocol.INTERNAL_ERROR
        raise RpcError(code, error.message, error_fields(error)) from None


def _text(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": as_json(found).decode()}]}


def _failed(error: DatabaseError) -> Mapping[str, Any]:
    return {**_text({"error": error_fields(error)}), "isError": True}


def _kept(ms: int, scope: str) -> Mapping[str, Any]:
    """Return how long an answer may be kept, and whether for all clients."""
    return {"ttlMs": ms, "cacheScope": scope}


def _info() -> Mapping[str, Any]:
    return {"name": "foreshore", "title": "Foreshore", "version": version("foreshore")}
