"""Calls of functions in Python in plans: how often they are made, and what cannot be passed."""

import pytest

from foreshore.python_functions.limits import ALLOWED
from tests.adapter.harness import TestEnvironment

PICK = (
    "CREATE FUNCTION pick(a int) RETURNS float8 LANGUAGE python VOLATILE"
    " AS $$import random\ndef pick(a): return random.random()$$"
)
DRAWN = "WITH drawn AS (SELECT id, pick(id) AS x FROM drawers)"


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "1")


async def test_query_of_with_has_the_same_results_wherever_it_is_read(env: TestEnvironment) -> None:
    await env.ran("a", PICK, "CREATE TABLE drawers (id int PRIMARY KEY)")
    await env.ran("a", "INSERT INTO drawers SELECT generate_series(1, 20)")
    for query, count in (
        ("SELECT count(*) FROM drawn a JOIN drawn b USING (id) WHERE a.x <> b.x", 0),
        ("SELECT count(*) FROM (SELECT * FROM drawn UNION SELECT * FROM drawn) z", 20),
        ("SELECT count(*) FROM drawn WHERE x = (SELECT max(x) FROM drawn)", 1),
    ):
        assert await env.query("a", f"{DRAWN} {query}") == f"{count}\nSELECT 1", query


async def test_row_with_value_that_python_lacks_is_error_of_it_alone(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE FUNCTION kind(a jsonb) RETURNS text LANGUAGE python IMMUTABLE"
        " AS $$def kind(a): return type(a).__name__$$",
        "CREATE TABLE documents (id int, d jsonb)",
        "CREATE MATERIALIZED VIEW kinds AS SELECT id, kind(d) AS kind FROM documents",
        "INSERT INTO documents VALUES (1, '[]'), (2, (repeat('[', 3000) || repeat(']', 3000))::jsonb)",
    )
    assert (
        await env.query("a", "SELECT * FROM kinds") == "ERROR 22003: json out of range for Python"
    )
    await env.ran("a", "DELETE FROM documents WHERE id = 2")
    assert await env.query("a", "SELECT * FROM kinds") == "1|list\nSELECT 1"
