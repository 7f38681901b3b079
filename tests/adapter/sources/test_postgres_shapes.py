"""What a relation relies on is lost upstream: the table ceases, or all is read again."""

import asyncio
import os

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import options_of
from tests.adapter.sources.replicated import (
    SOURCE,
    TABLES,
    Upstream,
    equal,
    until,
)
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream
from tests.harness import initialised_postgres
from tests.kill.test_postgres_source import Upstream as PostgresServer

CEASED = "SELECT output, error FROM s_errors"


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be looked at often."""
    monkeypatch.setattr("foreshore.storage.ingest.postgres.stream.LOOK_SECONDS", 0.1)
    return


async def test_a_key_that_was_dropped_is_not_relied_on(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await env.ran("a", "CREATE MATERIALIZED VIEW d AS SELECT DISTINCT id FROM b")
    await equal(env, upstream)
    with upstream.transaction():
        upstream.execute("ALTER TABLE up.b DROP CONSTRAINT b_pkey")
        upstream.execute("INSERT INTO up.b VALUES (1, 5), (1, 6)")
    await until(env, CEASED, 'up.b|the primary key of "up.b" was dropped or changed')
    upstream.execute("INSERT INTO up.a VALUES (30, 1)")
    await until(env, "SELECT max(id) FROM a WHERE id < 50", "30")
    await until(env, "SELECT count(*), count(DISTINCT id) FROM b", "20|20")
    await until(env, "SELECT count(*) FROM d", "20")


async def test_a_key_that_was_dropped_for_a_while_is_not_relied_on(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    env.ingest.last.worker.stop()
    upstream.execute("ALTER TABLE up.b DROP CONSTRAINT b_pkey")
    upstream.execute("INSERT INTO up.b VALUES (1, 5)")
    upstream.execute("DELETE FROM up.b WHERE v = 5")
    upstream.execute("ALTER TABLE up.b ADD PRIMARY KEY (id)")
    await env.reopen()
    await until(env, CEASED, 'up.b|the primary key of "up.b" was dropped or changed')
    await until(env, "SELECT count(*), count(DISTINCT id) FROM b", "20|20")


async def test_a_table_taken_out_of_the_publication_ceases(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER PUBLICATION p DROP TABLE up.b")
    await until(env, CEASED, 'up.b|table "up.b" was taken out of the publication')
    upstream.execute("INSERT INTO up.b VALUES (50, 5)")
    upstream.execute("ALTER PUBLICATION p ADD TABLE up.b")
    upstream.execute("INSERT INTO up.b VALUES (51, 5)")
    await env.ran("a", "ALTER SOURCE s DROP TABLE b", "ALTER SOURCE s ADD TABLE b")
    await equal(env, upstream)


async def test_a_table_out_of_the_publication_for_a_while_is_read_again(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    env.ingest.last.worker.stop()
    upstream.execute("ALTER PUBLICATION p DROP TABLE up.b")
    upstream.execute("DELETE FROM up.b WHERE id = 4")
    upstream.execute("ALTER PUBLICATION p ADD TABLE up.b")
    await env.reopen()
    await equal(env, upstream)


async def test_changes_that_were_not_published_are_read_again(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER PUBLICATION p SET (publish = 'insert')")
    stalled = "SELECT error FROM mz_internal.mz_source_statuses WHERE name = 's'"
    hint = "(publish = 'insert, update, delete, truncate')"
    upstream.execute("DELETE FROM up.b WHERE id = 3")
    for _ in range(3_000):
        if hint in await env.query("a", stalled):
            break
        await asyncio.sleep(0.02)
    upstream.execute("ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')")
    await equal(env, upstream)
    upstream.execute("ALTER PUBLICATION p SET (publish = 'insert')")
    upstream.execute("DELETE FROM up.b WHERE id = 4")
    upstream.execute("ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')")
    await equal(env, upstream)


async def test_another_table_of_the_name_is_not_read_for_it(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    with upstream.transaction():
        upstream.execute("ALTER TABLE up.a RENAME TO c")
        upstream.execute("ALTER TABLE up.b RENAME TO a")
        upstream.execute("ALTER TABLE up.c RENAME TO b")
    for name, other in (("a", "b"), ("b", "a")):
        why = f'table "up.{name}" was renamed to "up.{other}"'
        await until(env, f"{CEASED} WHERE output = 'up.{name}'", f"up.{name}|{why}")


async def test_what_does_not_publish_all_is_refused(
    env: TestEnvironment, upstream: Upstream
) -> None:
    upstream.execute("ALTER PUBLICATION p SET (publish = 'insert, update')")
    said = await env.query("a", SOURCE)
    assert "does not publish all changes" in said, said


async def test_several_tables_are_truncated_at_once(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    with upstream.transaction():
        upstream.execute("INSERT INTO up.b VALUES (50, 5)")
        upstream.execute("TRUNCATE up.a, up.b")
        upstream.execute("INSERT INTO up.a VALUES (51, 5)")
    await equal(env, upstream)
    await until(env, "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)", "1|0")


async def test_partitions_are_read_as_their_root(env: TestEnvironment, upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE up.r (id int PRIMARY KEY, v int) PARTITION BY LIST (id)")
    for part in (1, 2):
        upstream.execute(
            f"CREATE TABLE up.r{part} PARTITION OF up.r FOR VALUES IN ({part})".encode()
        )
    upstream.execute("ALTER TABLE up.r REPLICA IDENTITY FULL")
    upstream.execute("INSERT INTO up.r VALUES (1, 1), (2, 2)")
    upstream.execute("ALTER PUBLICATION p SET TABLE up.r")
    upstream.execute("ALTER PUBLICATION p SET (publish_via_partition_root)")
    said = await env.query("a", SOURCE)
    assert "does not replicate the old rows" in said, said
    for part in (1, 2):
        upstream.execute(f"ALTER TABLE up.r{part} REPLICA IDENTITY FULL".encode())
    await env.ran("a", SOURCE)
    await until(env, "SELECT id, v FROM r ORDER BY id", "1|1\n2|2")
    upstream.execute("UPDATE up.r SET v = 5 WHERE id = 2")
    upstream.execute("DELETE FROM up.r WHERE id = 1")
    await until(env, "SELECT id, v FROM r ORDER BY id", "2|5")
    await until(env, "SELECT v FROM r WHERE id = 2", "5")


async def test_the_right_to_read_columns_is_enough(
    own_env: TestEnvironment, upstream: Upstream, publisher_url: str
) -> None:
    env = own_env
    upstream.execute("DROP ROLE IF EXISTS narrow")
    upstream.execute("CREATE ROLE narrow LOGIN REPLICATION")
    upstream.execute("GRANT USAGE ON SCHEMA up TO narrow")
    upstream.execute("GRANT SELECT (id, v) ON up.b TO narrow")
    narrow = options_of(publisher_url).replace("USER 'postgres'", "USER 'narrow'")
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({narrow})")
    await env.ran("a", SOURCE.replace("FOR ALL TABLES", "FOR TABLES (b)"))
    await until(env, "SELECT count(*) FROM b", "20")


@pytest.mark.full
async def test_a_promoted_standby_is_read_again(own_env: TestEnvironment) -> None:
    env = own_env
    with initialised_postgres() as folder:
        server = PostgresServer(folder)
        await asyncio.to_thread(server.start)
        try:
            with psycopg.connect(server.url, autocommit=True) as upstream:
                upstream.execute(TABLES)
                upstream.execute("ALTER SYSTEM SET max_prepared_transactions = 5")
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)
            await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({options_of(server.url)})")
            await env.ran("a", SOURCE)
            with psycopg.connect(server.url, autocommit=True) as upstream:
                await equal(env, upstream)
                upstream.execute("BEGIN")
                upstream.execute("INSERT INTO up.b VALUES (60, 6)")
                upstream.execute("PREPARE TRANSACTION 'one'")
                upstream.execute("INSERT INTO up.b VALUES (61, 6)")
                await equal(env, upstream)
                upstream.execute("COMMIT PREPARED 'one'")
                await equal(env, upstream)
            await asyncio.to_thread(server.crash)
            signal = folder / "data" / "standby.signal"
            signal.touch()
            owner = (folder / "data").stat()
            os.chown(signal, owner.st_uid, owner.st_gid)
            await asyncio.to_thread(server.start)
            with psycopg.connect(server.url, autocommit=True) as upstream:
                await asyncio.to_thread(upstream.execute, "SELECT pg_promote()")
                upstream.execute("DELETE FROM up.b WHERE id = 3")
                await equal(env, upstream)
                await until(env, "SELECT \"offset\" FROM s_progress WHERE part = 'timeline'", "2")
        finally:
            await asyncio.to_thread(server.crash)
