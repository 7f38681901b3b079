"""CREATE SINK ... INTO POSTGRES: each change once, whatever ends in between."""

import asyncio
import random
from itertools import pairwise
from urllib.parse import urlparse

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import STATUS, until


class Target:
    """A schema of a PostgreSQL server of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.run("DROP SCHEMA IF EXISTS foreshore CASCADE")
        self.run("DROP SCHEMA IF EXISTS out CASCADE")
        self.run("CREATE SCHEMA out")

    @property
    def options(self) -> str:
        where = urlparse(self.url)
        database, user = where.path[1:] or "postgres", where.username or "postgres"
        return f"HOST '{where.hostname}', PORT {where.port}, DATABASE '{database}', USER '{user}'"

    def run(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def target(postgres_url: str) -> Target:
    return Target(postgres_url)


async def until_equal(env: TestEnvironment, target: Target, relation: str, table: str) -> None:
    """Wait until the table has the rows of the relation."""
    query = "SELECT coalesce(string_agg(t::text, ',' ORDER BY t::text), '') FROM {} t"
    while True:
        here = (await env.query("a", query.format(relation))).splitlines()[0]
        ((there,),) = await asyncio.to_thread(target.run, query.format(table))
        if here == there:
            return
        await asyncio.sleep(0.05)


async def test_each_change_arrives_once_over_kills_and_restarts(
    own_env: TestEnvironment, target: Target
) -> None:
    env, drawn = own_env, random.Random(1)
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, n numeric(10, 2))")
    await env.ran("a", "INSERT INTO t VALUES (1, 'a \"b\", c', 1.5), (2, NULL, 2), (3, '', NULL)")
    options = "(TABLE 'out.t') WITH (COMMIT INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SINK s FROM t INTO POSTGRES CONNECTION pg {options}")
    await until_equal(env, target, "t", "out.t")
    for round in range(5):
        for _ in range(20):
            key = drawn.randrange(10)
            await env.ran("a", f"DELETE FROM t WHERE k = {key}")
            if drawn.random() < 0.7:
                await env.ran("a", f"INSERT INTO t VALUES ({key}, 'r{round}', {key})")
        env.export.last.kill()
        if round == 2:
            await env.reopen()
    await until_equal(env, target, "t", "out.t")
    assert (await env.query("a", STATUS)).startswith("running|NULL")
    await env.ran("a", "DROP SINK s")
    await until(lambda: not target.run("SELECT * FROM foreshore.frontiers"))


async def test_rows_whose_keys_have_nulls_are_replaced(
    own_env: TestEnvironment, target: Target
) -> None:
    env = own_env
    target.run("CREATE TABLE out.t (k int, j int, v int)")
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran("a", "CREATE TABLE t (k int, j int NOT NULL, v int)")
    await env.ran("a", "INSERT INTO t VALUES (NULL, 1, 1), (NULL, 2, 2), (1, 1, 3)")
    options = "(TABLE 'out.t') KEY (k, j) NOT ENFORCED WITH (COMMIT INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SINK s FROM t INTO POSTGRES CONNECTION pg {options}")
    await until_equal(env, target, "t", "out.t")
    await env.ran("a", "UPDATE t SET v = v + 10 WHERE j = 1")
    await until_equal(env, target, "t", "out.t")
    await env.ran("a", "DELETE FROM t WHERE k IS NULL")
    await until_equal(env, target, "t", "out.t")


async def test_a_table_that_is_published_takes_deletes_by_a_key_with_nulls(
    own_env: TestEnvironment, target: Target
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran("a", "CREATE TABLE t (k int, v int)", "INSERT INTO t VALUES (NULL, 1), (2, 2)")
    options = "(TABLE 'out.t') KEY (k) NOT ENFORCED WITH (COMMIT INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SINK s FROM t INTO POSTGRES CONNECTION pg {options}")
    await until_equal(env, target, "t", "out.t")
    target.run("CREATE PUBLICATION everything FOR TABLE out.t")
    try:
        await env.ran("a", "UPDATE t SET v = 3 WHERE k = 2", "DELETE FROM t WHERE k IS NULL")
        await asyncio.wait_for(until_equal(env, target, "t", "out.t"), 60)
    finally:
        target.run("DROP PUBLICATION everything")


async def test_the_key_of_a_view_follows_from_its_query(
    own_env: TestEnvironment, target: Target
) -> None:
    """A group of NULL is a row like others, so the table may have it, too."""
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran(
        "a",
        "CREATE TABLE t (k text, v int)",
        "CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS s, k FROM t GROUP BY k",
        "CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM t",
        "CREATE MATERIALIZED VIEW pairs AS SELECT k, v FROM t",
        "INSERT INTO t VALUES (NULL, 1), ('b', 2)",
        "CREATE SINK s FROM m INTO POSTGRES CONNECTION pg (TABLE 'out.m')",
        "CREATE SINK n FROM total INTO POSTGRES CONNECTION pg (TABLE 'out.total') KEY (n)",
    )
    shown = await env.ran("a", "SHOW CREATE SINK s")
    assert " KEY (k) " in shown
    refused = await env.query(
        "a", "CREATE SINK p FROM pairs INTO POSTGRES CONNECTION pg (TABLE 'out.p')"
    )
    assert "ERROR 22023: ENVELOPE UPSERT needs a key" in refused
    await until_equal(env, target, "m", "out.m")
    await env.ran("a", "INSERT INTO t VALUES (NULL, 5), ('b', 1), ('c', 0)")
    await until_equal(env, target, "m", "out.m")
    await until_equal(env, target, "total", "out.total")
    await env.ran("a", "DELETE FROM t WHERE k IS NULL")
    await until_equal(env, target, "m", "out.m")


async def test_changes_are_appended_with_their_times(
    own_env: TestEnvironment, target: Target
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran(
        "a", "CREATE TABLE t (v int)", "CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS s FROM t"
    )
    into = "INTO POSTGRES CONNECTION pg (TABLE 'out.m') ENVELOPE APPEND"
    await env.ran("a", f"CREATE SINK s FROM m {into} WITH (COMMIT INTERVAL '1 ms')")
    for number in range(1, 6):
        await env.ran("a", f"INSERT INTO t VALUES ({number})")
    while True:
        rows = target.run("SELECT s, mz_diff FROM out.m ORDER BY mz_timestamp, mz_diff")
        if (15, 1) in rows:
            break
        await asyncio.sleep(0.05)
    sums = [None, 1, 3, 6, 10, 15]
    expected: list[tuple[int | None, int]] = [(None, 1)]
    for before, after in pairwise(sums):
        expected += [(before, -1), (after, 1)]
    assert rows == expected


async def test_a_target_that_is_away_stalls_the_sink(
    own_env: TestEnvironment, target: Target
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)")
    options = "(TABLE 'out.t') WITH (COMMIT INTERVAL '1 ms')"
    await env.ran("a", f"CREATE SINK s FROM t INTO POSTGRES CONNECTION pg {options}")
    await env.ran("a", "INSERT INTO t VALUES (1)")
    await until_equal(env, target, "t", "out.t")
    await env.ran("a", "ALTER CONNECTION pg SET (PORT 1)", "INSERT INTO t VALUES (2)")
    while True:
        if "stalled|could not connect" in await env.query("a", STATUS):
            break
        await asyncio.sleep(0.02)
    assert "2BP01" in await env.query("a", "DROP CONNECTION pg")
    port = urlparse(target.url).port
    await env.ran("a", f"ALTER CONNECTION pg SET (PORT {port})")
    await until_equal(env, target, "t", "out.t")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("FROM v INTO POSTGRES CONNECTION pg (TABLE 't')", '42809: "v" is not a table, source'),
        ("FROM t INTO POSTGRES CONNECTION pg", "22023: POSTGRES CONNECTION needs the option"),
        ("FROM t INTO POSTGRES CONNECTION no (TABLE 't')", "42704: connection"),
        ("FROM u INTO POSTGRES CONNECTION pg (TABLE 't')", "22023: ENVELOPE UPSERT needs a key"),
        ("FROM u INTO POSTGRES CONNECTION pg (TABLE 't') KEY (x)", "42703: column"),
        (
            "FROM u INTO POSTGRES CONNECTION pg (TABLE 't') KEY (v)",
            "22023: the columns (v) are not",
        ),
        ("FROM t INTO POSTGRES CONNECTION pg (TABLE 't')", "08006: could not connect to the"),
        ("FROM t INTO POSTGRES CONNECTION up (TABLE 'out.other')", "42703: the table"),
        (
            "FROM t INTO POSTGRES CONNECTION up (TABLE 'out.t') ENVELOPE DEBEZIUM",
            "0A000: ENVELOPE DEBEZIUM",
        ),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, target: Target, statement: str, error: str
) -> None:
    nowhere = "HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u'"
    target.run("CREATE TABLE out.other (x int)")
    await env.ran(
        "a",
        f"CREATE CONNECTION IF NOT EXISTS pg TO POSTGRES ({nowhere})",
        f"CREATE CONNECTION IF NOT EXISTS up TO POSTGRES ({target.options})",
        "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS u (v int)",
        "CREATE OR REPLACE VIEW v AS SELECT 1 AS x",
    )
    assert f"ERROR {error}" in await env.query("a", f"CREATE SINK s {statement}")
    assert await env.query("a", "SHOW SINKS") == "SELECT 0"


async def until_stalled(env: TestEnvironment, reason: str) -> None:
    """Wait until the sink is stalled for a reason."""
    while True:
        if f"stalled|{reason}" in await env.query("a", STATUS):
            return
        await asyncio.sleep(0.05)


async def test_right_that_is_revoked_stalls_the_sink_until_it_is_granted(
    own_env: TestEnvironment, target: Target
) -> None:
    env = own_env
    target.run("DROP ROLE IF EXISTS few")
    target.run("CREATE ROLE few LOGIN; CREATE TABLE out.t (k int PRIMARY KEY)")
    target.run("GRANT USAGE ON SCHEMA out TO few; GRANT ALL ON out.t TO few")
    options = target.options.rpartition("USER")[0] + "USER 'few'"
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({options})")
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    create = "CREATE SINK s FROM t INTO POSTGRES CONNECTION pg (TABLE 'out.t')"
    refused = await env.query("a", create)
    assert "ERROR 42501: the target says: permission denied for database" in refused
    assert "HINT: Grant the connection's USER there what it lacks" in refused
    database = urlparse(target.url).path[1:] or "postgres"
    target.run(f'GRANT CREATE ON DATABASE "{database}" TO few')
    try:
        await env.ran("a", create)
        await until_equal(env, target, "t", "out.t")
        target.run("REVOKE INSERT ON out.t FROM few")
        await env.ran("a", "INSERT INTO t VALUES (2)")
        await until_stalled(env, "the target says: permission denied for table t")
        target.run("GRANT INSERT ON out.t TO few")
        await until_equal(env, target, "t", "out.t")
        await env.ran("a", "DROP SINK s")
        await until(lambda: not target.run("SELECT * FROM foreshore.frontiers"))
    finally:
        target.run("DROP SCHEMA out CASCADE; DROP SCHEMA IF EXISTS foreshore CASCADE")
        target.run(f'DROP OWNED BY few CASCADE; REVOKE ALL ON DATABASE "{database}" FROM few')
        target.run("DROP ROLE few")


async def test_table_that_was_made_anew_stalls_the_sink(
    own_env: TestEnvironment, target: Target
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    into = "INTO POSTGRES CONNECTION pg (TABLE 'out.t') WITH (COMMIT INTERVAL '1 ms')"
    await env.ran("a", f"CREATE SINK s FROM t {into}", "WAIT FOR SINKS s")
    # As an older version left it: the next write notes which table it is.
    await asyncio.to_thread(target.run, "ALTER TABLE foreshore.frontiers DROP COLUMN target")
    env.export.last.kill()
    await env.ran("a", "INSERT INTO t VALUES (2)", "WAIT FOR SINKS s")
    again = "DROP TABLE out.t; CREATE TABLE out.t (k int PRIMARY KEY)"
    await asyncio.to_thread(target.run, again)
    await env.ran("a", "INSERT INTO t VALUES (3)")
    said = await env.query("a", "WAIT FOR SINKS s")
    assert 'ERROR 55000: sink "s" is stalled: the table "out"."t" was made anew, so the' in said
    assert "HINT: The sink cannot go on. Drop it, empty the target" in said
    assert await asyncio.to_thread(target.run, "SELECT * FROM out.t") == []
    await env.ran("a", "DROP SINK s", f"CREATE SINK s FROM t {into}", "WAIT FOR SINKS s")
    found = await asyncio.to_thread(target.run, "SELECT k FROM out.t ORDER BY k")
    assert found == [(1,), (2,), (3,)]
    # Whoever knows that a table has the rows lets the sink go on.
    copied = "CREATE TABLE out.u AS TABLE out.t; DROP TABLE out.t; ALTER TABLE out.u RENAME TO t"
    await asyncio.to_thread(target.run, copied)
    await asyncio.to_thread(target.run, "UPDATE foreshore.frontiers SET target = NULL")
    await env.ran("a", "DELETE FROM t WHERE k = 1", "WAIT FOR SINKS s")
    assert await asyncio.to_thread(target.run, "SELECT k FROM out.t ORDER BY k") == [(2,), (3,)]


LEFT = "SELECT count(*) FROM mz_internal.mz_leftovers"


@pytest.mark.parametrize("gone", ["TABLE foreshore.frontiers", "SCHEMA foreshore CASCADE"])
async def test_frontier_that_is_gone_already_is_no_leftover(
    own_env: TestEnvironment, target: Target, gone: str
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({target.options})")
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    await env.ran("a", "CREATE SINK s FROM t INTO POSTGRES CONNECTION pg (TABLE 'out.t')")
    await env.ran("a", "WAIT FOR SINKS s")
    await asyncio.to_thread(target.run, f"DROP {gone}")
    await env.ran("a", "DROP SINK s")
    async with asyncio.timeout(60):
        while not (await env.query("a", LEFT)).startswith("0\n"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
