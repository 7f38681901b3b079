"""What is defined over something means the same when that, or its schema, is called otherwise."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.client import Startup
from foreshore.sql.bind.definitions import table
from tests.adapter.harness import House, in_house

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
def test_a_view_is_what_it_was(tmp_path: Path, renames: str) -> None:
    async def rows(house: House) -> list[list[str]]:
        names = [f"{kind}{i}" for i in range(len(QUERIES)) for kind in "vm"]
        return [sorted((await house.query("a", f"TABLE {name}")).splitlines()) for name in names]

    async def main() -> None:
        house = House(tmp_path)
        await house.open()
        await house.query("a", TABLES)
        for i, query in enumerate(QUERIES.values()):
            await house.query("a", f"CREATE VIEW v{i} AS {query}")
            await house.query("a", f"CREATE MATERIALIZED VIEW m{i} AS {query}")
        before = await rows(house)
        assert not any("ERROR" in line for lines in before for line in lines)
        await house.ran("a", renames)
        assert await rows(house) == before
        await house.reopen()
        assert await rows(house) == before
        one = "q" if "a RENAME TO q" in renames else "b"
        await house.ran("a", f"ALTER TABLE {one} ADD COLUMN z int")
        assert await rows(house) == before
        for i in range(len(QUERIES)):
            for kind, noun in (("v", "VIEW"), ("m", "MATERIALIZED VIEW")):
                shown = await house.query("a", f"SHOW CREATE {noun} {kind}{i}")
                text = shown.splitlines()[0].split("|", 1)[1]
                assert "ERROR" not in await house.query("a", f"DROP {noun} {kind}{i}; {text}"), text
        assert await rows(house) == before
        await house.ran("a", "SELECT count(definition) FROM pg_views")
        await house.close()

    asyncio.run(main())


def test_a_check_of_before_may_name_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        house = House(tmp_path)
        await house.open()
        with monkeypatch.context() as patch:  # as texts were kept once
            patch.setattr(table, "without_qualifiers", lambda text, *_: text)
            await house.query("a", "CREATE TABLE t (y int, z int, CHECK (t.y > 0 AND t.z > 0))")
        assert "t.y" in await house.query("a", "SHOW CREATE TABLE t")
        for change in ("RENAME TO u", "RENAME y TO yyyyy", "ADD COLUMN w int"):
            name = "t" if change == "RENAME TO u" else "u"
            await house.ran("a", f"ALTER TABLE {name} {change}")
        await house.reopen()
        assert "(yyyyy > 0 AND z > 0)" in await house.query("a", "SHOW CREATE TABLE u")
        assert "23514" in await house.query("a", "INSERT INTO u VALUES (1, 0)")
        await house.close()

    asyncio.run(main())


def test_a_view_is_not_replaced_by_one_of_itself(tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        await house.query("a", "CREATE VIEW v AS SELECT 1 AS x")
        await house.query("a", "CREATE MATERIALIZED VIEW m AS SELECT 1 AS x")
        for kind, name in (("VIEW", "v"), ("MATERIALIZED VIEW", "m")):
            sql = f"CREATE OR REPLACE {kind} {name} AS SELECT x FROM {name}"
            assert "42P17" in await house.query("a", sql)
            assert await house.query("a", f"TABLE {name}") == "1\nSELECT 1"

    in_house(tmp_path, scenario)


def test_a_database_is_renamed_from_another(tmp_path: Path) -> None:
    async def main() -> None:
        house = House(tmp_path)
        await house.open()
        await house.query("a", "CREATE TABLE t (y int); INSERT INTO t VALUES (1)")
        await house.query("a", "CREATE MATERIALIZED VIEW m AS SELECT foreshore.public.t.y FROM t")
        own = await house.query("a", "ALTER DATABASE foreshore RENAME TO f")
        assert own == "ERROR 0A000: current database cannot be renamed"
        await house.query("a", "CREATE DATABASE d")
        house.sessions["b"] = await house.environment.connect(Startup("foreshore", "d", {}))
        await house.ran("b", "ALTER DATABASE foreshore RENAME TO f")
        await house.reopen()
        house.sessions["b"] = await house.environment.connect(Startup("foreshore", "f", {}))
        assert await house.query("b", "TABLE m") == "1\nSELECT 1"
        await house.close()

    asyncio.run(main())


def test_what_is_of_a_table_itself_goes_on(tmp_path: Path) -> None:
    async def check(house: House) -> None:
        assert "23514" in await house.query("a", "INSERT INTO t2 VALUES (0)")
        assert "ERROR" not in await house.query(
            "a", "SELECT pg_get_indexdef(indexrelid) FROM pg_index"
        )
        assert await house.query("a", "SELECT y FROM t2 WHERE y + 1 = 2") == "1\nSELECT 1"

    async def main() -> None:
        house = House(tmp_path)
        await house.open()
        await house.query("a", "CREATE TABLE t (y int CHECK (t.y > 0), CHECK (public.t.y < 9))")
        await house.query("a", "INSERT INTO t VALUES (1)")
        await house.query("a", "CREATE INDEX i ON t ((t.y + 1))")
        await house.query("a", "CREATE SUBSCRIPTION s FOR (SELECT t.y FROM t)")
        await house.query("a", "ALTER TABLE t RENAME TO t2")
        await check(house)
        await house.reopen()
        await check(house)
        await house.ran("a", "DROP SUBSCRIPTION s")
        for change in ("ADD COLUMN z int", "ALTER y SET NOT NULL", "ADD CHECK (t2.z < 5)"):
            await house.ran("a", f"ALTER TABLE t2 {change}")
            await check(house)
        shown = await house.query("a", "SHOW CREATE TABLE t2")
        assert "t.y" not in shown
        assert "t2.z" not in shown
        await house.close()

    asyncio.run(main())
