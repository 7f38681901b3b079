"""A transaction that is too large for memory comes in parts, and is seen whole at one time."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from foreshore.errors import OutOfDisk
from foreshore.processes.transport import Tables
from foreshore.storage.external import retries
from foreshore.storage.ingest import source
from foreshore.storage.ingest.messages import IngestedPart
from foreshore.storage.ingest.postgres import stream
from foreshore.storage.ingest.spool import Spool
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots, options_of
from tests.adapter.sources.replicated import (
    SOURCE,
    STATUS,
    TABLES,
    Upstream,
    equal,
    rows_of,
    until,
)

COUNTS = "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)"
LARGE = """
INSERT INTO up.a SELECT i, 1, repeat('x', 50), 1.5, now() FROM generate_series(1001, 3000) i;
INSERT INTO up.b SELECT i, 1 FROM generate_series(1001, 3000) i;
UPDATE up.a SET v = v + 1 WHERE id > 2000;
DELETE FROM up.b WHERE id > 2500;
"""


@pytest.fixture
def upstream(publisher_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    monkeypatch.setattr(stream, "BATCH_BYTES", 5_000)
    monkeypatch.setattr(source, "WHOLE_BYTES", 5_000)
    monkeypatch.setattr(source, "PART_BYTES", 5_000)
    drop_slots(publisher_url)
    with psycopg.connect(publisher_url, autocommit=True) as connection:
        connection.execute(TABLES)
        yield connection


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[IngestedPart]:
    """Return the parts that are kept."""
    found: list[IngestedPart] = []
    add = Spool.add

    def noting(self: Spool, part: IngestedPart, tables: Tables) -> None:
        found.append(part)
        add(self, part, tables)

    monkeypatch.setattr(Spool, "add", noting)
    return found


@pytest.fixture
def env(
    runner: asyncio.Runner, own_env: TestEnvironment, upstream: Upstream, publisher_url: str
) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({options_of(publisher_url)})"))
    runner.run(own_env.ran("a", SOURCE))
    return own_env


async def test_a_large_transaction_is_seen_at_once(
    env: TestEnvironment, upstream: Upstream, kept: list[IngestedPart]
) -> None:
    await equal(env, upstream)
    kept.clear()
    with upstream.transaction():
        upstream.execute(LARGE)
    seen = set()
    for _ in range(3_000):
        seen.add((await env.query("a", COUNTS)).splitlines()[0])
        if "2024|1520" in seen:
            break
        await asyncio.sleep(0.01)
    assert seen <= {"24|20", "2024|1520"}
    assert len(kept) > 20
    await equal(env, upstream)


async def test_a_process_that_ends_amid_the_parts_sends_them_again(
    env: TestEnvironment, upstream: Upstream, kept: list[IngestedPart]
) -> None:
    await equal(env, upstream)
    kept.clear()
    with upstream.transaction():
        upstream.execute(LARGE)
    while len(kept) < 5:  # noqa: ASYNC110
        await asyncio.sleep(0)
    env.ingest.last.kill()
    await equal(env, upstream)


async def test_truncate_and_a_misfit_amid_the_parts(
    env: TestEnvironment, upstream: Upstream, kept: list[IngestedPart]
) -> None:
    await equal(env, upstream)
    kept.clear()
    with upstream.transaction():
        upstream.execute(LARGE)
        upstream.execute("TRUNCATE up.b")
        upstream.execute("INSERT INTO up.b SELECT i, 2 FROM generate_series(1, 1000) i")
        upstream.execute("TRUNCATE up.b")
        upstream.execute("INSERT INTO up.b SELECT i, 3 FROM generate_series(1, 500) i")
    await equal(env, upstream)
    assert any(part.anew for part in kept)
    with upstream.transaction():
        upstream.execute("INSERT INTO up.b SELECT i, 4 FROM generate_series(5000, 6000) i")
        upstream.execute("INSERT INTO up.a SELECT i, 4 FROM generate_series(5000, 6000) i")
        upstream.execute("ALTER TABLE up.b RENAME v TO w")
        upstream.execute("INSERT INTO up.b VALUES (7000, 7)")
    await until(env, "SELECT count(*) FROM a", rows_of(upstream, "SELECT count(*) FROM up.a"))
    await until(env, "SELECT count(*), max(id) FROM b", "500|500")


async def test_a_full_disk_stalls_and_recovers(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.5)
    await equal(env, upstream)
    is_full, add = True, Spool.add

    def full(self: Spool, part: IngestedPart, tables: Tables) -> None:
        if is_full and self.parts > 2:
            raise OutOfDisk("rows to a temporary file")
        add(self, part, tables)

    monkeypatch.setattr(Spool, "add", full)
    with upstream.transaction():
        upstream.execute(LARGE)
    for _ in range(3_000):
        if "stalled|could not write rows to a temporary file" in await env.query("a", STATUS):
            break
    else:
        raise AssertionError("it does not stall")
    assert (await env.query("a", COUNTS)).splitlines()[0] == "24|20"
    is_full = False
    await equal(env, upstream)


async def test_a_lost_slot_leads_to_the_difference_in_parts(
    env: TestEnvironment, upstream: Upstream, kept: list[IngestedPart]
) -> None:
    upstream.execute(LARGE)
    await equal(env, upstream)
    await env.close()
    query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
    while upstream.execute(query).fetchall():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    upstream.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    upstream.execute("UPDATE up.a SET v = 3 WHERE id < 5")
    upstream.execute("DELETE FROM up.b WHERE id BETWEEN 1001 AND 2000")
    await env.open()
    await equal(env, upstream)
    committed = (
        "SELECT updates_committed FROM mz_internal.mz_source_statistics WHERE updates_committed > 0"
    )
    assert (await env.query("a", committed)).splitlines()[0] == "1008"
