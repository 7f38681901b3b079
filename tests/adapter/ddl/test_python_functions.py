"""Functions in Python: in queries, in what is written, and in maintained views."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.session import planner
from foreshore.python_functions import handler
from foreshore.python_functions.limits import ALLOWED
from tests.adapter.harness import TestEnvironment, in_environment


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "1")


def made(name: str, signature: str, source: str, options: str = "IMMUTABLE") -> str:
    return f"CREATE FUNCTION {name}({signature} LANGUAGE python {options} AS $${source}$$"


AREA = made("area", "a int, b float8) RETURNS float8", "def area(a, b): return a * b")
INVERSE = made("inverse", "a int) RETURNS int", "def inverse(a): return 12 // a")
MANY = (
    "CREATE TABLE t (id int PRIMARY KEY, a int)",
    "INSERT INTO t SELECT i, i FROM generate_series(1, 5) i",
)


async def test_function_in_queries_and_writes(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", AREA, *MANY)
    assert await env.query("a", "SELECT area(3, 0.5)") == "1.5\nSELECT 1"
    assert await env.query("a", "SELECT sum(area(a, 2)) FROM t") == "30\nSELECT 1"
    assert await env.query("a", "SELECT id FROM t WHERE area(a, 2) = 4") == "2\nSELECT 1"
    assert await env.query("a", "SELECT a FROM t WHERE id = area(2, 2)::int") == "4\nSELECT 1"
    await env.ran(
        "a",
        "INSERT INTO t VALUES (6, area(50, 2)::int)",
        "UPDATE t SET a = area(a, 2)::int WHERE id = 1",
        "DELETE FROM t WHERE id = area(1, 2)::int",
    )
    assert await env.query("a", "SELECT * FROM t WHERE id IN (1, 2, 6) ORDER BY 1") == (
        "1|2\n6|100\nSELECT 2"
    )


async def test_function_of_indexed_rows(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", AREA, *MANY, "CREATE VIEW v AS SELECT id, a + 1 AS b FROM t")
    await env.ran("a", "CREATE INDEX ON v (b)")
    for begin, end in (("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT")):
        await env.ran("a", begin)
        for sql, found in (
            ("SELECT area(b, 2) FROM v WHERE b = 3", "6"),
            ("SELECT area(b, 2) FROM v WHERE b = area(1, 3)::int", "6"),
            ("SELECT id FROM v WHERE area(b, 2) = 6", "2"),
            ("SELECT sum(area(b, 2)) FROM v", "40"),
        ):
            assert (await env.query("a", sql)).startswith(f"{found}\nSELECT 1"), sql
        await env.ran("a", end)


async def test_row_that_raises_is_error_as_long_as_it_is_there(own_env: TestEnvironment) -> None:
    env = own_env
    failed = (
        'ERROR 38000: function "inverse", line 1: ZeroDivisionError:'
        " integer division or modulo by zero"
    )
    await env.ran("a", INVERSE, *MANY)
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT id, inverse(a) AS b FROM t")
    await env.ran("a", "INSERT INTO t VALUES (6, 0)")
    assert await env.query("a", "SELECT inverse(a) FROM t") == failed
    assert await env.query("a", "SELECT * FROM v") == failed
    assert await env.query("a", "INSERT INTO t VALUES (7, inverse(0))") == failed
    await env.ran("a", "DELETE FROM t WHERE id = 6")
    assert await env.query("a", "SELECT sum(b) FROM v") == "27\nSELECT 1"


async def test_view_goes_on_after_restart(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", AREA, *MANY)
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT area(id, a) AS b FROM t")
    await env.reopen()
    await env.ran("a", "UPDATE t SET a = 10 WHERE id = 5", "ALTER FUNCTION area RENAME TO size")
    await env.reopen()
    await env.ran("a", "DELETE FROM t WHERE id = 1")
    assert await env.query("a", "SELECT sum(b) FROM v") == "79\nSELECT 1"
    assert await env.query("a", "SELECT size(2, 3)") == "6\nSELECT 1"


async def test_volatile_function_is_refused_in_what_is_maintained(env: TestEnvironment) -> None:
    source = "import random\ndef pick(a): return random.random()"
    await env.ran("a", "CREATE TABLE r (a int)", "INSERT INTO r VALUES (1), (2)")
    await env.ran("a", made("pick", "a int) RETURNS float8", source, "VOLATILE"))
    await env.ran("a", "CREATE VIEW picked AS SELECT pick(a) AS b FROM r")
    assert (await env.query("a", "SELECT count(DISTINCT b) FROM picked")) == "2\nSELECT 1"
    for sql in (
        "CREATE MATERIALIZED VIEW v AS SELECT pick(a) FROM r",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM picked",
        "CREATE INDEX ON picked (b)",
        "CREATE INDEX ON r (pick(a))",
    ):
        refused = await env.query("a", sql)
        assert refused.startswith('ERROR 0A000: function "pick" cannot be used in'), sql
        assert "CREATE SOURCE ... FROM PYTHON ... OVER" in refused


async def test_function_is_refused_where_rows_are_checked(env: TestEnvironment) -> None:
    await env.ran("a", made("same", "a int) RETURNS int", "def same(a): return a"))
    for columns, where in (
        ("a int DEFAULT same(1)", "DEFAULT expressions"),
        ("a int CHECK (same(a) > 0)", "check constraints"),
        ("a int, b int GENERATED ALWAYS AS (same(a)) STORED", "column generation expressions"),
    ):
        refused = await env.query("a", f"CREATE TABLE c ({columns})")
        assert refused == f"ERROR 0A000: functions in Python are not supported in {where}"
    await env.ran("a", "CREATE TABLE c (a int)")
    refused = await env.query("a", "CREATE INDEX ON c (same(a))")
    assert refused.startswith("ERROR 0A000: functions in Python are not supported in an index")
    refused = await env.query("a", "INSERT INTO c VALUES (1) RETURNING same(a)")
    assert refused.startswith("ERROR 0A000: functions in Python in RETURNING")


async def test_function_that_is_not_what_it_is_declared_to_be_fails(env: TestEnvironment) -> None:
    source = "import random\ndef lot(a): return random.random()"
    await env.ran("a", made("lot", "a int) RETURNS float8", source))
    found = await env.query("a", "SELECT lot(i) FROM generate_series(1, 3) i")
    assert found.startswith('ERROR 38000: function "lot" is declared IMMUTABLE but')


async def test_function_that_returns_a_set(env: TestEnvironment) -> None:
    await env.ran("a", made("upto", "n int) RETURNS SETOF int", "def upto(n): yield from range(n)"))
    assert await env.query("a", "SELECT * FROM upto(3)") == "0\n1\n2\nSELECT 3"
    assert await env.query("a", "SELECT * FROM upto(2) WITH ORDINALITY") == "0|1\n1|2\nSELECT 2"
    lateral = "SELECT n, k FROM (VALUES (0), (2)) v(n), upto(n) k"
    assert await env.query("a", lateral) == "2|0\n2|1\nSELECT 2"
    assert await env.query("a", "SELECT upto(2)") == "0\n1\nSELECT 2"


async def test_definition_is_shown_and_kept(env: TestEnvironment) -> None:
    source = (
        "\nPREFIX = 'it''s \\\\ '.replace(\"''\", \"'\")\ndef shown(a):\n    return PREFIX + a\n"
    )
    await env.ran("a", made("shown", "a text DEFAULT 'x') RETURNS text", source, "STABLE STRICT"))
    definition = await env.query("a", "SELECT pg_get_functiondef('shown'::regproc)")
    assert definition.startswith("CREATE OR REPLACE FUNCTION public.shown(a text DEFAULT 'x'")
    assert " LANGUAGE python\n STABLE STRICT\n" in definition
    assert source in definition
    answer = await env.query("a", "SELECT shown(), shown(NULL)")
    await env.ran("a", definition.removesuffix("\nSELECT 1"))
    assert await env.query("a", "SELECT shown(), shown(NULL)") == answer
    language = "SELECT lanname, lanpltrusted, prosrc FROM pg_proc JOIN pg_language l ON l.oid ="
    found = await env.query("a", f"{language} prolang WHERE proname = 'shown'")
    assert found == f"python|f|{source}\nSELECT 1"


async def test_only_superusers_create_functions_that_all_may_call(env: TestEnvironment) -> None:
    await env.ran("a", made("open_to_all", ") RETURNS int", "def f(): return 7"))
    await env.ran("a", "CREATE ROLE bob", "GRANT ALL ON SCHEMA public TO bob")
    await env.ran("b", "SET ROLE bob")  # of this session alone
    refused = await env.query("b", made("mine", ") RETURNS int", "def f(): return 7"))
    assert refused.startswith("ERROR 42501: permission denied for language python")
    assert await env.query("b", "SELECT open_to_all()") == "7\nSELECT 1"
    await env.ran("a", "REVOKE EXECUTE ON FUNCTION open_to_all FROM PUBLIC")
    assert (await env.query("b", "SELECT open_to_all()")).startswith("ERROR 42501")
    await env.ran("b", "RESET ROLE")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        (made("f", "a int) RETURNS int", "def f(a:"), "42601: '(' was never closed in line 1"),
        (made("f", "a int) RETURNS int", "x = 1"), "42P13: the source of"),
        (made("f", "a int) RETURNS int", "def f(): ..."), '42P13: function "f" of the source does'),
        (made("f", "a int) RETURNS void", "def f(a): ..."), "0A000: RETURNS void"),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE python RETURN 1", "42P13: inline SQL function"),
        (
            "CREATE FUNCTION f() RETURNS int LANGUAGE plpython3u AS 'return 1'",
            "0A000: LANGUAGE plpython3u is not supported",
        ),
    ],
)
async def test_refused_definition(env: TestEnvironment, sql: str, error: str) -> None:
    assert (await env.query("a", sql)).startswith(f"ERROR {error}")


async def test_function_below_a_view_is_replaced_by_the_same_only(env: TestEnvironment) -> None:
    source = "def kept(a): return a + 1"
    await env.ran("a", made("kept", "a int) RETURNS int", source), "CREATE TABLE k (a int)")
    await env.ran("a", "CREATE MATERIALIZED VIEW kv AS SELECT kept(a) FROM k")
    again = made("kept", "a int) RETURNS int", source).replace("CREATE", "CREATE OR REPLACE")
    await env.ran("a", again)
    for other in (again.replace("+ 1", "+ 2"), again.replace("IMMUTABLE", "VOLATILE")):
        refused = await env.query("a", other)
        assert refused.startswith('ERROR 0A000: function "kept" cannot be replaced'), refused
    assert (await env.query("a", "DROP FUNCTION kept")).startswith("ERROR 2BP01")


async def test_function_is_not_renamed_to_another_one_of_its_source(env: TestEnvironment) -> None:
    source = "def g(a): return 2\ndef f(a): return 1"
    await env.ran("a", made("f", "a int) RETURNS int", source))
    assert (await env.query("a", "ALTER FUNCTION f RENAME TO g")).startswith("ERROR 42P13")
    await env.ran("a", "ALTER FUNCTION f RENAME TO h")
    assert await env.query("a", "SELECT h(0)") == "1\nSELECT 1"


async def test_endless_loop_is_cancelled_while_others_go_on(env: TestEnvironment) -> None:
    await env.ran("a", made("spin", "a int) RETURNS int", "def spin(a):\n  while True: pass"))
    await env.ran("a", "CREATE TABLE s (a int)", "INSERT INTO s VALUES (1)")
    for sql in ("SELECT spin(1)", "SELECT spin(a) FROM s", "INSERT INTO s VALUES (spin(2))"):
        spinning = asyncio.create_task(env.query("a", sql, alone=False))
        assert await env.query("b", "SELECT count(*) FROM s", alone=False) == "1\nSELECT 1"
        assert not spinning.done()
        session = await env.session("a")
        env.environment.cancel(session.pid, session.backend.secret)
        assert (await spinning).startswith("ERROR 57014")


def test_language_that_is_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", AREA)
        monkeypatch.delenv(ALLOWED)
        refused = "ERROR 55000: Python functions are turned off"
        assert (await env.query("a", INVERSE)).startswith(refused)
        assert (await env.query("a", "SELECT area(1, 2)")).startswith(refused)

    in_environment(tmp_path, scenario)


SPREAD = """
class spread_of:
    def init(self): return None
    def add(self, state, value):
        return (value, value) if state is None else (min(state[0], value), max(state[1], value))
    def finish(self, state): return None if state is None else state[1] - state[0]
"""


async def test_aggregate_follows_its_groups(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        made("spread_of", "float8[]) RETURNS float8", SPREAD),
        "CREATE AGGREGATE spread(float8)"
        " (SFUNC = array_append, STYPE = float8[], FINALFUNC = spread_of)",
        "CREATE TABLE s (shop int, price float8)",
        "INSERT INTO s VALUES (1, 1), (1, 5), (1, 9), (2, 3)",
        "CREATE MATERIALIZED VIEW v AS SELECT shop, spread(price) AS d FROM s GROUP BY shop",
    )
    assert await env.query("a", "SELECT * FROM v ORDER BY 1") == "1|8\n2|0\nSELECT 2"
    await env.ran("a", "DELETE FROM s WHERE price = 9", "INSERT INTO s VALUES (2, 10), (3, 0)")
    assert await env.query("a", "SELECT * FROM v ORDER BY 1") == "1|4\n2|7\n3|0\nSELECT 3"
    await env.reopen()
    await env.ran("a", "DELETE FROM s WHERE shop = 3", "ALTER FUNCTION spread_of RENAME TO other")
    assert await env.query("a", "SELECT * FROM v ORDER BY 1") == "1|4\n2|7\nSELECT 2"
    filtered = "SELECT spread(shop), spread(price) FILTER (WHERE shop = 1) FROM s"
    assert await env.query("a", filtered) == "1|4\nSELECT 1"
    window = "SELECT shop, spread(DISTINCT price) FROM s GROUP BY 1 HAVING spread(price) > 5"
    assert await env.query("a", window) == "2|7\nSELECT 1"
    assert (await env.query("a", "DROP FUNCTION other")).startswith("ERROR 2BP01")
    kind = "SELECT prokind, format_type(aggtranstype, NULL) FROM pg_proc JOIN pg_aggregate ON aggfnoid = oid"
    assert await env.query("a", f"{kind} WHERE proname = 'spread'") == (
        "a|double precision[]\nSELECT 1"
    )
    await env.ran("a", "DROP MATERIALIZED VIEW v", "DROP AGGREGATE spread(float8)")


async def test_refused_aggregates(env: TestEnvironment) -> None:
    for options, error in (
        ("SFUNC = int4pl, STYPE = int, FINALFUNC = f", "0A000: an SFUNC other than array_append"),
        ("SFUNC = array_append, STYPE = int[]", "42P13: aggregate finalfunc must be specified"),
        ("SFUNC = array_append, STYPE = int[], FINALFUNC = no_such", "42883: function no_such"),
        ("SFUNC = array_append, STYPE = int[], INITCOND = '{}'", "0A000: INITCOND"),
    ):
        found = await env.query("a", f"CREATE AGGREGATE g(int) ({options})")
        assert found.startswith(f"ERROR {error}"), found


HOSTILE = made("f", ") RETURNS text", "def f(): return " + "'a'*4000+" * 700 + "''")


async def test_source_is_compiled_after_option_and_right_are_checked(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    compiled: list[str] = []
    monkeypatch.setattr(planner, "definitions_of", compiled.append)
    await env.ran("a", "CREATE ROLE r", "GRANT ALL ON SCHEMA public TO r", "SET ROLE r")
    assert "permission denied for language python" in await env.query("a", HOSTILE)
    await env.ran("a", "RESET ROLE")
    monkeypatch.setenv(ALLOWED, "0")
    assert "Python functions are turned off" in await env.query("a", HOSTILE)
    assert not compiled


async def test_source_that_needs_much_memory_is_refused(own_env: TestEnvironment) -> None:
    assert "out of memory" in await own_env.query("a", HOSTILE)
    assert await own_env.query("a", "SELECT 1") == "1\nSELECT 1"


SPREAD_OF = made("spread_of", "v float8[]) RETURNS float8", SPREAD)


def test_call_compiles_nothing_also_after_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    async def created(env: TestEnvironment) -> None:
        await env.ran("a", AREA, SPREAD_OF, "ALTER FUNCTION area RENAME TO surface")

    async def called(env: TestEnvironment) -> None:
        await env.ran("a", "ALTER FUNCTION surface(int, float8) STRICT")
        assert await env.query("a", "SELECT surface(3, 0.5)") == "1.5\nSELECT 1"
        assert await env.query("a", "SELECT spread_of(ARRAY[1, 3.5])") == "2.5\nSELECT 1"
        await env.ran("a", "CREATE VIEW v AS SELECT surface(1, 2)")

    in_environment(tmp_path, created)
    monkeypatch.setattr(handler, "definitions_of", compiled.append)
    in_environment(tmp_path, called)
    assert not compiled
