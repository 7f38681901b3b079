"""HYDRATE of clusters, materialized views and indexes: what it is, who shows it, what it does."""

import asyncio

import pytest

from foreshore.compute.flow import hydration
from foreshore.compute.replica import reports
from tests.adapter.harness import TestEnvironment

VIEW = "CREATE MATERIALIZED VIEW v WITH (HYDRATE = 'spark') AS SELECT k, count(*) AS n FROM t GROUP BY k"


async def begun(env: TestEnvironment) -> None:
    await env.ran(
        "s",
        "DROP TABLE IF EXISTS t CASCADE",
        "DROP CLUSTER IF EXISTS c",
        "CREATE TABLE t (k int, n int)",
        "INSERT INTO t VALUES (1, 2), (1, 3)",
    )


async def test_hydrate_is_shown_as_it_was_given(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("s", VIEW)
    await env.ran("s", "CREATE INDEX i ON t (k) WITH (HYDRATE = 'LOCAL')")
    assert "WITH (HYDRATE = 'spark')" in await env.query("s", "SHOW CREATE MATERIALIZED VIEW v")
    assert "WITH (HYDRATE = 'local')" in await env.query("s", "SHOW CREATE INDEX i")
    await env.ran("s", "CREATE CLUSTER c (SIZE = 'embedded', HYDRATE = 'spark')")
    assert "HYDRATE = 'spark'" in await env.query("s", "SHOW CREATE CLUSTER c")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE CLUSTER c (SIZE = 'embedded', HYDRATE = 'flink')", 'HYDRATE: "flink"'),
        ("CREATE INDEX ON t (k) WITH (HYDRATE = '')", 'HYDRATE: ""'),
        (VIEW.replace("'spark'", "'spark', HYDRATE = 'spark'"), "conflicting or redundant"),
    ],
)
async def test_wrong_values_are_refused(env: TestEnvironment, statement: str, error: str) -> None:
    await begun(env)
    assert error in await env.query("s", statement)


async def test_explain_shows_the_engine_and_why(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("s", VIEW)
    shown = await env.query("s", "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW v")
    line = next(each for each in shown.splitlines() if "Hydration" in each)
    assert line.startswith("Hydration: spark, as HYDRATE = 'spark' says (2 updates, ")
    assert "expected: duckdb 0.0 s, spark 11.5 s" in line
    await env.ran("s", "CREATE INDEX i ON t (n)")
    assert "Hydration" not in await env.query("s", "EXPLAIN PHYSICAL PLAN FOR INDEX i")


async def test_what_hydrated_a_view_is_recorded(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Spark (its JVM does not start) DuckDB takes over, and the relation says why."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 0)
    monkeypatch.setattr(reports, "STATUS_SECONDS", 0.05)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr("foreshore.compute.spark.java.MINIMUM_JAVA", 1000)
    await begun(env)
    await env.ran("s", VIEW)
    assert "1|2" in await env.query("s", "SELECT * FROM v")
    query = (
        "SELECT h.engine, h.statements, h.updates_read, h.rows, h.note FROM mz_internal.mz_hydrations h"
        " JOIN mz_objects o ON o.id = h.object_id WHERE o.name = 'v' ORDER BY h.engine"
    )
    for _ in range(1_000):
        rows = (await env.query("s", query)).splitlines()
        if len(rows) == 3:  # with the tag
            break
        await asyncio.sleep(0.05)
    duckdb, operators, _ = rows
    assert duckdb.startswith("duckdb|1|2|1|Spark: no Java 1000 or later was found")
    assert operators.startswith("operators|")


async def test_a_query_for_spark_is_answered_without_it(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreshore.compute.spark.java.MINIMUM_JAVA", 1000)
    monkeypatch.setattr("foreshore.adapter.read.bound.small.MOST_ROWS", 0, raising=False)
    await begun(env)
    await env.ran("s", "SET bulk_engine = 'spark'", "SET bulk_threshold = '1GB'")
    assert await env.query("s", "SHOW bulk_threshold") == "1GB\nSHOW"
    grouped = "SELECT k, count(*), array_agg(n ORDER BY n) FROM t GROUP BY k"
    assert await env.query("s", grouped) == "1|2|{2,3}\nSELECT 1"
    assert "ERROR 22023" in await env.query("s", "SET bulk_engine = 'hadoop'")
    await env.ran("s", "RESET bulk_engine")


async def test_a_replaced_view_keeps_its_new_mode(env: TestEnvironment) -> None:
    await begun(env)
    replaced = VIEW.replace("CREATE", "CREATE OR REPLACE").replace("'spark'", "'local'")
    await env.ran("s", VIEW, replaced)
    assert "HYDRATE = 'local'" in await env.query("s", "SHOW CREATE MATERIALIZED VIEW v")
