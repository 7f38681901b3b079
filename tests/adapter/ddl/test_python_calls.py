"""Calls of functions in Python in plans: how often they are made, and what cannot be passed."""

from pathlib import Path

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


FLAKY = """CREATE FUNCTION flaky(a int) RETURNS int LANGUAGE python {} AS $$
calls = 0
def flaky(a):
    global calls
    calls += 1
    if calls % 15 == 0:
        raise OSError("away")
    return a
$$"""


async def test_volatile_function_is_called_for_each_row_of_a_table_that_loses_some(
    env: TestEnvironment,
) -> None:
    create = PICK.replace("pick", "drawn_of")
    await env.ran("a", create, "CREATE TABLE losing (id int, a int)")
    await env.ran("a", "INSERT INTO losing SELECT i, 1 FROM generate_series(1, 20) i")
    await env.ran("a", "DELETE FROM losing WHERE id = 5")
    for call in ("drawn_of(a)", "drawn_of(1)"):
        query = f"SELECT count(DISTINCT x) FROM (SELECT {call} AS x FROM losing) z"
        assert await env.query("a", query) == "19\nSELECT 1", call


@pytest.mark.parametrize("volatility", ["VOLATILE", "STABLE"])
async def test_function_that_fails_now_and_then_never_gives_null(
    own_env: TestEnvironment, volatility: str
) -> None:
    env, failed = own_env, 'ERROR 38000: function "flaky", line 7: OSError: away'
    await env.ran("a", FLAKY.format(volatility), "CREATE TABLE t (a int)")
    await env.ran("a", "INSERT INTO t SELECT generate_series(1, 10)")
    found = {await env.query("a", "SELECT count(x) FROM (SELECT flaky(a) x FROM t)") for _ in "123"}
    assert failed in found <= {failed, "10\nSELECT 1"}
    assert await env.query("a", "SELECT sum(flaky(a) + 1) FROM t WHERE a < 3") in (
        "5\nSELECT 1",
        failed,
    )


@pytest.mark.parametrize("calls", range(3, 8))
async def test_host_that_ends_below_arithmetic_ends_the_query(
    own_env: TestEnvironment, tmp_path: Path, calls: int
) -> None:
    """The host ends at one of the calls that a query makes, and when the engine tries it again."""
    env = own_env
    source = (
        "import os\ndef ending(a):\n"
        f"    with open('{tmp_path}/calls', 'a+') as file:\n"
        "        file.write('x')\n"
        f"        if file.tell() in ({calls}, {calls + 1}): os._exit(7)\n"
        "    return a"
    )
    await env.ran("a", "CREATE TABLE endings (a int)", "INSERT INTO endings VALUES (1)")
    create = f"CREATE FUNCTION ending(a int) RETURNS int LANGUAGE python STABLE AS $${source}$$"
    await env.ran("a", create)
    found = await env.query("a", "SELECT ending(a) + 1 FROM endings")
    if found != "2\nSELECT 1":  # fewer calls were made
        assert found.startswith('ERROR 38000: the process of Python function "ending" has'), found


async def test_value_of_volatile_function_that_fails_above_never_gives_null(
    own_env: TestEnvironment,
) -> None:
    env, failed = own_env, "ERROR 22012: division by zero"
    source = "calls = 0\ndef turn(a):\n    global calls\n    calls += 1\n    return calls % 3"
    await env.ran("a", "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
    create = f"CREATE FUNCTION turn(a int) RETURNS int LANGUAGE python VOLATILE AS $${source}$$"
    await env.ran("a", create)
    found = [await env.query("a", "SELECT 2 / turn(a) FROM t") for _ in range(6)]
    assert found == ["2\nSELECT 1", "1\nSELECT 1", failed] * 2


async def test_function_that_is_not_immutable_is_called_once_for_a_row(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, calls = own_env, tmp_path / "calls"
    source = f"def noted(a):\n    with open('{calls}', 'a') as file: file.write('x')\n    return a"
    await env.ran("a", "CREATE TABLE t (a int)", "INSERT INTO t SELECT generate_series(1, 10)")
    create = f"CREATE FUNCTION noted(a int) RETURNS int LANGUAGE python VOLATILE AS $${source}$$"
    await env.ran("a", create)
    for expression, count in (
        ("noted(a)", 10),
        ("noted(noted(noted(a)))", 30),
        ("noted(a) + 1", 10),
    ):
        calls.unlink(missing_ok=True)
        found = await env.query("a", f"SELECT count(x) FROM (SELECT {expression} AS x FROM t)")
        assert found == "10\nSELECT 1"
        assert len(calls.read_text()) == count, expression
