"""Requests over HTTP and MCP and messages of WebSockets wait for their turn among all connections.

What is counted is the order of events: nothing is answered while the turns are held up.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foreshore.server.turns import Turn
from tests.adapter.harness import until
from tests.server.http.serving import Http, over_environment
from tests.server.http.test_websocket import opened, received


class HeldTurns:
    """Turns that are given one by one, when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_over: bool) -> None:
        self.waiting: list[asyncio.Event] = []
        self.waited: list[str] = []  # the functions whose tasks have waited
        monkeypatch.setattr(Turn, "is_over", property(lambda _: is_over))

        async def held(_: Turn) -> None:
            given = asyncio.Event()
            self.waiting.append(given)
            task = asyncio.current_task()
            assert task is not None
            self.waited.append(getattr(task.get_coro(), "__qualname__", ""))
            await given.wait()

        monkeypatch.setattr(Turn, "next", held)

    def give(self) -> None:
        """Give all that wait their turn."""
        given, self.waiting = self.waiting, []
        for each in given:
            each.set()

    async def to_end(self, task: "asyncio.Future[Any]") -> None:
        """Give turns until a task ends."""
        while not task.done():
            self.give()
            await asyncio.sleep(0)


def asked(http: Http, path: str, body: Any) -> Awaitable[Any]:
    accept = {"accept": "application/json, text/event-stream"}
    return http.client.post(path, json=body, headers=accept)


def got(path: str, http: Http) -> Awaitable[Any]:
    return http.client.get(path)


def rpc(method: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}


REQUESTS: dict[str, Callable[[Http], Awaitable[Any]]] = {
    "SQL": lambda http: asked(http, "/api/sql", {"query": "SELECT 1"}),
    "a request that is refused": lambda http: asked(http, "/api/sql", {"nothing": 1}),
    "OPTIONS": lambda http: http.client.options("/api/sql"),
    "MCP": lambda http: asked(http, "/api/mcp/developer", rpc("tools/list")),
    "a webhook": lambda http: asked(http, "/api/webhook/a/b/c", {}),
    **{
        path: partial(got, path)
        for path in ("/livez", "/readyz", "/health", "/metrics", "/check", "/console/", "/nothing")
    },
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_waits_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def go(http: Http) -> None:
        held = HeldTurns(monkeypatch, is_over=False)
        task = asyncio.ensure_future(REQUESTS[name](http))
        await until(lambda: bool(held.waiting) or task.done())
        assert not task.done()
        await held.to_end(task)
        assert (await task).status_code < 500

    over_environment(tmp_path, go)


def test_messages_of_a_socket_wait_for_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        await received(socket)
        held = HeldTurns(monkeypatch, is_over=True)
        for i in range(5):
            await socket.send(json.dumps({"query": f"SELECT {i}"}))
        await until(lambda: bool(held.waiting))

        async def answers() -> None:
            for _ in range(5):
                await received(socket)

        await held.to_end(asyncio.ensure_future(answers()))
        taken = [each for each in held.waited if each == "_Conversation.read"]
        assert len(taken) >= 5
        assert len(held.waited) - len(taken) >= 5 * 5  # for each message of an answer
        await socket.close()

    over_environment(tmp_path, go)
