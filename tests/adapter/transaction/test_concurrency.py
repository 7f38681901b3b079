"""Concurrent sessions: nothing is lost or half done, and reads are in one order."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.adapter.read.bound import timestamp
from foreshore.errors import QueryCanceled
from foreshore.ids import GlobalId
from tests.adapter.harness import TestEnvironment, until


async def test_concurrent_increments_are_not_lost(env: TestEnvironment) -> None:
    async def increments(name: str, times: int) -> None:
        for _ in range(times):
            assert await env.query(name, "UPDATE counter SET n = n + 1") == "UPDATE 1"

    await env.query("s0", "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)")
    await asyncio.gather(*(increments(f"s{i}", 5) for i in range(6)))
    assert await env.query("s0", "SELECT n FROM counter") == "30\nSELECT 1"


async def test_conflicting_block_fails_and_succeeds_on_retry(env: TestEnvironment) -> None:
    async def transfer(name: str, source: int, target: int) -> None:
        while True:
            answer = await env.query(
                name,
                "BEGIN;"
                f" UPDATE account SET n = n - 1 WHERE id = {source};"
                f" UPDATE account SET n = n + 1 WHERE id = {target};"
                " COMMIT",
            )
            if answer.endswith("COMMIT"):
                return
            assert "ERROR 40001" in answer, answer

    await env.query(
        "s0",
        "CREATE TABLE account (id int, n int);"
        " INSERT INTO account SELECT i, 10 FROM generate_series(1, 3) AS g(i);"
        " CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM account",
    )
    transfers = [transfer(f"s{i}", 1 + i % 3, 1 + (i + 1) % 3) for i in range(6)]
    done = asyncio.gather(*transfers)
    while not done.done():
        assert await env.query("watch", "SELECT n FROM total") == "30\nSELECT 1"
    await done
    answer = await env.query("s0", "SELECT id, n FROM account ORDER BY id")
    assert answer == "1|10\n2|10\n3|10\nSELECT 3"


async def test_commit_after_read_table_was_dropped_conflicts(env: TestEnvironment) -> None:
    await env.query("s0", "CREATE TABLE skewed (a int); CREATE TABLE other (a int)")
    await env.query("s0", "CREATE TABLE seen (a int)")
    await env.query("s1", "BEGIN; INSERT INTO other SELECT count(*) FROM skewed")
    # It sees nothing of the first, which has seen nothing of this one: of two in a row one
    # would have.
    await env.query(
        "s2", "INSERT INTO seen SELECT count(*) FROM other; INSERT INTO skewed VALUES (1)"
    )
    assert await env.query("s2", "DROP TABLE skewed") == "DROP TABLE"
    refused = "ERROR 40001: could not serialize access due to concurrent update"
    assert await env.query("s1", "COMMIT") == refused
    assert await env.query("s0", "SELECT * FROM other") == "SELECT 0"


async def test_concurrent_inserts_share_appends(env: TestEnvironment) -> None:
    async def inserts(name: str) -> None:
        for i in range(10):
            assert await env.query(name, f"INSERT INTO many VALUES ({i})") == "INSERT 0 1"

    await env.query("s0", "CREATE TABLE many (i int)")
    group = env.environment.coordinator.group
    groups, writes = group.groups, group.writes
    await asyncio.gather(*(inserts(f"s{i}") for i in range(8)))
    assert group.writes - writes == 80
    assert group.groups - groups < 80
    assert await env.query("s0", "SELECT count(*) FROM many") == "80\nSELECT 1"


async def test_view_shows_write_to_next_read(env: TestEnvironment) -> None:
    await env.query(
        "s0",
        "CREATE TABLE fresh (k int, n int); CREATE VIEW sums AS"
        " SELECT k, sum(n) AS n FROM fresh GROUP BY k; CREATE INDEX ON sums (k)",
    )
    coordinator = env.environment.coordinator
    await until(lambda: bool(coordinator.arranged("quickstart")))
    for n in range(1, 10):
        await env.query("s0", "INSERT INTO fresh VALUES (1, 1)")
        answer = await env.query("s1", "SELECT n FROM sums WHERE k = 1")
        assert answer == f"{n}\nSELECT 1"


async def test_cancelled_statement_leaves_no_state(env: TestEnvironment) -> None:
    session = await env.session("s0")
    asyncio.get_running_loop().call_later(0.1, session.interrupts.request, QueryCanceled())
    answer = await env.query("s0", "SELECT pg_sleep(30)")
    assert answer == "ERROR 57014: canceling statement due to user request"
    assert await env.query("s0", "SELECT 1") == "1\nSELECT 1"
    session.interrupts.request(QueryCanceled())  # of nothing
    assert await env.query("s0", "SELECT 2") == "2\nSELECT 1"


async def test_subscription_gets_each_change_once(env: TestEnvironment) -> None:
    compute = env.environment.coordinator.compute
    before = [compute.dataflow(GlobalId(f"t{i}")) for i in range(20)]
    await env.query("s0", "CREATE TABLE heard (i int); INSERT INTO heard VALUES (1)")
    await env.query("s1", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE heard")
    first = await env.query("s1", "FETCH 1 c")
    assert first.splitlines()[0].endswith("|1|1")
    await env.query("s0", "UPDATE heard SET i = 2")
    second = await env.query("s1", "FETCH 2 c WITH (TIMEOUT = '10s')")
    changes = sorted(line.split("|")[1:] for line in second.splitlines()[:2])
    assert changes == [["-1", "1"], ["1", "2"]]
    await env.query("s1", "COMMIT")
    assert [compute.dataflow(GlobalId(f"t{i}")) for i in range(20)] == before


async def test_temporary_collections_do_not_disturb_others(env: TestEnvironment) -> None:
    async def come_and_go() -> None:
        for _ in range(10):
            for made, gone in (
                ("CREATE VIEW fleeting AS SELECT i + 1 AS j FROM staying", ""),
                ("CREATE DEFAULT INDEX ON fleeting", ""),
                ("CREATE MATERIALIZED VIEW brief AS SELECT count(*) FROM staying", ""),
                ("CREATE TABLE new (i int)", "DROP TABLE new"),
                ("SELECT * FROM fleeting", ""),  # else what it reads would have to stay the same
                ("DROP MATERIALIZED VIEW brief", "DROP VIEW fleeting"),
            ):
                answer = await env.query("ddl", f"{made}; {gone}")
                assert "ERROR" not in answer, answer

    await env.query("s0", "CREATE TABLE staying (i int)")
    done = asyncio.gather(come_and_go())
    count = 0
    while not done.done():
        for sql in (
            "INSERT INTO staying VALUES (1)",
            "UPDATE staying SET i = i + 1",
            "SELECT count(*) FROM staying",
            "SELECT object_id FROM mz_internal.mz_frontiers",
        ):
            answer = await env.query("watch", sql, alone=False)
            assert "ERROR" not in answer, (sql, answer)
        count += 1
    await done
    assert await env.query("s0", "SELECT count(*) FROM staying") == f"{count}\nSELECT 1"


def test_restart_restores_everything(tmp_path: Path) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query(
            "s",
            "CREATE TABLE t (i int NOT NULL, s text DEFAULT 'x'); INSERT INTO t VALUES (1, 'a');"
            " CREATE VIEW v AS SELECT i, count(*) AS n FROM t GROUP BY i;"
            " CREATE INDEX v_i ON v (i);"
            " CREATE MATERIALIZED VIEW m AS SELECT sum(n) AS total FROM v;"
            " ALTER TABLE t RENAME TO renamed; CREATE SCHEMA other;"
            " CREATE CLUSTER c (SIZE 'embedded')",
        )
        assert await env.query("s", "SELECT total FROM m") == "1\nSELECT 1"
        before = env.environment.coordinator.oracle.read_ts()
        ids = dict(env.environment.coordinator.state.allotted)
        await env.close()

        await env.open()
        assert env.environment.coordinator.oracle.read_ts() > before
        assert await env.query("s", "SELECT * FROM renamed") == "1|a\nSELECT 1"
        assert await env.query("s", "SELECT total FROM m") == "1\nSELECT 1"
        await env.query("s", "INSERT INTO renamed (i) VALUES (1)")
        assert await env.query("s", "SELECT n FROM v WHERE i = 1") == "2\nSELECT 1"
        assert await env.query("s", "SELECT total FROM m") == "2\nSELECT 1"
        await env.query("s", "CREATE TABLE new (i int)")
        new = env.environment.coordinator.state
        assert new.allotted["u"] == ids["u"] + 1
        await env.close()

    asyncio.run(play())


def test_id_of_failed_create_is_not_reused(tmp_path: Path) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", "CREATE TABLE t (i int)")
        await env.query("b", "BEGIN; SELECT * FROM t; CREATE TABLE lost (i int)")
        await env.query("b", "INSERT INTO lost VALUES (1)")
        await env.query("s", "INSERT INTO t VALUES (1)")
        assert await env.query("b", "COMMIT") == (
            "ERROR 40001: could not serialize access due to concurrent update"
        )
        assert await env.query("s", "CREATE TABLE kept (i int)") == "CREATE TABLE"
        # as if the process had ended between the shard and the catalog's record of it
        await env.storage.create(GlobalId("u17"), pa.schema([pa.field("i", pa.int32())]))
        await env.reopen()
        assert not env.storage.exists(GlobalId("u17"))
        assert await env.query("s", "CREATE TABLE more (i int)") == "CREATE TABLE"
        assert env.environment.coordinator.state.allotted["u"] == 19
        await env.close()

    asyncio.run(play())


async def test_time_before_index_is_read_without_it(env: TestEnvironment) -> None:
    await env.query("s0", "CREATE TABLE old (k int, n int); INSERT INTO old VALUES (1, 2)")
    await env.query("s0", "CREATE VIEW olds AS SELECT k, sum(n) AS n FROM old GROUP BY k")
    before = (await env.query("s0", "SELECT mz_now()")).splitlines()[0]
    await env.query("s1", "BEGIN; SELECT * FROM old")
    await env.query("s0", "INSERT INTO old VALUES (1, 3); CREATE INDEX ON olds (k)")
    coordinator = env.environment.coordinator
    view = next(each for each in coordinator.state.items() if each.name == "olds")
    await until(lambda: view.id in coordinator.arranged("quickstart"))
    by_key = "SELECT n FROM olds WHERE k = 1"
    assert await env.query("s0", by_key) == "5\nSELECT 1"
    assert await env.query("s0", f"{by_key} AS OF {before}") == "2\nSELECT 1"
    assert await env.query("s1", by_key) == "2\nSELECT 1\nT"
    await env.query("s1", "ROLLBACK")


@pytest.mark.parametrize("query", ["SELECT * FROM unfilled", "SUBSCRIBE TO unfilled"])
async def test_wait_for_late_collection_sends_notice(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    await env.ran(
        "s0",
        "CREATE CLUSTER IF NOT EXISTS nobody (SIZE 'embedded', REPLICATION FACTOR 0)",
        "CREATE TABLE IF NOT EXISTS some_rows (i int)",
        "CREATE MATERIALIZED VIEW IF NOT EXISTS unfilled IN CLUSTER nobody AS TABLE some_rows",
    )
    session = await env.session("s0")
    told = asyncio.Event()
    session.news.when_noticed(told.set)
    monkeypatch.setattr(timestamp, "FAR_BEHIND_MS", 3_600_000)
    answer = await env.query("s0", f"SET statement_timeout = '100ms'; {query}")
    assert "57014" in answer
    assert not told.is_set()  # it is not so old
    await env.query("s0", "RESET statement_timeout")
    await asyncio.sleep(0.1)
    await env.query("s0", "INSERT INTO some_rows VALUES (1)")  # time goes on
    monkeypatch.setattr(timestamp, "FAR_BEHIND_MS", 50)
    asking = asyncio.create_task(env.query("s0", query))
    await told.wait()
    session.interrupts.request(QueryCanceled())
    notice = 'NOTICE: waiting for materialized view "unfilled", which is being filled'
    assert notice in await asking


def test_never_hydrated_view_starts_again(tmp_path: Path) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)")
        await env.query("s", "CREATE CLUSTER idle (SIZE 'embedded', REPLICATION FACTOR 0)")
        await env.query(
            "s", "CREATE MATERIALIZED VIEW m IN CLUSTER idle AS SELECT count(*) AS n FROM t"
        )
        await env.reopen()
        before = env.environment.coordinator.oracle.read_ts() - 60_000
        await env.query("s", "INSERT INTO t VALUES (2)")
        await env.query("s", "CREATE CLUSTER REPLICA idle.r1 (SIZE 'embedded')")
        assert await env.query("s", "SELECT n FROM m") == "2\nSELECT 1"
        answer = await env.query("s", f"SELECT n FROM m AS OF {before}")
        assert answer.startswith("ERROR 22023: cannot read as of")
        await env.close()

    asyncio.run(play())
