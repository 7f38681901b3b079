"""Stored statements have the same meaning when they are read again."""

import asyncio
from pathlib import Path

import pytest

from foreshore.sql.bind.definitions import constraints
from foreshore.sql.bind.definitions import objects as ddl
from tests.adapter.harness import TestEnvironment


async def _same_when_reopened(
    env: TestEnvironment, statements: list[str], queries: list[str]
) -> None:
    for sql in statements:
        assert "ERROR" not in await env.query("a", sql), sql
    before = [await env.query("a", query) for query in queries]
    assert not any("ERROR" in each and "23514" not in each for each in before), before
    await env.reopen()
    assert [await env.query("a", query) for query in queries] == before


def test_unquoted_name_stays_apart_from_next_word(tmp_path: Path) -> None:
    froms = [
        'SELECT x.a FROM "t"AS x',
        'SELECT*FROM"t"',
        'TABLE"t"',
        'SELECT s.t.b FROM"t"JOIN"s"."t"ON"public"."t".a=s.t.a',
        'SELECT"public".t.a FROM t',
        'SELECT a FROM"t"x',
        'SELECT a FROM"t"WHERE 1="t".a AND"public"."t".a=1 AND"t"."a"IN(1)',
        'SELECT a FROM alter_"x"',
    ]
    tables = [
        "CREATE SCHEMA s; CREATE TABLE t (a int); INSERT INTO t VALUES (1)",
        "CREATE TABLE s.t (a int, b int); INSERT INTO s.t VALUES (1, 2)",
        "CREATE TABLE tas (a int); CREATE TABLE tx (a int); CREATE TABLE alter_ (a int)",
        'CREATE TABLE c (a bool, "B" int, CHECK (NOT"c".a), CHECK (1=1 AND"B">0))',
        'CREATE INDEX i ON c ((NOT"c".a),(a AND"B">0))',
        'ALTER TABLE c RENAME"B"TO b',
        "ALTER TABLE c RENAME TO c2",
    ]
    views = [f"CREATE VIEW v{i} AS {query}" for i, query in enumerate(froms)]
    queries = [f"TABLE v{i}" for i in range(len(froms))]
    writes = [f"INSERT INTO c2 VALUES ({row})" for row in ("true, 1", "false, 0")]

    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await _same_when_reopened(env, tables + views, queries + writes)
        await env.ran("a", "INSERT INTO c2 VALUES (false, 1)")
        await env.close()

    asyncio.run(play())


def test_reserved_word_is_quoted_without_qualifier(tmp_path: Path) -> None:
    tables = [
        'CREATE TABLE "user" (name text); INSERT INTO "user" VALUES (\'x\')',
        """CREATE TABLE c ("user" text, "order" int, "Mixed" int, "select" int,
            CHECK (c.user <> 'bob'), CHECK (c.order > 0 AND public.c."Mixed" > 0))""",
        "CREATE INDEX i ON c ((c.user = 'bob'), (c.order+1))",
        "CREATE VIEW v AS SELECT public.user.name FROM public.user WHERE public.user.name = 'x'",
        "CREATE VIEW w AS SELECT foreshore.public.user.* FROM public.user",
        "ALTER TABLE c RENAME TO d",
        'ALTER TABLE "user" RENAME TO "order"',
        "ALTER TABLE d ADD COLUMN e int",
        'ALTER TABLE d RENAME "order" TO "group"',
    ]
    writes = [f"INSERT INTO d VALUES ({row})" for row in ("'bob', 1, 1", "'a', 0, 1", "'a', 1, 0")]

    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await _same_when_reopened(env, tables, ["TABLE v", "TABLE w", *writes])
        await env.ran("a", "INSERT INTO d VALUES ('a', 1, 1)")
        await env.close()

    asyncio.run(play())


def test_word_that_parser_misreads_is_quoted(tmp_path: Path) -> None:
    words = ("alter", "qualify", "exclude", "of", "xor")

    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        made = [
            sql
            for word in words
            for sql in (
                f'CREATE TABLE "{word}" ("{word}" int, b int); INSERT INTO "{word}" VALUES (1, 2)',
                f'CREATE VIEW v_{word} AS SELECT "{word}".* FROM "{word}"',
                f'ALTER TABLE "{word}" RENAME b TO c',
            )
        ]
        await _same_when_reopened(env, made, [f"TABLE v_{word}" for word in words])
        await env.close()

    asyncio.run(play())


@pytest.mark.parametrize("kept", ["SELECT b FROM", "SELECT b AS a FROM foreshore.public.t"])
async def test_statement_that_does_not_round_trip_is_refused(
    own_env: TestEnvironment, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.query("a", "CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)")
    with monkeypatch.context() as patch:
        patch.setattr(ddl, "kept_text", lambda *_: kept)
        patch.setattr(ddl, "without_qualifiers", lambda *_: "(b)")
        patch.setattr(constraints, "without_qualifiers", lambda *_: "b > 0")
        for sql in (
            "CREATE VIEW v AS SELECT a FROM t",
            "CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
            "CREATE INDEX i ON t (a)",
            "CREATE TABLE u (a int, b int, CHECK (a > 0))",
        ):
            assert "ERROR XX000" in await own_env.query("a", sql), sql
    assert (
        await own_env.query("a", "SELECT count(*) FROM pg_class WHERE oid > 16383") == "1\nSELECT 1"
    )
