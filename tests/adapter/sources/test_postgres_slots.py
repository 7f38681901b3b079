"""Replication slots: how far behind they are is told before one is lost, and idle ones move on."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots, options_of
from tests.adapter.sources.replicated import SOURCE, TABLES, Upstream, equal, until
from tests.harness import initialised_postgres, running_postgres

pytestmark = pytest.mark.full

DETAILS = "SELECT details FROM mz_internal.mz_source_statuses WHERE name = 's'"


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slots be looked at often, and positions move soon."""
    monkeypatch.setattr("foreshore.storage.ingest.postgres.connector.SLOT_SECONDS", 0.1)
    monkeypatch.setattr("foreshore.storage.ingest.postgres.stream.IDLE_SECONDS", 0.5)


@pytest.fixture(scope="module")
def limited() -> Iterator[str]:
    """Run a server that keeps little of its log for slots."""
    settings = (
        "wal_level=logical",
        "max_slot_wal_keep_size=64MB",
        "min_wal_size=32MB",
        "max_wal_size=48MB",
    )
    with initialised_postgres() as folder, running_postgres(folder, settings=settings) as url:
        yield url


@pytest.fixture
def upstream(limited: str) -> Iterator[Upstream]:
    drop_slots(limited)
    with psycopg.connect(limited, autocommit=True) as connection:
        connection.execute(TABLES)
        yield connection


@pytest.fixture
def env(
    runner: asyncio.Runner, own_env: TestEnvironment, upstream: Upstream, limited: str
) -> TestEnvironment:
    create = f"CREATE CONNECTION pg TO POSTGRES ({options_of(limited)})"
    runner.run(own_env.ran("a", create, SOURCE))
    runner.run(equal(own_env, upstream))
    return own_env


def write_log(url: str, database: str, megabytes: int) -> None:
    """Write log that is none of the source's, in another database."""
    where = url.rpartition("/")[0]
    with psycopg.connect(url, autocommit=True) as connection:
        known = connection.execute("SELECT FROM pg_database WHERE datname = %s", (database,))
        if not known.fetchall():
            connection.execute(f"CREATE DATABASE {database}".encode())
    with psycopg.connect(f"{where}/{database}", autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS filler (t text)")
        for _ in range(megabytes):
            connection.execute(
                "INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 900)"
            )
        connection.execute("CHECKPOINT")


async def details(env: TestEnvironment, wanted: str = "replication_slot") -> dict[str, object]:
    """Wait until the details of the source have something."""
    for _ in range(3_000):
        found = (await env.query("a", DETAILS)).rpartition("\n")[0]
        if found.startswith("{") and wanted in (parsed := json.loads(found)):
            assert isinstance(parsed, dict)
            return parsed
        await asyncio.sleep(0.02)
    raise AssertionError(f"{found} without {wanted}")


async def test_log_of_other_databases_is_let_go(
    env: TestEnvironment, upstream: Upstream, limited: str
) -> None:
    """120 MB are nearly twice what the slot may retain; nothing of the source has changed."""
    lsn = "SELECT \"offset\" FROM s_progress WHERE part = 'lsn'"
    before = int((await env.query("a", lsn)).partition("\n")[0])
    for _ in range(4):
        await asyncio.to_thread(write_log, limited, "busy", 30)
        (end,) = upstream.execute("SELECT (pg_current_wal_lsn() - '0/0')::int8").fetchone() or (0,)
        await until(env, f"SELECT \"offset\" >= {end} FROM s_progress WHERE part = 'lsn'", "t")
        confirmed = (
            "SELECT confirmed_flush_lsn - '0/0' >= %s, wal_status <> 'lost'"
            " FROM pg_replication_slots"
        )
        while upstream.execute(confirmed, (end,)).fetchone() != (True, True):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        upstream.execute("CHECKPOINT")  # which lets restart_lsn move on
    after = int((await env.query("a", lsn)).partition("\n")[0])
    assert after - before > 100 << 20
    (retained,) = upstream.execute(
        "SELECT (pg_current_wal_lsn() - restart_lsn)::int8 FROM pg_replication_slots"
    ).fetchone() or (0,)
    assert int(str(retained)) < 64 << 20
    assert "rows_read_again_because" not in await details(env)


async def test_a_slot_that_is_nearly_lost_is_told_and_then_read_again(
    env: TestEnvironment, upstream: Upstream, limited: str
) -> None:
    found = await details(env)
    slot = found["replication_slot"]
    assert isinstance(slot, dict)
    assert slot["wal_status"] == "reserved"
    assert slot["bytes_until_lost"] > 32 << 20
    assert "warning" not in found
    # An open transaction keeps the log from being let go, however far it was read.
    with psycopg.connect(limited) as open:
        open.execute("INSERT INTO up.b VALUES (900, 1)")
        upstream.execute("CHECKPOINT")
        written = 0
        while "warning" not in found:
            assert written < 120, found
            await asyncio.to_thread(write_log, limited, "busy", 4)
            written += 4
            await asyncio.sleep(0.3)
            found = await details(env)
        assert "raise max_slot_wal_keep_size" in str(found["warning"]), found
        await asyncio.to_thread(write_log, limited, "busy", 80)
        open.commit()
    upstream.execute("INSERT INTO up.b VALUES (901, 1)")
    await equal(env, upstream)
    lost = upstream.execute("SELECT count(*) FROM pg_replication_slots").fetchone()
    assert lost == (1,)
    found = await details(env, "rows_read_again_because")
    assert "was lost, as max_slot_wal_keep_size" in str(found["rows_read_again_because"]), found
    await until(env, "SELECT count(*) FROM b WHERE id >= 900", "2")


async def test_wal_senders_that_are_all_taken_are_told(own_env: TestEnvironment) -> None:
    env, settings = own_env, ("wal_level=logical", "max_wal_senders=1")
    with initialised_postgres() as folder, running_postgres(folder, settings=settings) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLES)
        await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({options_of(url)})")
        with closing(psycopg.connect(f"{url}?replication=database", autocommit=True)) as other:
            other.pgconn.exec_(b"CREATE_REPLICATION_SLOT x TEMPORARY LOGICAL pgoutput")
            slot = (
                b"START_REPLICATION SLOT x LOGICAL 0/0 (proto_version '1', publication_names 'p')"
            )
            other.pgconn.send_query(slot)
            with psycopg.connect(url, autocommit=True) as connection:
                taken = "SELECT count(*) FROM pg_stat_replication"
                while connection.execute(taken).fetchone() != (1,):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            found = await env.query("a", SOURCE)
            assert "55000: all 1 WAL senders of the PostgreSQL server are taken" in found, found
            assert "HINT: Raise max_wal_senders upstream" in found
        await env.ran("a", SOURCE)  # one is enough
        await until(env, "SELECT count(*) FROM b", "20")
