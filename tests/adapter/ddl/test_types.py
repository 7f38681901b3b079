"""Enums and domains across restarts, cached plans, changes of the type, and renames."""

import asyncio
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.enum_labels import first_values, label_of, value_between
from tests.adapter.harness import TestEnvironment
from tests.effort import examples


@given(st.integers(0, 800), st.lists(st.floats(0, 1), max_size=60))
@settings(max_examples=examples(100))
def test_added_values_keep_the_order(count: int, places: list[float]) -> None:
    values = list(first_values([str(number) for number in range(count)]))
    for number, place in enumerate(places):
        at = round(place * len(values))
        below = values[at - 1] if at else None
        above = values[at] if at < len(values) else None
        values.insert(at, value_between(below, above, f"new {number}"))
    assert values == sorted(set(values))
    assert sorted(label_of(value) for value in values) == sorted(
        [*map(str, range(count)), *(f"new {number}" for number in range(len(places)))]
    )


def test_altered_enum_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", "CREATE SCHEMA q; CREATE TYPE q.mood AS ENUM ('sad', 'happy')")
        await env.query("s", "CREATE TABLE t (m q.mood DEFAULT 'sad'::q.mood, a q.mood[])")
        await env.query(
            "s", "CREATE MATERIALIZED VIEW v AS SELECT m, m > 'sad'::q.mood AS b FROM t"
        )
        await env.query("s", "CREATE VIEW w AS SELECT 'happy'::q.mood AS m")
        await env.query("s", "INSERT INTO t VALUES ('happy', '{sad}')")
        await env.query("s", "ALTER TYPE q.mood ADD VALUE 'ok' BEFORE 'happy'")
        await env.query("s", "INSERT INTO t VALUES ('ok', '{ok}'), (DEFAULT, NULL)")
        await env.query("s", "ALTER TYPE q.mood RENAME TO feeling; ALTER SCHEMA q RENAME TO r")
        seen = "happy|t\nok|t\nsad|f\nSELECT 3"
        for _ in range(2):
            assert await env.query("s", "SELECT m, b FROM v ORDER BY m DESC") == seen
            assert await env.query("s", "SELECT m = 'happy' FROM w") == "t\nSELECT 1"
            listed = await env.query("s", "SELECT enum_range(NULL::r.feeling)")
            assert listed == "{sad,ok,happy}\nSELECT 1"
            shown = await env.query("s", "SHOW CREATE TABLE t")
            assert "m foreshore.r.feeling DEFAULT 'sad'::foreshore.r.feeling" in shown, shown
            await env.close()
            env = TestEnvironment(tmp_path)
            await env.open()
        await env.close()

    asyncio.run(scenario())


async def test_prepared_statement_accepts_an_added_label(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (m mood)")
    await own_env.query("s", "PREPARE p AS INSERT INTO t VALUES ($1)")
    await own_env.query("s", "EXECUTE p ('sad')")
    await own_env.query("o", "ALTER TYPE mood ADD VALUE 'ok' BEFORE 'sad'")
    assert await own_env.query("s", "EXECUTE p ('ok')") == "INSERT 0 1"
    assert await own_env.query("s", "SELECT m FROM t ORDER BY m") == "ok\nsad\nSELECT 2"


async def test_label_is_not_renamed_below_a_maintained_view(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (m mood)")
    await own_env.query("s", "INSERT INTO t VALUES ('sad')")
    await own_env.query("s", "CREATE MATERIALIZED VIEW v AS SELECT m::text AS x FROM t")
    refused = await own_env.query("s", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    assert refused.startswith("ERROR 0A000"), refused
    await own_env.query("s", "DROP MATERIALIZED VIEW v")
    await own_env.query("s", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    assert await own_env.query("s", "SELECT m, m = 'blue' FROM t") == "blue|t\nSELECT 1"
    await own_env.query("s", "INSERT INTO t VALUES ('blue')")
    assert await own_env.query("s", "SELECT count(*) FROM t GROUP BY m") == "2\nSELECT 1"


async def test_label_is_not_renamed_where_a_definition_mentions_it(
    own_env: TestEnvironment,
) -> None:
    await own_env.query("s", "CREATE TYPE mood AS ENUM ('sad')")
    rename = "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"
    for create, drop in (
        ("CREATE TABLE t (m mood DEFAULT 'sad')", "DROP TABLE t"),
        ("CREATE TABLE t (m mood CHECK (m > 'sad'))", "DROP TABLE t"),
        ("CREATE VIEW t AS SELECT 'sad'::mood AS m", "DROP VIEW t"),
    ):
        await own_env.query("s", create)
        refused = await own_env.query("s", rename)
        assert refused.startswith("ERROR 0A000"), refused
        assert '"t" mentions it' in refused, refused
        await own_env.query("s", drop)
    assert await own_env.query("s", rename) == "ALTER TYPE"


async def test_nested_casts_to_a_domain_are_refused_before_they_take_long(
    own_env: TestEnvironment,
) -> None:
    await own_env.query(
        "s",
        "CREATE DOMAIN pos AS int CHECK (VALUE > 0) CHECK (VALUE < 1000); CREATE TABLE t (a int)",
    )
    await own_env.query("s", "INSERT INTO t VALUES (1)")

    def nested(levels: int) -> str:
        return "(" * levels + "a" + "+1)::pos" * levels

    assert await own_env.query("s", f"SELECT {nested(3)} FROM t") == "4\nSELECT 1"
    refused = await own_env.query("s", f"SELECT {nested(12)} FROM t")
    assert refused.startswith("ERROR 54001"), refused


async def test_call_of_nextval_for_each_row_is_cast_to_a_domain(own_env: TestEnvironment) -> None:
    await own_env.query(
        "s", "CREATE DOMAIN pos AS int CHECK (VALUE > 0) CHECK (VALUE < 4); CREATE TABLE t (a int)"
    )
    await own_env.query("s", "CREATE SEQUENCE q; INSERT INTO t VALUES (7), (8), (9)")
    found = await own_env.query("s", "SELECT nextval('q')::pos FROM t ORDER BY a")
    assert found == "1\n2\n3\nSELECT 3"
    failed = await own_env.query("s", "INSERT INTO t SELECT nextval('q')::pos FROM t")
    assert failed.startswith("ERROR 23514"), failed


async def test_type_is_not_dropped_with_the_columns_of_a_table(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (m mood, n int)")
    await own_env.query("s", "CREATE VIEW v AS SELECT 'sad'::mood AS m")
    assert (await own_env.query("s", "DROP TYPE mood CASCADE")).startswith("ERROR 0A000")
    await own_env.query("s", "ALTER TABLE t DROP COLUMN m")
    assert (await own_env.query("s", "DROP TYPE mood CASCADE")).startswith("DROP TYPE")
    assert (await own_env.query("s", "SELECT * FROM v")).startswith("ERROR 42P01")


def test_domain_survives_a_restart_and_renames(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query(
            "s", "CREATE SCHEMA q; CREATE DOMAIN q.pos AS int DEFAULT 1 CHECK (VALUE > 0)"
        )
        await env.query("s", "CREATE TABLE t (n int, p q.pos, CHECK (p < 9))")
        await env.query("s", "CREATE MATERIALIZED VIEW v AS SELECT n::q.pos AS p FROM t")
        await env.query("s", "INSERT INTO t VALUES (1)")
        await env.query("s", "ALTER DOMAIN q.pos RENAME TO positive; ALTER SCHEMA q RENAME TO r")
        for _ in range(2):
            assert await env.query("s", "SELECT p FROM t UNION ALL SELECT p FROM v") == (
                "1\n1\nSELECT 2"
            )
            refused = await env.query("s", "INSERT INTO t VALUES (2, -1)")
            assert 'domain positive violates check constraint "pos_check"' in refused
            shown = await env.query("s", "SHOW CREATE TABLE t")
            assert "p foreshore.r.positive" in shown, shown
            listed = await env.query(
                "s", "SELECT conname FROM pg_constraint WHERE contype = 'c' ORDER BY 1"
            )
            assert listed == "pos_check\nt_p_check\nSELECT 2"
            await env.close()
            env = TestEnvironment(tmp_path)
            await env.open()
        await env.close()

    asyncio.run(scenario())
