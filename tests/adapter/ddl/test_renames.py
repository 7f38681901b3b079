"""Definitions keep their meaning when the objects that they use are renamed."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.client import Startup
from foreshore.sql.bind.definitions import constraints
from tests.adapter.harness import TestEnvironment

TABLES = """
    CREATE SCHEMA s;
    CREATE TABLE a (k int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 10), (2, 11);
    CREATE TABLE b (k int, v int); INSERT INTO b VALUES (1, 20), (1, 21);
    CREATE TABLE s.p (k int, v int); INSERT INTO s.p VALUES (1, 30);
    CREATE VIEW w AS SELECT a.k, a.v + 1 AS v FROM a;
"""
QUERIES = {
    "by its table": "SELECT a.k FROM a",
    "all of its table": "SELECT a.* FROM a",
    "by its schema": "SELECT s.p.v FROM s.p WHERE s.p.k = 1",
    "by its database": "SELECT foreshore.s.p.v FROM s.p",
    "all by its schema": "SELECT s.p.* FROM s.p",
    "of two tables": "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k",
    "of a view": "SELECT w.v FROM w ORDER BY w.v LIMIT 1",
    "in a subquery": "SELECT a.v FROM a WHERE EXISTS (SELECT FROM b WHERE b.k = a.k AND b.v > 20)",
    "beside an alias of the new name": "SELECT q.v FROM b AS q, a WHERE q.k = a.k",
    "under an alias": "SELECT x.v FROM a AS x",
    "under its own name": "SELECT a.v FROM a AS a",
    "the table": "TABLE a",
    "the table, and more": "(TABLE b) UNION ALL table  b",
    "counted": "SELECT count(a.*) AS n FROM a",
}
RENAMES = {
    "each": "ALTER TABLE a RENAME TO q; ALTER TABLE b RENAME TO b2; ALTER VIEW w RENAME TO w2;"
    " ALTER TABLE s.p RENAME TO p2; ALTER SCHEMA s RENAME TO s2",
    "past each other": "ALTER TABLE a RENAME TO c; ALTER TABLE b RENAME TO a;"
    " ALTER TABLE c RENAME TO b; ALTER SCHEMA s RENAME TO s2; CREATE SCHEMA s;"
    " CREATE TABLE s.p (k text)",
}


@pytest.mark.parametrize("renames", RENAMES.values(), ids=RENAMES)
def test_view_is_unchanged_after_renames(tmp_path: Path, renames: str) -> None:
    async def rows(env: TestEnvironment) -> list[list[str]]:
        names = [f"{kind}{i}" for i in range(len(QUERIES)) for kind in "vm"]
        return [sorted((await env.query("a", f"TABLE {name}")).splitlines()) for name in names]

    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("a", TABLES)
        for i, query in enumerate(QUERIES.values()):
            await env.query("a", f"CREATE VIEW v{i} AS {query}")
            await env.query("a", f"CREATE MATERIALIZED VIEW m{i} AS {query}")
        before = await rows(env)
        assert not any("ERROR" in line for lines in before for line in lines)
        await env.ran("a", renames)
        assert await rows(env) == before
        await env.reopen()
        assert await rows(env) == before
        one = "q" if "a RENAME TO q" in renames else "b"
        await env.ran("a", f"ALTER TABLE {one} ADD COLUMN z int")
        assert await rows(env) == before
        for i in range(len(QUERIES)):
            for kind, noun in (("v", "VIEW"), ("m", "MATERIALIZED VIEW")):
                shown = await env.query("a", f"SHOW CREATE {noun} {kind}{i}")
                text = shown.splitlines()[0].split("|", 1)[1]
                assert "ERROR" not in await env.query("a", f"DROP {noun} {kind}{i}; {text}"), text
        assert await rows(env) == before
        await env.ran("a", "SELECT count(definition) FROM pg_views")
        await env.close()

    asyncio.run(main())


def test_check_that_names_its_table_survives_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        with monkeypatch.context() as patch:  # as texts were kept once
            patch.setattr(constraints, "without_qualifiers", lambda text, *_: text)
            await env.query("a", "CREATE TABLE t (y int, z int, CHECK (t.y > 0 AND t.z > 0))")
        assert "t.y" in await env.query("a", "SHOW CREATE TABLE t")
        for change in ("RENAME TO u", "RENAME y TO yyyyy", "ADD COLUMN w int"):
            name = "t" if change == "RENAME TO u" else "u"
            await env.ran("a", f"ALTER TABLE {name} {change}")
        await env.reopen()
        assert "(yyyyy > 0 AND z > 0)" in await env.query("a", "SHOW CREATE TABLE u")
        assert "23514" in await env.query("a", "INSERT INTO u VALUES (1, 0)")
        await env.close()

    asyncio.run(main())


async def test_create_or_replace_of_view_over_itself_is_refused(own_env: TestEnvironment) -> None:
    await own_env.query("a", "CREATE VIEW v AS SELECT 1 AS x")
    await own_env.query("a", "CREATE MATERIALIZED VIEW m AS SELECT 1 AS x")
    for kind, name in (("VIEW", "v"), ("MATERIALIZED VIEW", "m")):
        sql = f"CREATE OR REPLACE {kind} {name} AS SELECT x FROM {name}"
        assert "42P17" in await own_env.query("a", sql)
        assert await own_env.query("a", f"TABLE {name}") == "1\nSELECT 1"


def test_database_is_renamed_from_another_database(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("a", "CREATE TABLE t (y int); INSERT INTO t VALUES (1)")
        await env.query("a", "CREATE MATERIALIZED VIEW m AS SELECT foreshore.public.t.y FROM t")
        own = await env.query("a", "ALTER DATABASE foreshore RENAME TO f")
        assert own == "ERROR 0A000: current database cannot be renamed"
        await env.query("a", "CREATE DATABASE d")
        env.sessions["b"] = await env.environment.connect(Startup("foreshore", "d", {}))
        await env.ran("b", "ALTER DATABASE foreshore RENAME TO f")
        await env.reopen()
        env.sessions["b"] = await env.environment.connect(Startup("foreshore", "f", {}))
        assert await env.query("b", "TABLE m") == "1\nSELECT 1"
        await env.close()

    asyncio.run(main())


def test_tables_own_objects_survive_rename(tmp_path: Path) -> None:
    async def check(env: TestEnvironment) -> None:
        assert "23514" in await env.query("a", "INSERT INTO t2 VALUES (0)")
        assert "ERROR" not in await env.query(
            "a", "SELECT pg_get_indexdef(indexrelid) FROM pg_index"
        )
        assert await env.query("a", "SELECT y FROM t2 WHERE y + 1 = 2") == "1\nSELECT 1"

    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("a", "CREATE TABLE t (y int CHECK (t.y > 0), CHECK (public.t.y < 9))")
        await env.query("a", "INSERT INTO t VALUES (1)")
        await env.query("a", "CREATE INDEX i ON t ((t.y + 1))")
        await env.query("a", "CREATE SUBSCRIPTION s FOR (SELECT t.y FROM t)")
        await env.query("a", "ALTER TABLE t RENAME TO t2")
        await check(env)
        await env.reopen()
        await check(env)
        await env.ran("a", "DROP SUBSCRIPTION s")
        for change in ("ADD COLUMN z int", "ALTER y SET NOT NULL", "ADD CHECK (t2.z < 5)"):
            await env.ran("a", f"ALTER TABLE t2 {change}")
            await check(env)
        shown = await env.query("a", "SHOW CREATE TABLE t2")
        assert "t.y" not in shown
        assert "t2.z" not in shown
        await env.close()

    asyncio.run(main())
