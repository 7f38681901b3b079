"""Functions of users: what PostgreSQL does not have, and what outlives a restart."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

_MADE = (
    "CREATE TABLE t (a int)",
    "INSERT INTO t VALUES (1), (2)",
    "CREATE SCHEMA s",
    "CREATE FUNCTION s.inc(x int) RETURNS int LANGUAGE sql RETURN x + 1",
    "CREATE FUNCTION twice(x int) RETURNS int LANGUAGE sql AS 'select s.inc(s.inc(x))'",
    "CREATE FUNCTION largest() RETURNS int LANGUAGE sql AS 'select max(a) from t'",
    "CREATE MATERIALIZED VIEW v AS SELECT twice(a) AS n, largest() AS m FROM t",
)


def test_functions_are_kept_through_renames_and_restarts(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", *_MADE, "ALTER TABLE t RENAME TO u", "ALTER SCHEMA s RENAME TO r")
        for _ in range(2):
            assert await env.query("a", "SELECT * FROM v ORDER BY n") == "3|2\n4|2\nSELECT 2"
            assert await env.query("a", "SELECT twice(5), largest()") == "7|2\nSELECT 1"
            await env.reopen()
        await env.ran("a", "INSERT INTO u VALUES (9)")
        assert await env.query("a", "SELECT max(n), max(m) FROM v") == "11|9\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_replaced_function_changes_plain_views_only(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", *_MADE[:-1], "CREATE VIEW w AS SELECT twice(a) AS n FROM t WHERE a = 1")
        replaced = "CREATE OR REPLACE FUNCTION s.inc(x int) RETURNS int LANGUAGE sql RETURN x + 10"
        await env.ran("a", replaced)
        assert await env.query("a", "SELECT * FROM w") == "21\nSELECT 1"
        await env.ran("a", _MADE[-1])
        refused = await env.query("a", replaced.replace("10", "20"))
        assert refused.startswith('ERROR 0A000: function "inc" cannot be replaced')
        assert await env.query("a", replaced) == "CREATE FUNCTION"  # the same body

    in_environment(tmp_path, scenario)


def test_dropped_function_takes_no_table_along(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", *_MADE, "CREATE TABLE g (x int DEFAULT s.inc(1))")
        refused = await env.query("a", "DROP FUNCTION s.inc CASCADE")
        assert refused.startswith("ERROR 0A000")
        await env.ran("a", "DROP TABLE g", "DROP FUNCTION s.inc CASCADE")
        assert "does not exist" in await env.query("a", "SELECT * FROM v")
        assert await env.query("a", "SELECT a FROM t ORDER BY a") == "1\n2\nSELECT 2"

    in_environment(tmp_path, scenario)


def test_maintained_view_refuses_what_a_function_may_not_do_in_it(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (a int)",
            "CREATE FUNCTION moment() RETURNS timestamptz LANGUAGE sql RETURN now()",
            "CREATE FUNCTION chance() RETURNS float LANGUAGE sql RETURN random()",
            "CREATE VIEW w AS SELECT moment() AS m FROM t",
        )
        for call in ("moment()", "chance()"):
            made = await env.query("a", f"CREATE MATERIALIZED VIEW v AS SELECT {call} FROM t")
            assert made.startswith("ERROR 0A000"), made

    in_environment(tmp_path, scenario)


def test_subquery_of_a_function_does_not_act_once_for_many_rows(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (a int)",
            "CREATE SEQUENCE s",
            "CREATE FUNCTION nothing(x bigint) RETURNS bigint LANGUAGE sql RETURN (SELECT x) - x",
            "CREATE FUNCTION pair(x bigint) RETURNS SETOF bigint LANGUAGE sql "
            "AS 'SELECT x UNION ALL SELECT x'",
            "CREATE FUNCTION drawn() RETURNS float LANGUAGE sql RETURN (SELECT random())",
        )
        for call in ("nothing(nextval('s'))", "pair(nextval('s'))", "drawn()"):
            refused = await env.query("a", f"SELECT {call} FROM t")
            assert refused.startswith("ERROR 0A000: function"), refused
        assert await env.query("a", "SELECT pair(nextval('s'))") == "1\n1\nSELECT 2"
        assert await env.query("a", "SELECT nothing(nextval('s'))") == "0\nSELECT 1"
        assert await env.query("a", "SELECT drawn() < 1") == "t\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_shown_definition_of_a_function_makes_it_again(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        made = "CREATE FUNCTION f(x int, y int DEFAULT 3) RETURNS int LANGUAGE sql RETURN x * y"
        await env.ran("a", made)
        shown = await env.query("a", "SELECT pg_get_functiondef('f'::regproc)")
        assert shown.startswith("CREATE OR REPLACE FUNCTION "), shown
        await env.ran("a", "DROP FUNCTION f", shown.removesuffix("SELECT 1").strip())
        assert await env.query("a", "SELECT f(2), f(2, 2)") == "6|4\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_calls_that_multiply_are_limited(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE FUNCTION f0(x int) RETURNS int LANGUAGE sql RETURN x")
        for i in range(1, 12):
            body = f"f{i - 1}(x) + f{i - 1}(x)"
            made = f"CREATE FUNCTION f{i}(x int) RETURNS int LANGUAGE sql RETURN {body}"
            answer = await env.query("a", made)
            if "ERROR" in answer:
                break
        assert answer.startswith("ERROR 54001"), answer

    in_environment(tmp_path, scenario)


def test_modes_of_parameters_are_kept(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE FUNCTION io(OUT c int, INOUT a int, b int DEFAULT 5) LANGUAGE sql "
            "AS 'SELECT a * b, a + b'",
            "CREATE FUNCTION head(VARIADIC y int[], OUT x int, OUT n int) LANGUAGE sql "
            "AS 'SELECT y[1], cardinality(y)'",
        )
        shown = "SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = "
        for _ in range(2):
            assert await env.query("a", "SELECT c, a FROM io(2)") == "10|7\nSELECT 1"
            assert await env.query("a", "SELECT x, n FROM head(8, 9)") == "8|2\nSELECT 1"
            answer = await env.query("a", shown + "'io'")
            assert answer == "OUT c integer, INOUT a integer, b integer DEFAULT 5\nSELECT 1"
            await env.reopen()

    in_environment(tmp_path, scenario)


async def test_functions_are_shown_with_their_statements(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE SCHEMA shown",
        "SET search_path = shown",
        "CREATE FUNCTION f(a int, b text DEFAULT 'x') RETURNS int LANGUAGE sql AS 'SELECT a + 1'",
        "CREATE FUNCTION f(a text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 2'",
        "CREATE SEQUENCE s",
    )
    assert await env.query("a", "SHOW FUNCTIONS LIKE 'f'") == (
        "f|a integer, b text DEFAULT 'x'|integer|sql\nf|a text|integer|sql\nSELECT 2"
    )
    assert await env.query("a", "SHOW SEQUENCES") == "s\nSELECT 1"
    shown = await env.query("a", "SHOW CREATE FUNCTION shown.g")
    assert shown.startswith("shown.g|CREATE OR REPLACE FUNCTION shown.g()")
    assert "f(a text)" in await env.query("a", "SHOW CREATE FUNCTION f(text)")
    assert (await env.query("a", "SHOW CREATE FUNCTION f")).startswith("ERROR 42725")
    await env.ran("a", "DROP SCHEMA shown CASCADE", "RESET search_path")
