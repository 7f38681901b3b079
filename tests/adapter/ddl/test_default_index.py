"""An index without columns is by a unique key of its relation, or by all columns."""

from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment

VIEWS = {
    "SELECT a, count(*) AS n FROM t GROUP BY a": "(a)",
    "SELECT n.k, t.a FROM t JOIN n ON n.k = t.k": "(k)",
    "SELECT count(*) AS n FROM t": "(n)",
    "SELECT a, b FROM t": "(a, b)",
    "SELECT DISTINCT b, a + 1 AS c FROM t": "(b, c)",
    "SELECT b, k FROM t WHERE a > 1": "(k)",
    "SELECT b, k FROM t WHERE mz_now() <= '2999-01-01'::timestamp + k * INTERVAL '1 day'": "(k)",
    "SELECT b, count(*) FROM (SELECT b FROM t WHERE mz_now() <= 9999999999999 + k) q GROUP BY b": "(b)",
    "WITH RECURSIVE r(i) AS (SELECT 1 UNION SELECT i + 1 FROM r WHERE i < 3) SELECT i FROM r": "(i)",
}


async def tables(env: TestEnvironment) -> None:
    await env.ran(
        "s",
        "CREATE TABLE t (a int, b text, k int PRIMARY KEY)",
        "CREATE TABLE n (k int PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3)",
        "INSERT INTO n VALUES (1), (3)",
    )


@pytest.mark.parametrize("create", ["CREATE DEFAULT INDEX i ON v", "CREATE INDEX i ON v"])
def test_default_index_of_view_is_by_its_unique_key(tmp_path: Path, create: str) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await tables(env)
        for query, key in VIEWS.items():
            await env.ran("s", f"CREATE VIEW v AS {query}", create)
            shown = await env.query("s", "SHOW CREATE INDEX i")
            assert f"ON foreshore.public.v {key}" in shown, (query, shown)
            rows = await env.query("s", f"SELECT count(*) FROM ({query}) q")
            assert await env.query("s", "SELECT count(*) FROM v") == rows
            await env.ran("s", "DROP VIEW v CASCADE")

    in_environment(tmp_path, scenario)


def test_default_index_keeps_its_key(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await tables(env)
        await env.ran("s", "CREATE VIEW v AS SELECT b, k FROM t", "CREATE DEFAULT INDEX i ON v")
        await env.ran("s", "ALTER VIEW v RENAME TO w", "ALTER TABLE t RENAME COLUMN a TO c")
        await env.reopen()
        assert "(k)" in await env.query("s", "SHOW CREATE INDEX i")
        assert "i" in await env.query("s", "EXPLAIN SELECT * FROM w WHERE k = 3")
        assert await env.query("s", "SELECT b FROM w WHERE k = 3") == "x\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_columns_of_one_name_are_indexed_all_the_same(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await tables(env)
        await env.ran("s", "CREATE VIEW v (a, b) AS SELECT a, a + 1 FROM t")
        await env.ran("s", "CREATE INDEX ON v", "CREATE INDEX ON t")
        await env.reopen()
        assert await env.query("s", "SELECT count(*) FROM v WHERE a = 1 AND b = 2") == "2\nSELECT 1"

    in_environment(tmp_path, scenario)
