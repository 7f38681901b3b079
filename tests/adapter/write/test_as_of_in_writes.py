"""AS OF in statements that write: the time at which they read."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.read.test_future_times import soon, waiting


@pytest.fixture
def past(runner: asyncio.Runner, env: TestEnvironment) -> int:
    """Return a time at which `src` had the rows 1 and 2; now it has 3."""

    async def made() -> int:
        await env.query(
            "w",
            "DROP TABLE IF EXISTS src CASCADE; CREATE TABLE src (k int);"
            " CREATE MATERIALIZED VIEW kept AS SELECT k FROM src; CREATE VIEW seen AS TABLE src;"
            " INSERT INTO src VALUES (1), (2)",
        )
        await env.query("w", "SELECT * FROM kept")
        time = env.environment.coordinator.oracle.read_ts()
        await env.query("w", "DELETE FROM src; INSERT INTO src VALUES (3)")
        return time

    return runner.run(made())


@pytest.mark.parametrize("relation", ["src", "kept", "seen"])
async def test_insert_select_as_of_reads_the_past(
    env: TestEnvironment, past: int, relation: str
) -> None:
    made = await env.query("w", "CREATE TABLE into_ (k int PRIMARY KEY, n serial)")
    assert made == "CREATE TABLE"
    put = f"INSERT INTO into_ (k) SELECT k FROM {relation} ORDER BY k AS OF {past}"
    rows = (await env.query("w", put + " RETURNING k")).splitlines()
    assert sorted(rows) == ["1", "2", "INSERT 0 2"]
    nothing = await env.query("w", put + " ON CONFLICT DO NOTHING RETURNING k")
    assert nothing == "INSERT 0 0"
    put = f"INSERT INTO into_ (k) SELECT k FROM {relation} AS OF AT LEAST {past}"
    assert await env.query("w", put) == "INSERT 0 1"
    assert await env.query("w", "SELECT k FROM into_ ORDER BY k") == "1\n2\n3\nSELECT 3"
    await env.query("w", f"PREPARE p AS INSERT INTO into_ (k) TABLE {relation} AS OF $1")
    twice = await env.query("w", f"EXECUTE p (to_timestamp({past} / 1000.0))")
    assert twice.startswith("ERROR 23505"), twice
    dropped = await env.query("w", "DEALLOCATE p; DROP TABLE into_")
    assert dropped == "DEALLOCATE\nDROP TABLE"


async def test_create_table_as_reads_the_past(env: TestEnvironment, past: int) -> None:
    for make in (
        f"CREATE TABLE was AS SELECT k FROM src AS OF {past}",
        f"CREATE TABLE was AS TABLE kept AS OF {past} WITH DATA",
        f"SELECT k INTO was FROM seen AS OF {past}",
    ):
        assert await env.query("w", make) == "SELECT 2", make
        assert await env.query("w", "SELECT k FROM was ORDER BY k") == "1\n2\nSELECT 2"
        await env.query("w", "DROP TABLE was")
    empty = await env.query("w", f"CREATE TABLE was AS TABLE src AS OF {past} WITH NO DATA")
    assert empty == "CREATE TABLE AS"
    assert await env.query("w", "TABLE was; DROP TABLE was") == "SELECT 0\nDROP TABLE"


async def test_as_of_in_block_applies_to_one_query(env: TestEnvironment, past: int) -> None:
    await env.query("w", "CREATE TABLE mixed (k int)")
    await env.query("w", "BEGIN; INSERT INTO mixed TABLE src")
    answer = await env.query("w", f"INSERT INTO mixed TABLE src AS OF {past}")
    assert answer == "INSERT 0 2\nT"
    assert await env.query("w", "SELECT k FROM mixed ORDER BY k") == "1\n2\n3\nSELECT 3\nT"
    await env.query("other", "INSERT INTO src VALUES (4)")
    assert "ERROR 40001" in await env.query("w", "COMMIT")  # the first of them read src now
    await env.query("w", f"BEGIN; INSERT INTO mixed TABLE src AS OF {past}")
    await env.query("other", "INSERT INTO src VALUES (5)")
    assert await env.query("w", "COMMIT") == "COMMIT"  # what was is the same at all times
    assert await env.query("w", "SELECT k FROM mixed ORDER BY k") == "1\n2\nSELECT 2"
    await env.query("w", "DROP TABLE mixed")


async def test_insert_waiting_for_future_read_blocks_nobody(
    env: TestEnvironment, past: int
) -> None:
    await env.query("w", "CREATE TABLE target (k int)")
    put = await waiting(env, "a", f"INSERT INTO target TABLE src AS OF {soon(env, 3000)}")
    make = await waiting(env, "b", f"CREATE TABLE later AS TABLE kept AS OF {soon(env, 3000)}")
    await env.query("w", "ALTER TABLE target ADD l int DEFAULT 7", alone=False)
    await env.query("w", "UPDATE src SET k = 30", alone=False)
    assert not put.done()
    assert not make.done()
    assert (await put, await make) == ("INSERT 0 1", "SELECT 1")
    assert await env.query("w", "TABLE target") == "30|7\nSELECT 1"
    assert await env.query("w", "TABLE later") == "30\nSELECT 1"
    await env.query("w", "DROP TABLE target, later")


@pytest.mark.parametrize("rows", ["VALUES (1)", "SELECT 1"])
async def test_rows_are_not_written_at_a_time_that_has_passed(
    env: TestEnvironment, past: int, rows: str
) -> None:
    answer = await env.query("w", f"INSERT INTO src {rows} AS OF {past}")
    assert answer.startswith(f"ERROR 22023: cannot write as of {past}"), answer


@pytest.mark.parametrize("rows", ["VALUES (1)", "SELECT 1", "VALUES (DEFAULT), (2)"])
async def test_rows_are_there_from_the_time_to_come_on(env: TestEnvironment, rows: str) -> None:
    await env.query("w", "CREATE TABLE target (k int) WITH (RETAIN HISTORY FOR '1 hour')")
    time = soon(env, 1000)
    put = await waiting(env, "a", f"INSERT INTO target {rows} AS OF {time}")
    await env.query("w", "CREATE TABLE meanwhile (k int)", alone=False)  # it blocks nobody
    assert (await put).startswith("INSERT 0 ")
    before = await env.query("w", f"SELECT count(*) FROM target AS OF {time - 1}")
    assert before == "0\nSELECT 1"
    changes = await env.query("w", f"SELECT min(mz_timestamp) >= {time} FROM CHANGES(target)")
    assert changes == "t\nSELECT 1"
    assert await env.query("w", "INSERT INTO target VALUES (3) AS OF AT LEAST 5") == "INSERT 0 1"
    await env.query("w", "DROP TABLE target, meanwhile")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("UPDATE src SET k = 1 WHERE k > 0 AS OF {}", "AS OF is for queries only"),
        ("DELETE FROM src WHERE true AS OF {}", "AS OF is for queries only"),
        ("INSERT INTO src TABLE src RETURNING k AS OF {}", "AS OF is for queries only"),
        ("TRUNCATE src AS OF {}", "AS OF is for queries only"),
        ("CREATE VIEW v AS SELECT k FROM src AS OF {}", "AS OF is for queries only"),
        (
            "CREATE TABLE v AS SELECT 1 AS k AS OF {}",
            "AS OF in a statement that reads no rows is not supported",
        ),
        (
            "INSERT INTO src SELECT oid::int FROM pg_class AS OF {}",
            'system relation "pg_catalog.pg_class" cannot be read AS OF a time',
        ),
    ],
)
def test_as_of_in_other_writes_is_refused(
    runner: asyncio.Runner, env: TestEnvironment, past: int, statement: str, error: str
) -> None:
    answer = runner.run(env.query("w", statement.format(past)))
    assert answer.splitlines()[0] == f"ERROR 0A000: {error}"


def test_insert_as_of_before_since_is_refused(
    runner: asyncio.Runner, env: TestEnvironment, past: int
) -> None:
    for statement in (
        "INSERT INTO src TABLE src AS OF 5",
        "CREATE TABLE v AS TABLE src AS OF 5",
    ):
        answer = runner.run(env.query("w", statement)).splitlines()
        assert answer[0] == "ERROR 22023: cannot read as of 5"
        assert answer[1].startswith("DETAIL: The inputs can be read from ")
