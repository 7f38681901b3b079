"""Settings of the server say how many objects of a kind there may be."""

from pathlib import Path

import pytest

from foreshore.settings import LIMITS
from tests.adapter.harness import TestEnvironment, in_environment

# By setting: how an object is made, whose name stands for {}, and dropped.
OBJECTS = {
    "max_clusters": ("CREATE CLUSTER {} (REPLICATION FACTOR = 0)", "DROP CLUSTER {}"),
    "max_databases": ("CREATE DATABASE {}", "DROP DATABASE {}"),
    "max_materialized_views": (
        "CREATE MATERIALIZED VIEW {} AS SELECT 1 AS x",
        "DROP MATERIALIZED VIEW {}",
    ),
    "max_objects_per_schema": ("CREATE VIEW {} AS SELECT 1 AS x", "DROP VIEW {}"),
    "max_roles": ("CREATE ROLE {}", "DROP ROLE {}"),
    "max_schemas_per_database": ("CREATE SCHEMA {}", "DROP SCHEMA {}"),
    "max_secrets": ("CREATE SECRET {} AS 'x'", "DROP SECRET {}"),
    "max_sinks": ("CREATE SINK {} FROM t INTO FILES (PATH '{}', FORMAT CSV)", "DROP SINK {}"),
    "max_sources": ("CREATE SOURCE {} FROM LOAD GENERATOR COUNTER", "DROP SOURCE {}"),
    "max_tables": ("CREATE TABLE {} (x int)", "DROP TABLE {}"),
}


def test_each_limit_has_a_case() -> None:
    assert OBJECTS.keys() == LIMITS.keys()


@pytest.mark.parametrize("setting", [each for each in OBJECTS if each != "max_sinks"])
def test_no_more_objects_are_made_than_the_setting_allows(tmp_path: Path, setting: str) -> None:
    create, drop = OBJECTS[setting]

    async def scenario(env: TestEnvironment) -> None:
        env.environment.unlock_secrets(bytes(32))
        most = 1
        await env.ran("a", create.format("o1"), f"ALTER SYSTEM SET {setting} = 1")
        while (answer := await env.query("a", create.format("o2"))).startswith("ERROR"):
            # What was there before the first object counts as well.
            assert answer.startswith(f"ERROR 53000: too many {LIMITS[setting]}"), answer
            assert f'the setting "{setting}" allows {most}' in answer
            most += 1
            await env.ran("a", f"ALTER SYSTEM SET {setting} = {most}")
        assert (await env.query("a", create.format("o3"))).startswith("ERROR 53000")
        await env.ran("a", drop.format("o1"), create.format("o3"))
        await env.ran("a", f"ALTER SYSTEM SET {setting} = 1", drop.format("o3"))
        await env.ran("a", f"ALTER SYSTEM RESET {setting}", create.format("o3"))

    in_environment(tmp_path, scenario)


def test_limit_holds_within_a_transaction_and_over_a_restart(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "ALTER SYSTEM SET max_tables = 2")
        await env.reopen()
        for sql in ("BEGIN", "CREATE TABLE a (x int)", "CREATE TABLE b (x int)"):
            await env.query("a", sql)
        await env.query("a", "CREATE TABLE c (x int)")
        assert (await env.query("a", "COMMIT")).startswith("ERROR 53000: too many tables")
        assert await env.query("a", "SELECT count(*) FROM mz_tables WHERE id LIKE 'u%'") == (
            "0\nSELECT 1"
        )
        await env.ran("a", "BEGIN", "CREATE TABLE a (x int)", "CREATE TABLE b (x int)", "COMMIT")

    in_environment(tmp_path, scenario)
