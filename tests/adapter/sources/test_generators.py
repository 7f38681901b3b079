"""Load generators in a database: their tables, at once and in ticks."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment


async def reaches(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has this row."""
    while True:
        if (await env.query("a", query)).splitlines()[0] == expected:
            return
        await asyncio.sleep(0.02)


async def test_tpch_is_consistent_while_it_is_refreshed(own_env: TestEnvironment) -> None:
    env = own_env
    options = "SCALE FACTOR 0.01, TICK INTERVAL '1 ms', UP TO 200"
    await env.ran("a", f"CREATE SOURCE s FROM LOAD GENERATOR TPCH ({options}) FOR ALL TABLES")
    counted = "SELECT count(*), count(DISTINCT o_orderkey) FROM orders"
    await reaches(env, counted, "15000|15000")
    env.ingest.last.kill()
    await reaches(env, 'SELECT max("offset") FROM s_progress', "201")
    assert await env.query("a", counted) == "15000|15000\nSELECT 1"
    orphans = "SELECT count(*) FROM lineitem LEFT JOIN orders ON l_orderkey = o_orderkey"
    assert await env.query("a", f"{orphans} WHERE o_orderkey IS NULL") == "0\nSELECT 1"
    total = "sum(l_extendedprice * (1 + l_tax) * (1 - l_discount))"
    wrong = "SELECT 1 FROM orders JOIN lineitem ON l_orderkey = o_orderkey GROUP BY o_orderkey"
    assert await env.query(
        "a", f"{wrong}, o_totalprice HAVING abs({total} - o_totalprice) > 1"
    ) == ("SELECT 0")
    (shown,) = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[:-1]
    await env.ran("a", "DROP SOURCE s", shown.split("|")[1])
    await reaches(env, counted, "15000|15000")


async def test_other_generators_have_their_rows(own_env: TestEnvironment) -> None:
    env = own_env
    options = (
        "KEYS 10, SNAPSHOT ROUNDS 3, VALUE SIZE 8, BATCH SIZE 4, TICK INTERVAL '1 ms', UP TO 5"
    )
    await env.ran(
        "a",
        f"CREATE SOURCE k FROM LOAD GENERATOR KEY VALUE ({options})",
        "CREATE SOURCE m FROM LOAD GENERATOR MARKETING (TICK INTERVAL '1 ms', UP TO 101)"
        " FOR ALL TABLES",
        "CREATE SOURCE c FROM LOAD GENERATOR CLOCK (TICK INTERVAL '10 ms')",
    )
    await reaches(env, 'SELECT count(*), sum("offset"), min(length(value)) FROM k', "10|40|8")
    leads = "SELECT count(*), count(*) FILTER (WHERE converted_at IS NOT NULL) > 10 FROM leads"
    await reaches(env, leads, "100|t")
    await reaches(
        env, "SELECT count(*), count(DISTINCT customer_id) > 250 FROM impressions", "500|t"
    )
    for _ in range(3):
        await reaches(env, "SELECT count(*), now() - max(time) < '1 hour' FROM c", "1|t")


@pytest.mark.parametrize(
    "options",
    [
        "TPCH (SCALE FACTOR 0)",
        "TPCH (SCALE FACTOR 0.001)",
        "TPCH (SCALE FACTOR 11)",
        "KEY VALUE (KEYS 0)",
        "KEY VALUE (KEYS 10000000, VALUE SIZE 1000)",
    ],
)
async def test_wrong_options_are_refused(env: TestEnvironment, options: str) -> None:
    answer = await env.query("a", f"CREATE SOURCE x FROM LOAD GENERATOR {options}")
    assert "ERROR 22023" in answer


async def test_ticks_at_once_numbers_that_go_and_seeds(own_env: TestEnvironment) -> None:
    env = own_env
    at_once = "TICK INTERVAL '1 h', AS OF 2500"
    values = "KEYS 3, SNAPSHOT ROUNDS 1, VALUE SIZE 8, UP TO 0"
    await env.ran(
        "a",
        f"CREATE SOURCE c FROM LOAD GENERATOR COUNTER ({at_once}, MAX CARDINALITY 3)",
        f"CREATE SOURCE h FROM LOAD GENERATOR AUCTION ({at_once}, UP TO 20) FOR TABLES (bids)",
        f"CREATE SOURCE k FROM LOAD GENERATOR KEY VALUE ({values})",
        f"CREATE SOURCE l FROM LOAD GENERATOR KEY VALUE ({values}, SEED 5)",
        "CREATE SOURCE t FROM LOAD GENERATOR TPCH (SCALE FACTOR .01, UP TO 0) FOR TABLES (region)",
    )
    await reaches(env, "SELECT count(*), min(counter), max(counter) FROM c", "3|2499|2501")
    await reaches(env, "SELECT count(*) FROM bids", "190")
    await reaches(env, "SELECT count(*), count(DISTINCT value) FROM (TABLE k UNION TABLE l)", "6|6")
    await reaches(env, "SELECT count(*) FROM region", "5")
    (shown,) = (await env.query("a", "SHOW CREATE SOURCE c")).splitlines()[:-1]
    assert "AS OF = 2500, MAX CARDINALITY = 3)" in shown
    await env.ran("a", "DROP SOURCE c", shown.split("|")[1])
    await reaches(env, "SELECT count(*), min(counter), max(counter) FROM c", "3|2499|2501")
