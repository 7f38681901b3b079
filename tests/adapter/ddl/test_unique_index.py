"""Unique indexes: after a restart, and in error messages."""

from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment


async def test_unique_index_survives_restart(tmp_path: Path) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    await env.query("s", 'CREATE TABLE t (a int, "B" text)')
    await env.query("s", "INSERT INTO t VALUES (1, NULL), (2, 'x')")
    index = 'CREATE UNIQUE INDEX "of B" ON t ("B") NULLS NOT DISTINCT'
    assert await env.query("s", index) == "CREATE INDEX"
    await env.close()
    env = TestEnvironment(tmp_path)
    await env.open()
    try:
        assert await env.query("s", "INSERT INTO t VALUES (3, NULL)") == (
            'ERROR 23505: duplicate key value violates unique constraint "of B"\n'
            'DETAIL: Key ("B")=(null) already exists.'
        )
        shown = await env.query("s", "SHOW CREATE TABLE t")
        assert 'UNIQUE INDEX "of B" NULLS NOT DISTINCT ("B"))' in shown
        assert await env.query("s", 'DROP INDEX "of B"') == "DROP INDEX"
        assert await env.query("s", "INSERT INTO t VALUES (3, NULL)") == "INSERT 0 1"
    finally:
        await env.close()


@pytest.mark.parametrize(
    "sql", ["INSERT INTO scaled VALUES (1, 2)", "INSERT INTO scaled SELECT 1, 2 FROM range"]
)
async def test_error_shows_numeric_key_in_scale_of_column(env: TestEnvironment, sql: str) -> None:
    await env.query("s", "DROP TABLE IF EXISTS scaled")
    await env.query("s", "CREATE VIEW range AS SELECT generate_series(1, 50)")
    await env.query("s", "CREATE TABLE scaled (a numeric(6, 2), b numeric(4), UNIQUE (a, b))")
    await env.query("s", "INSERT INTO scaled VALUES (1.00, 2)")
    told = (await env.query("s", sql)).splitlines()
    assert told[1] == "DETAIL: Key (a, b)=(1.00, 2) already exists."


async def test_error_shows_key_as_in_new_row(env: TestEnvironment) -> None:
    def refused(key: str) -> str:
        return (
            'ERROR 23505: duplicate key value violates unique constraint "equal_a_b_key"\n'
            f"DETAIL: Key (a, b)=({key}) already exists."
        )

    await env.query("s", "CREATE TABLE equal (a interval, b float8, UNIQUE (a, b))")
    insert = "INSERT INTO equal VALUES"
    assert await env.query("s", f"{insert} ('1 month', 0), ('3 days', 5)") == "INSERT 0 2"
    said = await env.query("s", f"{insert} ('1 h', 7), ('72:00', 5), ('30 days', '-0')")
    assert said == refused("72:00:00, 5")
    said = await env.query("s", f"{insert} ('1 h', '-0'), ('60 min', 0)")
    assert said == refused("01:00:00, 0")
    said = await env.query("s", "UPDATE equal SET a = '30 days', b = '-0' WHERE b = 5")
    assert said == refused("30 days, -0")


async def test_comment_on_index_of_key_is_refused(env: TestEnvironment) -> None:
    await env.query("s", "CREATE TABLE ky (a int PRIMARY KEY)")
    assert await env.query("s", "COMMENT ON INDEX ky_pkey IS 'x'") == (
        "ERROR 0A000: COMMENT ON the index of a key is not supported"
    )
