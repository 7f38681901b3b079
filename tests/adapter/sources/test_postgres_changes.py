"""Tables get other columns upstream: our relations follow when told to, or by themselves."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from foreshore.storage.ingest.postgres.layout import TableLayout
from foreshore.storage.ingest.postgres.snapshot import Snapshot
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.replicated import SOURCE, Upstream, rows_of
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream

APPLYING = SOURCE.replace("'p'", "'p', SCHEMA CHANGES = APPLY")
CEASED = "SELECT error FROM mz_internal.mz_source_statuses WHERE name = 'b'"


async def until(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has an answer, while a session of the source may run DDL."""
    found = ""
    for _ in range(3_000):
        found = await env.query("a", query, alone=False)
        if found.rpartition("\n")[0] == expected:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{found} instead of {expected}; {await env.query('a', CEASED)}")


async def until_ceased(env: TestEnvironment, why: str) -> str:
    """Wait until table b has ceased with a text in the reason; return the state."""
    async with asyncio.timeout(60):
        while True:
            if why in (found := await env.query("a", CEASED, alone=False)):
                return found
            await asyncio.sleep(0.02)


async def equal(env: TestEnvironment, upstream: Upstream) -> None:
    """Wait until both tables have the rows that they have upstream."""
    for name in ("a", "b"):
        query = f"SELECT id, v FROM {{}}{name} ORDER BY id"
        await until(env, query.format(""), rows_of(upstream, query.format("up.")))


async def same(env: TestEnvironment, upstream: Upstream, columns: str) -> None:
    """Wait until table b has the rows that it has upstream."""
    query = f"SELECT {columns} FROM {{}} ORDER BY id"
    await until(env, query.format("b"), rows_of(upstream, query.format("up.b")))


async def test_added_columns_appear_with_their_values(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", APPLYING)
    await env.ran(
        "a", "CREATE MATERIALIZED VIEW s AS SELECT sum(v) AS total FROM b".replace(" s ", " t ")
    )
    await env.ran("a", "CREATE VIEW every AS SELECT * FROM b")
    await equal(env, upstream)
    with upstream.transaction():
        upstream.execute("INSERT INTO up.b VALUES (50, 5)")
        upstream.execute("ALTER TABLE up.b ADD c int NOT NULL DEFAULT 7, ADD d text")
        upstream.execute("INSERT INTO up.b VALUES (51, 5, 8, 'x')")
    upstream.execute("INSERT INTO up.b VALUES (52, 5, 9)")
    await same(env, upstream, "id, v, c, d")
    upstream.execute("ALTER TABLE up.b ADD e float8 DEFAULT random()")
    upstream.execute("UPDATE up.b SET v = 1 WHERE id = 3")
    await same(env, upstream, "id, v, c, d, e")
    await until(env, "SELECT total FROM t", "16")
    await until(env, "SELECT * FROM every WHERE id = 51", "51|5")
    await equal(env, upstream)
    await env.reopen()
    upstream.execute("UPDATE up.b SET d = 'y'")
    await same(env, upstream, "id, v, c, d, e")
    await until(env, "SELECT total FROM t", "16")


async def test_columns_that_no_view_uses_are_dropped_and_converted(
    env: TestEnvironment, upstream: Upstream
) -> None:
    upstream.execute("ALTER TABLE up.b ADD c varchar(3), ADD d int")
    await env.ran("a", APPLYING)
    await env.ran("a", "CREATE MATERIALIZED VIEW t AS SELECT sum(v) AS total FROM b")
    await equal(env, upstream)
    with upstream.transaction():
        upstream.execute("ALTER TABLE up.b DROP d, ALTER c TYPE text")
        upstream.execute("UPDATE up.b SET c = 'longer', v = 1 WHERE id = 3")
    await same(env, upstream, "id, v, c")
    await until(env, "SELECT total FROM t", "1")
    await until(env, "SELECT pg_typeof(c) FROM b WHERE id = 3", "text")


async def test_a_column_that_is_used_is_not_dropped(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", APPLYING)
    await env.ran("a", "CREATE MATERIALIZED VIEW t AS SELECT sum(v) AS total FROM b")
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b DROP v")
    upstream.execute("INSERT INTO up.b VALUES (60)")
    why = 'column "v" of "up.b" was dropped or renamed; its change is not applied: cannot drop'
    for _ in range(3_000):
        if why in await env.query("a", CEASED, alone=False):
            break
        await asyncio.sleep(0.02)
    assert why in await env.query("a", CEASED, alone=False)
    await until(env, "SELECT total FROM t", "0")
    await env.ran("a", "DROP MATERIALIZED VIEW t")
    await until(env, "SELECT count(*), max(id) FROM b", "21|60")


@pytest.mark.parametrize("kills", [1, 4])
async def test_kills_while_a_change_is_applied_lose_and_repeat_nothing(
    env: TestEnvironment, upstream: Upstream, kills: int
) -> None:
    await env.ran("a", APPLYING)
    await equal(env, upstream)
    for turn in range(3):
        upstream.execute(f"ALTER TABLE up.b ADD c{turn} int DEFAULT {turn}".encode())
        upstream.execute(f"INSERT INTO up.b (id, v) VALUES ({100 + turn}, 1)".encode())
        for _ in range(kills):
            await asyncio.sleep(0.05)
            env.ingest.last.kill()
        if turn == 1:
            await env.reopen()
        upstream.execute("UPDATE up.b SET v = v + 1 WHERE id < 5")
        await same(env, upstream, ", ".join(["id", "v", *(f"c{i}" for i in range(turn + 1))]))


async def test_a_table_is_refreshed_when_told(env: TestEnvironment, upstream: Upstream) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b ADD c int DEFAULT 7")
    upstream.execute("INSERT INTO up.b VALUES (50, 5)")
    await equal(env, upstream)
    await env.ran("a", "ALTER SOURCE s REFRESH TABLE b")
    upstream.execute("UPDATE up.b SET c = 8 WHERE id = 50")
    await same(env, upstream, "id, v, c")
    upstream.execute("ALTER TABLE up.b DROP CONSTRAINT b_pkey")
    upstream.execute("INSERT INTO up.b VALUES (50, 6)")
    await until(env, "SELECT count(*) FROM s_errors", "1")
    await env.ran("a", "ALTER SOURCE s REFRESH TABLE b")
    await until(env, "SELECT count(*) FROM b WHERE id = 50", "2")
    assert "SCHEMA CHANGES" not in await env.query("a", "SHOW CREATE SOURCE s")


async def test_state_of_a_table_that_is_refreshed_shows_the_rows_read(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is held while the table's snapshot is not complete."""
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    go_on, rows = threading.Event(), Snapshot.rows

    times = 0

    def slow(self: Snapshot, table: TableLayout) -> Iterator[pa.Table]:
        nonlocal times
        times += 1
        yield from rows(self, table)
        if times > 1:  # the first reads what the relation gets with its columns
            go_on.wait(60)

    monkeypatch.setattr(Snapshot, "rows", slow)
    monkeypatch.setattr("foreshore.storage.ingest.source.REPORT_SECONDS", 0.05)
    upstream.execute("ANALYZE up.b")
    states = (
        "SELECT name, status, CASE WHEN name <> 's' THEN details END"
        " FROM mz_internal.mz_source_statuses ORDER BY name"
    )
    running = "a|running|NULL\n{}\ns|running|NULL"
    try:
        upstream.execute("ALTER TABLE up.b ADD c int DEFAULT 7")
        upstream.execute(
            "UPDATE up.b SET c = NULL WHERE id = 1; UPDATE up.b SET c = 8 WHERE id = 2"
        )
        upstream.execute("ALTER TABLE up.b ADD r float8 DEFAULT random()")
        upstream.execute("ANALYZE up.b")
        await equal(env, upstream)
        await env.ran("a", "ALTER SOURCE s REFRESH TABLE b")
        all_rows = "SELECT id, v, c, r FROM {} ORDER BY id"
        expected = rows_of(upstream, all_rows.format("up.b"))
        assert (await env.query("a", all_rows.format("b"))).rpartition("\n")[0] == expected
        progress = '{"rows": 20, "rows_read": 20}'
        await until(env, states, running.format(f"b|refreshing|{progress}"))
        upstream.execute("INSERT INTO up.b VALUES (70, 1, 2)")
        assert (await env.query("a", all_rows.format("b"))).rpartition("\n")[0] == expected
        counts = "mz_internal.mz_source_statistics JOIN mz_objects USING (id)"
        await until(env, f"SELECT updates_committed FROM {counts} WHERE name = 'b'", "24")
    finally:
        go_on.set()
    await same(env, upstream, "id, v, c")
    await until(env, states, running.format("b|running|NULL"))


async def test_a_table_that_is_written_anew_while_it_joins_lets_the_others_be(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    await env.ran("a", "ALTER SOURCE s DROP TABLE b")
    locked: list[Any] = []
    lock = Snapshot._lock

    def late(self: Snapshot, table: TableLayout) -> None:
        if not locked:
            upstream.execute("VACUUM FULL up.b")
        locked.append(table.table)
        lock(self, table)

    monkeypatch.setattr(Snapshot, "_lock", late)
    await env.ran("a", "ALTER SOURCE s ADD TABLE b")
    await equal(env, upstream)
    assert locked == ["up.b", "up.b"]


async def test_table_that_a_sink_reads_goes_on_without_new_columns(
    env: TestEnvironment, upstream: Upstream, tmp_path: Path
) -> None:
    env.environment.let_copy([str(tmp_path)], tmp_path / "data")
    await env.ran("a", APPLYING)
    await equal(env, upstream)
    await env.ran("a", f"CREATE SINK k FROM b INTO DELTA (URL '{tmp_path}/b') ENVELOPE APPEND")
    upstream.execute("ALTER TABLE up.b ADD c int DEFAULT 7")
    upstream.execute("INSERT INTO up.b VALUES (70, 1, 2)")
    await equal(env, upstream)
    state = "SELECT status, details FROM mz_internal.mz_source_statuses WHERE name = 'b'"
    await until(env, state, 'running|{"columns_left_out": ["c"]}')
    upstream.execute("ALTER TABLE up.b ADD d int DEFAULT 8")
    upstream.execute("INSERT INTO up.b VALUES (71, 1, 2, 3)")
    await equal(env, upstream)
    await until(env, state, 'running|{"columns_left_out": ["c", "d"]}')
    await env.ran("a", "WAIT FOR SINKS k")
    again = await env.ran("a", "ALTER SOURCE s REFRESH TABLE b")
    assert 'NOTICE: table "b" goes on without c, d' in again, again
    upstream.execute("ALTER TABLE up.b DROP v")
    upstream.execute("INSERT INTO up.b VALUES (72, 2, 3)")
    why = (
        "sink k needs source b as it was: sink k depends on source b (Run DROP SINK"
        " foreshore.public.k and ALTER SOURCE s REFRESH TABLE b, and create the sink anew; or read"
        " the table beside it: CREATE TABLE ... FROM SOURCE s (REFERENCE up.b). Until then"
    )
    await until_ceased(env, why)
    assert why[:30] in await env.query("a", "ALTER SOURCE s REFRESH TABLE b", alone=False)
    await env.ran("a", "DROP SINK k")
    await same(env, upstream, "id, c, d")
    await until(env, state, "running|NULL")


async def test_key_that_a_view_relies_on_is_told_with_what_helps(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", APPLYING)
    await env.ran("a", "CREATE MATERIALIZED VIEW t AS SELECT DISTINCT id FROM b")
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b DROP CONSTRAINT b_pkey")
    upstream.execute("INSERT INTO up.b VALUES (1, 5)")
    why = "CREATE TABLE ... FROM SOURCE s (REFERENCE up.b)"
    said = await until_ceased(env, why)
    assert "materialized view t depends on constraint b_pkey" in said, said
    await env.ran("a", "CREATE TABLE b2 FROM SOURCE s (REFERENCE up.b)")
    await env.ran("a", "CREATE OR REPLACE MATERIALIZED VIEW t AS SELECT DISTINCT id FROM b2")
    await until(env, "SELECT count(*) FROM b2", "21")
    await until(env, "SELECT count(*) FROM t", "20")
    await until(env, "SELECT count(*), count(DISTINCT id) FROM b", "21|20")


async def test_identity_columns_have_their_values_from_the_first_read_on(
    env: TestEnvironment, upstream: Upstream
) -> None:
    """Rows from before have other values than NULL, though the column has no default."""
    await env.ran("a", APPLYING)
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b ADD c int GENERATED ALWAYS AS IDENTITY")
    upstream.execute("INSERT INTO up.b VALUES (50, 5)")
    found = ""
    while not found.endswith("SELECT 1"):
        found = await env.query("a", "SELECT count(*) - count(c) FROM b", alone=False)
        await asyncio.sleep(0.01)
    assert found == "0\nSELECT 1"


async def test_a_table_that_is_locked_upstream_does_not_hold_up_the_catalog(
    env: TestEnvironment, upstream: Upstream, publisher_url: str
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b ADD c int DEFAULT 7")
    with psycopg.connect(publisher_url) as other:
        other.execute("LOCK TABLE up.b")
        found = await env.query("a", "ALTER SOURCE s REFRESH TABLE b")
        assert 'table "b" gets its present rows later' in found
        assert "due to lock timeout" in found
    upstream.execute("UPDATE up.b SET c = 8 WHERE id = 3")
    await same(env, upstream, "id, v, c")
