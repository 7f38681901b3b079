"""What a session has on disk, and what its transaction keeps in memory, is bounded by settings."""

import asyncio
import gc

import pytest

from foreshore import blocking
from foreshore.adapter.client import Startup
from foreshore.adapter.session.session import Session
from tests.adapter.harness import TestEnvironment

# Some 5 MB, for which all rows have to be there before the first.
LARGE = "SELECT DISTINCT i, repeat(md5(i::text), 32) AS x FROM generate_series(1, 5000) AS i"
ON_DISK = {
    "a cursor": ("BEGIN", f"DECLARE c CURSOR FOR {LARGE}", "FETCH 1 FROM c"),
    "a cursor that is held": (f"DECLARE c CURSOR WITH HOLD FOR {LARGE}", "FETCH 1 FROM c"),
    "rows of an INSERT": ("BEGIN", f"INSERT INTO t {LARGE}"),
    "rows of two statements": ("BEGIN", *[f"INSERT INTO t {LARGE} LIMIT 2000"] * 2),
    "rows of a savepoint": ("BEGIN", "SAVEPOINT s", f"INSERT INTO t {LARGE}"),
    "a temporary table": ("BEGIN", f"CREATE TEMP TABLE own AS {LARGE}"),
    "an UPDATE": ("BEGIN", "UPDATE wide SET x = x || 'y'"),
    "a DELETE": ("BEGIN", "DELETE FROM wide"),
    "a sort": ("SELECT * FROM wide ORDER BY x, i",),
}


async def limited(env: TestEnvironment, setting: str) -> Session:
    """Open session `small` of a role with this setting."""
    await env.ran(
        "admin",
        "CREATE ROLE small LOGIN",
        "CREATE TABLE t (i int, x text)",
        f"CREATE TABLE wide AS {LARGE}",
        "GRANT ALL ON t, wide TO small",
        f"ALTER ROLE small SET {setting}",
    )
    session = await env.environment.connect(Startup("small", "foreshore", {}))
    env.sessions["small"] = session
    return session


async def nothing_left(env: TestEnvironment, session: Session) -> None:
    """Check that a session has nothing on disk soon after its transaction and cursors have ended.

    A thread or the loop may have the last rows in its hands for a moment.
    """
    await env.query("small", "ROLLBACK")
    await env.query("small", "CLOSE ALL")
    scratch = session.interrupts.scratch
    async with asyncio.timeout(60):
        while scratch.bytes or scratch.files:
            await blocking.run(None, gc.collect)


@pytest.mark.parametrize("kind", ON_DISK)
async def test_session_may_not_have_more_on_disk_than_its_setting(
    own_env: TestEnvironment, kind: str
) -> None:
    session = await limited(own_env, "temp_file_limit = '3MB'")
    answers = [await own_env.query("small", sql) for sql in ON_DISK[kind]]
    refused = "ERROR 53400: temporary file size exceeds temp_file_limit (2929kB)"
    assert any(refused in each for each in answers), answers
    assert await own_env.query("admin", f"SELECT count(*) FROM ({LARGE}) AS l") == "5000\nSELECT 1"
    await nothing_left(own_env, session)
    assert "ERROR 42501" in await own_env.query("small", "SET temp_file_limit = -1")


@pytest.mark.parametrize("kind", ON_DISK)
async def test_what_a_session_has_on_disk_is_counted_as_long_as_it_is_there(
    own_env: TestEnvironment, kind: str
) -> None:
    session = await limited(own_env, "temp_file_limit = '100MB'")
    await own_env.ran("small", *ON_DISK[kind])
    if kind != "a sort":  # whose rows have been read
        assert session.interrupts.scratch.bytes > 1 << 20
    await nothing_left(own_env, session)


async def test_values_of_temp_file_limit_are_those_of_postgres(env: TestEnvironment) -> None:
    for given, shown in (("-1", "-1"), ("0", "0"), ("100", "100kB"), ("'2GB'", "2GB")):
        await env.ran("limits", f"SET temp_file_limit = {given}")
        assert (await env.query("limits", "SHOW temp_file_limit")).startswith(f"{shown}\n")
    assert "ERROR 22023" in await env.query("limits", "SET temp_file_limit = '5 apples'")


async def test_transaction_may_not_keep_more_rows_in_memory_than_its_setting(
    own_env: TestEnvironment,
) -> None:
    await limited(own_env, "max_transaction_size = '1MB'")
    row = f"INSERT INTO t VALUES (1, '{'x' * 100_000}')"
    await own_env.ran("small", "BEGIN", *[row] * 9, "SAVEPOINT s")
    refused = await own_env.query("small", row)
    assert refused.startswith("ERROR 53200: out of memory"), refused
    assert "HINT: Commit more often" in refused
    await own_env.ran("small", "ROLLBACK TO s", "INSERT INTO t VALUES (1, 'x')", "COMMIT")
    await own_env.ran("small", "BEGIN", *[row] * 9, "COMMIT")
    await own_env.ran("small", "BEGIN", "SAVEPOINT s")
    for _ in range(3):  # what is rolled back does not count
        await own_env.ran("small", *[row] * 9, "ROLLBACK TO s")
    await own_env.ran("small", f"INSERT INTO t {LARGE}", "COMMIT")  # many rows are on disk
    assert await own_env.query("admin", "SELECT count(*) FROM t") == "5019\nSELECT 1"
