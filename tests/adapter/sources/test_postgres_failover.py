"""An upstream that fails over or is restored: a clear state, and never rows of another history."""

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import options_of
from tests.adapter.sources.replicated import SOURCE, STATUS, TABLES, equal, until
from tests.harness import free_port, initialised_postgres, postgres_account, program
from tests.kill.test_postgres_source import Upstream as Server

pytestmark = pytest.mark.full

DETAILS = "SELECT details FROM mz_internal.mz_source_statuses WHERE name = 's'"


@pytest.fixture
def primary() -> Iterator[Server]:
    """Run a server with the tables."""
    with initialised_postgres() as folder:
        server = Server(folder)
        server.start()
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(TABLES)
        try:
            yield server
        finally:
            server.crash()


@contextlib.asynccontextmanager
async def copied(primary: Server, *, standby: bool) -> AsyncIterator[Server]:
    """Yield a copy of a running server by pg_basebackup, perhaps its standby; it does not run."""
    stack = contextlib.ExitStack()

    def copy() -> Server:
        folder = stack.enter_context(initialised_postgres())
        shutil.rmtree(folder / "data")
        subprocess.run(
            [
                *(program("pg_basebackup"), "-D", str(folder / "data"), "-c", "fast"),
                *("-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"),
                *(["-R"] if standby else []),
            ],
            check=True,
            cwd="/",
            **postgres_account(folder),
        )
        server = Server(folder, free_port())
        stack.callback(server.crash)
        return server

    try:
        yield await asyncio.to_thread(copy)
    finally:
        await asyncio.to_thread(stack.close)


def duplicate(folder: Path, copy: Path) -> None:
    """Copy the files of a server that does not run."""
    subprocess.run(["cp", "-a", folder, copy], check=True)


@contextlib.asynccontextmanager
async def connected(server: Server) -> "AsyncIterator[psycopg.Connection[tuple[object, ...]]]":
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


async def follow(env: TestEnvironment, server: Server) -> None:
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({options_of(server.url)})", SOURCE)
    async with connected(server) as upstream:
        await equal(env, upstream)


async def lead_to(env: TestEnvironment, server: Server) -> None:
    await env.ran("a", f"ALTER CONNECTION pg SET (PORT = {server.port})")


async def because(env: TestEnvironment) -> str:
    """Return why all rows were read again, when that is told."""
    for _ in range(1000):
        found = (await env.query("a", DETAILS)).rpartition("\n")[0]
        if "rows_read_again_because" in found:
            return str(json.loads(found)["rows_read_again_because"])
        await asyncio.sleep(0.02)
    raise AssertionError(found)


async def test_a_standby_is_refused_and_followed_when_it_is_promoted(
    own_env: TestEnvironment, primary: Server
) -> None:
    env = own_env
    await follow(env, primary)
    async with copied(primary, standby=True) as standby:
        await asyncio.to_thread(standby.start)
        await env.ran("a", f"CREATE CONNECTION other TO POSTGRES ({options_of(standby.url)})")
        found = await env.query("a", "VALIDATE CONNECTION other (PUBLICATION 'p')")
        assert "55000: the PostgreSQL server is a standby" in found
        assert "HINT: Let HOST and PORT of the connection lead to its primary." in found
        await lead_to(env, standby)
        await until(
            env,
            "SELECT status, error LIKE 'the PostgreSQL server is a standby%'"
            " FROM mz_internal.mz_source_statuses WHERE name = 's'",
            "stalled|t",
        )
        async with connected(primary) as upstream:
            upstream.execute("INSERT INTO up.b VALUES (1000, 1)")
            replayed = "SELECT count(*) FROM up.b WHERE id = 1000"
            async with connected(standby) as other:
                while other.execute(replayed).fetchone() != (1,):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                # What only the former primary has is not there after the failover.
                await asyncio.to_thread(other.execute, "SELECT pg_promote()")
            upstream.execute("INSERT INTO up.b VALUES (1001, 1)")
        async with connected(standby) as other:
            other.execute("DELETE FROM up.b WHERE id = 3")
            other.execute("INSERT INTO up.b VALUES (1002, 1)")
            await equal(env, other)
        assert "a standby was promoted (timeline 2 after 1)" in await because(env)
        await lead_to(env, primary)  # somebody leads us back to the former primary
        await until(
            env,
            "SELECT status, error LIKE '%is on timeline 1, and timeline 2 was read%'"
            " FROM mz_internal.mz_source_statuses WHERE name = 's'",
            "stalled|t",
        )
        await until(env, "SELECT id FROM b WHERE id > 999 ORDER BY id", "1000\n1002")
        await lead_to(env, standby)
        await until(env, STATUS, "running|NULL")
        async with connected(standby) as other:
            other.execute("INSERT INTO up.b VALUES (1003, 1)")
            await equal(env, other)


async def test_a_server_restored_to_an_earlier_time_is_read_again(
    own_env: TestEnvironment, primary: Server
) -> None:
    env = own_env
    async with copied(primary, standby=False) as restored:  # before the source has begun
        await follow(env, primary)
        async with connected(primary) as upstream:
            upstream.execute("INSERT INTO up.b SELECT i, i FROM generate_series(1000, 9000) i")
            await equal(env, upstream)
        await asyncio.to_thread(restored.start)
        await lead_to(env, restored)
        async with connected(restored) as upstream:
            await equal(env, upstream)
            assert "restored to an earlier time" in await because(env)
            upstream.execute("INSERT INTO up.b VALUES (1000, -1)")
            await equal(env, upstream)


END = "SELECT (pg_current_wal_lsn() - '0/0')::int8"
PUBLISHED = "INSERT INTO up.b SELECT i, i FROM generate_series(1000, 1009) i"
NOT_PUBLISHED = "CREATE TABLE up.c AS SELECT i FROM generate_series(1, 20000) i"


@pytest.mark.parametrize("meanwhile", [PUBLISHED, NOT_PUBLISHED])
async def test_a_copy_of_the_files_that_has_gone_on_is_not_taken_for_the_server(
    own_env: TestEnvironment, primary: Server, meanwhile: str
) -> None:
    """It has the slot and the timeline, and its log is longer than what was read."""
    env = own_env
    await follow(env, primary)
    async with connected(primary) as upstream:
        upstream.execute("INSERT INTO up.b VALUES (999, 1)")
        await equal(env, upstream)
    await asyncio.to_thread(primary.crash)
    with initialised_postgres() as folder:
        shutil.rmtree(folder / "data")
        await asyncio.to_thread(duplicate, primary.folder / "data", folder / "data")
        await asyncio.to_thread(primary.start)
        async with connected(primary) as upstream:
            upstream.execute(meanwhile.encode())
            await equal(env, upstream)
        await asyncio.to_thread(primary.crash)  # what is confirmed of the slot is not on its disk
        await asyncio.to_thread(primary.start)
        async with connected(primary) as upstream:
            if meanwhile == PUBLISHED:
                upstream.execute("INSERT INTO up.b VALUES (1010, 1)")
            await equal(env, upstream)
            read = "SELECT count(*) > 20 FROM b"  # moves the position to the end of the log
            await env.ran("a", "SET real_time_recency = on", read, "SET real_time_recency = off")
            assert "rows_read_again" not in await env.query("a", DETAILS)
        copy = Server(folder, free_port())
        await asyncio.to_thread(copy.start)
        try:
            async with connected(copy) as upstream:
                for first, last in ((1005, 1009), (2000, 9000)):
                    some = f"SELECT i, 0 FROM generate_series({first}, {last}) i"
                    upstream.execute(f"INSERT INTO up.b {some}".encode())
                upstream.execute(NOT_PUBLISHED.replace("up.c", "up.d").encode())
                position = "SELECT \"offset\" FROM s_progress WHERE part = 'lsn'"
                was_read = int((await env.query("a", position)).partition("\n")[0])
                (ends,) = upstream.execute(END).fetchone() or (0,)
                assert int(str(ends)) > was_read
                await lead_to(env, copy)
                await equal(env, upstream)
                assert "it is a copy from before, which has gone on" in await because(env)
                upstream.execute("DELETE FROM up.b WHERE id = 1006")
                await equal(env, upstream)
        finally:
            await asyncio.to_thread(copy.crash)


async def test_another_server_is_told(own_env: TestEnvironment, primary: Server) -> None:
    env = own_env
    await follow(env, primary)
    with initialised_postgres() as folder:
        other = Server(Path(folder), free_port())
        await asyncio.to_thread(other.start)
        try:
            async with connected(other) as upstream:
                upstream.execute("CREATE TABLE first (id int)")  # oids are others
                upstream.execute(TABLES)
                upstream.execute("DELETE FROM up.b WHERE id < 5")
                await lead_to(env, other)
                assert "it is another server (system identifier" in await because(env)
                ceased = "SELECT status FROM mz_internal.mz_source_statuses WHERE name = 'b'"
                await until(env, ceased, "ceased")
                await until(env, "SELECT count(*) FROM b", "20")
                await env.ran("a", "ALTER SOURCE s REFRESH TABLE a, b")
                await equal(env, upstream)
        finally:
            await asyncio.to_thread(other.crash)
