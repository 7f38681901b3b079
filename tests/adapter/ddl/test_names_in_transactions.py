"""Names in a transaction that has read, while other sessions redefine them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.adapter.harness import TestEnvironment

CHANGED = "ERROR 40001: could not serialize access: a relation was altered or replaced meanwhile"
BASE = (
    "CREATE TABLE x_a (k int PRIMARY KEY, v int)",
    "CREATE TABLE x_b (k int PRIMARY KEY, v int)",
    "CREATE TABLE outp (a int, b int)",
    "CREATE VIEW vv AS SELECT v AS x FROM x_a",
    "CREATE VIEW vvv AS SELECT x FROM vv",
    "CREATE MATERIALIZED VIEW mm AS SELECT v AS x FROM x_b",
    "INSERT INTO x_a VALUES (1, 1)",
    "INSERT INTO x_b VALUES (1, 2)",
    "CREATE SCHEMA first",
)
SWAP = (
    "BEGIN; ALTER TABLE x_a RENAME TO x_c; ALTER TABLE x_b RENAME TO x_a; "
    "ALTER TABLE x_c RENAME TO x_b; COMMIT"
)
Query = Callable[[str, str], Awaitable[str]]


def run(
    runner: asyncio.Runner, env: TestEnvironment, scenario: Callable[[Query], Awaitable[None]]
) -> None:
    """Run `scenario` with a function that queries a database of its own."""

    async def main() -> None:
        database = f"names{len(env.sessions)}"

        async def query(session: str, sql: str) -> str:
            name = f"{database}.{session}"
            if name not in env.sessions:
                await env.query(name, f"SET database = {database}")
                await env.query(name, 'SET search_path = "$user", first, public')
            return await env.query(name, sql)

        await env.query("names", f"CREATE DATABASE {database}")
        for each in BASE:
            assert "ERROR" not in await query(
                "s", each.replace("TABLE ", "TABLE public.").replace("VIEW ", "VIEW public.")
            )
        await scenario(query)

    runner.run(main())


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (SWAP, "SELECT * FROM x_a"),
        (SWAP, "SELECT * FROM x_b"),
        (SWAP, "SELECT v FROM x_b WHERE k = 1"),
        (SWAP, "UPDATE x_b SET v = v WHERE k = 1"),
        (SWAP, "INSERT INTO outp SELECT * FROM x_b"),
        (SWAP, "COPY (SELECT * FROM x_b) TO STDOUT"),
        (SWAP, "DECLARE c CURSOR FOR SELECT * FROM x_b"),
        (SWAP, "EXECUTE b"),
        (SWAP, "EXPLAIN SELECT * FROM x_b"),
        (SWAP, "SUBSCRIBE x_b"),
        (SWAP, "INSERT INTO x_b VALUES (9, 9)"),
        (SWAP, "CREATE VIEW w AS SELECT * FROM x_b"),
        ("CREATE OR REPLACE VIEW vv AS SELECT v + 100 AS x FROM x_a", "SELECT * FROM vv"),
        ("CREATE VIEW public.later AS SELECT * FROM x_a", "SELECT * FROM later"),
        ("ALTER VIEW vvv RENAME TO uuu", "SELECT * FROM uuu"),
        ("ALTER TABLE outp RENAME a TO c", "SELECT * FROM outp"),
        ("CREATE VIEW first.vv AS SELECT 7 AS x", "SELECT * FROM vv"),
        ("CREATE TABLE first.x_b (v int)", "SELECT * FROM x_b"),
    ],
)
def test_relation_defined_after_transactions_time_is_a_conflict(
    runner: asyncio.Runner, env: TestEnvironment, change: str, read: str
) -> None:
    async def main(query: Query) -> None:
        await query("s", "PREPARE b AS SELECT * FROM x_b")
        await query("s", "BEGIN")
        await query("s", "SELECT v FROM x_a")
        assert "ERROR" not in await query("other", change)
        assert (await query("s", read)).startswith(CHANGED)
        await query("s", "ROLLBACK")
        if not read.startswith("SUBSCRIBE"):  # which does not end outside of this block
            assert not (await query("s", read)).startswith("ERROR 40001")

    run(runner, env, main)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE elsewhere (a int)",
        "COMMENT ON TABLE x_a IS 'a'",
        "COMMENT ON COLUMN x_a.v IS 'v'",
        "ALTER TABLE x_a SET (RETAIN HISTORY FOR '1 minute')",
        "CREATE INDEX i ON x_b (v)",
        "CREATE VIEW vvvv AS SELECT * FROM vv",
        "CREATE TEMP TABLE x_a (k int)",
        "ALTER VIEW vv RENAME TO below",
        "ALTER TABLE x_b RENAME v TO w",
    ],
)
def test_unrelated_ddl_causes_no_conflict(
    runner: asyncio.Runner, env: TestEnvironment, change: str
) -> None:
    async def main(query: Query) -> None:
        reads = ("SELECT * FROM vvv", "SELECT v FROM x_a WHERE k = 1", "SELECT * FROM mm")
        await query("s", "BEGIN")
        before = [await query("s", each) for each in reads]
        assert "ERROR" not in await query("other", change)
        assert [await query("s", each) for each in reads] == before
        await query("s", "INSERT INTO outp VALUES (8, 8)")
        assert await query("s", "COMMIT") == "COMMIT"

    run(runner, env, main)


def test_transaction_that_has_read_nothing_uses_present_names(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(query: Query) -> None:
        await query("s", "BEGIN")
        await query("s", "SELECT 1")
        assert "ERROR" not in await query("other", SWAP)
        assert await query("s", "SELECT v FROM x_a") == "2\nSELECT 1\nT"
        await query("s", "INSERT INTO outp VALUES (8, 8)")
        assert await query("s", "COMMIT") == "COMMIT"

    run(runner, env, main)


def test_transaction_uses_its_own_definitions(runner: asyncio.Runner, env: TestEnvironment) -> None:
    async def main(query: Query) -> None:
        await query("s", "BEGIN")
        assert await query("s", "SELECT * FROM vv") == "1\nSELECT 1\nT"
        await query("s", "CREATE OR REPLACE VIEW vv AS SELECT v + 100 AS x FROM x_a")
        assert "101" in await query("s", "SELECT * FROM vv")
        await query("s", "ALTER TABLE outp RENAME TO out2")
        await query("s", "INSERT INTO out2 VALUES (1, 1)")
        assert await query("s", "COMMIT") == "COMMIT"

    run(runner, env, main)
