"""A table of a PostgreSQL server may be read as several relations, each with its own columns."""

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.replicated import SOURCE, Upstream, equal, rows_of, until
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream

AGAIN = "CREATE TABLE {} FROM SOURCE s (REFERENCE up.b)"


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be looked at often."""
    monkeypatch.setattr("foreshore.storage.ingest.postgres.stream.LOOK_SECONDS", 0.1)


async def test_view_moves_to_table_with_new_column_while_old_one_goes_on(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE, "CREATE VIEW v AS SELECT id, v FROM b")
    await equal(env, upstream)
    upstream.execute("ALTER TABLE up.b ADD c int DEFAULT 7")
    upstream.execute("INSERT INTO up.b VALUES (50, 5, 8)")
    await env.ran("a", AGAIN.format("b2"))
    listed = "SELECT schema_name, table_name FROM mz_internal.mz_postgres_source_tables"
    assert "up|b\nup|b\n" in await env.query("a", f"{listed} ORDER BY 2")
    upstream.execute("UPDATE up.b SET v = 3, c = 9 WHERE id = 2")
    every = "SELECT id, v, c FROM {} ORDER BY id"
    await until(env, every.format("b2"), rows_of(upstream, every.format("up.b")))
    await env.ran("a", "CREATE OR REPLACE VIEW v AS SELECT id, v, c FROM b2")
    await equal(env, upstream)
    await env.reopen()
    sums = "(SELECT sum(v) FROM {}), (SELECT count(*) FROM {})"
    for turn in range(10):
        with upstream.transaction():
            upstream.execute("INSERT INTO up.b VALUES (%s, 1, 1)", (100 + turn,))
            upstream.execute("UPDATE up.b SET v = v + 1 WHERE id < 5")
        if turn == 4:
            env.ingest.last.kill()
        b, b2 = sums.format("b", "b"), sums.format("b2", "b2")
        assert (await env.query("a", f"SELECT ({b}) = ({b2})")).startswith("t"), turn
    with upstream.transaction():
        upstream.execute("TRUNCATE up.b")
        upstream.execute("INSERT INTO up.b VALUES (1, 1, 1)")
    await equal(env, upstream)
    await until(env, every.format("b2"), "1|1|1")
    await env.ran("a", "DROP SOURCE b")
    upstream.execute("INSERT INTO up.b VALUES (2, 2, 2)")
    await until(env, "SELECT id, v, c FROM v ORDER BY id", "1|1|1\n2|2|2")
    await env.ran("a", AGAIN.format("b3"), "DROP SOURCE b2 CASCADE")
    await until(env, "SELECT count(*) FROM b3", "2")


async def test_each_relation_has_its_own_options(env: TestEnvironment, upstream: Upstream) -> None:
    upstream.execute("CREATE TYPE up.mood AS ENUM ('sad', 'happy')")
    upstream.execute("ALTER TABLE up.b ADD m up.mood DEFAULT 'sad', ADD d numeric DEFAULT 1.50")
    said = await env.query("a", SOURCE)
    assert "not built in" in said
    await env.ran("a", SOURCE.replace("FOR ALL TABLES", "FOR TABLES (up.a)"))
    assert "not built in" in await env.query("a", AGAIN.format("b"))
    await env.ran("a", f"{AGAIN.format('b')} WITH (EXCLUDE COLUMNS (m, d))")
    await env.ran("a", f"{AGAIN.format('b2')} WITH (TEXT COLUMNS = (m, d), EXCLUDE COLUMNS (v))")
    await equal(env, upstream)
    upstream.execute("UPDATE up.b SET m = 'happy' WHERE id = 1")
    await until(env, "SELECT id, m, d FROM b2 WHERE id < 3 ORDER BY id", "1|happy|1.50\n2|sad|1.50")
    upstream.execute("ALTER TABLE up.b DROP v")
    upstream.execute("INSERT INTO up.b (id) VALUES (60)")
    why = 'column "v" of "up.b" was dropped or renamed'
    await until(env, "SELECT output, error FROM s_errors", f"up.b|{why}")
    await until(env, "SELECT max(id) FROM b2", "60")
    shown = await env.query("a", "SHOW CREATE SOURCE b2")
    assert (
        "FROM SOURCE foreshore.public.s (REFERENCE up.b)"
        " WITH (TEXT COLUMNS = (m, d), EXCLUDE COLUMNS = (v))" in shown
    ), shown
    upstream.execute("ALTER TABLE up.b ADD e int DEFAULT 4")
    await env.ran("a", "ALTER SOURCE s REFRESH TABLE b2")
    await until(env, "SELECT m, d, e FROM b2 WHERE id = 1", "happy|1.50|4")
    said = await env.query("a", f"{AGAIN.format('b3')} WITH (TEXT COLUMNS (absent))")
    assert 'column "up.b.absent" does not exist' in said, said
    said = await env.query("a", f"{AGAIN.format('b3')} WITH (EXCLUDE COLUMNS (id, m, d, e))")
    assert 'ERROR 55000: no column of table "up.b" is left' in said, said
    said = await env.query("a", f"{AGAIN.format('b3')} WITH (SCHEMA CHANGES = APPLY)")
    assert 'unknown option "schema changes"' in said, said


async def test_excluded_constraints_may_be_dropped_upstream(
    env: TestEnvironment, upstream: Upstream
) -> None:
    names = "EXCLUDE CONSTRAINTS (up.b.b_pkey, up.b.b_v_not_null, up.b.b_id_not_null)"
    said = await env.query("a", SOURCE.replace("'p'", "'p', EXCLUDE CONSTRAINTS (up.b.other)"))
    assert 'constraint "up.b.other" does not exist' in said, said
    assert "b_pkey" in said, said
    await env.ran("a", SOURCE.replace("'p'", f"'p', {names}"))
    await equal(env, upstream)
    assert "b_v_not_null" in await env.query("a", "SHOW CREATE SOURCE s")
    given = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'b'::regclass AND attnotnull"
    assert (await env.query("a", given)).startswith("0")
    indexed = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'b'::regclass"
    assert (await env.query("a", indexed)).startswith("0")
    upstream.execute("ALTER TABLE up.b DROP CONSTRAINT b_pkey, ALTER id DROP NOT NULL")
    upstream.execute("ALTER TABLE up.b ALTER v DROP NOT NULL")
    upstream.execute("INSERT INTO up.b VALUES (NULL, NULL), (1, 1), (1, 1)")
    await until(env, "SELECT count(*), count(id) FROM b", "23|22")
    await until(env, "SELECT count(*) FROM s_errors", "0")
    await env.ran("a", AGAIN.format("b2"))
    await until(env, "SELECT count(*) FROM b2", "23")


async def test_constraint_of_one_relation_is_dropped(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", SOURCE)
    await env.ran("a", f"{AGAIN.format('b2')} WITH (EXCLUDE CONSTRAINTS (b_pkey))")
    await equal(env, upstream)
    await until(env, "SELECT count(*) FROM b2", "20")
    upstream.execute("ALTER TABLE up.b DROP CONSTRAINT b_pkey")
    upstream.execute("INSERT INTO up.b VALUES (1, 5)")
    why = 'the primary key of "up.b" was dropped or changed'
    await until(env, "SELECT output, error FROM s_errors", f"up.b|{why}")
    await until(env, "SELECT count(*) FROM b2 WHERE id = 1", "2")
