"""Random values in every part of a plain statement; refused by name where rows are maintained."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment

VALUES = {"random()": "random() < 2", "gen_random_uuid()": "gen_random_uuid() IS NOT NULL"}
# {} is a condition that is TRUE for each row; each query has the number 6.
PARTS = {
    "select list": "SELECT count(*) FROM (SELECT {} AS x FROM rows) y WHERE x",
    "where": "SELECT count(*) FROM rows WHERE {}",
    "condition of a join": "SELECT count(*) FROM rows r JOIN rows s ON r.n = s.n AND {}",
    "left join": "SELECT count(s.n) FROM rows r LEFT JOIN rows s ON r.n = s.n AND {}",
    "right join": "SELECT count(r.n) FROM rows r RIGHT JOIN rows s ON r.n = s.n AND {}",
    "full join": "SELECT count(*) FROM rows r FULL JOIN rows s ON r.n = s.n AND {}",
    "lateral join": "SELECT count(*) FROM rows r LEFT JOIN LATERAL (SELECT r.n) s ON {}",
    "group": "SELECT count(*) FROM rows GROUP BY {}",
    "having": "SELECT count(*) FROM rows GROUP BY n > 0 HAVING {}",
    "order": "SELECT max(n) FROM (SELECT n FROM rows ORDER BY {}, n LIMIT 6) x",
    "distinct": "SELECT count(*) * 6 FROM (SELECT DISTINCT {} FROM rows) x",
    "distinct on": "SELECT count(*) * 6 FROM (SELECT DISTINCT ON ({}) n FROM rows) x",
    "union": "SELECT count(*) * 6 FROM (SELECT {} FROM rows UNION SELECT {} FROM rows) x",
    "aggregate": "SELECT count(NULLIF({}, false)) FROM rows",
    "filter": "SELECT count(*) FILTER (WHERE {}) FROM rows",
    "window": "SELECT max(c) FROM (SELECT count(*) OVER (PARTITION BY {}) c FROM rows) x",
    "exists": "SELECT count(*) FROM rows r WHERE EXISTS (SELECT FROM rows s WHERE s.n = r.n AND {})",
    "in": "SELECT count(*) FROM rows WHERE {} IN (SELECT n > 0 FROM rows)",
    "scalar subquery": "SELECT count(*) FROM rows r WHERE (SELECT {} AND r.n > 0)",
    "case": "SELECT count(CASE WHEN {} THEN 1 END) FROM rows WHERE CASE WHEN {} THEN true END",
    "with": "WITH c AS (SELECT {} AS x FROM rows) SELECT count(*) FROM c WHERE x",
    "limit": "SELECT count(*) FROM (SELECT FROM rows LIMIT CASE WHEN {} THEN 6 END) x",
    "values": "SELECT count(*) * 3 FROM (VALUES ({}), ({})) v (x) WHERE x",
    "view": "SELECT count(*) FROM uncertain WHERE x AND {}",
    "equal rows": "SELECT count(*) FROM (SELECT 1 FROM rows) x WHERE {}",
    "update": "UPDATE rows SET n = n WHERE {}",
    "update from": "UPDATE rows r SET n = r.n FROM rows s WHERE r.n = s.n AND {}",
    "returning": "INSERT INTO written SELECT 6 WHERE {} RETURNING CASE WHEN {} THEN n END",
    "delete": "DELETE FROM rows WHERE NOT {}",
    "on conflict": "INSERT INTO keyed VALUES (1, 6) ON CONFLICT (k) DO UPDATE SET n = CASE WHEN {}"
    " THEN 6 END WHERE {} RETURNING n",
    "condition of merge": "MERGE INTO keyed USING (SELECT 1 AS k) s ON keyed.k = s.k AND {}"
    " WHEN MATCHED AND {} THEN UPDATE SET n = CASE WHEN {} THEN 6 END",
}


@pytest.fixture(scope="module", autouse=True)
def _tables(runner: asyncio.Runner, env: TestEnvironment) -> None:
    statements = (
        "CREATE TABLE rows (n int)",
        "INSERT INTO rows VALUES (1), (2), (3), (4), (5), (6)",
        "CREATE TABLE keyed (k int PRIMARY KEY, n int)",
        "INSERT INTO keyed VALUES (1, 1)",
        "CREATE TABLE written (n int)",
        "INSERT INTO written VALUES (6)",
        "CREATE VIEW uncertain AS SELECT n, random() < 2 AS x FROM rows WHERE random() < 2",
        "CREATE VIEW one AS SELECT gen_random_uuid() AS u",
    )
    runner.run(env.ran("s", *statements))


@pytest.mark.parametrize("call", VALUES)
@pytest.mark.parametrize("part", PARTS)
async def test_each_part_of_a_statement_has_random_values(
    env: TestEnvironment, part: str, call: str
) -> None:
    answer = await env.ran("s", PARTS[part].replace("{}", f"({VALUES[call]})"))
    assert answer.splitlines()[0] in ("6", "UPDATE 6", "DELETE 0", "MERGE 1"), answer


@pytest.mark.parametrize("call", VALUES)
@pytest.mark.parametrize("part", [part for part in PARTS if PARTS[part].startswith("SELECT")])
async def test_maintained_view_refuses_it_by_name(
    env: TestEnvironment, part: str, call: str
) -> None:
    query = PARTS[part].replace("{}", f"({VALUES[call]})")
    answer = await env.query("s", f"CREATE MATERIALIZED VIEW refused AS {query}")
    name = call.removesuffix("()")
    assert answer.startswith(f"ERROR 0A000: {name} cannot be used in a view that is maintained")


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        ("CREATE MATERIALIZED VIEW m AS SELECT * FROM uncertain", "random cannot be used in a mat"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM one",
            "gen_random_uuid cannot be used in a m",
        ),
        ("CREATE INDEX ON uncertain (n)", "random cannot be used in an index"),
        ("CREATE DEFAULT INDEX ON one", "gen_random_uuid cannot be used in an index"),
        ("CREATE INDEX ON rows ((random()))", "random cannot be used in a view that is maintained"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT setseed(0)",
            "setseed cannot be used in a view that",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT clock_timestamp()",
            "clock_timestamp cannot be used",
        ),
        ("CREATE MATERIALIZED VIEW m AS SELECT nextval('s')", "nextval cannot be used in a view"),
    ],
)
async def test_maintained_object_refuses_calls_by_name(
    env: TestEnvironment, statement: str, refused: str
) -> None:
    await env.query("s", "CREATE SEQUENCE s")
    assert f"ERROR 0A000: {refused}" in await env.query("s", statement)


async def test_value_of_a_row_is_the_same_wherever_the_row_is_read(env: TestEnvironment) -> None:
    same = (
        "WITH c AS (SELECT n, random() AS r FROM rows WHERE random() < 2)"
        " SELECT count(*), count(DISTINCT a.r) FROM c a JOIN c b USING (n) WHERE a.r = b.r"
    )
    assert await env.ran("s", same) == "6|6\nSELECT 1"
    between = (
        "SELECT count(*) FROM (SELECT random() AS r FROM rows, rows s) x WHERE r < 0.5 AND r > 0.5"
    )
    assert await env.ran("s", between) == "0\nSELECT 1"


async def test_equal_rows_have_different_values(env: TestEnvironment) -> None:
    query = "SELECT count(DISTINCT r) FROM (SELECT random() AS r FROM (SELECT 1 FROM rows) x) y"
    assert await env.ran("s", query) == "6\nSELECT 1"


async def test_seed_determines_which_rows_are_found(env: TestEnvironment) -> None:
    query = "SELECT array_agg(a * 10 + b) FROM generate_series(0, 9) a, generate_series(0, 9) b"
    found = []
    for seed in (0.5, 0.5, -1, 1):
        await env.ran("s", f"SELECT setseed({seed})")
        found.append(await env.ran("s", f"{query} WHERE random() < 0.5"))
    assert found[0] == found[1]
    assert len(set(found)) == 3
