"""EXPLAIN of statements that change rows: how the target's rows are found."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.adapter.harness import TestEnvironment

Test = Callable[[TestEnvironment], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]


@pytest.fixture
def run(runner: asyncio.Runner, env: TestEnvironment) -> Run:
    """Return what runs a test in the environment."""

    async def ran(test: Test) -> None:
        try:
            await test(env)
        finally:
            await env.query("a", "ROLLBACK")
            await env.ran("a", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")

    return lambda test: runner.run(ran(test))


KEY = ["  t_pkey of foreshore.public.t"]
WHOLE = ["  foreshore.public.t", "    read whole"]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("DELETE FROM t WHERE k = 1", [*KEY, "    look-up of (k) = (1)"]),
        ("UPDATE t SET x = 2 WHERE k IN (1, 2)", [*KEY, "    look-up of (k) = (1) or (2)"]),
        ("UPDATE t SET x = 2 WHERE x = 1", WHOLE),
        ("DELETE FROM t WHERE k IN (SELECT x FROM t)", WHOLE),
        (
            "UPDATE t SET x = v.x FROM unnest(ARRAY[1, 2], ARRAY[3, 4]) AS v (k, x) WHERE t.k = v.k",
            [*KEY, "    look-up of (k) = given rows"],
        ),
        (
            "UPDATE t SET x = q FROM unnest(ARRAY[1, 2]) WITH ORDINALITY AS a (k, i)"
            " JOIN unnest(ARRAY[3, 4]) WITH ORDINALITY AS b (q, i) USING (i) WHERE t.k = a.k",
            [*KEY, "    look-up of (k) = given rows"],
        ),
        (
            "DELETE FROM t USING t AS o WHERE t.k = 1 + 1 AND o.k = t.x",
            [
                *(*KEY, "    look-up of (k) = (2)"),
                *(*KEY, "    look-up of (k) = rows of foreshore.public.t"),
            ],
        ),
        (
            "MERGE INTO t USING (VALUES (1, 2)) AS s (k, x) ON t.k = s.k"
            " WHEN MATCHED THEN UPDATE SET x = s.x",
            [*KEY, "    look-up of (k) = given rows"],
        ),
    ],
)  # fmt: skip
def test_explain_of_change_shows_how_target_rows_are_found(
    run: Run, sql: str, found: list[str]
) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, x int)")
        await env.ran("a", "INSERT INTO t VALUES (1, 1)")
        for stage in ("", "PHYSICAL PLAN FOR "):
            lines = (await env.query("a", f"EXPLAIN {stage}{sql}")).splitlines()
            verb = f"{sql.split()[0].capitalize()} foreshore.public.t"
            assert lines[1 if stage else 0] == verb
            assert lines[lines.index("Target rows:") + 1 : -1] == found
        assert await env.query("a", "SELECT * FROM t") == "1|1\nSELECT 1"

    run(test)


def test_explain_of_insert_shows_keys_of_on_conflict(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, x serial)")
        lines = (
            await env.query("a", "EXPLAIN INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING")
        ).splitlines()
        assert lines[0] == "Insert into foreshore.public.t"
        assert lines[-3:-1] == ["Existing rows:", "  look-up by t_pkey of foreshore.public.t"]
        await env.ran("a", "INSERT INTO t VALUES (1)")
        assert await env.query("a", "SELECT x FROM t") == "1\nSELECT 1", (
            "EXPLAIN has called nextval"
        )

    run(test)


def test_explain_of_change_waits_for_no_lock(run: Run) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        await env.query("a", "BEGIN", alone=False)
        await env.query("a", "DELETE FROM t WHERE k = 1", alone=False)
        assert "look-up of (k) = (1)" in await env.query("b", "EXPLAIN DELETE FROM t WHERE k = 1")
        await env.query("a", "ROLLBACK", alone=False)

    run(test)


@pytest.mark.parametrize("stage", ["TIMESTAMP", "RAW PLAN", "FRESHNESS"])
def test_explain_of_change_at_other_stage_is_refused(run: Run, stage: str) -> None:
    async def test(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (k int)")
        answer = await env.query("a", f"EXPLAIN {stage} FOR DELETE FROM t")
        assert answer.startswith("ERROR 0A000: EXPLAIN "), answer

    run(test)
