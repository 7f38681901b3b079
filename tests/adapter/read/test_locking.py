"""SELECT ... FOR UPDATE, its variants and LOCK TABLE, with several sessions."""

import asyncio

import pyarrow as pa
import pytest

from foreshore.adapter.read import pipeline, row_locks
from foreshore.adapter.statement.context import StatementContext
from tests.adapter.harness import TestEnvironment, until

CONFLICT = "ERROR 40001: could not serialize access due to concurrent update"
ON_ROW = 'ERROR 55P03: could not obtain lock on row in relation "t"'


async def begun(env: TestEnvironment, *, rows: int = 4) -> None:
    """Make the tables anew, and let everybody be outside of a transaction."""
    for name in list(env.sessions):
        await env.query(name, "ROLLBACK")
    await env.ran(
        "w",
        "DROP TABLE IF EXISTS t, plain, other CASCADE;"
        "CREATE TABLE t (k int PRIMARY KEY, u text UNIQUE, n int);"
        "CREATE TABLE plain (k int, n int); CREATE TABLE other (k int PRIMARY KEY, n int);"
        f"INSERT INTO t SELECT i, 'u' || i, 0 FROM generate_series(1, {rows}) AS i;"
        "INSERT INTO plain VALUES (1, 0), (2, 0); INSERT INTO other VALUES (1, 0), (2, 0)",
    )


async def waiting(env: TestEnvironment, session: str, sql: str) -> asyncio.Task[str]:
    """Run a statement that has to wait."""
    locks = env.environment.coordinator.locks
    before = len(locks._waiting)
    task = asyncio.create_task(env.query(session, sql, alone=False))
    await until(lambda: task.done() or len(locks._waiting) > before)
    assert not task.done(), task.result()
    return task


# The strengths that exclude each other in PostgreSQL too: sqllogic/scripts/sessions_row_locks.slt.
@pytest.mark.parametrize("strength", ["SHARE", "KEY SHARE"])
async def test_second_locker_of_row_waits_for_first(env: TestEnvironment, strength: str) -> None:
    await begun(env)
    one = f"SELECT k, n FROM t WHERE k = 1 FOR {strength}"
    await env.ran("a", f"BEGIN; {one}")
    await env.ran("b", "BEGIN")
    assert await env.query("b", one + " NOWAIT") == ON_ROW + "\nE"
    await env.ran("b", "ROLLBACK; BEGIN")
    assert await env.query("b", one + " SKIP LOCKED") == "SELECT 0\nT"
    assert (await env.query("b", one.replace("k = 1", "k = 2"))).startswith("2|0")
    assert (await env.query("c", "SELECT n FROM t WHERE k = 1")).startswith("0")
    second = await waiting(env, "b", one)
    await env.ran("a", "UPDATE t SET n = n + 1 WHERE k = 1; COMMIT")
    assert await second == "1|1\nSELECT 1\nT", "the newest row, though it began before"
    third = await waiting(env, "c", "UPDATE t SET n = n + 1 WHERE u = 'u1'")
    await env.ran("b", "UPDATE t SET n = n + 1 WHERE k = 1; COMMIT")
    assert await third == "UPDATE 1"
    assert (await env.ran("c", "SELECT n FROM t WHERE k = 1")).startswith("3")


@pytest.mark.parametrize("read", ["k = 1", "n >= 0", "k = 1 AND u = 'u1' AND n = 0"])
async def test_read_modify_write_loses_no_update(env: TestEnvironment, read: str) -> None:
    async def client(name: str) -> None:
        for _ in range(6):
            await env.ran(name, "BEGIN")
            where = read.replace("AND n = 0", "")
            answer = await env.query(
                name, f"SELECT n FROM t WHERE {where} ORDER BY k FOR UPDATE", alone=False
            )
            assert "ERROR" not in answer, answer
            n = int(answer.splitlines()[0])
            answer = await env.query(name, f"UPDATE t SET n = {n + 1} WHERE k = 1", alone=False)
            assert answer == "UPDATE 1\nT"
            assert await env.query(name, "COMMIT", alone=False) == "COMMIT"

    await begun(env)
    await asyncio.gather(*(client(name) for name in "abcd"))
    assert (await env.ran("w", "SELECT n FROM t WHERE k = 1")).startswith("24")


@pytest.mark.parametrize(
    "locking", ["k = 1 {} FOR UPDATE", "n < 9 {} FOR UPDATE", "k = 1 {} FOR SHARE"]
)
async def test_lock_of_row_changed_since_read_conflicts(env: TestEnvironment, locking: str) -> None:
    sql = f"SELECT n FROM t WHERE {locking.format('ORDER BY n DESC')}"
    await begun(env)
    await env.ran("a", "BEGIN; SELECT count(*) FROM other")
    await env.ran("b", "UPDATE t SET n = 5 WHERE k = 1")
    assert await env.query("a", sql) == CONFLICT + "\nE"
    await env.ran("a", "ROLLBACK; BEGIN; SELECT n FROM other WHERE k = 2")
    await env.ran("b", "UPDATE t SET n = 6 WHERE k = 1")
    # What it has read by key is not locked, so its time stays.
    assert await env.query("a", sql) == CONFLICT + "\nE"
    await env.ran("a", "ROLLBACK; BEGIN; SELECT 1 FROM other WHERE k = 2 FOR UPDATE")
    await env.ran("b", "UPDATE t SET n = 7 WHERE k = 1")
    found = await env.ran("a", sql)
    assert found.startswith("7")


async def test_workers_share_a_queue_by_skip_locked(env: TestEnvironment) -> None:
    """Each job is done once, nobody waits and nobody hears of a conflict."""
    jobs = 30
    done: list[int] = []

    async def worker(name: str) -> None:
        while True:
            await env.ran(name, "BEGIN")
            answer = await env.query(
                name,
                "SELECT k, u FROM t WHERE n = 0 ORDER BY k DESC LIMIT 2 FOR UPDATE SKIP LOCKED",
                alone=False,
            )
            assert "ERROR" not in answer, answer
            taken = [int(line.split("|")[0]) for line in answer.splitlines()[:-2]]
            for k in taken:
                sql = f"UPDATE t SET n = 1 WHERE k = {k}"
                assert await env.query(name, sql, alone=False) == "UPDATE 1\nT"
            assert await env.query(name, "COMMIT", alone=False) == "COMMIT"
            done.extend(taken)
            if not taken:
                return

    await begun(env, rows=jobs)
    await asyncio.gather(*(worker(f"w{i}") for i in range(5)))
    assert len(done) >= jobs - 10, "who finds all locked stops"
    assert len(set(done)) == len(done), "a job is done twice"
    found = await env.ran("w", "SELECT count(*) FROM t WHERE n = 1")
    assert found.startswith(str(len(done)))


async def test_skip_locked_reads_on_while_others_hold_the_first_rows(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    async def noted(context: StatementContext) -> pa.RecordBatch:
        rows = await pipeline.read_batch(context)
        read.append(rows.num_rows)
        return rows

    monkeypatch.setattr(row_locks, "read_batch", noted)
    await begun(env, rows=300)
    next_two = "SELECT k FROM t ORDER BY k LIMIT 2 FOR UPDATE SKIP LOCKED"
    assert await env.ran("b", f"BEGIN; {next_two}") == "BEGIN\n1\n2\nSELECT 2\nT"
    assert read == [row_locks.AHEAD + 2]
    read.clear()
    await env.ran("a", "BEGIN; SELECT 1 FROM t WHERE k BETWEEN 3 AND 100 FOR UPDATE SKIP LOCKED")
    read.clear()
    assert await env.ran("c", f"BEGIN; {next_two}") == "BEGIN\n101\n102\nSELECT 2\nT"
    assert read == [18, 72, 288]
    read.clear()
    await env.ran("d", "BEGIN; SELECT 1 FROM t WHERE k > 100 FOR UPDATE SKIP LOCKED")
    assert await env.ran("e", next_two) == "SELECT 0"


async def test_skip_locked_applies_limit_and_offset_to_locked_rows(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "BEGIN; SELECT 1 FROM t WHERE k = 2 FOR UPDATE")
    sql = "SELECT k FROM t ORDER BY k LIMIT 2 OFFSET 1 FOR UPDATE SKIP LOCKED"
    assert await env.ran("b", f"BEGIN; {sql}") == "BEGIN\n3\n4\nSELECT 2\nT"
    rest = "SELECT u AS v, k + 1 FROM t AS x FOR SHARE OF x SKIP LOCKED"
    assert await env.ran("c", f"BEGIN; {rest}") == "BEGIN\nSELECT 0\nT"
    await env.ran("a", "COMMIT")
    assert await env.ran("c", rest) == "u2|3\nSELECT 1\nT"
    await env.ran("c", "UPDATE t SET n = 1 WHERE k = 2")
    await env.ran("w", "INSERT INTO t VALUES (9, 'u9', 0)")
    assert await env.ran("c", "COMMIT") == "COMMIT", "what was left out is no matter"
    # A table without a key is locked as a whole, and a transaction's own by nobody.
    await env.ran("b", "ROLLBACK; BEGIN; SELECT * FROM plain FOR UPDATE SKIP LOCKED")
    assert await env.ran("a", "SELECT * FROM plain FOR UPDATE SKIP LOCKED") == "SELECT 0"
    own = "BEGIN; CREATE TABLE own (k int PRIMARY KEY); INSERT INTO own VALUES (1), (2)"
    await env.ran("a", own)
    own = "SELECT * FROM own ORDER BY k DESC LIMIT 1 FOR UPDATE SKIP LOCKED"
    assert await env.ran("a", own) == "2\nSELECT 1\nT"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM plain FOR UPDATE",
        "SELECT t.k FROM t JOIN plain USING (k) FOR UPDATE",
        "SELECT t.k FROM t LEFT JOIN plain p USING (k) FOR UPDATE OF t",
        "SELECT * FROM (SELECT k FROM t WHERE n = 0) AS s FOR NO KEY UPDATE",
        "SELECT * FROM v FOR UPDATE",
        "(SELECT k FROM t ORDER BY n LIMIT 1) FOR UPDATE",
    ],
)
async def test_for_update_without_key_locks_tables(env: TestEnvironment, query: str) -> None:
    await begun(env)
    await env.ran("w", "CREATE VIEW v AS SELECT k + 1 FROM t WHERE n = 0")
    table = "plain" if "FROM plain" in query else "t"
    await env.ran("a", f"BEGIN; {query}")
    refused = await env.query("b", f"{query} NOWAIT")
    assert refused.startswith("ERROR 55P03: could not obtain lock on row in relation")
    write = asyncio.create_task(env.query("b", f"INSERT INTO {table} VALUES (50)", alone=False))
    change = await waiting(env, "c", f"UPDATE {table} SET n = n + 1 WHERE k = 1")
    assert not write.done()
    await env.ran("a", "COMMIT")
    assert await write == "INSERT 0 1"
    assert await change == "UPDATE 1"


async def test_deadlock_fails_transaction_that_closes_cycle(env: TestEnvironment) -> None:
    await begun(env)
    for session, k in (("a", 1), ("b", 2)):
        await env.ran(session, f"BEGIN; SELECT 1 FROM t WHERE k = {k} FOR UPDATE")
    first = await waiting(env, "a", "SELECT 1 FROM t WHERE k = 2 FOR UPDATE")
    circle = await env.query("b", "SELECT 1 FROM t WHERE k = 1 FOR UPDATE", alone=False)
    assert circle.startswith("ERROR 40P01: deadlock detected")
    assert (await first).startswith("1\nSELECT 1")
    await env.ran("b", "ROLLBACK; SET lock_timeout = '30ms'; BEGIN")
    late = await env.query("b", "SELECT 1 FROM t WHERE k = 1 FOR UPDATE")
    assert late.startswith("ERROR 55P03: canceling statement due to lock timeout")
    await env.ran("b", "ROLLBACK; RESET lock_timeout")


async def test_cursor_for_update_locks_its_rows(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "BEGIN; DECLARE c CURSOR FOR SELECT k FROM t WHERE k = 1 FOR UPDATE")
    assert (await env.ran("a", "FETCH c")).startswith("1\nFETCH 1")
    taken = await env.query("b", "SELECT k FROM t WHERE k = 1 FOR UPDATE NOWAIT")
    assert taken == ON_ROW


async def test_lock_table_blocks_by_mode(env: TestEnvironment) -> None:
    await begun(env)
    outside = "ERROR 25P01: LOCK TABLE can only be used in transaction blocks"
    assert await env.query("a", "LOCK TABLE t") == outside
    await env.ran("a", "BEGIN; LOCK t IN ACCESS SHARE MODE; LOCK TABLE t IN ROW EXCLUSIVE MODE")
    await env.ran("b", "BEGIN; LOCK t IN ROW SHARE MODE NOWAIT; UPDATE t SET n = 1 WHERE k = 1")
    taken = await env.query("c", "BEGIN; LOCK TABLE t IN SHARE MODE NOWAIT")
    assert taken == 'BEGIN\nERROR 55P03: could not obtain lock on relation "t"\nE'
    await env.ran("b", "COMMIT")
    await env.ran("c", "ROLLBACK; BEGIN")
    alone = await waiting(env, "c", "LOCK TABLE t, other")
    await env.ran("a", "COMMIT")
    assert await alone == "LOCK TABLE\nT"
    assert (await env.query("c", "SELECT n FROM t WHERE k = 1")).startswith("1")
    for mode in ("ROW SHARE", "SHARE UPDATE EXCLUSIVE", "EXCLUSIVE"):
        refused = await env.query("a", f"BEGIN; LOCK other IN {mode} MODE NOWAIT")
        assert 'ERROR 55P03: could not obtain lock on relation "other"' in refused
        await env.ran("a", "ROLLBACK")
    write = asyncio.create_task(env.query("b", "INSERT INTO t VALUES (70)", alone=False))
    await env.ran("c", "INSERT INTO t VALUES (71)")
    assert not write.done()
    await env.ran("c", "COMMIT")
    assert await write == "INSERT 0 1"


@pytest.mark.parametrize("changed", [False, True])
async def test_reads_are_checked_after_savepoint_releases_locks(
    env: TestEnvironment, changed: bool
) -> None:
    await begun(env)
    await env.ran("a", "BEGIN; SELECT n FROM other WHERE k = 1 FOR UPDATE; SAVEPOINT p")
    await env.ran("a", "SELECT n FROM t WHERE k = 1 FOR UPDATE; ROLLBACK TO p")
    if changed:
        await env.ran("b", "UPDATE t SET n = n + 1 WHERE k = 1")
    assert await env.query("a", "UPDATE other SET n = 5 WHERE k = 1") == "UPDATE 1\nT"
    assert await env.query("a", "COMMIT") == (CONFLICT if changed else "COMMIT")


async def test_retried_first_statement_keeps_earlier_locks(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "BEGIN; SELECT pg_advisory_xact_lock(1)")
    await env.ran("b", "BEGIN; LOCK TABLE other IN EXCLUSIVE MODE")
    await env.ran("w", "BEGIN; ALTER TABLE plain ADD COLUMN m int")
    first = await waiting(env, "a", "INSERT INTO plain VALUES (3, 3)")
    later = await waiting(env, "b", "INSERT INTO plain VALUES (4, 4)")
    await env.query("w", "COMMIT", alone=False)
    assert await first == "INSERT 0 1\nT"
    altered = "ERROR 40001: could not serialize access: a table was altered meanwhile"
    assert await later == altered + "\nE", "it would let others have the table that it has"
    assert (await env.ran("c", "SELECT pg_try_advisory_lock(1)")).startswith("f")
    await env.ran("a", "COMMIT")
    assert (await env.ran("c", "SELECT pg_try_advisory_xact_lock(1)")).startswith("t")
    await env.ran("b", "ROLLBACK")


ONE = "SELECT k FROM t ORDER BY k LIMIT 1 FOR UPDATE SKIP LOCKED"
HERE = "ERROR 0A000: FOR UPDATE in a subquery is not supported here"
OUTSIDE = (
    "ERROR 0A000: FOR UPDATE in a subquery that depends on outer rows or queries is not supported"
)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("DELETE FROM t WHERE k IN (SELECT o.k FROM other o WHERE o.n = t.n FOR UPDATE)", OUTSIDE),
        ("SELECT * FROM t, LATERAL (SELECT n FROM other WHERE k = t.k FOR UPDATE) AS s", OUTSIDE),
        ("WITH x AS (SELECT 1 AS k) DELETE FROM t WHERE k = "
         "(SELECT k FROM t WHERE k IN (SELECT k FROM x) FOR UPDATE)", OUTSIDE),
        (f"DELETE FROM t WHERE EXISTS ({ONE})", HERE),
        (f"DELETE FROM t WHERE k = ANY (ARRAY({ONE}))", HERE),
        (f"DELETE FROM t USING (({ONE}) UNION SELECT 1) AS s WHERE s.k = t.k", HERE),
        (f"DELETE FROM t WHERE k IN (SELECT k FROM t WHERE k = ({ONE}) FOR SHARE)", HERE),
        (f"SELECT * FROM t WHERE k = ({ONE}) FOR UPDATE", HERE),
        (f"CREATE VIEW v AS SELECT * FROM ({ONE}) AS s", HERE),
        (f"CREATE MATERIALIZED VIEW v AS SELECT * FROM ({ONE}) AS s", HERE),
        (f"CREATE TABLE v AS SELECT * FROM ({ONE}) AS s", HERE),
        (f"INSERT INTO plain (k) SELECT k FROM ({ONE}) AS s AS OF AT LEAST 0", HERE),
        (f"SELECT * FROM ({ONE}) AS s AS OF AT LEAST 0", HERE),
        (f"EXPLAIN SELECT * FROM ({ONE}) AS s", HERE),
    ],
)  # fmt: skip
async def test_locking_subquery_in_unsupported_place_is_refused(
    env: TestEnvironment, sql: str, error: str
) -> None:
    await begun(env)
    assert (await env.query("a", sql)).split(" HINT")[0].split("\n")[0] == error
    assert await env.ran("b", "SELECT count(*) FROM t") == "4\nSELECT 1"


async def test_locking_subqueries_over_different_rows_do_not_conflict(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", f"BEGIN; DELETE FROM t WHERE k = ({ONE})")
    taken = await env.ran(
        "b",
        f"BEGIN; WITH x AS ({ONE}) UPDATE t SET n = 9 FROM x WHERE x.k = t.k RETURNING t.*",
    )
    assert taken == "BEGIN\n2|u2|9\nUPDATE 1\nT"
    await env.ran("c", "UPDATE t SET n = 5 WHERE k = 3; INSERT INTO t VALUES (9)")
    another = await waiting(env, "d", "UPDATE t SET n = n + 1 WHERE u = 'u2'")
    assert await env.query("a", "COMMIT") == "COMMIT"
    await env.ran("b", f"INSERT INTO other SELECT k + 100, 0 FROM ({ONE}) AS s")
    assert await env.query("b", "COMMIT") == "COMMIT"
    assert await another == "UPDATE 1"
    assert await env.ran("r", "SELECT k, n FROM t ORDER BY k") == (
        "2|10\n3|5\n4|0\n9|NULL\nSELECT 4"
    )


async def test_locking_subquery_reads_newest_rows_after_wait(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("a", "BEGIN; UPDATE t SET n = 1 WHERE k < 3; UPDATE t SET n = 1 WHERE k = 1")
    first = "(SELECT k FROM t WHERE n = 0 ORDER BY k LIMIT 1 FOR UPDATE)"
    second = await waiting(env, "b", f"DELETE FROM t WHERE k IN {first} RETURNING k")
    await env.ran("a", "COMMIT")
    assert await second == "3\nDELETE 1"
    await env.ran("a", "BEGIN; SELECT k FROM t WHERE k = 1 FOR UPDATE")
    lost = f"UPDATE plain SET n = 7 WHERE k = ({ONE.replace('ORDER BY', 'WHERE n = 1 ORDER BY')})"
    assert await env.query("b", lost) == "UPDATE 1"
    assert await env.ran("b", "SELECT k FROM plain WHERE n = 7") == "2\nSELECT 1"


@pytest.mark.parametrize(
    "statement",
    [
        "LOCK TABLE other IN ROW SHARE MODE",
        "LOCK TABLE other",
        "UPDATE other SET n = 1 WHERE k = 1",
        "INSERT INTO other VALUES (3, 3)",
        "SELECT k FROM other FOR UPDATE",
    ],
)
async def test_statement_in_block_waits_for_table_that_is_made_anew(
    env: TestEnvironment, statement: str
) -> None:
    for remade in (True, False):
        await begun(env)
        await env.ran("a", "BEGIN; DROP TABLE other")
        if remade:
            await env.ran("a", "CREATE TABLE other (k int PRIMARY KEY, n int)")
        await env.ran("b", "BEGIN; SELECT count(*) FROM t")
        blocked = await waiting(env, "b", statement)
        await env.query("a", "COMMIT", alone=False)
        code = "40001" if remade else "42P01"
        assert (await blocked).startswith(f"ERROR {code}: ")


async def test_commit_of_rows_for_table_that_was_made_anew_is_a_conflict(
    env: TestEnvironment,
) -> None:
    await begun(env)
    await env.ran("b", "BEGIN; INSERT INTO other VALUES (3, 3)")
    await env.ran("a", "DROP TABLE other; CREATE TABLE other (k int PRIMARY KEY, n int)")
    assert (await env.query("b", "COMMIT")).startswith("ERROR 40001: ")
    await env.ran("b", "BEGIN; INSERT INTO other VALUES (3, 3)")
    await env.ran("a", "DROP TABLE other")
    assert (await env.query("b", "COMMIT")).startswith('ERROR 42P01: relation "other" does not')


@pytest.mark.parametrize("on", ["plain AS o ON o.k = 1", "t AS o ON o.k = t.k"])
async def test_skip_locked_of_one_joined_table_skips_it_as_a_whole(
    env: TestEnvironment, on: str
) -> None:
    await begun(env)
    joined = f"SELECT t.k FROM t JOIN {on} WHERE t.k = 3 FOR UPDATE OF t SKIP LOCKED"
    assert await env.ran("c", f"BEGIN; {joined}") == "BEGIN\n3\nSELECT 1\nT"
    assert await env.ran("w", joined) == "SELECT 0"
    await env.ran("c", "COMMIT")
    assert await env.ran("w", joined) == "3\nSELECT 1"
