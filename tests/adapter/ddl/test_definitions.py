"""Stored definitions, as shown and as used again after renames."""

import asyncio
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment


async def test_rename_replaces_whole_names_at_once(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE SEQUENCE s",
        "CREATE SEQUENCE s2",
        "CREATE TABLE t (a int DEFAULT nextval('s'), b int DEFAULT nextval('s2'), c int)",
        "ALTER SEQUENCE s RENAME TO x",
        "ALTER TABLE t ADD CHECK (c > 0)",
    )
    shown = await env.query("a", "SHOW CREATE TABLE t")
    assert "nextval('foreshore.public.x')" in shown
    assert "nextval('foreshore.public.s2')" in shown
    await env.ran(
        "a",
        "ALTER SEQUENCE s2 RENAME TO y",
        "ALTER SEQUENCE x RENAME TO s2",
        "ALTER SEQUENCE y RENAME TO s",
        "ALTER TABLE t ADD CHECK (c > 1)",
        "SELECT setval('s', 100)",
    )
    answer = await env.query("a", "INSERT INTO t (c) VALUES (2) RETURNING *")
    assert answer == "1|101|2\nINSERT 0 1"


async def test_query_of_view_is_found_for_any_name(env: TestEnvironment) -> None:
    await env.query("a", 'CREATE VIEW "p AS q" AS SELECT 1 AS one')
    found = await env.query("a", "SELECT definition FROM pg_views WHERE viewname = 'p AS q'")
    assert found == "SELECT 1 AS one\nSELECT 1"
    await env.query("a", "CREATE SEQUENCE small AS smallint")
    await env.ran("a", "SELECT * FROM mz_catalog.mz_objects")
    shown = await env.query("a", "SELECT pg_get_viewdef('small'::regclass)")
    assert "smallint" not in shown


@pytest.mark.parametrize(
    "argument", ["'s'", "'s'::regclass", "regclass 's'", "CAST('s' AS regclass)", "(('s'))", "E's'"]
)
def test_sequence_in_default_is_found_under_any_spelling(tmp_path: Path, argument: str) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.ran(
            "a",
            "CREATE SEQUENCE s",
            "CREATE SCHEMA o",
            f"CREATE TABLE o.t (a int DEFAULT 7 + nextval({argument}), b int)",
            f"ALTER TABLE o.t ALTER b SET DEFAULT -pg_catalog.nextval({argument})",
            "ALTER SEQUENCE s RENAME TO renamed",
        )
        await env.reopen()
        shown = await env.query("a", "SHOW CREATE TABLE o.t")
        assert shown.count("foreshore.public.renamed") == 2
        answer = await env.query("a", "INSERT INTO o.t DEFAULT VALUES RETURNING *")
        assert answer == "8|-2\nINSERT 0 1"
        await env.close()

    asyncio.run(play())


def test_text_that_looks_like_a_name_is_unchanged(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def play() -> None:
        await env.ran(
            "a",
            "CREATE SCHEMA alike; SET search_path = alike; CREATE SEQUENCE s",
            """CREATE TABLE "T's" (i int)""",
            "CREATE TABLE t (a text DEFAULT 'foreshore.alike.s', b int DEFAULT nextval('s'))",
            """CREATE VIEW v AS SELECT 'foreshore.alike.t' AS "foreshore.alike.t", b FROM t""",
            """CREATE VIEW w AS SELECT i, 'foreshore.alike."T''s"' AS d FROM "T's" """,
            "ALTER SEQUENCE s RENAME TO x",
            """ALTER TABLE "T's" RENAME TO "U's" """,
            "ALTER TABLE t ADD COLUMN c int",
            "ALTER TABLE t RENAME TO u",
            "INSERT INTO u DEFAULT VALUES",
        )
        assert (await env.query("a", "TABLE u")).startswith("foreshore.alike.s|1|")
        assert (await env.query("a", "TABLE v")).startswith("foreshore.alike.t|1")
        shown = await env.query("a", "SHOW CREATE VIEW v")
        assert """'foreshore.alike.t' AS "foreshore.alike.t", b FROM (SELECT""" in shown
        shown = await env.query("a", "SHOW CREATE VIEW w")
        assert """'foreshore.alike."T''s"' AS d FROM foreshore.alike."U's\"""" in shown
        shown = await env.query("a", "SHOW CREATE TABLE u")
        assert "DEFAULT 'foreshore.alike.s'" in shown
        assert "nextval('foreshore.alike.x')" in shown

        await env.query("a", "RESET search_path")

    runner.run(play())


async def test_sequence_named_by_text_is_resolved_at_call(env: TestEnvironment) -> None:
    for argument in ("'late' || 'r'", "'later'::text"):
        made = await env.query("a", f"CREATE TABLE t_later (a int DEFAULT nextval({argument}))")
        assert made == "CREATE TABLE"
        answer = await env.query("a", "INSERT INTO t_later DEFAULT VALUES")
        assert answer == 'ERROR 42P01: relation "later" does not exist'
        await env.query("a", "CREATE SEQUENCE later")
        answer = await env.query("a", "INSERT INTO t_later DEFAULT VALUES RETURNING a")
        assert answer == "1\nINSERT 0 1"
        await env.query("a", "DROP TABLE t_later; DROP SEQUENCE later")


async def test_identity_sequence_is_in_schema_of_its_table(env: TestEnvironment) -> None:
    identity = "id int GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME {})"
    await env.query("a", "CREATE SCHEMA first; CREATE SCHEMA second")
    await env.query("a", "SET search_path = second")
    made = f"CREATE TABLE first.t ({identity.format('numbers')})"
    assert await env.query("a", made) == "CREATE TABLE"
    answer = await env.query("a", f"CREATE TABLE first.u ({identity.format('second.n')})")
    refused = "ERROR 55000: sequence must be in same schema as table it is linked to"
    assert answer == refused
    altered = f"ALTER TABLE first.t ADD {identity.format('second.n').replace('id', 'other', 1)}"
    assert await env.query("a", altered) == refused
    await env.query("a", "DROP SCHEMA second CASCADE")
    answer = await env.query("a", "INSERT INTO first.t DEFAULT VALUES RETURNING id")
    assert answer == "1\nINSERT 0 1"
    dropped = await env.query("a", "DROP SCHEMA first CASCADE; RESET search_path")
    assert "ERROR" not in dropped


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE r2 (a regclass DEFAULT 'r')",
        "ALTER TABLE r ALTER a SET DEFAULT 'r'",
        "ALTER TABLE r ADD COLUMN b regtype DEFAULT 'int4'",
    ],
)
async def test_default_that_resolves_names_is_refused(env: TestEnvironment, sql: str) -> None:
    await env.query("a", "CREATE TABLE IF NOT EXISTS r (a regclass)")
    refused = "ERROR 0A000: cannot use subquery in DEFAULT expression"
    assert await env.query("a", sql) == refused


def test_definition_may_contain_nan(tmp_path: Path) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.ran(
            "a",
            "CREATE TABLE t (x float8 DEFAULT 'NaN' CHECK (x <> '-Infinity' OR x = 'NaN'), y int)",
            "CREATE MATERIALIZED VIEW m AS SELECT x, '{NaN,1}'::float8[] AS z FROM t"
            " WHERE x IN (VALUES ('NaN'::float8))",
            "ALTER TABLE t RENAME y TO v",
            "ALTER TABLE t ADD COLUMN w int",
            "INSERT INTO t (v) VALUES (1)",
        )
        for _ in range(2):
            assert await env.query("a", "SELECT * FROM m") == "NaN|{NaN,1}\nSELECT 1"
            await env.reopen()
        await env.close()

    asyncio.run(play())


@pytest.mark.parametrize("letter", ["a", "A", "ä", "Ω"])
def test_names_are_cut_to_63_bytes_everywhere(tmp_path: Path, letter: str) -> None:
    long = f'"{letter * 70}"'
    kept = '"' + (letter * 70).encode()[:63].decode(errors="ignore") + '"'

    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.ran(
            "a",
            f"CREATE SCHEMA {long}; CREATE SEQUENCE s; ALTER SEQUENCE s RENAME TO {long}",
            f"CREATE TABLE {long}.t (a int PRIMARY KEY, b int DEFAULT nextval('{long}'))",
            f"ALTER TABLE {long}.t RENAME a TO {long}",
            f"ALTER TABLE {long}.t ADD CHECK ({long}.t.{long} > 0)",
            f"ALTER TABLE {long}.t RENAME TO {long}",
            f"ALTER TABLE {long}.{long} ADD c int",
            f"CREATE MATERIALIZED VIEW m AS SELECT {long}.{long} FROM {long}.{kept}",
            f"INSERT INTO {long}.{long} VALUES (1)",
        )
        for _ in range(2):
            assert await env.query("a", f"SELECT {long}, b FROM {kept}.{long}") == "1|1\nSELECT 1"
            assert await env.query("a", "SELECT * FROM m") == "1\nSELECT 1"
            await env.reopen()
        await env.close()

    asyncio.run(play())


def test_padded_bpchar_keeps_unlimited_length(tmp_path: Path) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.ran(
            "a",
            "CREATE TABLE t (k bpchar PRIMARY KEY, a bpchar[])",
            "CREATE TABLE u AS SELECT k FROM t",
        )
        await env.reopen()
        for sql in ("INSERT INTO t VALUES ('long', '{longer}')", "INSERT INTO u VALUES ('long')"):
            assert await env.query("a", sql) == "INSERT 0 1"
        await env.close()

    asyncio.run(play())


async def test_tags_of_assertions_name_them(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE kept (a int)", "CREATE MATERIALIZED VIEW held AS TABLE kept")
    made = await env.query("a", "CREATE ASSERTION c CHECK (NOT EXISTS (SELECT a FROM kept))")
    assert made == "CREATE ASSERTION"
    refused = 'ERROR 42809: "held" is not an assertion'
    assert await env.query("a", "DROP ASSERTION held") == refused
    assert await env.query("a", "DROP ASSERTION c") == "DROP ASSERTION"
    assert await env.query("a", "DROP MATERIALIZED VIEW held") == "DROP MATERIALIZED VIEW"
