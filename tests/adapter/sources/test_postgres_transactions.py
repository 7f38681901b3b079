"""Transactions and tables of many kinds are followed as a real server sends them."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots, options_of
from tests.adapter.sources.replicated import SOURCE, TABLES, Upstream, equal, rows_of, until
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream
from tests.harness import initialised_postgres, running_postgres

CEASED = "SELECT output, error FROM s_errors"
HUGE = 100_000


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be looked at often."""
    monkeypatch.setattr("foreshore.storage.ingest.postgres.stream.LOOK_SECONDS", 0.1)


@pytest.fixture(scope="module")
def spilling() -> Iterator[str]:
    """Run a server that decodes large transactions in parts, and knows two-phase commits."""
    settings = (
        "wal_level=logical",
        "logical_decoding_work_mem=64kB",
        "max_prepared_transactions=5",
    )
    with initialised_postgres() as folder, running_postgres(folder, settings=settings) as url:
        yield url


@pytest.fixture
def far(
    runner: asyncio.Runner, own_env: TestEnvironment, spilling: str
) -> Iterator[tuple[TestEnvironment, Upstream]]:
    """Return an environment with the source, and a connection to that server."""
    drop_slots(spilling)
    with psycopg.connect(spilling, autocommit=True) as connection:
        connection.execute(TABLES)
        create = f"CREATE CONNECTION pg TO POSTGRES ({options_of(spilling)})"
        runner.run(own_env.ran("a", create, SOURCE))
        yield own_env, connection


async def test_rolled_back_subtransactions_and_messages_leave_nothing(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("SELECT pg_logical_emit_message(false, 'p', 'outside')")
    with upstream.transaction():
        upstream.execute("INSERT INTO up.b VALUES (200, 1)")
        upstream.execute("SELECT pg_logical_emit_message(true, 'p', 'within')")
        with suppress(psycopg.errors.UniqueViolation), upstream.transaction():
            upstream.execute("INSERT INTO up.b VALUES (201, 1)")
            upstream.execute("DELETE FROM up.b WHERE id < 5")
            with upstream.transaction():
                upstream.execute("INSERT INTO up.a VALUES (202, 1)")
            upstream.execute("INSERT INTO up.b VALUES (200, 2)")
        with upstream.transaction():
            upstream.execute("UPDATE up.b SET v = 9 WHERE id = 200")
            with upstream.transaction():
                upstream.execute("INSERT INTO up.a VALUES (203, 1)")
        upstream.execute("SAVEPOINT s")
        upstream.execute("TRUNCATE up.a")
        upstream.execute("ROLLBACK TO s")
    with suppress(psycopg.errors.UniqueViolation), upstream.transaction():
        upstream.execute("INSERT INTO up.b VALUES (204, 1)")
        upstream.execute("INSERT INTO up.b VALUES (200, 1)")
    await equal(env, upstream)
    await until(env, "SELECT v FROM b WHERE id = 200", "9")
    gone = "SELECT count(*) FROM {} WHERE id IN (201, 202, 204)"
    await until(env, gone.format("a"), "0")
    await until(env, gone.format("b"), "0")


async def test_prepared_transactions_count_when_they_are_committed(
    far: tuple[TestEnvironment, Upstream],
) -> None:
    env, upstream = far
    await equal(env, upstream)
    for name, id in (("one", 60), ("two", 61)):
        upstream.execute("BEGIN")
        upstream.execute("INSERT INTO up.b VALUES (%s, 6)", (id,))
        upstream.execute(f"PREPARE TRANSACTION '{name}'".encode())
    upstream.execute("INSERT INTO up.b VALUES (62, 6)")
    await equal(env, upstream)
    await until(env, "SELECT count(*) FROM b WHERE v = 6", "1")
    await env.reopen()
    upstream.execute("COMMIT PREPARED 'one'")
    upstream.execute("ROLLBACK PREPARED 'two'")
    await equal(env, upstream)
    await until(env, "SELECT id FROM b WHERE v = 6 ORDER BY id", "60\n62")


@pytest.mark.full
async def test_huge_transaction_that_spills_is_seen_at_once(
    far: tuple[TestEnvironment, Upstream],
) -> None:
    env, upstream = far
    await equal(env, upstream)
    insert = f"SELECT i, 1 FROM generate_series(1001, {HUGE + 1000}) i"
    with upstream.transaction():
        upstream.execute(f"INSERT INTO up.b {insert}".encode())
        upstream.execute("SAVEPOINT s")
        upstream.execute("UPDATE up.b SET v = 5 WHERE id > 1000")
        upstream.execute("ROLLBACK TO s")
        upstream.execute("UPDATE up.b SET v = 2 WHERE id > 51000")
        upstream.execute("DELETE FROM up.b WHERE id % 10 = 0 AND id > 1000")
    counts = "SELECT count(*), sum(v) FROM {} WHERE id > 1000"
    expected = rows_of(upstream, counts.format("up.b"))
    seen = set()
    async with asyncio.timeout(120):
        while expected not in seen:
            seen.add((await env.query("a", counts.format("b"))).splitlines()[0])
            await asyncio.sleep(0.05)
    assert seen <= {"0|NULL", expected}


@pytest.mark.parametrize("identity", ["DEFAULT", "USING INDEX b_pkey", "NOTHING"])
async def test_table_ceases_when_old_rows_are_no_longer_sent(
    env: TestEnvironment, upstream: Upstream, identity: str
) -> None:
    upstream.execute("ALTER TABLE up.b ADD t text")
    upstream.execute("ALTER TABLE up.b ALTER t SET STORAGE EXTERNAL")
    upstream.execute("UPDATE up.b SET t = repeat('long', 5000) WHERE id = 1")
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute(f"ALTER TABLE up.b REPLICA IDENTITY {identity}".encode())
    upstream.execute("INSERT INTO up.b VALUES (70, 1)")
    await equal(env, upstream)
    if identity == "NOTHING":  # the publisher itself refuses updates
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            upstream.execute("UPDATE up.b SET v = 7 WHERE id = 1")
        return
    upstream.execute("UPDATE up.b SET v = 7 WHERE id = 1")
    await until(env, CEASED, 'up.b|table "up.b" has no REPLICA IDENTITY FULL')
    await until(env, "SELECT length(t), v FROM b WHERE id = 1", "20000|0")
    upstream.execute("ALTER TABLE up.b REPLICA IDENTITY FULL")
    await env.ran("a", "ALTER SOURCE s REFRESH TABLE b")
    await equal(env, upstream)


async def test_tables_of_a_renamed_schema_cease(env: TestEnvironment, upstream: Upstream) -> None:
    upstream.execute("DROP SCHEMA IF EXISTS renamed CASCADE")
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER SCHEMA up RENAME TO renamed")
    try:
        upstream.execute("INSERT INTO renamed.b VALUES (80, 1)")
        for name in ("a", "b"):
            why = f'table "up.{name}" was renamed to "renamed.{name}"'
            await until(env, f"{CEASED} WHERE output = 'up.{name}'", f"up.{name}|{why}")
        await until(env, "SELECT count(*) FROM b", "20")
        await env.ran("a", "CREATE TABLE b2 FROM SOURCE s (REFERENCE renamed.b)")
        await until(env, "SELECT count(*) FROM b2", "21")
    finally:
        upstream.execute("ALTER SCHEMA renamed RENAME TO up")


async def test_partitions_are_read_one_by_one(env: TestEnvironment, upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE up.r (id int PRIMARY KEY, v int) PARTITION BY LIST (id)")
    for part in (1, 2):
        of = f"PARTITION OF up.r FOR VALUES IN ({part})"
        upstream.execute(f"CREATE TABLE up.r{part} {of}".encode())
        upstream.execute(f"ALTER TABLE up.r{part} REPLICA IDENTITY FULL".encode())
    upstream.execute("INSERT INTO up.r VALUES (1, 1), (2, 2)")
    upstream.execute("ALTER PUBLICATION p SET TABLE up.r")
    await env.ran("a", SOURCE)
    both = "SELECT id, v FROM r1 UNION ALL SELECT id, v FROM r2 ORDER BY id"
    await until(env, both, "1|1\n2|2")
    with upstream.transaction():
        upstream.execute("UPDATE up.r SET v = 5 WHERE id = 2")
        upstream.execute("TRUNCATE up.r1")
    await until(env, both, "2|5")
    upstream.execute("ALTER TABLE up.r DETACH PARTITION up.r2")
    await until(
        env,
        f"{CEASED} WHERE output = 'up.r2'",
        'up.r2|table "up.r2" was taken out of the publication',
    )
