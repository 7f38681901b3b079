"""Constraints added by ALTER TABLE do not apply to earlier times of the table or of views."""

from __future__ import annotations

import asyncio

import pytest

from foreshore.compute.flow import spine
from tests.adapter.harness import TestEnvironment

HISTORY = "WITH (RETAIN HISTORY FOR '1h')"


def now(env: TestEnvironment) -> int:
    return env.environment.coordinator.oracle.read_ts()


async def test_view_at_time_before_added_constraint_is_unchanged(env: TestEnvironment) -> None:
    await env.query("s", f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int) {HISTORY}")
    await env.query("s", f"CREATE MATERIALIZED VIEW m {HISTORY} AS SELECT k FROM t")
    await env.query("s", f"CREATE MATERIALIZED VIEW mm {HISTORY} AS SELECT k FROM m")
    await env.query("s", "INSERT INTO t VALUES (NULL), (1), (1)")
    assert await env.query("s", "SELECT count(*) FROM mm") == "3\nSELECT 1"
    before = now(env)
    await env.query("s", "DELETE FROM t; INSERT INTO t VALUES (1)")
    assert await env.query("s", "SELECT count(*) FROM mm") == "1\nSELECT 1"
    await env.query("s", "ALTER TABLE t ADD PRIMARY KEY (k)")
    for _ in range(2):
        for view in ("m", "mm"):
            nulls = f"SELECT count(*) FROM {view} WHERE k IS NULL AS OF {before}"
            assert await env.query("s", nulls) == "1\nSELECT 1"
            distinct = f"SELECT DISTINCT k FROM {view} WHERE k = 1 AS OF {before}"
            assert await env.query("s", distinct) == "1\nSELECT 1"
            others = f"SELECT 2 NOT IN (SELECT k FROM {view}) AS OF {before}"
            assert await env.query("s", others) == "NULL\nSELECT 1"
        refused = await env.query("s", f"SELECT * FROM t AS OF {before}")
        assert refused.startswith("ERROR 22023: "), refused
        await env.reopen()


@pytest.mark.parametrize("more", ["", "ADD COLUMN z int, "])
async def test_constraint_satisfied_by_own_writes_holds_from_commit(
    env: TestEnvironment, more: str
) -> None:
    await env.query("s", f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int) {HISTORY}")
    await env.query("s", "INSERT INTO t VALUES (NULL), (1)")
    await env.query("s", "BEGIN; DELETE FROM t WHERE k IS NULL")
    await env.query("s", f"ALTER TABLE t {more}ALTER COLUMN k SET NOT NULL")
    await asyncio.sleep(0.05)
    within = now(env)
    assert await env.query("s", "COMMIT") == "COMMIT"
    nulls = f"SELECT count(*) FROM t WHERE k IS NULL AS OF {within}"
    refused = await env.query("s", nulls)
    assert refused.startswith("ERROR 22023: "), refused
    assert await env.query("s", "SELECT k FROM t") == "1\nSELECT 1"


async def test_index_is_not_used_at_times_before_added_constraint(env: TestEnvironment) -> None:
    await env.query("s", f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int) {HISTORY}")
    await env.query("s", f"CREATE INDEX i ON t (k) {HISTORY}")
    await env.query("s", "INSERT INTO t VALUES (NULL), (1)")
    assert await env.query("s", "SELECT k FROM t WHERE k = 1") == "1\nSELECT 1"
    before = now(env)
    await env.query("s", "DELETE FROM t WHERE k IS NULL")
    await env.query("s", "ALTER TABLE t ALTER COLUMN k SET NOT NULL")
    nulls = f"SELECT count(*) FROM t WHERE k IS NULL AS OF {before}"
    refused = await env.query("s", nulls)
    assert refused.startswith("ERROR 22023: "), refused


async def test_view_whose_plan_needs_only_constraints(env: TestEnvironment) -> None:
    await env.query("s", "DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int)")
    nulls = "SELECT count(*) AS n FROM t WHERE k IS NULL"
    await env.query("s", f"CREATE MATERIALIZED VIEW m AS {nulls}")
    assert await env.query("s", "SELECT * FROM m") == "0\nSELECT 1"
    altered = await env.query("s", "ALTER TABLE t ALTER COLUMN k SET NOT NULL")
    assert altered == "ALTER TABLE"
    await env.query("s", f"CREATE MATERIALIZED VIEW later AS {nulls}")
    await env.query("s", "INSERT INTO t VALUES (1)")
    for _ in range(2):
        assert await env.query("s", "SELECT * FROM m, later") == "0|0\nSELECT 1"
        shown = await env.query("s", "SELECT pg_get_viewdef('m'::regclass)")
        await env.reopen()
    assert "(SELECT" not in shown  # the table is named as it was
    await env.query("s", "ALTER TABLE t ALTER COLUMN k DROP NOT NULL")


async def test_dropped_and_restored_key_is_not_used_by_old_view(env: TestEnvironment) -> None:
    await env.query("s", "DROP TABLE IF EXISTS t CASCADE; CREATE CLUSTER c (SIZE 'embedded')")
    await env.query("s", f"CREATE TABLE t (k int NOT NULL UNIQUE, v int) {HISTORY}")
    await env.query("s", "CREATE VIEW plain AS SELECT k, v FROM t")
    await env.query("s", "ALTER TABLE t ADD CHECK (v < 1000)")  # the key is remembered
    await env.query("s", "ALTER TABLE t DROP CONSTRAINT t_k_key")
    made = f"CREATE MATERIALIZED VIEW m IN CLUSTER c {HISTORY} AS SELECT DISTINCT k FROM plain"
    await env.query("s", made)
    await env.query("s", "SELECT * FROM m")
    await env.query("s", "DROP CLUSTER REPLICA c.r1")
    await env.query("s", "INSERT INTO t VALUES (1, 1), (1, 2)")
    before = now(env)
    await env.query("s", "DELETE FROM t WHERE v = 2; ALTER TABLE t ADD UNIQUE (k)")
    await env.reopen()
    await env.query("s", "CREATE CLUSTER REPLICA c.r2 (SIZE 'embedded')")
    assert await env.query("s", "SELECT k FROM m") == "1\nSELECT 1"
    assert await env.query("s", f"SELECT k FROM m AS OF {before}") == "1\nSELECT 1"
    await env.query("s", "DROP CLUSTER c CASCADE")


async def test_added_constraint_limits_only_statements_that_name_the_table(
    env: TestEnvironment,
) -> None:
    await env.query("s", "CREATE CLUSTER c (SIZE 'embedded')")
    await env.query("s", "CREATE TABLE src (k int); INSERT INTO src VALUES (1)")
    await env.query("s", "CREATE TABLE log (k int)")
    await env.query("s", "CREATE MATERIALIZED VIEW behind IN CLUSTER c AS SELECT k FROM src")
    await env.query("s", "SELECT * FROM behind")
    await env.query("s", "DROP CLUSTER REPLICA c.r1")
    await asyncio.sleep(0.5)
    await env.query("s", "ALTER TABLE log ALTER COLUMN k SET NOT NULL")
    await env.query("r", "SET default_transaction_isolation = 'serializable'")
    for between in (
        "INSERT INTO log VALUES (1)",
        "ALTER TABLE log ADD COLUMN b int",
        "DROP TABLE log",
    ):
        await env.query("r", "BEGIN; SELECT * FROM behind")
        await env.ran("r", between)
        assert (await env.query("r", "SELECT * FROM behind")).startswith("1\n"), between
        await env.query("r", "ROLLBACK")
    await env.query("r", "DROP TABLE src, log CASCADE; DROP CLUSTER c CASCADE")


async def test_subscription_does_not_rely_on_later_constraint(env: TestEnvironment) -> None:
    await env.query("s", "CREATE TABLE x (v int); CREATE TABLE y (k int PRIMARY KEY, v int)")
    query = "SELECT v FROM x UNION ALL SELECT v FROM y WHERE k IS NULL"
    await env.query("s", f"CREATE SUBSCRIPTION follows FOR ({query})")
    await env.query("s", "INSERT INTO x VALUES (7)")
    assert await env.query("s", "ALTER TABLE y ADD CHECK (v < 100)") == "ALTER TABLE"
    await env.query("s", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION follows")
    assert "|1|7" in await env.query("s", "FETCH 1 c WITH (TIMEOUT = '30s')")
    await env.query("s", "ROLLBACK; DROP SUBSCRIPTION follows; DROP TABLE x, y")


async def test_view_created_as_of_in_block_that_rewrites_its_table_is_refused(
    env: TestEnvironment,
) -> None:
    await env.query("s", f"CREATE TABLE g (k int) {HISTORY}")
    await env.query("s", "INSERT INTO g VALUES (1), (2)")
    before = now(env)
    await env.query("s", "INSERT INTO g VALUES (3)")
    made = f"CREATE MATERIALIZED VIEW m {HISTORY} AS SELECT k FROM g AS OF {before}"
    await env.query("a", f"DROP TABLE IF EXISTS t CASCADE; BEGIN; {made}")
    refused = await env.query("a", "ALTER TABLE g ADD COLUMN z int")
    assert refused.startswith("ERROR 0A000: cannot add or drop columns"), refused
    await env.query("a", "ROLLBACK")
    await env.query("s", "ALTER TABLE g ALTER COLUMN k SET NOT NULL")
    assert (await env.query("s", made)).startswith("ERROR 22023: ")
    pruned = made.replace("FROM g", "FROM g WHERE k IS NULL")
    assert (await env.query("s", pruned)).startswith("ERROR 22023: ")


PROMISES = [
    ("ALTER TABLE t ALTER k SET NOT NULL", "SELECT count(*) FROM t WHERE k IS NULL"),
    ("ALTER TABLE t ADD PRIMARY KEY (k)", "SELECT k FROM t GROUP BY k"),
    ("ALTER TABLE t ADD UNIQUE (k)", "SELECT a FROM (VALUES (1)) x(a) LEFT JOIN t ON t.k = x.a"),
    ("CREATE UNIQUE INDEX ON t (k)", "SELECT a FROM (VALUES (1)) x(a) LEFT JOIN v ON v.k = x.a"),
    ("ALTER TABLE t ADD COLUMN n int", "SELECT k FROM t"),
    ("ALTER TABLE t ADD COLUMN n int", "SELECT k FROM v WHERE k = 1"),
    ("DROP VIEW v; DROP TABLE t; CREATE TABLE t (k int)", "SELECT k FROM t"),
]


@pytest.mark.parametrize(("alter", "read"), PROMISES)
async def test_as_of_before_constraint_added_in_block_is_refused(
    env: TestEnvironment, alter: str, read: str
) -> None:
    await env.query("s", f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int) {HISTORY}")
    await env.query("s", "CREATE VIEW v AS SELECT k FROM t; CREATE TABLE IF NOT EXISTS o ()")
    await env.query("s", "INSERT INTO t VALUES (NULL), (1), (1)")
    before = now(env)
    truth = sorted((await env.query("s", f"{read} AS OF {before}")).splitlines())
    await env.query("s", "DELETE FROM t; INSERT INTO t VALUES (1)")
    await env.query("s", "BEGIN; SAVEPOINT a")
    await env.ran("s", alter)
    await env.query("s", "SAVEPOINT b")
    await env.ran("s", read)
    for as_of in (f"AS OF {before}", "AS OF AT LEAST 0", f"AS OF AT LEAST {before}"):
        refused = await env.query("s", f"{read} {as_of}")
        assert refused.startswith("ERROR 22023: "), refused
        await env.query("s", "ROLLBACK TO b")
    assert await env.query("s", "SELECT count(*) FROM o AS OF AT LEAST 0") == "0\nSELECT 1\nT"
    await env.query("s", "ROLLBACK TO a")
    told = await env.query("s", f"{read} AS OF {before}")
    assert sorted(told.splitlines()) == sorted([*truth, "T"])
    await env.query("s", "ROLLBACK")


@pytest.mark.parametrize("changed", [False, True])
async def test_block_reads_at_no_time_before_its_own_constraint_holds(
    env: TestEnvironment, changed: bool
) -> None:
    await env.query("s", "DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int)")
    await env.query("s", "DROP TABLE IF EXISTS o; CREATE TABLE o (k int)")
    await env.query("s", f"INSERT INTO t VALUES ({'NULL' if changed else 1})")
    await env.query("s", "BEGIN; SELECT count(*) FROM o")
    await env.query("other", f"UPDATE {'t' if changed else 'o'} SET k = 1")
    await asyncio.sleep(0.3)
    alter = await env.query("s", "ALTER TABLE t ALTER k SET NOT NULL")
    assert alter == "ALTER TABLE\nT"
    read = await env.query("s", "SELECT count(*) FROM t WHERE k IS NULL")
    if changed:
        assert read.startswith("ERROR 40001: "), read
        await env.query("s", "ROLLBACK")
    else:
        assert read == "0\nSELECT 1\nT"
        assert await env.query("s", "COMMIT") == "COMMIT"


@pytest.mark.parametrize("more", ["", " ON CONFLICT (k) DO UPDATE SET k = excluded.k"])
async def test_block_fills_its_new_table_from_query_as_of(env: TestEnvironment, more: str) -> None:
    await env.query("s", "DROP TABLE IF EXISTS t, o CASCADE; CREATE TABLE t (k int)")
    await env.query("s", "INSERT INTO t VALUES (1), (2)")
    await env.query("s", "BEGIN; CREATE TABLE o (k int PRIMARY KEY); SAVEPOINT a")
    insert = f"INSERT INTO o SELECT k FROM {{}} AS OF AT LEAST 0{more}"
    assert await env.query("s", insert.format("t")) == "INSERT 0 2\nT"
    refused = await env.query("s", insert.format("o"))
    assert refused.startswith("ERROR 22023: "), refused
    await env.query("s", "ROLLBACK TO a")
    assert await env.query("s", insert.format("t")) == "INSERT 0 2\nT"
    assert await env.query("s", "COMMIT") == "COMMIT"
    assert await env.query("s", "SELECT * FROM o ORDER BY k") == "1\n2\nSELECT 2"


@pytest.mark.parametrize("blocks", [False, True], ids=["whole", "by blocks"])
async def test_view_made_after_nulls_were_filled_and_forbidden(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, blocks: bool
) -> None:
    if blocks:
        monkeypatch.setattr(spine, "SORTED_BY_BLOCKS", 0)
    await env.query("s", "DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int)")
    await env.query("s", "INSERT INTO t VALUES (1), (2)")
    for column in ("a", "b"):
        add = f"ALTER TABLE t ADD COLUMN {column} text; UPDATE t SET {column} = 'x'"
        forbid = f"ALTER TABLE t ALTER COLUMN {column} SET NOT NULL"
        makes = [
            f"CREATE INDEX by_{column} ON t ({column})",
            f"CREATE MATERIALIZED VIEW m{column} AS SELECT {column}, sum(k) FROM t GROUP BY 1",
            f"CREATE MATERIALIZED VIEW j{column} AS "
            f"SELECT t.k FROM t JOIN t u ON t.k = u.k WHERE t.{column} = u.{column}",
        ]
        block = "; ".join((add, forbid, *makes))
        await env.query("s", f"BEGIN; {block}; COMMIT" if column == "a" else block)
    for _ in range(2):
        for column in ("a", "b"):
            assert await env.query("s", f"SELECT * FROM m{column}") == "x|3\nSELECT 1"
            assert await env.query("s", f"SELECT sum(k) FROM j{column}") == "3\nSELECT 1"
            by_index = f"SELECT count(*) FROM t WHERE {column} = 'x'"
            assert await env.query("s", by_index) == "2\nSELECT 1"
        await env.reopen()
    await env.query("s", "INSERT INTO t VALUES (3, 'y', 'y')")
    assert await env.query("s", "SELECT * FROM ma ORDER BY 1") == "x|3\ny|3\nSELECT 2"
