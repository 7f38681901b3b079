"""Writers of collections, as shown and as enforced."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import OutOfDisk
from foreshore.storage.capability import InvalidCapability
from foreshore.storage.controller import ShardWrite, WriteCapability
from foreshore.update import EMPTY, update_schema
from tests.adapter.harness import TestEnvironment, in_environment, until

WRITERS = (
    "SELECT object_name, kind, dataflow_id, token FROM mz_internal.mz_write_capabilities"
    " WHERE object_id LIKE 'u%' ORDER BY object_name, kind"
)


async def writers(env: TestEnvironment) -> list[list[str]]:
    lines = (await env.query("w", WRITERS)).splitlines()
    assert "ERROR" not in lines[0], lines
    return [line.split("|") for line in lines[:-1]]


async def written(env: TestEnvironment, view: str) -> WriteCapability:
    """Return by what the dataflow of a materialized view writes."""
    coordinator = env.environment.coordinator
    (item,) = (each for each in coordinator.state.items() if each.name == view)
    await until(lambda: any(id == item.id for id, _ in coordinator.compute.writes()))
    return dict(coordinator.compute.writes())[item.id]


async def test_writers_of_tables_and_views_are_listed_by_kind(own_env: TestEnvironment) -> None:
    await own_env.query("a", "CREATE TABLE t (k int)")
    await own_env.query("a", "CREATE VIEW plain AS SELECT k FROM t")
    await own_env.query("a", "CREATE INDEX i ON plain (k)")
    await own_env.query("a", "CREATE MATERIALIZED VIEW v AS SELECT k + 1 AS k FROM t")
    by = await written(own_env, "v")
    found = await writers(own_env)
    # What has no shard has no writer; of the view the environment keeps one for the next.
    assert [each[:3] for each in found] == [
        ["t", "table", "NULL"],
        ["v", "dataflow", by.id],
        ["v", "environment", "NULL"],
    ]
    assert found[1][3] == by.token
    lease = await own_env.storage.clone_capability(by, 10_000)  # for somebody outside
    assert ["v", "capability", "NULL", lease.token] in await writers(own_env)
    await own_env.storage.drop_capability(lease)
    await own_env.query("a", "DROP MATERIALIZED VIEW v")
    assert [each[:3] for each in await writers(own_env)] == [["t", "table", "NULL"]]
    await own_env.query("a", "DROP TABLE t CASCADE")
    assert await writers(own_env) == []


def test_old_writer_is_gone_after_view_handoff(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("a", "CREATE TABLE t (k int)")
        await env.query("a", "INSERT INTO t VALUES (1)")
        await env.query("a", "CREATE MATERIALIZED VIEW v AS SELECT k + 1 AS k FROM t")
        assert await env.query("a", "SELECT k FROM v") == "2\nSELECT 1"
        before = await written(env, "v")
        await env.query("a", "ALTER TABLE t ADD COLUMN more int")
        after = await written(env, "v")
        assert after.id == before.id
        assert after.token != before.token
        tokens = {token for *_, token in await writers(env)}
        assert after.token in tokens
        await until(lambda: before.token not in {g.token for g in env.storage.grants(before.id)})
        upper = env.storage.upper(before.id)
        none = update_schema(env.storage.schema(before.id)).empty_table()
        for use in (before, replace(before, token="9-999")):
            with pytest.raises(InvalidCapability):
                env.storage.advance([before.id], upper + 10_000, token=use.token)
            nothing = ShardWrite(use.id, upper, upper + 10_000, none, use.token)
            with pytest.raises(InvalidCapability):
                await env.storage.append([nothing])
        await env.query("a", "INSERT INTO t VALUES (5, 6)")
        assert await env.query("a", "SELECT k FROM v ORDER BY k") == "2\n6\nSELECT 2"
        await env.close()

        await env.open()  # those of the environment before have ended
        tokens = {token for *_, token in await writers(env)}
        assert not tokens & {before.token, after.token}
        assert all(token.startswith(f"{env.storage.epoch}-") for token in tokens)
        await env.query("a", "INSERT INTO t VALUES (7, 8)")
        assert await env.query("a", "SELECT k FROM v ORDER BY k") == "2\n6\n8\nSELECT 3"
        await env.close()

    asyncio.run(main())


def test_complete_collection_has_no_writer(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("a", "CREATE MATERIALIZED VIEW one AS SELECT 1 AS one")
        assert await env.query("a", "SELECT one FROM one") == "1\nSELECT 1"
        by = await written(env, "one")
        await until(lambda: env.storage.upper(by.id) == EMPTY)
        assert await writers(env) == []
        with pytest.raises(InvalidCapability):
            env.storage.advance([by.id], EMPTY, token=by.token)
        await env.query("a", "CREATE MATERIALIZED VIEW two AS SELECT 2 AS two")
        await until(lambda: len(list(env.environment.coordinator.compute.writes())) == 2)
        two = await written(env, "two")
        await until(lambda: env.storage.upper(two.id) == EMPTY)
        await env.query("a", "DROP MATERIALIZED VIEW two")
        await env.reopen()
        by = await written(env, "one")
        assert by.frontier == EMPTY
        assert await writers(env) == []
        assert await env.query("a", "SELECT one FROM one") == "1\nSELECT 1"
        with pytest.raises(InvalidCapability):
            env.storage.advance([by.id], EMPTY, token=by.token)
        await env.query("a", "DROP MATERIALIZED VIEW one")
        await env.close()

    asyncio.run(main())


def test_view_without_next_dataflow_stops_and_can_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The ALTER is durable by then: its other views go on, and past errors stay known."""

    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (0)",
            "CREATE MATERIALIZED VIEW m AS SELECT 10 / a AS x FROM t",
            "CREATE MATERIALIZED VIEW goes_on AS SELECT count(*) AS n FROM t",
        )
        coordinator = env.environment.coordinator
        assert (await env.query("a", "SELECT * FROM m")).startswith("ERROR 22012")
        failing = coordinator.oracle.read_ts()
        await env.ran("a", "UPDATE t SET a = 5")
        assert await env.query("a", "SELECT * FROM m") == "2\nSELECT 1"
        time = coordinator.oracle.read_ts()
        (id,) = (each.id for each in coordinator.state.items() if each.name == "m")
        compute = coordinator.compute
        create = compute.create_dataflow

        async def fail(cluster: str, description: DataflowDescription, **given: Any) -> None:
            if description.id == id:
                raise OutOfDisk("the log")
            await create(cluster, description, **given)

        monkeypatch.setattr(compute, "create_dataflow", fail)
        await env.ran("a", "ALTER TABLE t ADD COLUMN b int", "INSERT INTO t VALUES (1)")
        assert await env.query("a", "SELECT n FROM goes_on") == "2\nSELECT 1"
        assert (await env.query("a", "SELECT * FROM m")).startswith(
            "ERROR XX000: materialized view foreshore.public.m is not kept up to date any more"
        )
        assert await env.query("a", f"SELECT * FROM m AS OF {time}") == "2\nSELECT 1"
        past = await env.query("a", f"SELECT * FROM m AS OF {failing}")
        assert past.startswith("ERROR 22012")
        assert "a view has no next dataflow" in caplog.text
        await env.ran("a", "DROP MATERIALIZED VIEW m", "DROP TABLE t CASCADE")

    in_environment(tmp_path, scenario, lag_ms=600_000)
