"""EXPLAIN ANALYZE runs a query and tells what was done, or shows what an object takes."""

import asyncio
import json
import re
from collections.abc import Iterator

import pytest

from foreshore.compute.replica import reports
from tests.adapter.harness import TestEnvironment
from tests.adapter.introspection.test_arrangement_sizes import becomes

ANY = re.compile(r"\d+\.\d+(?= ms)|(?<=time=)\d+\.\d+|(?<=Timestamp: )\d+")


@pytest.fixture(scope="module", autouse=True)
def reported_often() -> Iterator[None]:
    """Let replicas report periodically after fifty milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "STATUS_SECONDS", 0.05)
        yield


async def begun(env: TestEnvironment) -> None:
    """Make a table anew, with a view and its index."""
    await env.ran(
        "s",
        "DROP TABLE IF EXISTS sold CASCADE",
        "CREATE TABLE sold (k int PRIMARY KEY, shop text, amount int)",
        "INSERT INTO sold SELECT i, 's' || i % 3, i FROM generate_series(1, 12) AS i",
        "CREATE VIEW totals AS SELECT shop, sum(amount) FROM sold GROUP BY shop",
        "CREATE INDEX totals_by_shop ON totals (shop)",
    )
    for _ in range(3_000):
        if "Used index" in await env.ran("s", "EXPLAIN SELECT * FROM totals"):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the index is not hydrated")


async def analyzed(env: TestEnvironment, sql: str) -> list[str]:
    """Return the lines of EXPLAIN ANALYZE, with # in place of times."""
    return ANY.sub("#", await env.ran("s", f"EXPLAIN ANALYZE {sql}")).splitlines()


async def test_key_lookup_tells_rows_and_times(env: TestEnvironment) -> None:
    await begun(env)
    lines = await analyzed(env, "SELECT amount FROM sold WHERE k IN (1, 2, 99)")
    assert lines[0] == "Key look-up, in this process, of 2 rows (actual time=# rows=2 loops=1)"
    assert lines[-5:] == [
        "Planning Time: # ms",
        "Timestamp: #",
        "Timestamp Wait Time: # ms",
        "Execution Time: # ms",
        "EXPLAIN",
    ]


@pytest.mark.parametrize(
    ("sql", "how", "rows"),
    [
        ("SELECT 1", "Constant, in this process", 1),
        (
            "SELECT * FROM totals WHERE shop = 's1'",
            "Read of index foreshore.public.totals_by_shop, 1 keys, on cluster quickstart",
            1,
        ),
        (
            "SELECT * FROM totals",
            "Read of index foreshore.public.totals_by_shop, whole, on cluster quickstart",
            3,
        ),
        (
            "SELECT shop FROM sold ORDER BY amount LIMIT 2",
            "Evaluation of few stored rows, in this process",
            2,
        ),
        (
            "SELECT shop FROM sold ORDER BY k LIMIT 2",
            "Key look-up, in this process, of 2 rows",
            2,
        ),
    ],
)
async def test_access_path_and_rows_are_told(
    env: TestEnvironment, sql: str, how: str, rows: int
) -> None:
    await begun(env)
    assert (await analyzed(env, sql))[0] == f"{how} (actual time=# rows={rows} loops=1)"


async def test_peek_of_replica_is_told(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("s", "SET cluster_replica = r1")
    lines = await analyzed(env, "SELECT shop FROM sold WHERE amount > 10")
    await env.ran("s", "RESET cluster_replica")
    how = "Evaluation by the engine of cluster quickstart"
    assert lines[0] == f"{how} (actual time=# rows=2 loops=1)"


async def test_side_effects_happen_only_if_it_is_run(env: TestEnvironment) -> None:
    await env.ran("s", "CREATE SEQUENCE IF NOT EXISTS numbers")
    first = int((await env.ran("s", "SELECT nextval('numbers')")).split()[0])
    await env.ran("s", "EXPLAIN (FORMAT JSON) SELECT nextval('numbers')")
    await env.ran("s", "EXPLAIN (ANALYZE off) SELECT nextval('numbers')")
    await env.ran("s", "EXPLAIN ANALYZE SELECT nextval('numbers')")
    after = int((await env.ran("s", "SELECT nextval('numbers')")).split()[0])
    assert after == first + 2


async def test_json_has_nodes_rows_and_times(env: TestEnvironment) -> None:
    await begun(env)
    query = "SELECT shop, max(amount) FROM sold WHERE amount > 1 GROUP BY shop"
    answer = await env.ran("s", f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
    (shown,) = json.loads(answer.removesuffix("EXPLAIN"))
    assert shown["Plan"]["Actual Rows"] == 3
    assert shown["Plan"]["Plans"][0]["Node Type"] == "Reduce"
    assert shown["Execution Time"] > 0
    assert shown["Timestamp"] > 0
    answer = await env.ran("s", f"EXPLAIN (VERBOSE, FORMAT JSON, COSTS off) {query}")
    (plain,) = json.loads(answer.removesuffix("EXPLAIN"))
    assert plain["Plan"] == shown["Plan"]["Plans"][0]
    assert "Execution Time" not in plain


async def test_error_of_query_is_error_of_explain_analyze(env: TestEnvironment) -> None:
    await begun(env)
    answer = await env.query("s", "EXPLAIN ANALYZE SELECT 1 / (amount - 1) FROM sold")
    assert answer.startswith("ERROR 22012")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("EXPLAIN (FORMAT XML) SELECT 1", "ERROR 0A000: EXPLAIN (FORMAT XML) is not supported"),
        ("EXPLAIN (NONSENSE) SELECT 1", 'ERROR 42601: unrecognized EXPLAIN option "nonsense"'),
        (
            "EXPLAIN ANALYZE CREATE VIEW v AS SELECT 1",
            "ERROR 0A000: EXPLAIN ANALYZE of anything but a query is not supported",
        ),
        (
            "EXPLAIN ANALYZE MEMORY FOR TABLE sold",
            "ERROR 0A000: EXPLAIN ANALYZE of anything but a materialized view or an index"
            " is not supported",
        ),
    ],
)
async def test_what_is_not_supported_is_refused(env: TestEnvironment, sql: str, error: str) -> None:
    assert await env.query("s", sql) == error


async def test_operators_of_index_are_a_tree_with_figures(env: TestEnvironment) -> None:
    await begun(env)
    wanted = [
        "foreshore.public.totals_by_shop",
        "  3: Linear on operator 2: Map (cast<numeric,int8>(sum(amount)));"
        " Project (shop, cast<numeric,int8>(sum(amount)))",
        "    2: Reduce on operator 1 by (shop)",
        "      1: Linear on operator 0: Project (shop, amount)",
        "        0: Get foreshore.public.sold (shop, amount)",
        "  Index",
    ]
    for _ in range(200):
        answer = await env.ran("s", "EXPLAIN ANALYZE MEMORY, CPU FOR INDEX totals_by_shop")
        rows = [line.split("|") for line in answer.splitlines()[:-1]]
        if len(rows) == len(wanted):
            break
    assert [row[0] for row in rows] == wanted
    whole, linear, reduce, _, get, index = rows
    assert int(whole[2]) == int(reduce[2]) + int(index[2])
    assert (linear[1], reduce[2], index[2]) == ("NULL", "3", "3")
    assert (get[4:6], reduce[4:6]) == (["0", "12"], ["12", "3"])
    assert all(row[3] != "NULL" for row in (whole, linear, reduce, get))


async def test_skew_tells_replicas_apart(env: TestEnvironment) -> None:
    await begun(env)
    query = "EXPLAIN ANALYZE MEMORY WITH SKEW FOR INDEX totals_by_shop"
    await becomes(
        env,
        "SELECT count(DISTINCT operator_id) FROM mz_introspection.mz_dataflow_operators p"
        " JOIN mz_objects o ON o.id = p.object_id WHERE o.name = 'totals_by_shop'",
        "4\nSELECT 1",
    )
    rows = [line.split("|") for line in (await env.ran("s", query)).splitlines()]
    assert rows[0][1] == "r1"
    assert rows[0][4] == "1"
