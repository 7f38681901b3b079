"""ALTER ... RENAME COLUMN of views keeps dependents, indexes and contents, also after a restart."""

from tests.adapter.harness import TestEnvironment

DEFINITIONS = """
    CREATE TABLE t (a int, b timestamptz);
    CREATE VIEW v AS SELECT a, b::date AS day FROM t;
    CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a;
    CREATE INDEX m_a ON m (a);
    CREATE VIEW over_both AS SELECT v.a, v.day, m.n FROM v JOIN m ON m.a = v.a;
    CREATE MATERIALIZED VIEW sums AS SELECT sum(n) AS total FROM m;
    ALTER VIEW v RENAME day TO d;
    ALTER VIEW v RENAME a TO x;
    ALTER TABLE m RENAME a TO x;
    ALTER MATERIALIZED VIEW m RENAME n TO "N";
"""


async def rows(env: TestEnvironment, query: str) -> str:
    """Return the rows of a query, without the tag."""
    return (await env.ran("a", query)).rpartition("\n")[0]


async def test_renamed_columns_of_views_survive_restart(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", *filter(None, map(str.strip, DEFINITIONS.split(";"))))

    async def check(n: int) -> None:
        day = "2024-01-01"
        assert await rows(env, "SELECT x, d FROM v LIMIT 1") == f"1|{day}"
        assert await rows(env, 'SELECT x, "N" FROM m WHERE x = 1') == f"1|{n}"
        assert await rows(env, "SELECT DISTINCT a, day, n FROM over_both") == f"1|{day}|{n}"
        assert await rows(env, "SELECT total FROM sums") == str(n)

    await env.ran("a", "INSERT INTO t VALUES (1, '2024-01-01 12:00+00')")
    await check(1)
    await env.reopen()
    await check(1)
    await env.ran("a", "INSERT INTO t VALUES (1, '2024-01-01 12:00+00')")
    await check(2)
    definition = await rows(env, "SELECT pg_get_viewdef('v'::regclass)")
    await env.ran("a", f"CREATE VIEW again AS {definition.removesuffix(';')}")
    assert await rows(env, "SELECT count(x), count(d) FROM again") == "2|2"


async def test_column_of_view_with_expectation_keeps_its_name(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE t (a int)")
    await env.ran(
        "a",
        "CREATE MATERIALIZED VIEW m AS SELECT a FROM t"
        " CONSTRAINT positive EXPECT (a > 0) ON VIOLATION DROP ROW",
    )
    answer = await env.query("a", "ALTER TABLE m RENAME a TO b")
    assert "0A000" in answer
