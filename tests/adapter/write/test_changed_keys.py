"""UPDATE and DELETE with keys from a source conflict by key only."""

import asyncio

import pytest

from foreshore.adapter.read import execute
from foreshore.adapter.write import source
from tests.adapter.harness import TestEnvironment, until

TABLE = """
DROP TABLE IF EXISTS t, other;
CREATE TABLE t (k int PRIMARY KEY, u text UNIQUE, n bigint DEFAULT 0);
CREATE TABLE other (k int PRIMARY KEY, v int);
INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 0);
INSERT INTO other VALUES (1, 10), (9, 90)
"""
CONFLICT = "ERROR 40001: could not serialize access due to concurrent update"
FROM = "UPDATE t SET n = n + v FROM (VALUES ({}, 5)) AS s (k, v) WHERE t.k = s.k"
BY_KEY = {
    "from": FROM,
    "a FROM item beside another": "UPDATE t SET n = s.v * x FROM (VALUES ({}, 5)) AS s (k, v), "
    "generate_series(2, 2) AS x WHERE s.k = t.k",
    "wider": "UPDATE t SET n = 5 FROM (SELECT {}::bigint AS k) AS s WHERE t.k = s.k AND t.n < 9",
    "with": "WITH s (k) AS (VALUES ({})), r AS (SELECT k FROM s) UPDATE t SET n = 7 FROM r "
    "WHERE t.k = r.k",
    "in": "UPDATE t SET n = 3 WHERE k IN (VALUES ({0}), ({0} + 17))",
    "in a query of WITH": "WITH s (k) AS (VALUES ({0}), ({0} + 17)) DELETE FROM t "
    "WHERE k IN (SELECT k FROM s) AND u < 'z'",
    "rows in": "UPDATE t SET n = 3 WHERE (k, n) IN (VALUES ({0}, 0::bigint), ({0} + 17, 0))",
    "any": "DELETE FROM t WHERE k = ANY (SELECT i FROM generate_series({0}, {0}) AS i)",
    "equals": "DELETE FROM t WHERE k = (SELECT s.k FROM (VALUES ({})) AS s (k) WHERE s.k > 0)",
    "equals something wider": "DELETE FROM t WHERE k = (SELECT s.k FROM (VALUES ({}::bigint)) AS s (k))",
    "equals something of it": "UPDATE t SET n = 8 "
    "WHERE k = 1 + (SELECT s.k - 1 FROM (VALUES ({})) AS s (k) WHERE s.k > 0)",
    "or": "UPDATE t SET n = 3 WHERE k IN (VALUES ({})) OR u = 'z'",
    "in mz_now": "DELETE FROM t WHERE k IN (SELECT {} + mz_now()::text::bigint % 1)",
    "using": "DELETE FROM t USING (VALUES ({})) AS s (k) WHERE t.k = s.k AND u <> 'z'",
}
BY_TABLE = {
    "another column": "UPDATE t SET n = n + v FROM (VALUES ({}, 5)) AS s (k, v) "
    "WHERE t.k + 0 = s.k",
    "negated": "DELETE FROM t WHERE k NOT IN (VALUES ({0}), (4 - {0}))",
    "reads the table": "UPDATE t SET n = (SELECT max(n) FROM t) FROM (VALUES ({})) AS s (k) "
    "WHERE t.k = s.k",
    "depends on the row": "UPDATE t SET n = 3 WHERE k IN (SELECT t.n + {})",
}


async def state(env: TestEnvironment) -> list[str]:
    return (await env.ran("r", "SELECT k, u, n FROM t ORDER BY k")).splitlines()[:-1]


async def both(env: TestEnvironment, sql: str) -> tuple[list[str], list[str]]:
    """Run a statement for two keys, in blocks at the same time; return what COMMIT says, and rows.

    The rows are those that are left, then those that one of the statements after the other leaves.
    """
    await env.ran("w", TABLE)
    for session, key in (("a", 1), ("b", 2)):
        await env.ran(session, "BEGIN")
        await env.ran(session, sql.format(key))
    return [await env.query(each, "COMMIT") for each in "ab"], await state(env)


@pytest.mark.parametrize("case", BY_KEY)
async def test_changes_of_different_keys_both_commit(env: TestEnvironment, case: str) -> None:
    said, left = await both(env, BY_KEY[case])
    assert said == ["COMMIT"] * 2
    await env.ran("w", TABLE)
    before = await state(env)
    for key in (1, 2):
        await env.ran("w", BY_KEY[case].format(key))
    assert left == await state(env) != before


@pytest.mark.parametrize("case", BY_TABLE)
async def test_unknown_keys_conflict_by_table(env: TestEnvironment, case: str) -> None:
    said, _ = await both(env, BY_TABLE[case])
    assert said[0] == "COMMIT"
    assert said[1] == CONFLICT


async def test_keys_of_time_are_looked_up_but_not_locked(env: TestEnvironment) -> None:
    """The time is another after a wait. Blocks read these keys, and change others in between."""
    of_time = "SELECT {} + mz_now()::text::bigint % 1 AS k"
    sql = f"UPDATE t SET n = n + 1 FROM ({of_time}) AS s WHERE s.k = t.k"
    said, _ = await both(env, sql)
    assert said == ["COMMIT"] * 2
    await env.ran("a", "BEGIN", sql.format(1))
    await env.ran("b", "UPDATE t SET n = 9 WHERE k = 1")
    assert await env.query("a", "COMMIT") == CONFLICT


async def test_scalar_subquery_with_several_rows_fails_by_key(env: TestEnvironment) -> None:
    await env.ran("w", TABLE)
    said = await env.query(
        "w", "DELETE FROM t WHERE k = (SELECT i FROM generate_series(1, 2) AS i)"
    )
    assert said.startswith("ERROR 21000"), said
    assert await env.query("w", "DELETE FROM t WHERE k = (SELECT 1 WHERE false)") == "DELETE 0"
    assert await env.query("w", "DELETE FROM t WHERE k IN (SELECT NULL::int)") == "DELETE 0"
    none = "(SELECT i FROM generate_series(1, 2) AS i WHERE i > 5)"
    for value in (f"COALESCE({none}, 2)", f"CASE WHEN {none} IS NULL THEN 2 END"):
        said = await env.query("w", f"UPDATE t SET n = n + 1 WHERE k = {value} RETURNING k")
        assert said == "2\nUPDATE 1", "a subquery without a row is NULL"


async def test_keys_are_read_again_once_after_wait(env: TestEnvironment) -> None:
    await env.ran("w", TABLE)
    await env.ran("w", "DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s; SELECT nextval('s')")
    await env.ran("a", "BEGIN; UPDATE t SET n = 5 WHERE k = 1")
    delete = "DELETE FROM t WHERE k IN (SELECT last_value FROM s) RETURNING k"
    waiting = asyncio.create_task(env.query("b", delete, alone=False))
    locks = env.environment.coordinator.locks
    await until(lambda: waiting.done() or bool(locks._waiting))
    await env.ran("c", "SELECT nextval('s')")
    await env.ran("a", "COMMIT")
    assert (await waiting).splitlines() == ["2", "DELETE 1"]


WITHOUT_JOIN = (
    "DELETE FROM t WHERE k IN (VALUES (1), (1), (3), (NULL), (9)) AND n = 0 RETURNING *",
    "DELETE FROM t WHERE n >= 0 AND k IN (SELECT i::bigint * 2000000001 FROM "
    "generate_series(0, 3) AS i) RETURNING *",
    "UPDATE t SET n = k, u = u || 'x' WHERE u IN (VALUES ('a'), ('c'), ('z')) RETURNING *",
    "UPDATE t SET n = n + 1 WHERE k = (SELECT s.k FROM (VALUES (2)) AS s (k)) RETURNING *",
    "UPDATE t SET n = n + 1 WHERE k = (SELECT s.k FROM (VALUES (2)) AS s (k) WHERE s.k > 2)",
    "DELETE FROM t WHERE k IN (SELECT k FROM t ORDER BY k FOR UPDATE SKIP LOCKED LIMIT 2) "
    "AND u <> 'a' RETURNING *",
    "WITH s (k) AS (VALUES (2)) DELETE FROM t WHERE k IN (SELECT k FROM s) RETURNING u",
)
WITH_JOIN = (
    "DELETE FROM t WHERE (k, n) IN (VALUES (1, 5::bigint), (3, 0)) RETURNING *",
    "DELETE FROM t WHERE k IN (SELECT i FROM generate_series(1, 2) AS i WHERE i < n) RETURNING *",
)


@pytest.mark.parametrize("sql", [*WITHOUT_JOIN, *WITH_JOIN])
@pytest.mark.parametrize(
    "before", ["", "UPDATE t SET n = 0 WHERE k = 3; DELETE FROM t WHERE k = 2"]
)
async def test_rows_found_by_keys_equal_join(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, sql: str, before: str
) -> None:
    """Whether they have been written before or by the transaction itself."""
    answers = []
    for known in (False, True):
        await env.ran("w", TABLE)
        await env.ran("w", f"BEGIN; {before}")
        with monkeypatch.context() as patched:
            if not known:
                patched.setattr(source, "_rows_by_keys", _nothing)
            elif sql in WITHOUT_JOIN:
                patched.setattr(execute, "rows_in_process", _refused)
            said = (await env.ran("w", sql)).splitlines()
        await env.ran("w", "COMMIT")
        answers.append((sorted(said), await state(env)))
    assert answers[0] == answers[1]


async def _nothing(*_: object) -> None:
    """Know no keys before."""


async def _refused(*_: object, **__: object) -> None:
    raise AssertionError("an engine is asked")
