"""EXPLAIN COST counts what a view will keep: the state of the view, once made, is about as large."""

from __future__ import annotations

import asyncio
import re

from tests.adapter.harness import TestEnvironment

VIEWS = {
    "joined": "SELECT a.k, a.v, b.w FROM a JOIN b ON a.k = b.k AND b.w > 10",
    "summed": "SELECT v % 5000 AS k, sum(v) AS s, count(*) AS n FROM a GROUP BY 1",
    "least": "SELECT k, min(v) AS m FROM a GROUP BY k",
    "first": "SELECT DISTINCT ON (k) k, v FROM a ORDER BY k, v DESC",
    "mixed": "SELECT b.w, sum(a.v) AS s FROM a JOIN b USING (k) GROUP BY b.w",
    "again": "WITH s AS (SELECT k, sum(v) AS s FROM a GROUP BY k) "
    "SELECT x.k, x.s FROM s AS x JOIN s AS y ON x.s = y.s + 1",
}
UNITS = {"bytes": 1, "kB": 10**3, "MB": 10**6}


async def test_state_of_views_is_predicted(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE a (k int, v int)",
        "CREATE TABLE b (k int, w int)",
        "INSERT INTO a SELECT x % 3000, x FROM generate_series(1, 20000) AS g (x)",
        "INSERT INTO b SELECT x % 3000, x % 700 FROM generate_series(1, 6000) AS g (x)",
    )
    predicted: dict[str, float] = {}
    for name, query in VIEWS.items():
        text = await env.ran("a", f"EXPLAIN COST CREATE MATERIALIZED VIEW {name} AS {query}")
        found = re.search(r"^State: ([\d.]+) (\w+)$", text, re.M)
        assert found is not None, text
        predicted[name] = float(found[1]) * UNITS[found[2]]
        rows = await env.ran("a", f"SELECT count(*) FROM ({query}) AS q")
        assert f"Rows: {rows.splitlines()[0]}\n" in text
        await env.ran(
            "a",
            f"CREATE CLUSTER {name} (SIZE = 'embedded')",
            f"CREATE MATERIALIZED VIEW {name} IN CLUSTER {name} AS {query}",
            f"SELECT count(*) FROM {name}",
        )
    sizes = (
        "SELECT c.name, sum(s.size) FROM mz_introspection.mz_arrangement_sizes s"
        " JOIN mz_cluster_replicas r ON r.id = s.replica_id JOIN mz_clusters c"
        " ON c.id = r.cluster_id WHERE s.name <> 'strings' GROUP BY c.name"
    )
    kept: dict[str, float] = {}

    async def reported() -> bool:
        for line in (await env.ran("a", sizes)).splitlines()[:-1]:
            name, size = line.split("|")
            kept[name] = float(size)
        return predicted.keys() <= kept.keys()

    async with asyncio.timeout(120):
        while not await reported():  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # a report comes every five seconds
    wrong = {
        name: (round(predicted[name]), kept[name])
        for name in VIEWS
        if not 0.5 <= predicted[name] / kept[name] <= 2
    }
    assert wrong == {}


async def test_costs_of_other_statements_are_refused(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE a (k int, v int)")
    assert (await env.ran("a", "EXPLAIN COST FOR SELECT k FROM a WHERE v > 1")).startswith(
        "Rows: 0"
    )
    recursive = "WITH MUTUALLY RECURSIVE r (k int) AS (SELECT k FROM a UNION SELECT k + 1 FROM r) "
    assert "0A000" in await env.query(
        "a", f"EXPLAIN COST CREATE MATERIALIZED VIEW v AS {recursive}SELECT k FROM r"
    )
    assert "0A000" in await env.query("a", "EXPLAIN COST INSERT INTO a VALUES (1, 2)")
    assert "0A000" in await env.query(
        "a", "EXPLAIN COST CREATE MATERIALIZED VIEW v AS SELECT random() FROM a"
    )
