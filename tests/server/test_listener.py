"""The listener: shutdown under load, and connections beyond the limits."""

import asyncio
import contextlib
import socket
from pathlib import Path

import asyncpg
import psycopg
import pytest

from foreshore.server import listener
from foreshore.server.admission.authenticator import Authenticator
from foreshore.server.admission.policy import Policy
from foreshore.server.lease import Lease
from foreshore.server.listener import Listener, _settings
from foreshore.server.ports import bind
from tests.adapter.harness import Gate, TestEnvironment, in_environment
from tests.server.serving import serve, standing


def test_commit_in_progress_at_shutdown_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int)")
        gate = Gate(monkeypatch, env.storage, "begin_append")
        lease = Lease(lambda: None, standing)
        await lease.renew()
        listening = Listener(
            env.environment, Authenticator(env.environment, Policy(), b"seed"), lease
        )
        port = await listening.listen(await bind("127.0.0.1", 0, "--pg-listen"))
        url = f"postgres://foreshore@127.0.0.1:{port}/foreshore"
        writer, reader = await asyncpg.connect(url), await asyncpg.connect(url)
        write = asyncio.create_task(writer.execute("INSERT INTO t VALUES (1) RETURNING a"))
        sleep = asyncio.create_task(reader.execute("SELECT pg_sleep(1000)"))
        await gate.reached.wait()
        closing = asyncio.create_task(listening.close())
        async with asyncio.timeout(30):
            ended = "terminating connection due to administrator command"
            with pytest.raises(asyncpg.ConnectionDoesNotExistError, match=ended):
                await sleep
            gate.open()
            assert await write == "INSERT 0 1"
            await closing
        for each in (writer, reader):
            each.terminate()
        assert await env.query("s", "SELECT * FROM t") == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_oldest_connection_beyond_login_limit_is_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "LOGGING_IN", 1)
    with contextlib.contextmanager(serve)(max_connections=1) as served:
        silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(2)]
        served.eventually(lambda: len(served.listener._tasks) == 2)
        silent.append(socket.create_connection(("127.0.0.1", served.port)))
        with silent.pop(0) as oldest:
            oldest.settimeout(10)
            assert b"C53300\0" in oldest.makefile("rb").read()
        silent.pop().close()
        served.eventually(lambda: len(served.listener._tasks) == 1)
        with psycopg.connect(served.dsn()):
            pass
        silent.pop().close()


def test_options_of_startup_packet_are_settings_below_its_parameters() -> None:
    options = r"-c search_path=a\ b --statement-timeout=5s -cTimeZone=UTC -c"
    given = {"user": "u", "database": "d", "_pq_.x": "1", "options": options, "TimeZone": "CET"}
    assert _settings(given) == {
        "search_path": "a b",
        "statement_timeout": "5s",
        "TimeZone": "CET",
    }
