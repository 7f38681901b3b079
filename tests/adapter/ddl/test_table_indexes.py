"""INDEX and FAMILY within CREATE TABLE, as CockroachDB writes them."""

from tests.adapter.harness import TestEnvironment

INDEXES = "SELECT indexname FROM pg_indexes WHERE tablename = '{}' ORDER BY 1"


async def test_create_table_creates_its_indexes(env: TestEnvironment) -> None:
    await env.ran(
        "s",
        "CREATE TABLE with_indexes (a int PRIMARY KEY, b int, c text, INDEX (b),"
        " INDEX foo (c DESC, b), UNIQUE INDEX u (b ASC), FAMILY f (a, b), FAMILY (c))",
        "INSERT INTO with_indexes VALUES (1, 1, 'x')",
    )
    assert await env.query("s", INDEXES.format("with_indexes")) == (
        "foo\nu\nwith_indexes_b_idx\nwith_indexes_pkey\nSELECT 4"
    )
    answer = await env.query("s", "INSERT INTO with_indexes VALUES (2, 1, 'x')")
    assert 'violates unique constraint "u"' in answer


async def test_create_table_with_index_on_missing_column_creates_nothing(
    env: TestEnvironment,
) -> None:
    answer = await env.query("s", "CREATE TABLE half_done (a int, INDEX (z))")
    assert answer.startswith('ERROR 42703: column "z" does not exist')
    assert "42P01" in await env.query("s", "SELECT * FROM half_done")


async def test_columns_may_be_called_index_and_family(env: TestEnvironment) -> None:
    await env.ran("s", "CREATE TABLE words (index int, family varchar(10), x numeric(5, 2))")
    assert await env.query("s", "SELECT index, family FROM words") == "SELECT 0"
