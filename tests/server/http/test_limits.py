"""Connections, time and memory that HTTP clients may take, and the end of their sessions."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from foreshore.adapter.client import Completed
from foreshore.server.http import app, exchange
from foreshore.server.lease import Lease
from foreshore.server.tls import Tls, TlsFiles
from tests.adapter.harness import until
from tests.server.certificates import Authority
from tests.server.fake import FakeClient
from tests.server.http.serving import Http, over, over_environment, policy_of


async def ask(http: Http, request: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request on a connection of its own, whose answer is not read yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=1024)
    writer.write(request.encode())
    return reader, writer


def get(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(query: str) -> str:
    body = json.dumps({"query": query})
    head = "POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}"


def test_sessions_outlive_the_life_and_the_number_of_other_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(app, "LIFE_S", 1.5)

    async def go(http: Http) -> None:
        await http.ran("CREATE TABLE t (a int)")
        streams = []
        for _ in range(4):
            reader, writer = await ask(http, get("/api/subscribe?query=TABLE%20t"))
            await reader.readuntil(b"progress")
            streams.append((reader, writer))
        socket = await connect(f"ws://127.0.0.1:{http.port}/api/sql/ws", proxy=None)
        await socket.send("{}")
        while "ReadyForQuery" not in str(await socket.recv()):
            pass
        silent, _ = await asyncio.open_connection("127.0.0.1", http.port)
        assert await silent.read() == b""  # its life has ended
        await http.ran("INSERT INTO t VALUES (12345)")
        for reader, writer in streams:
            await reader.readuntil(b"12345")
            writer.close()
        await socket.send('{"query": "SELECT 1"}')
        while "CommandComplete" not in str(await socket.recv()):
            pass
        await socket.close()

    over_environment(tmp_path, go)


@pytest.mark.parametrize(
    "request_",
    [
        post("SELECT repeat('x', 1000) FROM generate_series(1, 100000)"),
        get("/api/subscribe?query=SELECT%20a,%20repeat('x',%201000)%20FROM%20t"),
    ],
    ids=["sql", "subscribe"],
)
def test_client_that_does_not_read_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    monkeypatch.setattr(exchange, "STALL_S", 0.3)

    async def go(http: Http) -> None:
        await http.ran(
            "CREATE TABLE t (a int)", "INSERT INTO t SELECT g FROM generate_series(1, 50000) g"
        )
        _, writer = await ask(http, request_)
        await until(lambda: len(http.env.environment.sessions) == 1)
        await until(lambda: not http.env.environment.sessions)
        writer.close()

    over_environment(tmp_path, go)


def test_drain_ends_idle_sessions_and_lets_statements_end(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE TABLE t (a int)")
        stream, writer = await ask(http, get("/api/subscribe?query=TABLE%20t"))
        await stream.readuntil(b"progress")
        socket = await connect(f"ws://127.0.0.1:{http.port}/api/sql/ws", proxy=None)
        await socket.send("{}")
        while "ReadyForQuery" not in str(await socket.recv()):
            pass
        running = asyncio.ensure_future(http.rows("SELECT pg_sleep(0.5)"))
        await until(lambda: len(http.env.environment.sessions) == 3)
        await http.sessions.drain(60, asyncio.Event())
        assert len(await running) == 1
        assert not http.env.environment.sessions
        assert "57P01" in str(await socket.recv())
        assert b"57P01" in await stream.read(-1)
        writer.close()
        answer = await http.post({"query": "SELECT 1"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "57P01")

    over_environment(tmp_path, go)


def test_network_policy_and_settings_of_the_role_count(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran(
            "CREATE ROLE ann LOGIN",
            "ALTER ROLE ann SET statement_timeout = '50ms'",
        )
        (slow,) = await http.results({"query": "SELECT pg_sleep(60)"}, auth=("ann", ""))
        assert slow["error"]["code"] == "57014"
        await http.ran("ALTER ROLE ann RESET statement_timeout")
        (denied,) = await http.results({"query": "CREATE ROLE other"}, auth=("ann", ""))
        assert denied["error"]["code"] == "42501"
        await http.ran(
            "CREATE NETWORK POLICY office (RULES (office (ACTION = 'allow', DIRECTION = 'ingress', ADDRESS = '10.0.0.0/8')))",
            "ALTER ROLE ann SET network_policy = office",
        )
        answer = await http.post({"query": "SELECT 1"}, auth=("ann", ""))
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "28000")

    over_environment(tmp_path, go)


def with_clock(scenario: Callable[[Http, list[float]], Awaitable[None]]) -> None:
    """Run `scenario` with a server whose lease goes by the clock that it is given."""

    async def go() -> None:
        client, now = FakeClient(), [0.0]
        client.does("SELECT 1", lambda session, args: Completed("SELECT 1"))
        async with over(client) as http:
            http.sessions.lease = Lease(lambda: None, lambda: now[0])
            await http.sessions.lease.renew()
            await scenario(http, now)

    asyncio.run(go())


def test_answers_wait_for_the_lease() -> None:
    async def go(http: Http, now: list[float]) -> None:
        now[0] = 1000.0
        asking = asyncio.ensure_future(http.post({"query": "SELECT 1"}))
        waiting: list[asyncio.Future[Any]] = [asking, http.sessions.lease.next_renewal()]
        done, _ = await asyncio.wait(waiting, timeout=0.3)
        assert not done
        await http.sessions.lease.renew()
        assert (await asking).status_code == 200

    with_clock(go)


def test_https_is_an_encrypted_connection_for_rules_and_pg_stat_ssl(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    tls = Tls(TlsFiles(issued.certificate, issued.key)).https()
    trusting = ssl.create_default_context(cafile=str(authority.file))
    policy = policy_of(
        tmp_path, "hostssl all all all scram-sha-256\nhostnossl all all all reject\n"
    )

    async def go(http: Http) -> None:
        await http.env.environment.set_password("foreshore", "right")
        http.client.auth = httpx.BasicAuth("foreshore", "right")
        assert await http.rows(
            "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        ) == [[True, "TLSv1.3"]]
        async with http.client.stream(
            "GET", "/api/subscribe", params={"query": "SELECT 1"}
        ) as answer:
            assert "event: end" in (await answer.aread()).decode()
        async with connect(
            f"wss://127.0.0.1:{http.port}/api/sql/ws", proxy=None, ssl=trusting
        ) as socket:
            await socket.send('{"user": "foreshore", "password": "right"}')
            while "ReadyForQuery" not in str(await socket.recv()):
                pass

    over_environment(tmp_path / "data", go, policy=policy, tls=tls, trusting=trusting)


def test_connections_that_wait_for_a_next_request_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "MAX_CONNECTIONS", 2)

    async def go(http: Http, now: list[float]) -> None:
        kept = []
        for _ in range(2):
            reader, writer = await ask(http, get("/health"))
            await reader.readuntil(b"ready")
            kept.append((reader, writer))
        other, writer = await ask(http, get("/health"))
        await other.readuntil(b"ready")
        assert await kept[0][0].read() == b'"}'  # the rest, and its end
        kept[1][1].write(get("/health").encode())
        await kept[1][0].readuntil(b"200 OK")
        for each in (writer, *(each for _, each in kept)):
            each.close()

    with_clock(go)


def test_webhooks_whose_bodies_do_not_come_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_CONNECTIONS", 2)
    head = "POST /api/webhook/a/b/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"

    async def go(http: Http, now: list[float]) -> None:
        writers = []
        for _ in range(2):
            reader, writer = await ask(http, f"{head}Expect: 100-continue\r\n\r\n")
            await reader.readuntil(b"100 Continue")  # the endpoint waits for the body
            writers.append(writer)
        other, writer = await ask(http, get("/health"))
        await other.readuntil(b"ready")
        for each in (writer, *writers):
            each.close()

    with_clock(go)


def test_drain_does_not_wait_for_clients_that_do_not_read(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran(
            "CREATE TABLE t (a int)", "INSERT INTO t SELECT g FROM generate_series(1, 50000) g"
        )
        query = "SELECT%20a,%20repeat('x',%201000)%20FROM%20t"
        _, writer = await ask(http, get(f"/api/subscribe?query={query}"))
        socket = await connect(f"ws://127.0.0.1:{http.port}/api/sql/ws", proxy=None, max_queue=1)
        await socket.send("{}")
        await socket.send('{"query": "SUBSCRIBE (SELECT a, repeat($$x$$, 1000) FROM t)"}')
        await until(lambda: len(http.env.environment.sessions) == 2)
        transports = [each.transport for each in http.server._server.server_state.connections]
        await until(lambda: sum(each.get_write_buffer_size() > 0 for each in transports) == 2)
        async with asyncio.timeout(20):
            await http.sessions.drain(60, asyncio.Event())
        assert not http.env.environment.sessions
        await until(lambda: all(each.is_closing() for each in transports[-2:]), 20)
        writer.close()
        socket.transport.abort()

    over_environment(tmp_path, go)
