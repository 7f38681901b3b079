"""What is asked of the catalog is computed once for each of its states, and never told of another.

A pool of asyncpg looks types up on each connection; the second look computes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest
from asyncpg.introspection import INTRO_LOOKUP_TYPES

from foreshore.adapter.client import Startup
from foreshore.catalog.builtin import object_names
from foreshore.catalog.builtin.answers import (
    LARGEST_ANSWER,
    MOST_ANSWERS,
    CatalogAnswers,
    Question,
)
from foreshore.catalog.state import State
from foreshore.compute.local.small.first import SmallFirst
from foreshore.errors import DatabaseError
from foreshore.expr.block import Block
from foreshore.expr.ir import Constant
from foreshore.types import Datum, SqlType
from tests.adapter.harness import TestEnvironment, told

NAMES = "SELECT relname FROM pg_class WHERE relname LIKE 'seen%' ORDER BY 1"


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The relations over the catalog that were evaluated, one for each time."""
    found: list[object] = []
    for name in ("rows", "parts"):
        method = getattr(SmallFirst, name)

        def evaluate(self: Any, relation: Any, *args: Any, method: Any = method) -> Any:
            found.append(relation)
            return method(self, relation, *args)

        monkeypatch.setattr(SmallFirst, name, evaluate)
    return found


def rows(answer: str) -> list[str]:
    return answer.splitlines()[:-1]


async def execute(env: TestEnvironment, name: str, sql: str, *args: Datum) -> list[str]:
    """Return the rows of a statement with arguments, in the extended protocol."""
    session = await env.session(name)
    await session.extended.parse("", sql, ())
    await session.extended.bind("", "", args, ())
    lines = await told(await session.extended.execute("", 0, last=True))
    await session.extended.sync()
    return lines[:-1]


def test_second_connection_reuses_catalog_answers(
    runner: asyncio.Runner, env: TestEnvironment, evaluated: list[object]
) -> None:
    (oid,) = rows(runner.run(env.query("a", "SELECT 'mz_timestamp'::regtype::oid")))

    def look(name: str, *types: int) -> list[str]:
        return runner.run(execute(env, name, INTRO_LOOKUP_TYPES, types))

    evaluated.clear()
    first = look("a", int(oid))
    assert first[0].split("|")[2] == "mz_timestamp"
    assert len(evaluated) > 1  # a recursion's steps
    evaluated.clear()
    assert look("b", int(oid)) == look("c", int(oid)) == first
    assert evaluated == []
    other = look("b", 23)  # another argument is another question
    assert other[0].split("|")[2] == "int4"
    assert evaluated != []


# What tools ask about one table, whose number is OID.
OF_A_TABLE = (
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), (SELECT pg_get_expr(d.adbin, d.adrelid)"
    " FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef),"
    " (SELECT c.collname FROM pg_collation c, pg_type t WHERE c.oid = a.attcollation"
    " AND t.oid = a.atttypid AND a.attcollation <> t.typcollation), col_description(attrelid, attnum)"
    " FROM pg_attribute a WHERE a.attrelid = 'OID' AND a.attnum > 0 ORDER BY a.attnum",
    "SELECT c2.relname, i.indisprimary, pg_get_indexdef(i.indexrelid, 0, true),"
    " pg_get_constraintdef(con.oid, true) FROM pg_class c, pg_class c2, pg_index i"
    " LEFT JOIN pg_constraint con ON conrelid = i.indrelid AND conindid = i.indexrelid"
    " AND contype IN ('p', 'u', 'x') WHERE c.oid = 'OID' AND c.oid = i.indrelid"
    " AND i.indexrelid = c2.oid ORDER BY i.indisprimary DESC, c2.relname",
    "SELECT conname, conrelid::regclass, pg_get_constraintdef(oid, true) FROM pg_constraint"
    " WHERE confrelid IN (SELECT pg_partition_ancestors('OID') UNION ALL VALUES ('OID'::regclass))"
    " AND contype = 'f' AND conparentid = 0 ORDER BY conname",
    "SELECT c.relkind, array_to_string(c.reloptions || array(SELECT 'toast.' || x"
    " FROM unnest(tc.reloptions) x), ', '), CASE WHEN c.reloftype = 0 THEN '' ELSE"
    " c.reloftype::regtype::text END, am.amname FROM pg_class c LEFT JOIN pg_class tc"
    " ON c.reltoastrelid = tc.oid LEFT JOIN pg_am am ON c.relam = am.oid WHERE c.oid = 'OID'",
)


def test_what_is_asked_about_a_table_is_found_by_keys(
    runner: asyncio.Runner, env: TestEnvironment, evaluated: list[object]
) -> None:
    async def ask(number: int) -> list[str]:
        (oid, _) = (await env.query("a", f"SELECT 'asked{number}'::regclass::oid")).splitlines()
        return [await env.query("a", sql.replace("OID", oid)) for sql in OF_A_TABLE]

    async def asked() -> None:
        await env.query("a", "CREATE TYPE shade AS ENUM ('light', 'dark')")
        for number in range(70):
            await env.query(
                "a",
                f"CREATE TABLE asked{number} (id int PRIMARY KEY, name varchar(9) DEFAULT 'x',"
                f" up int REFERENCES asked{number} (id), shades shade[])",
            )
        for number in range(4):  # until the shapes of all texts are known
            await ask(number)
        evaluated.clear()
        columns, indexes, references, table = [told.splitlines() for told in await ask(5)]
        assert columns[:4] == [
            "id|integer|NULL|NULL|NULL",
            "name|character varying(9)|'x'::character varying|NULL|NULL",
            "up|integer|NULL|NULL|NULL",
            "shades|shade[]|NULL|NULL|NULL",
        ]
        definition = "CREATE UNIQUE INDEX asked5_pkey ON public.asked5 USING btree (id)"
        assert indexes[0] == f"asked5_pkey|t|{definition}|PRIMARY KEY (id)"
        assert references[0].split("|")[0] == "asked5_up_fkey"
        assert table[0].split("|")[0] == "r"
        assert evaluated == []

    runner.run(asked())


def test_names_in_arguments_are_found_by_keys(
    runner: asyncio.Runner, env: TestEnvironment, evaluated: list[object]
) -> None:
    def ask(sql: str, *args: Datum) -> list[str]:
        return runner.run(execute(env, "a", sql, *args))

    made = 'CREATE TABLE called (id int PRIMARY KEY); CREATE TABLE "Called" (id int UNIQUE)'
    runner.run(env.query("a", f"CREATE SCHEMA beside; {made}; CREATE TABLE beside.called ()"))
    keys = (
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1::regclass"
    )
    assert ask(keys, "called") == ["called_pkey|PRIMARY KEY (id)"]
    assert ask(keys, '"Called"') == ["Called_id_key|UNIQUE (id)"]
    assert ask(keys, "beside.called") == []
    evaluated.clear()
    named = "SELECT to_regclass($1)::oid"
    found = [ask(named, name) for name in ('"Called"', "called", "beside.called", "called_pkey")]
    assert ask(named, "public.called") == found[1]
    assert ask(named, "nowhere") == ask(named, "nowhere.called") == ["NULL"]
    assert evaluated == []
    oids = "SELECT oid FROM pg_class WHERE relname ILIKE 'called' ORDER BY oid"
    assert len({each for (each,) in found}) == 4
    assert {each for (each,) in found[:3]} == {*ask(oids)}
    for name, error in (("a b", "42602"), ("a.b.c", "0A000"), ("a.b.c.d", "42601")):
        with pytest.raises(DatabaseError) as raised:
            ask(named, name)
        assert raised.value.sqlstate == error
        runner.run(env.query("a", "ROLLBACK"))


def test_names_of_objects_are_kept_until_they_change(
    runner: asyncio.Runner, env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    make = object_names._Catalog.relations

    def noted(catalog: Any) -> dict[int, str]:
        made.append(catalog)
        return make(catalog)

    monkeypatch.setattr(object_names._Catalog, "relations", noted)

    async def ask(name: str) -> str:
        session = await env.session(name)
        (oid, *_) = (
            await env.query(name, "SELECT oid FROM pg_class WHERE relname LIKE 'named%'")
        ).split()
        names = session.output_style(names=True).names
        assert names is not None
        return names.name_of(SqlType("regclass"), int(oid))

    async def asked() -> None:
        await env.query("one", "CREATE SCHEMA own; CREATE TABLE own.named (i int)")
        await env.query("other", "SET search_path = own")
        assert (await ask("one"), await ask("one")) == ("own.named", "own.named")
        assert len(made) == 1
        assert (await ask("other"), await ask("other"), await ask("one")) == (
            "named",
            "named",
            "own.named",
        )
        await env.query("other", "ALTER TABLE named RENAME TO named_anew")
        assert (await ask("one"), await ask("other")) == ("own.named_anew", "named_anew")
        await env.query("other", "BEGIN; ALTER TABLE named_anew RENAME TO named_by_b")
        assert (await ask("other"), await ask("one")) == ("named_by_b", "own.named_anew")
        await env.query("other", "ROLLBACK")
        assert await ask("other") == "named_anew"

    runner.run(asked())


def test_concurrent_connections_compute_answer_once(
    runner: asyncio.Runner, env: TestEnvironment, evaluated: list[object]
) -> None:
    async def all_at_once() -> list[str]:
        for i in range(10):
            await env.session(f"pool{i}")
        return await asyncio.gather(
            *(env.query(f"pool{i}", "SELECT count(*) > 20 FROM pg_type") for i in range(10))
        )

    assert {answer.splitlines()[0] for answer in runner.run(all_at_once())} == {"t"}
    assert len(evaluated) == 1


def test_catalog_change_is_visible_at_once(
    runner: asyncio.Runner, env: TestEnvironment, evaluated: list[object]
) -> None:
    def ask(name: str, sql: str = NAMES) -> list[str]:
        return rows(runner.run(env.query(name, sql)))

    assert ask("a") == ask("b") == []
    ask("a", "CREATE TABLE seen (i int)")
    assert ask("b") == ask("a") == ["seen"]
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'seen'::regclass AND attnum > 0"
    assert ask("b", columns) == ["i"]
    ask("a", "ALTER TABLE seen ADD COLUMN j int")
    assert ask("b", columns) == ["i", "j"]
    ask("a", "ALTER TABLE seen RENAME TO seen_before")
    assert ask("b") == ask("a") == ["seen_before"]
    ask("a", "COMMENT ON TABLE seen_before IS 'told'")
    comment = "SELECT description FROM pg_description WHERE description = 'told'"
    assert ask("b", comment) == ["told"]
    ask("b", "COMMENT ON TABLE seen_before IS NULL")
    assert ask("a", comment) == []
    ask("b", "DROP TABLE seen_before")
    assert ask("a") == ask("b") == []
    evaluated.clear()
    assert ask("a") == ask("b") == []
    assert evaluated == []


def test_uncommitted_catalog_is_visible_only_to_its_transaction(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    def ask(name: str, sql: str = NAMES) -> list[str]:
        return rows(runner.run(env.query(name, sql, alone=False)).removesuffix("\nT"))

    assert ask("a") == ask("b") == []
    ask("a", "BEGIN")
    ask("a", "CREATE TABLE seen_inside (i int)")
    assert (ask("a"), ask("b"), ask("a")) == (["seen_inside"], [], ["seen_inside"])
    ask("a", "SAVEPOINT s")
    ask("a", "CREATE TABLE seen_more (i int)")
    assert (ask("a"), ask("b")) == (["seen_inside", "seen_more"], [])
    ask("a", "ROLLBACK TO s")
    assert (ask("a"), ask("b")) == (["seen_inside"], [])
    ask("a", "ROLLBACK")
    assert ask("a") == ask("b") == []


def test_answers_depend_on_temporary_objects_and_search_path(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    def ask(name: str, sql: str) -> list[str]:
        return rows(runner.run(env.query(name, sql)))

    tables = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'own%'"
    visible = (
        "SELECT n.nspname LIKE 'pg_temp%' FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE relname = 'own' AND pg_table_is_visible(c.oid)"
    )
    assert ask("a", tables) == ask("b", tables) == []
    ask("a", "CREATE TEMP TABLE own (i int)")
    assert (ask("a", tables), ask("b", tables), ask("a", tables)) == (["own"], [], ["own"])
    assert (ask("a", visible), ask("b", visible)) == (["t"], [])
    ask("b", "CREATE TABLE own (i int)")
    assert (ask("a", visible), ask("b", visible)) == (["t"], ["f"])
    ask("b", "CREATE SCHEMA aside")
    ask("b", "SET search_path = aside")
    assert (ask("a", visible), ask("b", visible)) == (["t"], [])
    ask("b", "RESET search_path")
    assert (ask("a", visible), ask("b", visible)) == (["t"], ["f"])
    ask("a", "DROP TABLE pg_temp.own")
    assert (ask("a", visible), ask("b", visible)) == (["f"], ["f"])
    ask("b", "DROP TABLE own")
    ask("b", "DROP SCHEMA aside")


def test_answers_depend_on_session_values(
    runner: asyncio.Runner, env: TestEnvironment, evaluated: list[object]
) -> None:
    def ask(name: str, sql: str) -> list[str]:
        return rows(runner.run(env.query(name, sql)))

    def at_zone(name: str, zone: str, sql: str) -> list[str]:
        ask(name, f"SET TimeZone = '{zone}'")
        return ask(name, sql)

    pid = "SELECT pg_backend_pid() FROM pg_namespace WHERE nspname = 'pg_catalog'"
    (one,), (two,) = ask("a", pid), ask("b", pid)
    assert one != two
    setting = "SELECT current_setting('application_name') FROM pg_am WHERE amname = 'btree'"
    ask("a", "SET application_name = 'first'")
    assert ask("a", setting) == ["first"]
    ask("a", "SET application_name = 'second'")
    assert ask("a", setting) == ["second"]
    day = "SELECT '2013-03-10 03:00+00'::timestamptz::date FROM pg_am WHERE amname = 'btree'"
    assert at_zone("a", "America/New_York", day) == ["2013-03-09"]
    assert at_zone("b", "UTC", day) == ["2013-03-10"]
    sign = "SELECT $1::float8::text FROM pg_am WHERE amname = 'btree'"
    for zero in (0.0, -0.0, 0.0):  # equal, and not the same
        assert runner.run(execute(env, "a", sign, zero)) == ["-0" if str(zero)[0] == "-" else "0"]


async def test_answers_depend_on_database(env: TestEnvironment) -> None:
    await env.query("a", "CREATE DATABASE elsewhere")
    env.sessions["there"] = await env.environment.connect(Startup("foreshore", "elsewhere", {}))
    await env.query("there", "CREATE TABLE seen_there (i int)")
    for _ in range(2):
        assert rows(await env.query("a", NAMES)) == []
        assert rows(await env.query("there", NAMES)) == ["seen_there"]


def test_relations_beyond_the_catalog_are_not_cached(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    def ask(name: str, sql: str) -> list[str]:
        return rows(runner.run(env.query(name, sql)))

    ask("a", "CREATE SEQUENCE counting")
    last = "SELECT last_value FROM pg_sequences WHERE sequencename = 'counting'"
    assert ask("b", last) == ["NULL"]
    ask("a", "SELECT nextval('counting')")
    assert ask("b", last) == ["1"]
    setting = "SELECT setting FROM pg_settings WHERE name = 'application_name'"
    ask("b", "SET application_name = 'moved'")
    assert ask("b", setting) == ["moved"]
    ask("b", "SET application_name = 'on'")
    assert ask("b", setting) == ["on"]
    running = "SELECT count(*) FROM mz_internal.mz_sessions WHERE query LIKE '%counts itself%'"
    assert ask("b", f"{running} -- counts itself") == ["1"]
    assert ask("b", running) == ["1"]  # this one, by its condition
    ask("a", "DROP SEQUENCE counting")


# --- the cache by itself -------------------------------------------------------------------


def question(number: int) -> Question:
    return Question(Block(Constant((((number,), 1),), ())), frozenset())


def giving(answer: pa.Table, calls: list[str]) -> Callable[[], Awaitable[pa.Table]]:
    async def evaluate() -> pa.Table:
        calls.append("evaluated")
        await asyncio.sleep(0)
        return answer

    return evaluate


def test_cached_answers_are_bounded() -> None:
    async def conversation() -> None:
        answers, state, calls = CatalogAnswers(), State(), list[str]()
        small = pa.table({"c0": [1]})
        large = pa.table({"c0": pa.nulls(LARGEST_ANSWER // 8 + 1, pa.int64())})
        for _ in range(2):
            await answers.answer(state, question(-1), giving(large, calls))
        assert len(calls) == 2
        calls.clear()
        for number in range(MOST_ANSWERS + 1):
            await answers.answer(state, question(number), giving(small, calls))
        await answers.answer(state, question(1), giving(small, calls))
        assert len(calls) == MOST_ANSWERS + 1
        await answers.answer(state, question(0), giving(small, calls))  # was the oldest
        assert len(calls) == MOST_ANSWERS + 2

    asyncio.run(conversation())


def test_answer_computed_before_change_is_not_kept() -> None:
    async def conversation() -> None:
        answers, before, after = CatalogAnswers(), State(1), State(2)
        old, new = pa.table({"c0": ["old"]}), pa.table({"c0": ["new"]})
        going_on = asyncio.Event()

        async def slow() -> pa.Table:
            await going_on.wait()
            return old

        asked = asyncio.create_task(answers.answer(before, question(1), slow))
        await asyncio.sleep(0)
        calls: list[str] = []
        found = await answers.answer(after, question(1), giving(new, calls))
        assert found is new  # and nobody has waited for what is of before
        going_on.set()
        assert await asked is old
        assert await answers.answer(after, question(1), giving(old, calls)) is new

    asyncio.run(conversation())


def test_waiter_for_cancelled_answer_computes_it() -> None:
    async def conversation() -> None:
        answers, state, calls = CatalogAnswers(), State(), list[str]()

        async def forever() -> pa.Table:
            await asyncio.Event().wait()
            raise AssertionError

        first = asyncio.create_task(answers.answer(state, question(1), forever))
        await asyncio.sleep(0)
        answer = pa.table({"c0": [1]})
        waiting = [
            asyncio.create_task(answers.answer(state, question(1), giving(answer, calls)))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        assert calls == []
        first.cancel()
        assert [await each for each in waiting] == [answer] * 3
        assert first.cancelled()
        assert calls == ["evaluated"]

    asyncio.run(conversation())
