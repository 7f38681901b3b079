"""Plans are shared by sessions, and made again when their basis changes."""

import asyncio
from typing import Any

import pytest

from foreshore.adapter.coordinator.coordinator import Coordinator
from foreshore.sql.planner import plan_statement
from tests.adapter.harness import TestEnvironment, told, until


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were planned, one for each time."""
    found: list[str] = []

    def plan(syntax: Any, *args: Any, **more: Any) -> Any:
        found.append(syntax.text)
        return plan_statement(syntax, *args, **more)

    monkeypatch.setattr("foreshore.adapter.session.planner.plan_statement", plan)
    return found


def last(told: str) -> str:
    """Return the last row, or what else was told last."""
    lines = [line for line in told.splitlines() if not line.startswith(("SELECT", "T"))]
    return lines[-1]


def test_sessions_share_plans(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    def ask(name: str, sql: str) -> str:
        return runner.run(env.query(name, sql))

    ask("a", "CREATE TABLE shared (i int, t timestamptz); INSERT INTO shared (i) VALUES (1)")
    select = "SELECT i FROM shared"
    planned.clear()
    for name in ("a", "b", "b"):
        assert last(ask(name, select)) == "1"
    assert planned == [select]
    assert ask("b", "INSERT INTO shared VALUES (2, NULL)") == "INSERT 0 1"
    assert ask("a", "INSERT INTO shared VALUES (2, NULL)") == "INSERT 0 1"
    assert planned == [select, "INSERT INTO shared VALUES (2, NULL)"]


def test_plan_that_depends_on_session_is_not_shared(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    def ask(name: str, sql: str) -> str:
        return last(runner.run(env.query(name, sql)))

    ask("a", "CREATE TABLE seen (i int); INSERT INTO seen VALUES (1); CREATE SCHEMA own")
    ask("a", "CREATE TABLE own.seen (i int); INSERT INTO own.seen VALUES (2)")
    select = "SELECT i FROM seen"
    assert (ask("a", select), ask("b", select)) == ("1", "1")
    ask("b", "SET search_path = own")
    assert (ask("a", select), ask("b", select)) == ("1", "2")
    ask("a", "CREATE TEMP TABLE seen (i int); INSERT INTO seen VALUES (3)")
    ask("b", "RESET search_path")
    assert (ask("a", select), ask("b", select)) == ("3", "1")
    ask("a", "DROP TABLE pg_temp.seen")
    assert (ask("a", select), ask("b", select)) == ("1", "1")
    told = "SELECT '2020-01-01 12:00'::timestamptz = '2020-01-01 12:00+00'::timestamptz"
    ask("b", "SET TimeZone = 'Asia/Tokyo'")
    assert (ask("a", told), ask("b", told)) == ("t", "f")


def test_catalog_change_invalidates_plan(runner: asyncio.Runner, env: TestEnvironment) -> None:
    def ask(name: str, sql: str) -> str:
        return last(runner.run(env.query(name, sql)))

    ask("a", "CREATE TABLE changing (i int); INSERT INTO changing VALUES (1)")
    select = "SELECT * FROM changing"
    assert (ask("a", select), ask("b", select)) == ("1", "1")
    ask("b", "DROP TABLE changing")
    assert "42P01" in ask("a", select)
    ask("b", "CREATE TABLE changing (t text, u int); INSERT INTO changing VALUES ('x', 2)")
    assert ask("a", select) == "x|2"
    assert (
        ask("a", "BEGIN; INSERT INTO changing VALUES ('y', 3); SELECT count(*) FROM changing")
        == "2"
    )
    assert ask("b", "SELECT count(*) FROM changing") == "1"
    assert ask("a", "SELECT count(*) FROM changing") == "2"
    ask("a", "ROLLBACK")
    assert ask("a", "SELECT count(*) FROM changing") == "1"


def test_parameters_in_query_message_are_refused(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def prepare() -> None:
        session = await env.session("a")
        await session.extended.parse("one", "SELECT $1::int", ())
        await session.extended.parse("two", "SELECT $1::int", ())
        assert session.statements["one"].made.plan is session.statements["two"].made.plan
        assert (session.statements["one"].name, session.statements["two"].name) == ("one", "two")

    runner.run(prepare())
    assert runner.run(env.query("a", "SELECT $1::int")).startswith("ERROR 42P02")


def test_only_zone_dependent_plans_are_kept_by_zone(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    def ask(name: str, sql: str) -> str:
        return last(runner.run(env.query(name, sql)))

    ask("here", "CREATE TABLE shown (at timestamptz)")
    ask("here", "INSERT INTO shown VALUES ('2013-03-10 03:00+00')")
    ask("there", "SET TIME ZONE 'America/New_York'")
    everywhere, local = "SELECT count(*) FROM shown", "SELECT at::date FROM shown"
    since = "SELECT count(*) FROM shown WHERE at >= '2013-03-09 20:00'"
    planned.clear()
    for _ in range(2):
        assert (ask("here", everywhere), ask("there", everywhere)) == ("1", "1")
        assert (ask("here", local), ask("there", local)) == ("2013-03-10", "2013-03-09")
        assert (ask("there", since), ask("here", since)) == ("1", "1")
    by_shape = [since]
    assert sorted(planned) == sorted([everywhere, local, local, since, since, *by_shape])
    ask("there", "SET TIME ZONE UTC")
    assert ask("there", local) == "2013-03-10"
    ask("there", "PREPARE kept AS SELECT at::date FROM shown")
    ask("there", "SET TIME ZONE -4")
    assert ask("there", "EXECUTE kept") == "2013-03-09"


def test_query_of_system_relations_outlives_catalog_changes(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    def ask(name: str, sql: str) -> str:
        return last(runner.run(env.query(name, sql)))

    select = "SELECT count(*) FROM pg_class WHERE relname = 'made' AND pg_table_is_visible(oid)"
    planned.clear()
    assert ask("x", select) == "0"
    ask("x", "CREATE TABLE made (i int)")
    assert (ask("x", select), ask("y", select)) == ("1", "1")
    assert planned.count(select) == 1
    ask("x", "CREATE TABLE public.pg_class (relname text, oid oid)")
    assert (ask("x", select), planned.count(select)) == ("1", 1)
    ask("x", "SET search_path = public, pg_catalog")
    assert (ask("x", select), ask("y", select)) == ("0", "1")
    ask("x", "DROP TABLE public.pg_class")
    assert (ask("x", select), ask("y", select)) == ("1", "1")
    named = "SELECT count(*) FROM pg_class WHERE oid = 'made'::regclass"
    assert ask("y", named) == "1"
    ask("y", "DROP TABLE made; CREATE TABLE made (i int)")
    assert (ask("y", named), ask("x", select), ask("y", select)) == ("1", "1", "1")


def test_name_of_a_system_relation_may_become_that_of_another(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def asked() -> None:
        async def ask() -> str:
            return last(await env.query("path", "SELECT 'pg_am'::regclass::oid = 2601"))

        await env.query("path", "SET search_path = public, pg_catalog")
        assert (await ask(), await ask()) == ("t", "t")
        await env.query("other", "CREATE TABLE public.pg_am (i int)")
        assert await ask() == "f"
        await env.query("other", "DROP TABLE public.pg_am")
        assert await ask() == "t"

    runner.run(asked())


def test_statements_about_keys_are_planned_once_in_blocks_too(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    def ask(name: str, sql: str) -> str:
        return last(runner.run(env.query(name, sql)))

    ask("a", "CREATE TABLE sums (k int PRIMARY KEY, v int); INSERT INTO sums (k, v) VALUES (1, 0)")
    block = (
        "BEGIN",
        "UPDATE sums SET v = v + 1 WHERE k = 1",
        "SELECT v FROM sums WHERE k = 1",
        "INSERT INTO sums VALUES (2, 2)",
        "DELETE FROM sums WHERE k = 2",
        "COMMIT",
    )
    planned.clear()
    for number, name in enumerate(("first", "second", "first"), 1):
        told = [ask(name, text) for text in block]
        assert told == ["BEGIN", "UPDATE 1", str(number), "INSERT 0 1", "DELETE 1", "COMMIT"]
    assert planned == list(block)


def test_named_statements_are_planned_once_for_what_their_transactions_have_written(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    texts = (
        "INSERT INTO cases SELECT count(*) FROM cases",
        "SELECT count(*) FROM cases",
        "UPDATE cases SET i = i + 1",
    )

    async def run() -> list[str]:
        session = await env.session("named")
        found = []
        for number in range(len(texts)):
            await session.extended.bind("", f"s{number}", (), ())
            found += (await told(await session.extended.execute("", 0, last=True)))[:-1]
        return found

    async def cases() -> None:
        await env.query("named", "CREATE TABLE cases (i int)")
        session = await env.session("named")
        for number, text in enumerate(texts):
            await session.extended.parse(f"s{number}", text, ())
        await session.extended.sync()
        for end in ("ROLLBACK", "ROLLBACK", "COMMIT"):
            if end == "COMMIT":
                planned.clear()
            await env.query("named", "BEGIN")
            assert (await run(), await run()) == (["1"], ["2"])
            await env.query("named", end)
        assert not set(planned) & set(texts)
        await env.query("named", "INSERT INTO cases VALUES (9); ALTER TABLE cases ADD COLUMN j int")
        planned.clear()
        assert await run() == ["4"]
        await session.extended.sync()
        assert set(planned) >= {*texts}

    runner.run(cases())


def test_settings_that_change_nothing_keep_plans(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    async def ask() -> None:
        session = await env.session("reset")
        await session.extended.parse("s", "SELECT count(*) FROM pg_type", ())
        await session.extended.sync()
        version = session.variables.version
        await env.query("reset", "RESET ALL")
        assert session.variables.version == version
        planned.clear()
        await env.query("reset", "SET application_name = 'x'")
        await session.extended.bind("", "s", (), ())
        assert "SELECT count(*) FROM pg_type" not in planned
        await env.query("reset", "RESET ALL")
        assert session.variables["application_name"] == ""

    runner.run(ask())


def test_plans_over_a_catalog_of_ones_own_are_not_shared(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    def ask(name: str, sql: str) -> str:
        return last(runner.run(env.query(name, sql)))

    ask("a", "CREATE TABLE mine (k int PRIMARY KEY, v int); INSERT INTO mine VALUES (1, 0)")
    update = "UPDATE mine SET v = v + 1 WHERE k = 1"
    assert ask("a", update) == "UPDATE 1"
    ask("b", "BEGIN")
    ask("b", "ALTER TABLE mine ADD COLUMN w int")
    assert ask("b", update) == "UPDATE 1"
    ask("b", "ROLLBACK")
    planned.clear()
    assert ask("a", update) == "UPDATE 1"
    assert not planned
    assert ask("a", "SELECT * FROM mine") == "1|2"


async def test_plan_made_before_an_index_can_be_read_is_made_again(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.ran(
        "a",
        "CREATE TABLE t (k int PRIMARY KEY, n int)",
        "CREATE VIEW v AS SELECT k, n FROM t",
        "CREATE INDEX ON v (k)",
    )
    session = await own_env.session("a")
    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "is_to_be_read", lambda self, id: False)
        early = await session.extended.parse("early", "SELECT n FROM v WHERE k = 1", ())
        assert session.planner.is_valid(early)
    await until(lambda: not session.planner.is_valid(early))
    late = await session.extended.parse("late", "SELECT n FROM t WHERE k = 1", ())
    assert late.made.scope.tables_only
    assert session.planner.is_valid(late)


def test_plans_of_catalog_queries_are_kept_in_transactions_that_change_it(
    runner: asyncio.Runner, env: TestEnvironment, planned: list[str]
) -> None:
    def ask(name: str, sql: str) -> str:
        return last(runner.run(env.query(name, sql)))

    def named(name: str) -> str:
        return f"SELECT relname FROM pg_class WHERE relname = '{name}' AND relkind = 'r'"

    ask("here", "CREATE TABLE before (i int); CREATE TABLE beside (i int); CREATE SCHEMA hiding")
    count = "SELECT count(*) FROM pg_namespace WHERE nspname = current_schema()"
    for name in ("before", "beside", "before"):
        assert ask("here", named(name)) == name
    assert ask("here", count) == "1"
    planned.clear()
    ask("there", "BEGIN; INSERT INTO before VALUES (1)")
    assert (ask("there", count), ask("there", named("before"))) == ("1", "before")
    ask("there", "CREATE TABLE within (i int)")
    assert (ask("there", count), ask("there", named("within"))) == ("1", "within")
    assert not [text for text in planned if text.startswith("SELECT")]
    types = "SELECT typname FROM pg_type WHERE oid = 23"
    assert (ask("there", types), ask("there", types), ask("here", types)) == (
        "int4",
        "int4",
        "int4",
    )
    assert planned.count(types) == 1
    ask("there", "CREATE TABLE hiding.pg_namespace (nspname text)")
    ask("there", "SET search_path = hiding, pg_catalog, public")
    assert (ask("there", count), ask("here", count)) == ("0", "1")
    ask("there", "ROLLBACK")
    assert ask("there", count) == "1"
