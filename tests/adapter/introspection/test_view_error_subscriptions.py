"""Subscriptions fail at an error that they pass, and at none before they begin."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from foreshore.compute.controller.outputs import SinkWriter
from tests.adapter.harness import TestEnvironment, until
from tests.adapter.introspection.failing import (
    DIVISION,
    SETUP,
    id_of,
    passed,
    ran,
    says,
    seen,
    toggled,
)

pytestmark = pytest.mark.full  # replicas are killed, environments opened anew


@pytest.fixture
def env(tmp_path: Path) -> TestEnvironment:
    return TestEnvironment(tmp_path, lag_ms=3_600_000)  # all that happens here can be read


def held_back(env: TestEnvironment, view: str) -> tuple[SinkWriter, asyncio.Event]:
    """Keep a view's shard where it is until an event, whatever its replica has said; its writer."""
    id, gate = id_of(env, view), asyncio.Event()
    writer = env.environment.coordinator.compute._dataflows[id].writers[id]
    inner = writer.errors._store

    class Slow:
        load = inner.load
        settled = inner.settled

        async def store(self, *args: Any) -> None:
            await gate.wait()
            await inner.store(*args)

    writer.errors._store = Slow()
    return writer, gate


@pytest.mark.parametrize("source", ["m", "above", "(SELECT a, x FROM m, t WHERE x <> a)"])
def test_subscription_fails_at_past_error(env: TestEnvironment, source: str) -> None:
    """Both are in one window, as the view's replica was not heard in between."""

    async def main() -> None:
        await env.open()
        await ran(env, *SETUP)
        await says(env, "SELECT * FROM above")
        await env.query("f", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}")
        await env.ran("f", "FETCH 1 c")
        coordinator = env.environment.coordinator
        writer, gate = held_back(env, "m")
        await ran(env, "INSERT INTO t VALUES (0)", "DELETE FROM t WHERE a = 0")
        await ran(env, "INSERT INTO t VALUES (4)")
        gone = coordinator.oracle.read_ts()
        await until(lambda: writer.errors.upper is not None and writer.errors.upper > gone)
        gate.set()
        told = await env.query("f", "FETCH 20 c WITH (TIMEOUT = '10s')")
        if not told.startswith("ERROR"):  # the rest of the contents
            begun = {int(row.split("|")[0]) for row in told.splitlines() if "|" in row}
            assert len(begun) == 1, told
            assert max(begun) < gone, told
            told = await env.query("f", "FETCH 20 c WITH (TIMEOUT = '10s')")
        assert told.startswith(DIVISION), told
        await env.query("f", "ROLLBACK")
        await env.close()

    asyncio.run(main())


QUERY = "(SELECT a FROM m, t WHERE x <> a)"
NEWS = " WITH (SNAPSHOT = false)"


@pytest.mark.parametrize(
    ("source", "options", "followed"),
    [
        ("m", "", False),
        ("m", NEWS, False),
        ("above", "", False),
        ("m", "", True),
        ("indexed", "", True),
        (QUERY, "", True),
        (QUERY, NEWS, True),
    ],
)
def test_subscription_after_error_does_not_fail(
    env: TestEnvironment, source: str, options: str, followed: bool
) -> None:
    """The view has yet to come as far as the error, of which who begins earlier has to hear."""

    async def main() -> None:
        await env.open()
        await ran(env, *SETUP, "CREATE VIEW indexed AS SELECT x + 1 AS y FROM m")
        await ran(env, "CREATE DEFAULT INDEX ON indexed")
        await says(env, "SELECT * FROM above, indexed")
        if followed:
            await env.query("e", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}")
            await env.ran("e", "FETCH 1 c WITH (TIMEOUT = '10s')")
        writer, gate = held_back(env, "m")
        await ran(env, "INSERT INTO t VALUES (0)", "DELETE FROM t WHERE a = 0")
        await ran(env, "INSERT INTO t VALUES (4)")
        begun = env.environment.coordinator.oracle.read_ts()
        await until(lambda: writer.errors.upper is not None and writer.errors.upper > begun)
        await env.query("f", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}{options}")
        gate.set()
        if not options:
            first = await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
            assert int(first.split("|")[0]) >= begun
        later = await seen(env)
        await ran(env, "INSERT INTO t VALUES (3)")
        time = 0
        while time <= later:
            time = int((await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")).split("|")[0])
        if followed:
            told = ""
            while not told.startswith("ERROR"):
                told = await env.query("e", "FETCH 1 c WITH (TIMEOUT = '10s')")
            assert told.startswith(DIVISION), told
        for session in "ef":
            await env.query(session, "ROLLBACK")
        await env.close()

    asyncio.run(main())


def test_durable_subscription_does_not_skip_error(env: TestEnvironment) -> None:
    async def main() -> None:
        await env.open()
        await ran(env, *SETUP, "CREATE SUBSCRIPTION s FOR m")
        first, _, last = await toggled(env, 1)
        await ran(env, f"ALTER SUBSCRIPTION s ADVANCE TO {first + 1}")
        await passed(env, last)
        assert await says(env, "SUBSCRIBE TO SUBSCRIPTION s") == [DIVISION]
        await ran(env, f"ALTER SUBSCRIPTION s ADVANCE TO {last + 1}")
        await env.query("f", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION s")
        told = await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
        assert told.splitlines()[0].endswith("|1|1"), told
        await env.query("f", "ROLLBACK")
        await env.close()

    asyncio.run(main())
