"""ALTER CLUSTER, SWAP WITH and SET CLUSTER: readers meet no error and no gap."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foreshore.compute.replica.instance import Instance
from foreshore.errors import QueryCanceled
from tests.adapter.harness import TestEnvironment, in_environment, until

SIZES = "SELECT name, size FROM mz_cluster_replicas r WHERE cluster_id = (SELECT id FROM "
SIZES += "mz_clusters WHERE name = 'c') ORDER BY name"
COMPUTED = "SELECT n FROM v WHERE k = 1"


async def made(env: TestEnvironment, size: str = "embedded") -> None:
    """Make a cluster c with an index and a materialized view, which sessions r and s use."""
    await env.ran(
        "s",
        f"CREATE CLUSTER c (SIZE = '{size}')",
        "SET cluster = c",
        "CREATE TABLE t (k int)",
        "INSERT INTO t VALUES (1), (2), (2)",
        "CREATE VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k",
        "CREATE INDEX i ON v (k)",
        "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k",
    )
    assert await env.query("s", COMPUTED) == "1\nSELECT 1"
    await env.ran("r", "SET cluster = c")


@asynccontextmanager
async def read_meanwhile(env: TestEnvironment) -> AsyncIterator[list[int]]:
    """Insert rows and read them back from the index and the view, in a loop; yield the counts.

    Each insert is seen by the next read. At least one round ends after the body.
    """
    over, counts = False, [1]

    async def go_on() -> None:
        while True:
            last = over
            await env.query("w", "INSERT INTO t VALUES (1)", alone=False)
            for relation in ("v", "m"):
                found = await env.query("r", f"SELECT n FROM {relation} WHERE k = 1", alone=False)
                assert found == f"{counts[-1] + 1}\nSELECT 1", (relation, found)
            counts.append(counts[-1] + 1)
            if last:
                return

    reader = asyncio.create_task(go_on())
    try:
        yield counts
    finally:
        over = True
        await reader


def replicas_running(env: TestEnvironment) -> set[str]:
    return {each["replica"] for each in env.environment.coordinator.compute.clusters.status()}


def replicas_in_catalog(env: TestEnvironment) -> set[str]:
    return {id for id in env.environment.coordinator.state.objects if id.startswith("r")}


@pytest.fixture
def slow_start(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the engines of replicas that are created from now on start once the event is set."""
    opened, start = asyncio.Event(), Instance.start

    async def later(self: Instance, executor: Executor, tried: Callable[[], None]) -> None:
        await opened.wait()
        await start(self, executor, tried)

    monkeypatch.setattr(Instance, "start", later)
    return opened


@pytest.mark.parametrize("size", ["duckdb", "embedded"])
def test_graceful_resize_interrupts_no_reader(tmp_path: Path, size: str) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env, "embedded" if size == "duckdb" else "duckdb")
        async with read_meanwhile(env) as counts:
            await until(lambda: len(counts) > 1)
            sql = (
                f"ALTER CLUSTER c SET (SIZE = '{size}', REPLICATION FACTOR 2) "
                "WITH (WAIT UNTIL READY (TIMEOUT = '5m', ON TIMEOUT = 'ROLLBACK'))"
            )
            assert await env.query("s", sql, alone=False) == "ALTER CLUSTER"
            after = len(counts)
            await until(lambda: len(counts) > after)
        assert await env.query("s", SIZES) == f"r1|{size}\nr2|{size}\nSELECT 2"
        await until(lambda: replicas_running(env) == replicas_in_catalog(env))
        await env.reopen()
        await env.ran("s", "SET cluster = c")
        assert await env.query("s", SIZES) == f"r1|{size}\nr2|{size}\nSELECT 2"
        assert await env.query("s", COMPUTED) == f"{counts[-1]}\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_old_replicas_serve_until_new_ones_are_ready(
    tmp_path: Path, slow_start: asyncio.Event
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        slow_start.set()
        await made(env)
        slow_start.clear()
        before = replicas_running(env)
        resize = asyncio.create_task(
            env.query(
                "s",
                "ALTER CLUSTER c SET (SIZE 'duckdb') WITH (WAIT UNTIL READY (TIMEOUT '5m'))",
                alone=False,
            )
        )
        await until(lambda: len(replicas_running(env)) > len(before))
        shown = "SELECT count(*) FROM mz_internal.mz_pending_cluster_replicas"
        async with read_meanwhile(env):
            assert await env.query("r2", shown, alone=False) == "1\nSELECT 1"
            assert await env.query("r2", SIZES, alone=False) == "r1|embedded\nSELECT 1"
            # no lock of the catalog is held meanwhile
            await env.query("d", "CREATE TABLE other (x int)", alone=False)
            refused = await env.query(
                "d", "ALTER CLUSTER c SET (SIZE 'duckdb') WITH (WAIT FOR '1s')", alone=False
            )
            assert refused.startswith("ERROR 55006"), refused
            assert not resize.done()
            slow_start.set()
            assert await resize == "ALTER CLUSTER"
        assert await env.query("s", SIZES) == "r1|duckdb\nSELECT 1"
        assert await env.query("r2", shown) == "0\nSELECT 1"

    in_environment(tmp_path, scenario)


@pytest.mark.parametrize("how", ["cancel", "timeout", "drop"])
def test_unfinished_resize_leaves_cluster_as_it_was(
    tmp_path: Path, slow_start: asyncio.Event, how: str
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        slow_start.set()
        await made(env)
        slow_start.clear()
        before = replicas_running(env)
        timeout = "50ms" if how == "timeout" else "5m"
        resize = asyncio.create_task(
            env.query(
                "s",
                "ALTER CLUSTER c SET (SIZE 'duckdb') WITH (WAIT UNTIL READY "
                f"(TIMEOUT '{timeout}', ON TIMEOUT 'rollback'))",
                alone=False,
            )
        )
        await until(lambda: len(replicas_running(env)) > len(before) or resize.done())
        if how == "cancel":
            (await env.session("s")).interrupts.request(QueryCanceled())
        elif how == "drop":
            await env.query("d", "DROP CLUSTER c CASCADE", alone=False)
        answer = await resize
        assert answer.startswith("ERROR 42704" if how == "drop" else "ERROR 57014"), answer
        await until(lambda: replicas_running(env) == replicas_in_catalog(env))
        if how != "drop":
            assert replicas_running(env) == before
            assert await env.query("r", SIZES) == "r1|embedded\nSELECT 1"
            assert await env.query("r", COMPUTED) == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_resize_commits_after_timeout_if_asked(tmp_path: Path, slow_start: asyncio.Event) -> None:
    async def scenario(env: TestEnvironment) -> None:
        slow_start.set()
        await made(env)
        slow_start.clear()
        sql = "ALTER CLUSTER c SET (SIZE 'duckdb') WITH (WAIT UNTIL READY (TIMEOUT '20ms'))"
        answer = await env.query("s", sql)
        assert answer.startswith("ALTER CLUSTER\nWARNING: the new replicas"), answer
        assert await env.query("s", SIZES) == "r1|duckdb\nSELECT 1"
        reading = asyncio.create_task(env.query("r", COMPUTED, alone=False))
        slow_start.set()
        assert await reading == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_failed_commit_of_resize_ends_new_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env)
        before = replicas_running(env)
        commits = env.environment.coordinator.catalog_commits

        async def fails(*_: object) -> None:
            raise QueryCanceled()

        with monkeypatch.context() as patch:
            patch.setattr(commits, "commit", fails)
            sql = "ALTER CLUSTER c SET (SIZE 'duckdb') WITH (WAIT UNTIL READY (TIMEOUT '5m'))"
            assert (await env.query("s", sql)).startswith("ERROR 57014")
        await until(lambda: replicas_running(env) == before)
        assert await env.query("s", SIZES) == "r1|embedded\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_options_change_replicas_as_they_must(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env)
        first = replicas_running(env)
        show = "SHOW CREATE CLUSTER c"
        await env.ran("s", "ALTER CLUSTER c SET (REPLICATION FACTOR 3)")
        assert first < replicas_running(env)  # the first one stays
        await env.ran("s", "ALTER CLUSTER c RESET (REPLICATION FACTOR)")
        assert replicas_running(env) == first
        await env.ran("s", "ALTER CLUSTER c SET (THREADS 1, MEMORY LIMIT '8GB')")
        assert first & replicas_running(env) == {"r1"}  # that of the other cluster
        assert "THREADS = 1, MEMORY LIMIT = '8GB')" in await env.query("s", show)
        assert await env.query("s", COMPUTED) == "1\nSELECT 1"
        await env.ran("s", "ALTER CLUSTER c RESET (MEMORY LIMIT)")
        assert "REPLICATION FACTOR = 1, THREADS = 1)" in await env.query("s", show)
        await env.ran("s", "ALTER CLUSTER c SET (REPLICATION FACTOR = 0)")
        assert "ERROR 55000" in await env.query("s", "SELECT count(*) FROM t")
        wait = "WITH (WAIT UNTIL READY (TIMEOUT '5m'))"
        await env.ran("s", f"ALTER CLUSTER c SET (REPLICATION FACTOR = 1) {wait}")
        assert await env.query("s", COMPUTED) == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_unmanaged_clusters_become_managed_and_back(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE CLUSTER c REPLICAS (a (SIZE 'embedded'), b (SIZE 'duckdb'))")
        show = "SHOW CREATE CLUSTER c"
        assert "REPLICAS (a (SIZE = 'embedded'), b (SIZE = 'duckdb'))" in await env.query("s", show)
        refused = await env.query("s", "ALTER CLUSTER c SET (SIZE 'duckdb')")
        assert refused.startswith("ERROR 55000: cannot change SIZE"), refused
        assert (await env.query("s", "ALTER CLUSTER c SET (MANAGED)")).startswith("ERROR 55000")
        await env.ran("s", "DROP CLUSTER REPLICA c.a", "ALTER CLUSTER c SET (MANAGED)")
        assert await env.query("s", SIZES) == "r1|duckdb\nSELECT 1"
        await env.ran("s", "ALTER CLUSTER c SET (MANAGED = false)")
        await env.ran("s", "CREATE CLUSTER REPLICA c.x (SIZE 'embedded')")
        assert await env.query("s", SIZES) == "r1|duckdb\nx|embedded\nSELECT 2"
        engines = {e["engine"] for e in env.environment.coordinator.compute.clusters.status()}
        assert engines == {"embedded", "duckdb"}

    in_environment(tmp_path, scenario)


def test_swapped_clusters_and_schemas_exchange_names(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env)
        await env.ran("s", "CREATE CLUSTER d (SIZE 'duckdb')", "ALTER CLUSTER c SWAP WITH d")
        assert await env.query("s", SIZES) == "r1|duckdb\nSELECT 1"
        shown = "SELECT c.name FROM mz_indexes i JOIN mz_clusters c ON c.id = i.cluster_id"
        assert await env.query("s", shown) == "d\nSELECT 1"
        await env.ran("s", "CREATE SCHEMA a", "CREATE SCHEMA b", "CREATE TABLE a.x (one int)")
        await env.ran("s", "CREATE VIEW w AS SELECT one FROM a.x", "CREATE TABLE b.x (two int)")
        await env.ran("s", "INSERT INTO a.x VALUES (7)", "BEGIN")
        await env.ran("s", "ALTER SCHEMA a SWAP WITH b")
        assert await env.query("r", "SELECT one FROM a.x", alone=False) == "7\nSELECT 1"
        await env.ran("s", "COMMIT")
        for _ in range(2):
            assert await env.query("r", "SELECT one FROM b.x") == "7\nSELECT 1"
            assert await env.query("r", "SELECT two FROM a.x") == "SELECT 0"
            assert await env.query("r", "SELECT one FROM w") == "7\nSELECT 1"
            await env.reopen()
        assert (await env.query("s", "ALTER SCHEMA a SWAP WITH none")).startswith("ERROR 3F000")
        assert (await env.query("s", "ALTER SCHEMA a SWAP WITH pg_catalog")).startswith(
            "ERROR 42501"
        )

    in_environment(tmp_path, scenario)


def test_waiting_is_refused_in_a_block(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env)
        await env.query("s", "BEGIN")
        sql = "ALTER CLUSTER c SET (SIZE 'duckdb') WITH (WAIT FOR '1s')"
        assert (await env.query("s", sql)).startswith("ERROR 25001")
        await env.query("s", "ROLLBACK")
        assert (await env.query("s", f"SELECT 1; {sql}")).startswith("1\nSELECT 1\nERROR 25001")

    in_environment(tmp_path, scenario)


# --- SET CLUSTER ---------------------------------------------------------------------------


def test_view_moves_to_another_cluster_without_a_gap(
    tmp_path: Path, slow_start: asyncio.Event
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        slow_start.set()
        await made(env)
        slow_start.clear()
        await env.ran("s", "CREATE CLUSTER d (SIZE 'duckdb')")
        compute = env.environment.coordinator.compute
        async with read_meanwhile(env) as counts:
            await env.query("s", "ALTER MATERIALIZED VIEW m SET CLUSTER d", alone=False)
            assert [d.leaving for d in compute._dataflows.values()] != [None, None]
            before = len(counts)
            await until(lambda: len(counts) > before + 1)  # the former cluster writes it
            slow_start.set()
            await until(lambda: all(d.leaving is None for d in compute._dataflows.values()))
            after = len(counts)
            await until(lambda: len(counts) > after + 1)
        await env.ran("s", "DROP CLUSTER c CASCADE", "RESET cluster")
        await env.ran("w", "INSERT INTO t VALUES (1)")
        last = f"{counts[-1] + 1}\nSELECT 1"
        assert await env.query("s", "SELECT n FROM m WHERE k = 1") == last
        await env.reopen()
        assert await env.query("s", "SELECT n FROM m WHERE k = 1") == last

    in_environment(tmp_path, scenario)


@pytest.mark.parametrize("end", ["drop former", "drop view", "move back", "reopen"])
def test_unfinished_move_ends_soundly(tmp_path: Path, slow_start: asyncio.Event, end: str) -> None:
    async def scenario(env: TestEnvironment) -> None:
        slow_start.set()
        await made(env)
        await env.ran("s", "CREATE CLUSTER d (SIZE 'duckdb')", "RESET cluster")
        slow_start.clear()
        await env.ran("s", "ALTER CLUSTER d SET (THREADS 1)")
        await env.ran("s", "ALTER MATERIALIZED VIEW m SET CLUSTER d")
        compute = env.environment.coordinator.compute
        assert any(each.leaving is not None for each in compute._dataflows.values())
        if end == "drop former":
            await env.query("s", "DROP CLUSTER c CASCADE")
        elif end == "drop view":
            await env.query("s", "DROP MATERIALIZED VIEW m")
        elif end == "move back":
            await env.ran("s", "ALTER MATERIALIZED VIEW m SET CLUSTER c")
        await env.ran("w", "INSERT INTO t VALUES (1)")
        slow_start.set()
        if end == "reopen":
            await env.reopen()
        if end != "drop view":
            assert await env.query("s", "SELECT n FROM m WHERE k = 1") == "2\nSELECT 1"
        compute = env.environment.coordinator.compute
        await until(lambda: all(d.leaving is None for d in compute._dataflows.values()))

    in_environment(tmp_path, scenario)
