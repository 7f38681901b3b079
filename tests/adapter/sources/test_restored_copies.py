"""A database that was restored from a backup beside its original: neither disturbs the other."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlparse

import psycopg
import pyarrow as pa
import pytest

from foreshore.errors import ConnectionFailure
from foreshore.storage.backup import back_up, restore
from foreshore.storage.export.postgres.exporter import PostgresExporter
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots
from tests.harness import initialised_postgres, running_postgres

pytestmark = pytest.mark.full

Parts = AsyncIterator[pa.Table]

TABLES = """
DROP PUBLICATION IF EXISTS p;
DROP SCHEMA IF EXISTS up CASCADE;
DROP SCHEMA IF EXISTS foreshore CASCADE;
CREATE SCHEMA up;
CREATE TABLE up.a (id int PRIMARY KEY, v int);
CREATE TABLE up.written (id int PRIMARY KEY, v int);
ALTER TABLE up.a REPLICA IDENTITY FULL;
INSERT INTO up.a VALUES (1, 1);
CREATE PUBLICATION p FOR TABLE up.a;
"""
ROWS = "SELECT id, v FROM a ORDER BY id"
SOURCE = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"
SINK = "SELECT status, error FROM mz_internal.mz_sink_statuses"


class Upstream:
    """A PostgreSQL server with a publication, and a table for sinks."""

    def __init__(self, url: str) -> None:
        where = urlparse(url)
        self.url = url
        self.options = (
            f"HOST '{where.hostname}', PORT {where.port}, DATABASE 'postgres', USER 'postgres'"
        )

    def run(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def slots(self) -> set[object]:
        return {row[0] for row in self.run("SELECT slot_name FROM pg_replication_slots")}


@pytest.fixture(scope="module")
def publisher() -> Iterator[str]:
    with (
        initialised_postgres() as folder,
        running_postgres(folder, settings=("wal_level=logical",)) as url,
    ):
        yield url


@pytest.fixture
def upstream(publisher: str) -> Upstream:
    drop_slots(publisher)
    found = Upstream(publisher)
    found.run(TABLES)
    return found


async def restored(env: TestEnvironment, folder: Path) -> TestEnvironment:
    """Return an environment over a restored backup of another one, not yet open."""
    await asyncio.to_thread(back_up, env.data_dir, folder / "backup")
    await asyncio.to_thread(restore, folder / "backup", folder / "copy")
    return TestEnvironment(folder / "copy", launcher=env.launcher)


@asynccontextmanager
async def opened(env: TestEnvironment) -> AsyncIterator[TestEnvironment]:
    await env.open()
    await env.environment.equip_sources()
    yield env
    await env.close()


async def until(env: TestEnvironment, query: str, *parts: str) -> None:
    """Wait until the answer of a query begins with the first text and has the others."""
    found = ""
    for _ in range(1500):
        found = await env.query("a", query)
        if found.startswith(parts[0]) and all(part in found for part in parts):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{found} instead of {parts}")


async def until_written(upstream: Upstream, rows: list[tuple[object, ...]]) -> None:
    found: list[tuple[object, ...]] = []
    for _ in range(1500):
        found = await asyncio.to_thread(upstream.run, "SELECT * FROM up.written ORDER BY id")
        if found == rows:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(found)


async def follow(env: TestEnvironment, upstream: Upstream) -> None:
    source = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream.options})", source)
    await until(env, ROWS, "1|1")


async def test_source_of_copy_reads_beside_the_original(
    own_env: TestEnvironment, upstream: Upstream, tmp_path: Path
) -> None:
    await follow(own_env, upstream)
    original = upstream.slots()
    copy = await restored(own_env, tmp_path / "restored")
    upstream.run("INSERT INTO up.a VALUES (2, 2); DELETE FROM up.a WHERE id = 1")
    await until(own_env, ROWS, "2|2")  # so that the original's slot is beyond the backup
    async with opened(copy):
        await until(copy, ROWS, "2|2\nSELECT 1")
        both = upstream.slots()
        assert len(both) == 2 > len(original)
        assert original < both
        upstream.run("INSERT INTO up.a VALUES (3, 3)")
        for each in (own_env, copy):
            await until(each, ROWS, "2|2\n3|3")
            assert (await each.query("a", SOURCE)).startswith("running|NULL")
        await copy.reopen()
        await copy.environment.equip_sources()
        upstream.run("INSERT INTO up.a VALUES (4, 4)")
        await until(copy, ROWS, "2|2\n3|3\n4|4")
        assert upstream.slots() == both
        await copy.ran("a", "DROP SOURCE s CASCADE")
        while upstream.slots() != original:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    upstream.run("INSERT INTO up.a VALUES (5, 5)")
    await until(own_env, ROWS, "2|2\n3|3\n4|4\n5|5")


async def test_source_of_copy_goes_on_from_a_copied_slot(
    own_env: TestEnvironment, upstream: Upstream, tmp_path: Path
) -> None:
    await follow(own_env, upstream)
    await own_env.close()
    copy = await restored(own_env, tmp_path / "restored")
    upstream.run("INSERT INTO up.a VALUES (2, 2)")
    async with opened(copy):
        await until(copy, ROWS, "1|1\n2|2")
        read = "SELECT snapshot_records_known FROM mz_internal.mz_source_statistics"
        assert set((await copy.query("a", read)).splitlines()[:-1]) == {
            "NULL"
        }  # none was read anew
    await own_env.open()
    await own_env.environment.equip_sources()
    await until(own_env, ROWS, "1|1\n2|2")


async def test_sink_of_copy_waits_until_it_is_resumed(
    own_env: TestEnvironment, upstream: Upstream, tmp_path: Path
) -> None:
    env = own_env
    await env.ran(
        "a",
        f"CREATE CONNECTION pg TO POSTGRES ({upstream.options})",
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE SINK s FROM t INTO POSTGRES CONNECTION pg (TABLE 'up.written') "
        "WITH (COMMIT INTERVAL '10 ms')",
    )
    await until_written(upstream, [(1, 1)])
    await env.ran("a", "WAIT FOR ALL SINKS")
    assert "is not paused" in await env.query("a", "ALTER SINK s RESUME")
    await env.close()
    copy = await restored(env, tmp_path / "restored")
    async with opened(copy):
        await until(copy, SINK, "paused|", "restored from a backup", "ALTER SINK ... RESUME")
        await copy.ran("a", "INSERT INTO t VALUES (2, 2)")
        said = await copy.query("a", "WAIT FOR ALL SINKS")
        assert 'ERROR 55000: sink "s" is paused: this database was restored' in said
        assert upstream.run("SELECT * FROM up.written") == [(1, 1)]
        await copy.ran("a", "ALTER SINK s RESUME")
        await until_written(upstream, [(1, 1), (2, 2)])
        await until(copy, SINK, "running|NULL")
        await copy.reopen()
        await copy.environment.equip_sources()
        await copy.ran("a", "DELETE FROM t WHERE id = 1")
        await until_written(upstream, [(2, 2)])
        await copy.ran("a", "DROP SINK s")
    await env.open()


async def with_sink(env: TestEnvironment, upstream: Upstream) -> None:
    """Make table `t` and the sink `s`, which has written that it is empty."""
    await env.ran(
        "a",
        f"CREATE CONNECTION pg TO POSTGRES ({upstream.options})",
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "CREATE SINK s FROM t INTO POSTGRES CONNECTION pg (TABLE 'up.written') "
        "WITH (COMMIT INTERVAL '10 ms')",
        "WAIT FOR ALL SINKS",
    )


async def test_resumed_sink_stalls_if_the_original_has_written_on(
    own_env: TestEnvironment, upstream: Upstream, tmp_path: Path
) -> None:
    env = own_env
    await with_sink(env, upstream)
    copy = await restored(env, tmp_path / "restored")
    await env.ran("a", "INSERT INTO t VALUES (9, 9)")
    await until_written(upstream, [(9, 9)])
    async with opened(copy):
        await until(copy, SINK, "paused|")
        await copy.ran("a", "ALTER SINK s RESUME")
        await until(copy, SINK, "stalled|", "which this database does not know")
        assert upstream.run("SELECT * FROM up.written") == [(9, 9)]
        await copy.ran("a", "DROP SINK s")
    assert upstream.run("SELECT count(*) FROM foreshore.frontiers") == [(1,)]
    await env.ran("a", "INSERT INTO t VALUES (10, 10)")
    await until_written(upstream, [(9, 9), (10, 10)])


async def test_sink_stalls_if_a_copy_writes_its_target_too(
    own_env: TestEnvironment, upstream: Upstream, tmp_path: Path
) -> None:
    """Somebody has resumed the copy's sink although the original runs."""
    env = own_env
    await with_sink(env, upstream)
    copy = await restored(env, tmp_path / "restored")
    async with opened(copy):
        await until(copy, SINK, "paused|")
        await copy.ran("a", "ALTER SINK s RESUME", "INSERT INTO t VALUES (2, 2)")
        await until_written(upstream, [(2, 2)])
        await env.ran("a", "INSERT INTO t VALUES (3, 3)")
        await until(env, SINK, "stalled|", "another copy of it")
        await copy.ran("a", "INSERT INTO t VALUES (4, 4)")
        await until_written(upstream, [(2, 2), (4, 4)])
        await until(env, SINK, "stalled|", "another copy of it")


async def test_resumed_sink_goes_on_if_its_first_commit_is_not_confirmed(
    own_env: TestEnvironment,
    upstream: Upstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Afterwards the target has the contents of this database, not those of the original."""
    env = own_env
    await with_sink(env, upstream)
    await env.close()
    copy, write, written = await restored(env, tmp_path / "restored"), PostgresExporter.write, []

    async def lost(self: PostgresExporter, parts: Parts, lower: int, upper: int) -> None:
        await write(self, parts, lower, upper)
        written.append(upper)
        if len(written) == 1:
            raise ConnectionFailure("the connection was lost")

    async with opened(copy):
        await until(copy, SINK, "paused|")
        monkeypatch.setattr(PostgresExporter, "write", lost)
        await copy.ran("a", "INSERT INTO t VALUES (2, 2)", "ALTER SINK s RESUME")
        await until_written(upstream, [(2, 2)])
        await copy.ran("a", "INSERT INTO t VALUES (3, 3)")
        await until_written(upstream, [(2, 2), (3, 3)])
    await env.open()


async def test_resumed_sink_to_files_goes_on_in_its_place(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, tmp_path / "out"
    place.mkdir()
    env.environment.let_copy([str(place)], tmp_path / "data")
    await env.ran(
        "a",
        "CREATE TABLE t (k int)",
        "INSERT INTO t VALUES (1)",
        f"CREATE SINK s FROM t INTO FILES (URL '{place}/t', FORMAT json)"
        " WITH (COMMIT INTERVAL '1 ms')",
        "WAIT FOR SINKS s",
    )
    await env.close()
    copy = await restored(env, tmp_path / "restored")
    await copy.open()
    copy.environment.let_copy([str(place)], tmp_path / "data")
    await copy.environment.equip_sources()
    await copy.ran("a", "INSERT INTO t VALUES (2)")
    await until(copy, SINK, "paused|")
    await copy.ran("a", "ALTER SINK s RESUME", "WAIT FOR SINKS s")
    written = "".join(sorted(each.read_text() for each in (place / "t").glob("*.json*")))
    assert [json.loads(line)["k"] for line in written.splitlines()] == [1, 2]
    await copy.close()
    await env.open()
