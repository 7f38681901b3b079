"""The WebSocket, over an environment."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from foreshore.server.http import websocket
from tests.adapter.harness import until
from tests.server.http.serving import Http, over_environment, policy_of

Message = tuple[str, Any]


async def opened(
    http: Http, first: Mapping[str, Any] | None = None, **options: Any
) -> ClientConnection:
    """Return a socket that has sent its first message."""
    url = f"ws://127.0.0.1:{http.port}/api/sql/ws"
    socket = await connect(url, proxy=None, **options)
    await send(socket, first or {})
    return socket


async def send(socket: ClientConnection, body: Any) -> None:
    await socket.send(json.dumps(body))


async def received(socket: ClientConnection, last: str = "ReadyForQuery") -> list[Message]:
    """Return the messages up to the next of this type."""
    found: list[Message] = []
    async with asyncio.timeout(30):
        while not found or found[-1][0] != last:
            message = json.loads(await socket.recv())
            found.append((message["type"], message["payload"]))
    return found


async def asked(socket: ClientConnection, query: str) -> list[Message]:
    await send(socket, {"query": query})
    return await received(socket)


def test_batches_hold_the_rows_in_order(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http, {"batches": True})
        await received(socket)
        found = await asked(socket, "SELECT a FROM generate_series(1, 1200) AS a ORDER BY a")
        batches = [payload for type, payload in found if type == "RowBatch"]
        assert [row for batch in batches for row in batch] == [[a] for a in range(1, 1201)]
        assert 3 <= len(batches) < 20
        assert "Row" not in dict(found)

    over_environment(tmp_path, go)


def test_greeting_names_session_and_parameters(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(
            http, {"user": "foreshore", "options": {"application_name": "console"}}
        )
        found = await received(socket)
        parameters = {
            each["name"]: each["value"] for type, each in found if type == "ParameterStatus"
        }
        assert parameters["application_name"] == "console"
        assert [type for type, _ in found[-2:]] == ["BackendKeyData", "ReadyForQuery"]
        key = dict(found)["BackendKeyData"]
        assert await http.rows(
            "SELECT pid, application_name FROM pg_stat_activity ORDER BY 1 LIMIT 1"
        ) == [[key["conn_id"], "console"]]
        await socket.close()
        await until(lambda: not http.env.environment.sessions)

    over_environment(tmp_path, go)


def test_messages_of_statements_come_in_order(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        await received(socket)
        found = await asked(
            socket, "SELECT g AS a FROM generate_series(1, 2) g; SELECT 1 / 0; SELECT 3"
        )
        assert [type for type, _ in found] == [
            "CommandStarting", "Rows", "Row", "Row", "CommandComplete", "Error", "ReadyForQuery",
        ]  # fmt: skip
        assert found[0][1] == {"has_rows": True, "is_streaming": False}
        assert found[1][1]["columns"][0]["name"] == "a"
        assert [payload for type, payload in found if type == "Row"] == [[1], [2]]
        assert found[4] == ("CommandComplete", "SELECT 2")
        assert found[-2][1]["code"] == "22012"
        await send(socket, {"queries": [{"query": "SELECT $1::text", "params": ["x"]}]})
        assert ("Row", ["x"]) in await received(socket)
        await socket.close()

    over_environment(tmp_path, go)


def test_session_keeps_its_transaction_block(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        await received(socket)
        await asked(socket, "CREATE TABLE t (a int)")
        assert (await asked(socket, "BEGIN"))[-1] == ("ReadyForQuery", "T")
        await asked(socket, "INSERT INTO t VALUES (1)")
        assert (await asked(socket, "SELECT 1 / 0"))[-1] == ("ReadyForQuery", "E")
        assert (await asked(socket, "ROLLBACK"))[-1] == ("ReadyForQuery", "I")
        assert await http.rows("SELECT * FROM t") == []
        notices = await asked(socket, "ROLLBACK")
        assert [payload["severity"] for type, payload in notices if type == "Notice"] == ["warning"]
        await socket.close()

    over_environment(tmp_path, go)


def test_subscription_streams_until_it_is_cancelled(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        socket = await opened(http)
        await received(socket)
        await send(socket, {"query": "SUBSCRIBE t"})
        assert (await received(socket, "Rows"))[0][1]["is_streaming"]
        await http.results({"query": "INSERT INTO t VALUES (5)"})
        assert (await received(socket, "Row"))[0][1][1:] == ["1", 5]
        await send(socket, {"cancel": True})
        (failed, ready) = await received(socket)
        assert failed[1]["code"] == "57014"
        assert ready == ("ReadyForQuery", "I")
        assert ("Row", [1]) in await asked(socket, "SELECT 1")
        await socket.close()

    over_environment(tmp_path, go)


def test_cancel_counts_for_a_request_that_does_not_run_yet(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        await received(socket)
        for first in (False, True):
            if first:  # with the first message, before there is a session
                socket = await opened(http)
            await send(socket, {"query": "SELECT pg_sleep(600)"})
            await send(socket, {"cancel": True})
            if first:
                await received(socket)
            found = await received(socket)
            assert [payload["code"] for type, payload in found if type == "Error"] == ["57014"]
            assert ("Row", [1]) in await asked(socket, "SELECT 1")
            await socket.close()

    over_environment(tmp_path, go)


def test_client_without_a_session_may_send_little(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await connect(f"ws://127.0.0.1:{http.port}/api/sql/ws", proxy=None)
        with suppress(ConnectionClosed):  # while it sends
            await socket.send(json.dumps({"password": "x" * (2 << 20)}))
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1006  # aborted, and not answered
        socket = await opened(http)
        await received(socket)
        assert ("Row", [2 << 20]) in await asked(socket, f"SELECT length('{'x' * (2 << 20)}')")
        await socket.close()

    over_environment(tmp_path, go)


def test_disconnect_ends_running_statement(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        await received(socket)
        await send(socket, {"query": "SELECT pg_sleep(60)"})
        await until(
            lambda: any(each.interrupts.active for each in http.env.environment.sessions.values())
        )
        socket.transport.abort()
        await until(lambda: not http.env.environment.sessions)

    over_environment(tmp_path, go)


def test_messages_that_are_no_requests_are_errors(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        await received(socket)
        for text in ("{", "[]", "{}", '{"query": "SELECT 1", "options": {"a": "b"}}'):
            await socket.send(text)
            assert (await received(socket))[0][1]["code"] == "08P01", text
        await send(socket, {"cancel": True})  # of nothing
        assert ("Row", [1]) in await asked(socket, "SELECT 1")
        await socket.close()

    over_environment(tmp_path, go)


def test_password_is_in_the_first_message_or_the_header(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.env.environment.set_password("foreshore", "right")
        for first, code in (
            ({}, "28P01"),
            ({"user": "foreshore", "password": "wrong"}, "28P01"),
            ({"token": "x"}, "28P01"),
        ):
            socket = await opened(http, first)
            assert (await received(socket, "Error"))[0][1]["code"] == code
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == websocket.REFUSED
        socket = await opened(http, {"user": "foreshore", "password": "right"})
        await received(socket)
        await socket.close()
        header = {"Authorization": "Basic Zm9yZXNob3JlOnJpZ2h0"}
        socket = await opened(http, additional_headers=header)
        await received(socket)
        await socket.close()

    policy = policy_of(tmp_path, "host all all 127.0.0.1/32 scram-sha-256\n")
    over_environment(tmp_path / "data", go, policy=policy)


def test_pages_of_other_origins_are_refused(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        with pytest.raises(InvalidStatus) as refused:
            await opened(http, origin="http://evil.example")
        assert refused.value.response.status_code == 403
        assert b"evil.example" in refused.value.response.body
        socket = await opened(http, origin=f"http://127.0.0.1:{http.port}")
        await received(socket)
        await socket.close()

    over_environment(tmp_path, go)


def test_silent_and_greedy_clients_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "WAITING", 3)

    async def go(http: Http) -> None:
        with monkeypatch.context() as patched:  # of the silent one alone
            patched.setattr(websocket, "LOGIN_S", 0.2)
            silent = await connect(f"ws://127.0.0.1:{http.port}/api/experimental/sql", proxy=None)
            assert (await received(silent, "Error"))[0][1]["code"] == "08P01"
        greedy = await opened(http)
        await received(greedy)
        for _ in range(6):
            await send(greedy, {"query": "SELECT pg_sleep(60)"})
        assert (await received(greedy, "Error"))[-1][1]["code"] == "08P01"
        await until(lambda: not http.env.environment.sessions)

    over_environment(tmp_path, go)


def test_terminated_session_says_why(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        key = dict(await received(socket))["BackendKeyData"]
        await http.rows(f"SELECT pg_terminate_backend({key['conn_id']})")
        assert (await received(socket, "Error"))[-1][1]["code"] == "57P01"

    over_environment(tmp_path, go)


def test_notifications_come_while_the_session_is_idle(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        socket = await opened(http)
        await received(socket)
        await asked(socket, "LISTEN news")
        await http.ran("NOTIFY news, 'first'")
        found = (await received(socket, "Notification"))[-1][1]
        assert (found["channel"], found["payload"]) == ("news", "first")
        await asked(socket, "BEGIN")
        await http.ran("NOTIFY news, 'second'")
        await send(socket, {"query": "COMMIT"})
        types = [type for type, _ in await received(socket)]
        assert types == ["CommandStarting", "CommandComplete", "Notification", "ReadyForQuery"]
        await socket.close()

    over_environment(tmp_path, go)
