"""Clusters whose replicas have several worker processes."""

import asyncio
from pathlib import Path

from tests.adapter.ddl.test_clusters import COMPUTED, made, read_meanwhile
from tests.adapter.harness import TestEnvironment, in_environment, until


def test_wrong_numbers_of_workers_are_refused(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        for number in ("0", "65", "'two'", "-1"):
            answer = await env.query("s", f"CREATE CLUSTER c (SIZE 'embedded', WORKERS {number})")
            assert answer.startswith(("ERROR 22023", "ERROR 42601")), (number, answer)
        answer = await env.query("s", "CREATE CLUSTER c (SIZE 'duckdb', WORKERS 2)")
        assert "ERROR 22023: a replica of size duckdb cannot have several WORKERS" in answer
        await env.ran("s", "CREATE CLUSTER c (SIZE 'duckdb', WORKERS 1)")
        answer = await env.query("s", "ALTER CLUSTER c SET (WORKERS 2)")
        assert "ERROR 22023" in answer

    in_environment(tmp_path, scenario)


def test_resize_to_several_workers_disturbs_no_reader(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env)
        wait = "WITH (WAIT UNTIL READY (TIMEOUT '5m'))"
        async with read_meanwhile(env) as counts:
            await env.ran("s", f"ALTER CLUSTER c SET (WORKERS 2) {wait}")
            before = len(counts)
            await until(lambda: len(counts) > before + 2)
        assert "r1 (embedded, 2 workers)" in await env.query("s", "SHOW CLUSTERS")
        assert "c|r1|embedded|2" in await env.query("s", "SHOW CLUSTER REPLICAS")
        assert "WORKERS = 2)" in await env.query("s", "SHOW CREATE CLUSTER c")
        last = f"{counts[-1]}\nSELECT 1"
        assert await env.query("s", COMPUTED) == last
        sizes = "SELECT DISTINCT worker_id FROM mz_introspection.mz_arrangement_sizes"
        sizes += " WHERE worker_id IS NOT NULL ORDER BY 1"
        async with asyncio.timeout(60):
            while await env.query("s", sizes) != "0\n1\nSELECT 2":  # noqa: ASYNC110 - reported in time
                await asyncio.sleep(0.1)
        assert "Exchange" in await env.query("s", "EXPLAIN ANALYZE CPU FOR INDEX i")
        await env.ran("s", "ALTER CLUSTER c RESET (WORKERS)")
        assert await env.query("s", COMPUTED) == last
        assert "2 workers" not in await env.query("s", "SHOW CLUSTERS")

    in_environment(tmp_path, scenario)


def test_plan_shows_exchanges(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await made(env)
        explain = "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW m"
        assert "Exchange" not in await env.query("s", explain)
        await env.ran("s", "ALTER CLUSTER c SET (WORKERS 3)")
        plan = await env.query("s", explain)
        assert "Workers: 3" in plan
        assert "Exchange on operator 0 by (#0)" in plan

    in_environment(tmp_path, scenario)
