"""Views with recursions: over random graphs they are what Python computes from scratch."""

from collections import defaultdict
from random import Random

import pytest

from tests.adapter.harness import TestEnvironment

NODES = 6
Edges = list[tuple[int, int]]
QUERIES = {
    "closure": "WITH MUTUALLY RECURSIVE r (a int, b int) AS ("
    " SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON e.a = r.b)"
    " SELECT a, b FROM r",
    "recursive": "WITH RECURSIVE r (a, b) AS ("
    " SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON e.a = r.b)"
    " SELECT a, b FROM r",
    "distances": "WITH MUTUALLY RECURSIVE d (a int, n bigint) AS ("
    " SELECT a, min(n) FROM (SELECT 0 AS a, 0 AS n UNION ALL"
    " SELECT e.b, d.n + 1 FROM d JOIN edges e ON e.a = d.a) s GROUP BY a)"
    " SELECT a, n FROM d",
    "components": "WITH MUTUALLY RECURSIVE"
    " both (a int, b int) AS (SELECT a, b FROM edges UNION SELECT b, a FROM edges),"
    " c (a int, least int) AS ("
    " SELECT a, min(least) FROM (SELECT a, a AS least FROM both UNION ALL"
    " SELECT s.b, c.least FROM c JOIN both s ON s.a = c.a) t GROUP BY a)"
    " SELECT a, least FROM c",
}


def reached(edges: Edges, start: int) -> dict[int, int]:
    """Return the nodes that can be reached from one, with their distances."""
    following = defaultdict(set)
    for a, b in edges:
        following[a].add(b)
    found, last = {start: 0}, {start}
    while last:
        last = {b for a in last for b in following[a]} - found.keys()
        found |= dict.fromkeys(last, max(found.values()) + 1)
    return found


def wanted(name: str, edges: Edges) -> set[tuple[int, int]]:
    """Return the rows of a view."""
    both = [*edges, *((b, a) for a, b in edges)]
    match name:
        case "distances":
            return set(reached(edges, 0).items())
        case "components":
            return {(a, min(reached(both, a))) for a, _ in both}
    starts = {(a, b) for a, b in edges}
    return {(a, end) for a, b in starts for end in reached(edges, b)}


async def rows(env: TestEnvironment, sql: str) -> set[tuple[int, int]]:
    """Return the rows of a query, which are all different."""
    lines = (await env.ran("r", sql)).splitlines()[:-1]
    found = [(int(a), int(b)) for a, b in (line.split("|") for line in lines)]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("cluster", ["quickstart", "duckdb"])
async def test_views_follow_random_changes_of_a_graph(
    own_env: TestEnvironment, cluster: str
) -> None:
    env, random = own_env, Random(cluster)
    await env.ran("w", "CREATE CLUSTER duckdb (SIZE 'duckdb')", f"SET cluster = {cluster}")
    await env.ran("r", f"SET cluster = {cluster}")
    await env.ran("w", "CREATE TABLE edges (a int, b int)")
    for name, query in QUERIES.items():
        await env.ran("w", f"CREATE MATERIALIZED VIEW {name}_mv AS {query}")
        await env.ran("w", f"CREATE VIEW {name} AS {query}", f"CREATE INDEX ON {name} (a)")
    edges: Edges = []
    for step in range(14 if cluster == "quickstart" else 5):
        if random.random() < 0.35 and edges:
            gone = random.choice(edges)
            edges = [edge for edge in edges if edge != gone]
            await env.ran("w", f"DELETE FROM edges WHERE a = {gone[0]} AND b = {gone[1]}")
        else:
            new = [(random.randrange(NODES), random.randrange(NODES)) for _ in range(2)]
            edges += new
            await env.ran("w", f"INSERT INTO edges VALUES {new[0]}, {new[1]}")
        for name, query in QUERIES.items():
            found = [await rows(env, f"SELECT * FROM {view}") for view in (f"{name}_mv", name)]
            if step % 4 == 0:
                found.append(await rows(env, query))
            assert found == [wanted(name, edges)] * len(found), (name, edges)
        if step == 3:
            await env.reopen()
            await env.ran("w", f"SET cluster = {cluster}")
            await env.ran("r", f"SET cluster = {cluster}")


async def test_view_that_does_not_converge_stops_no_other(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("w", "CREATE TABLE t (n bigint)", "INSERT INTO t VALUES (1)")
    endless = "d (n bigint) AS (SELECT n FROM t UNION ALL SELECT n + 1 FROM d)"
    await env.ran(
        "w",
        f"CREATE MATERIALIZED VIEW endless AS WITH MUTUALLY RECURSIVE {endless} TABLE d",
        "CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM t",
    )
    answer = await env.query("r", "SELECT count(*) FROM endless")
    assert answer == "ERROR 54000: recursion did not converge within 1000 iterations"
    assert (await env.ran("r", "SELECT n FROM other")).startswith("1\n")
    await env.ran("w", "DELETE FROM t")
    assert (await env.ran("r", "SELECT count(*) FROM endless")).startswith("0\n")
    await env.ran("w", "INSERT INTO t VALUES (1)")
    answer = await env.query("r", "SELECT count(*) FROM endless")
    assert answer.startswith("ERROR 54000")
    await env.ran("w", "DROP MATERIALIZED VIEW endless", "INSERT INTO t VALUES (1)")
    assert (await env.ran("r", "SELECT n FROM other")).startswith("2\n")


async def test_view_with_too_many_rows_fails_until_they_are_gone(own_env: TestEnvironment) -> None:
    """Two edges from a node to itself double the number of paths with each further edge."""
    env = own_env
    await env.ran(
        "w",
        "CREATE TABLE e (a int, b int)",
        "INSERT INTO e VALUES (1, 1), (1, 1), (2, 3), (3, 4)",
        "CREATE MATERIALIZED VIEW paths AS WITH RECURSIVE r (a, b) AS (SELECT a, b FROM e"
        " UNION ALL SELECT r.a, e.b FROM r JOIN e ON e.a = r.b) SELECT a, b FROM r",
    )
    assert "54000" in await env.query("r", "SELECT count(*) FROM paths")
    await env.ran("w", "DELETE FROM e WHERE a = 1")
    assert await rows(env, "SELECT a, b FROM paths") == {(2, 3), (3, 4), (2, 4)}
    await env.ran("w", "INSERT INTO e VALUES (4, 4), (4, 4)")
    assert "54000" in await env.query("r", "SELECT count(*) FROM paths")


async def test_query_that_does_not_converge_ends_by_its_timeout(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("r", "SET statement_timeout = '300ms'")
    answer = await env.query(
        "r",
        "WITH MUTUALLY RECURSIVE d (n bigint) AS (SELECT 1 UNION SELECT n + 1 FROM d) TABLE d",
    )
    assert answer == "ERROR 57014: canceling statement due to statement timeout"


async def test_column_that_no_recursion_uses_can_be_dropped(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "w",
        "CREATE TABLE edges (a int, b int, unused int, ends bigint)",
        f"CREATE MATERIALIZED VIEW closure AS {QUERIES['closure']}",
        "CREATE MATERIALIZED VIEW current AS SELECT a FROM edges WHERE mz_now() < ends",
        "ALTER TABLE edges DROP COLUMN unused",
    )
    answer = await env.query("w", "ALTER TABLE edges DROP COLUMN ends")
    assert "materialized view current depends on column ends" in answer
    answer = await env.query("w", "ALTER TABLE edges DROP COLUMN b")
    assert "materialized view closure depends on column b" in answer


async def test_subscription_to_a_recursion(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("w", "CREATE TABLE edges (a int, b int)", "INSERT INTO edges VALUES (1, 2)")
    await env.ran("s", "BEGIN", f"DECLARE c CURSOR FOR SUBSCRIBE ({QUERIES['closure']})")
    changes: set[tuple[str, ...]] = set()
    await env.ran("w", "INSERT INTO edges VALUES (2, 3)", "DELETE FROM edges WHERE a = 1")
    while len(changes) < 4:
        answer = await env.ran("s", "FETCH ALL c WITH (TIMEOUT = '50ms')")
        lines = [line for line in answer.splitlines() if "|" in line]
        changes |= {tuple(line.split("|")[1:]) for line in lines}
    assert changes >= {("1", "1", "2"), ("-1", "1", "2"), ("1", "2", "3"), ("-1", "1", "3")}


async def test_dropped_view_that_does_not_converge_makes_room(own_env: TestEnvironment) -> None:
    """Hydration is one after the other; what waits for a dropped view goes on at once."""
    env = own_env
    await env.ran("w", "CREATE TABLE t (n bigint)", "INSERT INTO t VALUES (1)")
    turning = (
        "d (n bigint) AS (SELECT 1 - n FROM d UNION ALL SELECT n FROM t EXCEPT ALL SELECT n FROM d)"
    )
    await env.ran(
        "w",
        "CREATE MATERIALIZED VIEW endless AS"
        f" WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 100000) {turning} TABLE d",
        "CREATE MATERIALIZED VIEW other AS SELECT n % 2 AS n, count(*) FROM t GROUP BY 1",
    )
    state = "SELECT bool_or(state = 'hydrating') FROM mz_internal.mz_dataflow_statuses"
    while not (await env.ran("r", state)).startswith("t"):
        pass
    await env.ran("r", "SET statement_timeout = '200ms'")
    assert "57014" in await env.query("r", "SELECT * FROM other")
    await env.ran("r", "RESET statement_timeout")
    await env.ran("w", "DROP MATERIALIZED VIEW endless")
    assert (await env.ran("r", "SELECT * FROM other")).startswith("1|1\n")


RECURSIONS = (
    "x (n numeric) AS (SELECT 1.25 UNION SELECT n / 2 FROM x WHERE n > 0.1) TABLE x",
    "x (n float8, s text, a int[], i interval, b bool, d date) AS ("
    " SELECT 1.5, 'a', ARRAY[1], '1 day', true, '2020-01-01'"
    " UNION SELECT n + 1, s || 'x', a || 1, i + i, NOT b, d + 1 FROM x WHERE n < 4) TABLE x",
    "x (v varchar(3)) AS (SELECT 'a' UNION SELECT v || 'b' FROM x) TABLE x",
    "x (v char(4)) AS (SELECT 'a' UNION SELECT v::text || 'b' FROM x WHERE length(v) < 3) TABLE x",
    "x (n numeric(10, 2)) AS (SELECT 1 UNION SELECT n * 1.5 FROM x WHERE n < 3) TABLE x",
    "x (a int, b int) AS (SELECT 1, 2 UNION ALL"
    " SELECT x.a + 1, row_number() OVER (ORDER BY x.a)::int FROM x WHERE a < 4) TABLE x",
    "(RETURN AT RECURSION LIMIT 7) x (a int) AS (SELECT 1 EXCEPT SELECT a FROM x) TABLE x",
    "x (a int) AS (SELECT generate_series(1, 3)"
    " UNION SELECT y.a FROM y FULL JOIN x ON x.a = y.a WHERE y.a < 10),"
    " y (a int) AS (SELECT a * 2 FROM x) SELECT a FROM x WHERE a > 2",
    "x (a int) AS (WITH MUTUALLY RECURSIVE z (b int) AS (SELECT 1 UNION SELECT b + 1 FROM z WHERE b < 3)"
    " SELECT b FROM z UNION SELECT a + 10 FROM x WHERE a < 20) TABLE x",
    "x (a int) AS (SELECT 1 UNION (WITH MUTUALLY RECURSIVE z (b int) AS ("
    " SELECT a FROM x UNION SELECT b + 1 FROM z WHERE b < 5) SELECT b FROM z)) TABLE x",
)


async def test_views_hold_what_queries_give(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("w", "CREATE CLUSTER duckdb (SIZE 'duckdb')")
    for number, recursion in enumerate(RECURSIONS):
        query = f"WITH MUTUALLY RECURSIVE {recursion}"
        answers = [sorted((await env.query("r", query)).splitlines())]
        for cluster in ("quickstart", "duckdb"):
            view = f"{cluster}_{number}"
            create = f"CREATE MATERIALIZED VIEW {view} IN CLUSTER {cluster} AS {query}"
            await env.ran("w", create)
            answers.append(sorted((await env.query("r", f"SELECT * FROM {view}")).splitlines()))
        assert len(answers[0]) > 1 or "ERROR 22001" in answers[0][0], recursion
        assert answers[0] == answers[1] == answers[2], recursion
