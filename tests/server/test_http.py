"""The HTTP port."""

import asyncio
import contextlib
import socket
import urllib.error
import urllib.request

import pytest

from foreshore.server.http import app
from foreshore.server.http.app import HttpServer
from foreshore.server.ports import bind


async def consistent() -> None:
    """Find no violation."""


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_503_until_ready_and_metrics_work_before() -> None:
    ready = False

    async def go() -> list[tuple[int, str]]:
        nonlocal ready
        server = HttpServer(lambda: ready, consistent)
        port = await server.listen(await bind("127.0.0.1", 0, "--http-listen"))
        got = [await asyncio.to_thread(get, port, "/health")]
        got.append(await asyncio.to_thread(get, port, "/metrics"))
        ready = True
        got.append(await asyncio.to_thread(get, port, "/health"))
        got.append(await asyncio.to_thread(get, port, "/nothing"))
        await server.close()
        return got

    starting, metrics, after, nothing = asyncio.run(go())
    assert starting == (503, '{"status":"starting"}')
    assert after == (200, '{"status":"ready"}')
    assert metrics[0] == 200
    assert "python_info" in metrics[1]
    assert nothing[0] == 404


def test_check_of_inconsistent_state_is_500_with_reason() -> None:
    ready, broken = False, False

    async def check() -> None:
        assert not broken, "nobody holds u7"

    async def go() -> list[tuple[int, str]]:
        nonlocal ready, broken
        server = HttpServer(lambda: ready, check)
        port = await server.listen(await bind("127.0.0.1", 0, "--http-listen"))
        got = [await asyncio.to_thread(get, port, "/check")]
        ready = True
        got.append(await asyncio.to_thread(get, port, "/check"))
        broken = True
        got.append(await asyncio.to_thread(get, port, "/check"))
        await server.close()
        return got

    starting, good, bad = asyncio.run(go())
    assert starting[0] == 503
    assert good == (200, '{"consistent":true}')
    assert bad[0] == 500
    assert "nobody holds u7" in bad[1]


def test_http_connections_beyond_limit_are_closed_and_idle_ones_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(app, "LIFE_S", 0.5)

    async def go() -> None:
        server = HttpServer(lambda: True, consistent)
        port = await server.listen(await bind("127.0.0.1", 0, "--http-listen"))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await ended(silent[0][0])  # the other takes its place
        assert await asyncio.to_thread(get, port, "/health") == (200, '{"status":"ready"}')
        for each in (silent[1][0], reader):
            assert await ended(each)
        await server.close()
        for _, each_writer in [*silent, (reader, writer)]:
            each_writer.close()

    asyncio.run(go())


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes a connection, within 10 s, without sending anything."""
    async with asyncio.timeout(10):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


def test_shutdown_does_not_wait_for_client_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "ENDING_S", 1)

    async def go() -> None:
        server = HttpServer(lambda: True, consistent)
        port = await server.listen(await bind("127.0.0.1", 0, "--http-listen"))
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(3000):
                    client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.sleep(1)
            async with asyncio.timeout(8):
                await server.close()

    asyncio.run(go())
