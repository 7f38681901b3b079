"""Tables of a PostgreSQL server are followed: all rows, then each transaction, whole."""

import asyncio
import signal
import subprocess
import threading
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from foreshore.storage.ingest.postgres.layout import TableLayout
from foreshore.storage.ingest.postgres.snapshot import Snapshot
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import options_of
from tests.adapter.sources.replicated import (
    SOURCE,
    STATUS,
    A,
    B,
    Upstream,
    equal,
    rows_of,
    until,
)
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream
from tests.harness import free_port, initialised_postgres, program, running_postgres

SUM = "SELECT (SELECT sum(v) FROM a) + (SELECT sum(v) FROM b)"


async def test_transactions_are_whole_at_each_time(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    for turn in range(60):
        with upstream.transaction():
            upstream.execute("UPDATE up.a SET v = v - 1 WHERE id = %s", (turn % 20 + 1,))
            upstream.execute("UPDATE up.b SET v = v + 1 WHERE id = %s", (turn % 7 + 1,))
            upstream.execute("INSERT INTO up.b VALUES (%s, 5)", (1000 + turn,))
            upstream.execute("UPDATE up.a SET v = v - 5 WHERE id = %s", (turn % 3 + 1,))
            if turn % 2:
                upstream.execute("DELETE FROM up.b WHERE id = %s", (1000 + turn,))
                upstream.execute("UPDATE up.a SET v = v + 5 WHERE id = 4")
        assert (await env.query("a", SUM)).splitlines()[0] == "2000", turn
        if turn in (10, 11, 25, 40):
            env.ingest.last.kill()
        if turn == 30:
            await env.reopen()
    await equal(env, upstream)


async def test_a_large_value_that_is_not_changed_is_kept(
    env: TestEnvironment, upstream: Upstream
) -> None:
    upstream.execute("ALTER TABLE up.a ALTER t SET STORAGE EXTERNAL")
    upstream.execute("UPDATE up.a SET t = repeat('long', 5000) WHERE id = 1")
    await env.ran("a", SOURCE)
    upstream.execute("UPDATE up.a SET v = 7 WHERE id = 1")
    upstream.execute("UPDATE up.a SET t = NULL WHERE id = 2")
    await equal(env, upstream)


async def test_truncate_removes_all_rows(env: TestEnvironment, upstream: Upstream) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("INSERT INTO up.b VALUES (50, 1)")
    with upstream.transaction():
        upstream.execute("INSERT INTO up.b VALUES (51, 1)")
        upstream.execute("TRUNCATE up.b")
        upstream.execute("INSERT INTO up.b VALUES (52, 1)")
    upstream.execute("INSERT INTO up.b VALUES (53, 1)")
    await until(env, B.format("b"), "52|1\n53|1")
    await equal(env, upstream)


async def test_a_lost_slot_leads_to_the_difference(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    slots = "SELECT slot_name, active_pid FROM pg_replication_slots"
    ((slot, pid),) = upstream.execute(slots).fetchall()
    own = "SELECT name, replication_slot FROM mz_internal.mz_postgres_sources JOIN mz_sources"
    assert await env.query("a", f"{own} USING (id)") == f"s|{slot}\nSELECT 1"
    await env.close()
    await asyncio.to_thread(upstream.execute, "SELECT pg_terminate_backend(%s)", (pid,))
    while upstream.execute(slots).fetchall()[0][1] is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    upstream.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    upstream.execute("UPDATE up.a SET v = 3 WHERE id < 5")
    upstream.execute("DELETE FROM up.b WHERE id = 9")
    await env.open()
    await equal(env, upstream)
    committed = "SELECT max(updates_committed) FROM mz_internal.mz_source_statistics"
    await until(env, committed, "9")  # since the start
    upstream.execute("INSERT INTO up.b VALUES (70, 70)")
    await equal(env, upstream)


async def test_a_table_that_fits_no_more_stops_alone(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b ADD extra text")
    upstream.execute("INSERT INTO up.b VALUES (60, 1, 'unseen')")
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b ALTER v TYPE text")
    upstream.execute("INSERT INTO up.b VALUES (61, 'none')")
    upstream.execute("INSERT INTO up.a VALUES (61, 1)")
    errors = "SELECT output, error FROM s_errors"
    await until(env, errors, 'up.b|column "v" of "up.b" has another type')
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    await env.reopen()
    upstream.execute("INSERT INTO up.a VALUES (62, 1)")
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    await until(env, "SELECT count(*), max(id) FROM b", "21|60")


async def test_a_dropped_source_leaves_no_slot(env: TestEnvironment, upstream: Upstream) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    count = "SELECT count(*) FROM pg_replication_slots"
    assert rows_of(upstream, count) == "1"
    await env.ran("a", "DROP SOURCE s CASCADE")
    for _ in range(3_000):
        if rows_of(upstream, count) == "0":
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the slot is left")


async def test_a_table_may_be_added(env: TestEnvironment, upstream: Upstream) -> None:
    await env.ran("a", SOURCE.replace("FOR ALL TABLES", "FOR TABLES (a)"))
    upstream.execute("INSERT INTO up.a VALUES (30, 1)")
    await env.ran("a", "ALTER SOURCE s ADD TABLE b")
    upstream.execute("INSERT INTO up.b VALUES (30, 1)")
    await equal(env, upstream)


@pytest.mark.parametrize("kills", [0, 2])
async def test_an_added_table_joins_at_one_time_and_is_read_alone(
    env: TestEnvironment,
    upstream: Upstream,
    publisher_url: str,
    monkeypatch: pytest.MonkeyPatch,
    kills: int,
) -> None:
    read: list[str] = []
    rows_read = Snapshot.rows

    def noted(self: Snapshot, table: TableLayout) -> Iterator[pa.Table]:
        read.append(table.reference)
        return rows_read(self, table)

    monkeypatch.setattr(Snapshot, "rows", noted)
    await env.ran("a", SOURCE.replace("FOR ALL TABLES", "FOR TABLES (a)"))
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    staged = (
        "SELECT o.name, snapshot_records_staged FROM mz_internal.mz_source_statistics s"
        " JOIN mz_catalog.mz_objects o ON o.id = s.id ORDER BY o.name"
    )
    await until(env, staged, "a|24\ns|24")  # reports come by the second
    stopping = threading.Event()
    loading = asyncio.create_task(asyncio.to_thread(transfers, publisher_url, stopping))
    try:
        await asyncio.sleep(0.2)
        await env.ran("a", "ALTER SOURCE s ADD TABLE b")
        for _ in range(kills):
            await asyncio.sleep(0.1)
            env.ingest.last.kill()
        joined = 0
        while joined < 30:
            rows, total = (await env.query("a", JOINED)).splitlines()[0].split("|")
            if rows != "0":
                assert total == "2000"
                joined += 1
            await asyncio.sleep(0.02)
    finally:
        stopping.set()
        await loading
    await equal(env, upstream)
    if not kills:
        await until(env, staged, "a|24\nb|20\ns|44")
        assert read == ["up.a", "up.b"]
    assert rows_of(upstream, "SELECT count(*) FROM pg_replication_slots") == "1"


JOINED = "SELECT (SELECT count(*) FROM b), (SELECT sum(v) FROM a) + (SELECT sum(v) FROM b)"


def transfers(url: str, stopping: threading.Event) -> None:
    """Move amounts from one table to the other until told to stop."""
    with psycopg.connect(url) as connection:
        turn = 0
        while not stopping.wait(0.002):
            turn += 1
            connection.execute("UPDATE up.a SET v = v - 1 WHERE id = %s", (turn % 20 + 1,))
            connection.execute("UPDATE up.b SET v = v + 1 WHERE id = %s", (turn % 7 + 1,))
            connection.commit()


async def test_an_added_table_may_have_changed_before(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE.replace("FOR ALL TABLES", "FOR TABLES (a)"))
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    env.ingest.last.worker.stop()  # it reads no more, until the source is started anew
    with upstream.transaction():
        upstream.execute("INSERT INTO up.a VALUES (30, 1)")
        upstream.execute("INSERT INTO up.b VALUES (30, 1)")
    upstream.execute("TRUNCATE up.b")
    upstream.execute("ALTER TABLE up.b ADD w text")
    upstream.execute("INSERT INTO up.b VALUES (31, 1, 'new')")
    upstream.execute("INSERT INTO up.a VALUES (31, 1)")
    await env.ran("a", "ALTER SOURCE s ADD TABLE b")
    upstream.execute("INSERT INTO up.b VALUES (32, 1, 'newer')")
    every = "SELECT id, v, w FROM {} ORDER BY id"
    await until(env, every.format("b"), rows_of(upstream, every.format("up.b")))
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    assert (await env.query("a", "SELECT count(*) FROM s_errors")).splitlines()[0] == "0"


async def test_a_recent_read_waits_for_what_is_there(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    await env.ran("a", "SET real_time_recency = on")
    for i in range(5):
        upstream.execute("INSERT INTO up.b VALUES (%s, 1)", (200 + i,))
        found = await env.query("a", "SELECT max(id) FROM b")
        assert found.splitlines()[0] == str(200 + i)
    upstream.execute("CREATE TABLE up.unrelated ()")
    assert (await env.query("a", "SELECT max(id) FROM b")).splitlines()[0] == "204"


@pytest.mark.full
async def test_crashes_of_either_side_lose_and_repeat_nothing(
    own_env: TestEnvironment,
) -> None:
    env, port, ends = own_env, free_port(), signal.SIGQUIT
    settings = ("wal_level=logical",)
    with initialised_postgres() as folder:
        with running_postgres(folder, ends, settings, port) as url:
            bench = [program("pgbench"), "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
            await asyncio.to_thread(
                subprocess.run, [*bench, "-i", "-q", "postgres"], check=True, capture_output=True
            )
            with psycopg.connect(url, autocommit=True) as connection:
                for name in BENCH:
                    connection.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL".encode())
                connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
            await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({options_of(url)})", SOURCE)
            await until(env, "SELECT count(*) FROM pgbench_accounts", "100000")
        for turn in range(6):
            with running_postgres(folder, ends, settings, port):
                load = subprocess.Popen(  # noqa: ASYNC220
                    [*bench, "-n", "-c", "4", "-T", "3", "postgres"],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                for _ in range(5):
                    await asyncio.sleep(0.5)
                    assert (await env.query("a", BALANCED)).splitlines()[0] == "t|t|t"
                    if turn % 2:
                        env.ingest.last.kill()
                if turn == 3:
                    await env.reopen()
            load.wait()  # after the server was ended by SIGQUIT, meanwhile
        with (
            running_postgres(folder, ends, settings, port) as url,
            psycopg.connect(url, autocommit=True) as connection,
        ):
            for query in COUNTED:
                await until(env, query, rows_of(connection, query))
            assert (await env.query("a", "SELECT count(*) > 100 FROM pgbench_history"))[0] == "t"


BENCH = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
BALANCED = """
WITH b AS (SELECT sum(bbalance) AS s FROM pgbench_branches)
SELECT s = (SELECT sum(abalance) FROM pgbench_accounts), s = (SELECT sum(tbalance) FROM pgbench_tellers),
    s = (SELECT coalesce(sum(delta), 0) FROM pgbench_history) FROM b
"""
COUNTED = (
    "SELECT count(*), sum(aid::bigint * abalance) FROM pgbench_accounts",
    "SELECT count(*), sum(bbalance) FROM pgbench_branches",
    "SELECT count(*), sum(tid::bigint * tbalance) FROM pgbench_tellers",
    "SELECT count(*), sum(delta::bigint * aid), sum(tid) FROM pgbench_history",
)


async def test_a_source_stalls_with_the_reason_and_recovers(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("DROP PUBLICATION p")
    upstream.execute("INSERT INTO up.b VALUES (90, 1)")
    await until(env, STATUS, 'stalled|publication "p" does not exist')
    upstream.execute("CREATE PUBLICATION p FOR TABLE up.a, up.b")
    await env.ran("a", "ALTER CONNECTION pg SET (DATABASE = 'absent')")
    await until(env, f"SELECT error LIKE '%absent%not exist%' FROM ({STATUS}) AS s", "t")
    await env.ran("a", "ALTER CONNECTION pg SET (DATABASE = 'postgres')")
    upstream.execute("INSERT INTO up.b VALUES (91, 1)")
    await until(env, "SELECT max(id) FROM b", "91")


async def test_a_table_that_has_stopped_is_made_anew(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b RENAME v TO w")
    upstream.execute("UPDATE up.b SET w = 8 WHERE id = 8")
    await until(env, "SELECT count(*) FROM s_errors", "1")
    await env.ran("a", "ALTER SOURCE s DROP TABLE b", "ALTER SOURCE s ADD TABLE b")
    upstream.execute("UPDATE up.b SET w = 9 WHERE id = 9")
    await until(
        env, "SELECT id, w FROM b ORDER BY id", rows_of(upstream, "SELECT * FROM up.b ORDER BY id")
    )


async def test_statistics_count_what_came_of_each_table(
    env: TestEnvironment, upstream: Upstream
) -> None:
    upstream.execute("ANALYZE up.a")
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("UPDATE up.b SET v = 1 WHERE id = 1")
    await equal(env, upstream)
    counts = (
        "SELECT coalesce(o.name, '-'), messages_received, updates_staged, updates_committed,"
        " bytes_received > 0, snapshot_records_known, snapshot_records_staged, snapshot_committed"
        " FROM mz_internal.mz_source_statistics s JOIN mz_catalog.mz_objects o ON o.id = s.id"
        " ORDER BY o.name"
    )
    await until(
        env,
        counts,
        "a|24|24|24|t|24|24|t\nb|21|22|22|t|NULL|20|t\ns|45|46|46|t|24|44|t",
    )
    offsets = (
        "SELECT DISTINCT offset_known >= offset_committed, offset_lag = offset_known - "
        "offset_committed, offset_committed > 0 FROM mz_internal.mz_source_statistics"
    )
    assert (await env.query("a", offsets)).splitlines()[0] == "t|t|t"
    env.ingest.last.kill()
    upstream.execute("UPDATE up.b SET v = 2 WHERE id = 1")
    await equal(env, upstream)
    await until(
        env,
        "SELECT messages_received, updates_committed FROM mz_internal.mz_source_statistics s"
        " JOIN mz_catalog.mz_objects o ON o.id = s.id WHERE o.name = 'b'",
        "22|24",
    )


async def test_an_added_table_whose_snapshot_does_not_fit_is_not_followed(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE.replace("FOR ALL TABLES", "FOR TABLES (a)"))
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    upstream.execute("ALTER TABLE up.b ADD far timestamp")
    upstream.execute("UPDATE up.b SET far = '294276-12-31' WHERE id = 3")
    await env.ran("a", "ALTER SOURCE s ADD TABLE b")
    await until(env, "SELECT output FROM s_errors", "up.b")
    upstream.execute("UPDATE up.b SET far = now() WHERE id = 3")
    upstream.execute("INSERT INTO up.b VALUES (40, 1)")
    upstream.execute("INSERT INTO up.a VALUES (40, 1)")
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    await until(env, "SELECT count(*) FROM b", "0")
    await until(env, "SELECT count(*) FROM s_errors", "1")


async def test_rows_are_found_by_their_keys(env: TestEnvironment, upstream: Upstream) -> None:
    await env.ran("a", SOURCE)
    every = [
        ("SELECT v FROM b WHERE {id} = 11", "4"),
        ("SELECT count(*), max(id) FROM b WHERE {id} < 15", "14|14"),
        ("SELECT sum(v) FROM b WHERE {id} IN (11, 12)", "4"),
        ("SELECT sum(b.v) FROM b JOIN a ON a.id = b.id WHERE a.{id} = 11", "4"),
    ]
    await equal(env, upstream)
    upstream.execute("UPDATE up.b SET v = 4 WHERE id = 11")
    for _ in range(2):
        await equal(env, upstream)
        for query, expected in every:
            for id in ("id", "id + 0"):  # by the key, and not
                found = await env.query("a", query.format(id=id))
                assert found.splitlines()[0] == expected, (query, id)
        await env.reopen()
