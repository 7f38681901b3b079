"""Two change the catalog at once: what one has planned does not outlive what it stands on."""

from __future__ import annotations

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment

REFUSED = "ERROR 40001: could not serialize access due to a concurrent change of the catalog"
MADE = (
    "CREATE VIEW made AS SELECT k FROM t",
    "CREATE INDEX made ON t (k)",
    "CREATE SUBSCRIPTION made FOR (SELECT k FROM t)",
    "CREATE MATERIALIZED VIEW made AS SELECT count(*) AS n FROM t WHERE k IS NULL",
)
CHANGED = (
    "ALTER TABLE t RENAME COLUMN k TO kk",
    "ALTER TABLE t ALTER COLUMN k DROP NOT NULL",
)


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("made", MADE)
def test_a_definition_and_a_change_of_what_it_names(
    runner: asyncio.Runner, env: TestEnvironment, made: str, change: str
) -> None:
    async def scenario() -> None:
        for first, second in ((made, change), (change, made)):
            await env.query("s", "DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int NOT NULL)")
            await env.ran("a", f"BEGIN; {first}")
            await env.ran("b", second)
            assert await env.query("a", "COMMIT") == REFUSED
            await env.ran("a", "SELECT * FROM t")
        await env.query("s", "DROP TABLE t CASCADE")

    runner.run(scenario())


def test_a_view_that_both_have_planned_anew(runner: asyncio.Runner, env: TestEnvironment) -> None:
    async def scenario() -> None:
        await env.query("s", "CREATE TABLE t1 (k int NOT NULL); CREATE TABLE t2 (k int)")
        await env.query("s", "CREATE VIEW w AS SELECT t1.k AS a, t2.k AS b FROM t1, t2")
        await env.query("s", "INSERT INTO t2 VALUES (1)")
        await env.query("b", "BEGIN; ALTER TABLE t2 ADD CHECK (k < 100)")
        await env.query("a", "ALTER TABLE t1 ALTER COLUMN k DROP NOT NULL")
        assert await env.query("b", "COMMIT") == REFUSED
        await env.query("a", "INSERT INTO t1 VALUES (NULL)")
        assert await env.query("a", "SELECT count(*) FROM w WHERE a IS NULL") == "1\nSELECT 1"

    runner.run(scenario())


def test_comments_and_how_long_history_is_kept_concern_nobody(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def scenario() -> None:
        await env.query("s", "CREATE TABLE named (k int)")
        for i, change in enumerate(
            (
                "COMMENT ON TABLE named IS 'something'",
                "COMMENT ON COLUMN named.k IS 'something'",
                "ALTER TABLE named SET (RETAIN HISTORY FOR '1h')",
            )
        ):
            await env.query("a", f"BEGIN; CREATE VIEW over_{i} AS SELECT k FROM named")
            await env.ran("b", change)
            assert await env.query("a", "COMMIT") == "COMMIT", change
        assert await env.query("s", "SELECT * FROM over_0, over_2") == "SELECT 0"

    runner.run(scenario())
