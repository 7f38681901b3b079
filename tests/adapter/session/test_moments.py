"""now() is when the transaction began, statement_timestamp() when the statement, clock_timestamp() later."""

import itertools

import pytest

from tests.adapter.harness import TestEnvironment

MOMENTS = """
SELECT now() = transaction_timestamp(), statement_timestamp() > now(),
       clock_timestamp() >= statement_timestamp(), statement_timestamp() = statement_timestamp()
"""


async def test_a_later_statement_of_a_block_has_a_later_moment(env: TestEnvironment) -> None:
    await env.ran("a", "BEGIN", "CREATE TEMP TABLE moments (at timestamptz)")
    await env.ran("a", "INSERT INTO moments VALUES (clock_timestamp())")
    await env.ran("a", "SELECT pg_sleep(0.005)")
    assert await env.ran("a", MOMENTS) == "t|t|t|t\nSELECT 1\nT"
    assert await env.ran("a", "SELECT at < clock_timestamp(), at >= now() FROM moments") == (
        "t|t\nSELECT 1\nT"
    )
    await env.ran("a", "ROLLBACK")


async def test_statements_of_one_message_have_the_moment_at_which_it_arrived(
    env: TestEnvironment,
) -> None:
    await env.ran("a", "CREATE TABLE moments (at timestamptz)")
    insert = "INSERT INTO moments VALUES (statement_timestamp())"
    await env.query("a", f"{insert}; SELECT pg_sleep(0.005); {insert}")
    assert await env.ran("a", "SELECT count(DISTINCT at) FROM moments") == "1\nSELECT 1"
    await env.ran("a", insert)
    assert await env.ran("a", "SELECT count(DISTINCT at) FROM moments") == "2\nSELECT 1"


async def test_both_moments_are_refused_in_maintained_views(env: TestEnvironment) -> None:
    for function in ("statement_timestamp", "clock_timestamp"):
        answer = await env.query("a", f"CREATE MATERIALIZED VIEW v AS SELECT {function}() AS at")
        assert answer.startswith(f"ERROR 0A000: {function} cannot be used in a view")


async def test_no_statement_is_older_than_the_transaction_that_it_begins(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = env.environment.coordinator.clock
    moments = itertools.count(clock.now() + 1)
    monkeypatch.setattr(clock, "now", lambda: next(moments))
    query = "SELECT statement_timestamp() >= now(), clock_timestamp() >= statement_timestamp()"
    assert await env.ran("a", query) == "t|t\nSELECT 1"
