"""The HTTP port."""

import asyncio
import urllib.error
import urllib.request

from foreshore.server.http.app import HttpServer
from foreshore.server.ports import bind


async def consistent() -> None:
    """Find nothing."""


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_tells_when_the_server_is_ready_and_metrics_are_there_before() -> None:
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


def test_check_tells_what_does_not_hold() -> None:
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
