"""The grammar of docs/reference/explain.md: each form, each stage and each kind of statement."""

import itertools
import json

import pytest

from tests.adapter.harness import TestEnvironment

STAGES = ("RAW", "DECORRELATED", "LOCALLY OPTIMIZED", "OPTIMIZED", "PHYSICAL")
FORMS = ("", "AS TEXT", "AS VERBOSE TEXT", "AS JSON", "WITH (types, arity)", "WITH (types) AS JSON")
_BODY = "r (x int) AS (SELECT a FROM parts UNION SELECT x + 1 FROM r WHERE x < 3) SELECT * FROM r"
QUERIES = (
    "SELECT a FROM parts",
    "WITH c AS (SELECT a FROM parts) SELECT (SELECT count(*) FROM c AS d WHERE d.a = c.a) FROM c",
    f"WITH MUTUALLY RECURSIVE {_BODY}",
    f"WITH RECURSIVE {_BODY}",
    "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 5) p (x int) AS (SELECT 1 UNION SELECT x"
    " FROM q), q (x int) AS (SELECT x + 1 FROM p) SELECT p.x FROM p JOIN q USING (x)",
)
CHANGES = (
    "INSERT INTO parts VALUES (1) ON CONFLICT DO NOTHING",
    "UPDATE parts SET a = 2 WHERE a = 1",
    "DELETE FROM parts WHERE a = 1",
)


async def check(env: TestEnvironment, sql: str) -> None:
    """Explain, and see a document where JSON was asked for."""
    *lines, tag = (await env.query("a", sql)).splitlines()
    assert tag == "EXPLAIN", (sql, lines, tag)
    if "JSON" in sql:
        (shown,) = json.loads("\n".join(lines))
        assert "Node Type" in shown["Plan"], sql
    else:
        assert not lines[0].startswith(("[", "{")), sql


async def test_each_form_explains_each_query_at_each_stage(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE parts (a int PRIMARY KEY)")
    for form, query in itertools.product(FORMS, (*QUERIES, *CHANGES)):
        await check(env, f"EXPLAIN {form} {query}")
        await check(env, f"EXPLAIN {form} FOR {query}")
    for stage, query in itertools.product(STAGES, QUERIES):
        await check(env, f"EXPLAIN {stage} PLAN FOR {query}")
        await check(env, f"EXPLAIN {stage} PLAN AS JSON FOR {query}")
    for query in CHANGES:
        await check(env, f"EXPLAIN PHYSICAL PLAN FOR {query}")
        await check(env, f"EXPLAIN PHYSICAL PLAN AS JSON FOR {query}")


@pytest.mark.parametrize("form", FORMS)
async def test_each_form_explains_objects(env: TestEnvironment, form: str) -> None:
    made = (
        "CREATE VIEW rec AS {0}; CREATE MATERIALIZED VIEW kept AS {0}; CREATE INDEX ix ON rec (x)"
    )
    await env.ran("a", "CREATE TABLE IF NOT EXISTS parts (a int PRIMARY KEY)")
    await env.ran("a", made.format(QUERIES[2]))
    try:
        for object in ("VIEW rec", "MATERIALIZED VIEW kept", "INDEX ix"):
            await check(env, f"EXPLAIN {form} {object}")
            await check(env, f"EXPLAIN {form} FOR {object}")
            for stage in STAGES[:4]:
                await check(env, f"EXPLAIN {stage} PLAN {form} FOR {object}")
    finally:
        await env.ran("a", "DROP VIEW rec CASCADE; DROP MATERIALIZED VIEW kept")


async def test_named_stage_needs_for(env: TestEnvironment) -> None:
    answer = await env.query("a", "EXPLAIN RAW PLAN AS JSON SELECT 1")
    assert answer == 'ERROR 42601: syntax error at or near "SELECT"'
