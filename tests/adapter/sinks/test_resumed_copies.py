"""Sinks of a restored database that are resumed, where the original has ended, and where it runs.

All kinds of targets that keep the frontier themselves: each change is there once, or not at all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import deltalake
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, equipped, into
from tests.adapter.sources.test_restored_copies import restored, until
from tests.broker import serving as serving_broker
from tests.iceberg_catalog import serving as serving_catalog
from tests.kafka_topics import reading

pytestmark = pytest.mark.full

FAST = "WITH (COMMIT INTERVAL '10 ms')"
STATUS = "SELECT status, error FROM mz_internal.mz_sink_statuses"
Change = tuple[int, int]  # a key, and 1 or -1


class Target(NamedTuple):
    """Where the sink writes, and all changes that are there, sorted."""

    into: str
    changes: Callable[[], list[Change]]


@pytest.fixture(params=["delta", "iceberg", "kafka"])
def target(
    request: pytest.FixtureRequest, runner: asyncio.Runner, own_env: TestEnvironment, tmp_path: Path
) -> Iterator[Target]:
    """Return a target of which the environment knows the connection."""
    (tmp_path / "lake").mkdir()
    match request.param:
        case "delta":
            runner.run(equipped(own_env, tmp_path))
            table = tmp_path / "lake" / "t"
            yield Target(f"INTO DELTA (URL '{table}') MODE APPEND {FAST}", lambda: _delta(table))
        case "iceberg":
            with serving_catalog(tmp_path / "lake") as catalog:
                runner.run(connected(own_env, catalog, tmp_path))
                yield Target(
                    into("t", "MODE APPEND"),
                    lambda: sorted((row[0], row[1]) for row in catalog.rows("n.t")),
                )
        case _:
            with serving_broker(tmp_path / "broker") as broker:
                made = f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')"
                runner.run(equipped(own_env, tmp_path))
                runner.run(own_env.ran("a", made))
                topic = "(TOPIC 't') KEY (k) FORMAT JSON ENVELOPE DEBEZIUM"
                yield Target(
                    f"INTO KAFKA CONNECTION k {topic} {FAST}", lambda: _messages(broker.address)
                )


def _delta(table: Path) -> list[Change]:
    found = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted((row["k"], row["mz_diff"]) for row in found)


def _messages(address: str) -> list[Change]:
    with reading(address, "t") as reader:
        found = []
        for each in reader.read():
            change = json.loads(each.value or b"")
            found += [(row["k"], 1) for row in [change["after"]] if row]
            found += [(row["k"], -1) for row in [change["before"]] if row]
        return sorted(found)


async def with_sink(env: TestEnvironment, target: Target) -> None:
    """Make table `t` with a row, and the sink `s`, which has written it."""
    await env.ran(
        "a",
        "CREATE TABLE t (k int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        f"CREATE SINK s FROM t {target.into}",
        "WAIT FOR SINKS s",
    )


@asynccontextmanager
async def opened(env: TestEnvironment, tmp_path: Path) -> AsyncIterator[TestEnvironment]:
    """Open a restored environment, which may write where the original does."""
    await env.open()
    await equipped(env, tmp_path)
    await until(env, STATUS, "paused|")
    yield env
    await env.close()


async def test_resumed_sink_goes_on_once_the_original_has_ended(
    own_env: TestEnvironment, target: Target, tmp_path: Path
) -> None:
    env = own_env
    await with_sink(env, target)
    await env.close()
    copy = await restored(env, tmp_path / "restored")
    async with opened(copy, tmp_path):
        await copy.ran("a", "INSERT INTO t VALUES (2)")
        assert "ERROR 55000" in await copy.query("a", "WAIT FOR SINKS s")
        assert await asyncio.to_thread(target.changes) == [(1, 1)]
        await copy.ran("a", "ALTER SINK s RESUME", "WAIT FOR SINKS s")
        await copy.reopen()
        await equipped(copy, tmp_path)
        await copy.ran("a", "DELETE FROM t WHERE k = 1", "WAIT FOR SINKS s")
        assert await asyncio.to_thread(target.changes) == [(1, -1), (1, 1), (2, 1)]
    await env.open()


async def test_resumed_sink_stalls_where_the_original_has_written_on(
    own_env: TestEnvironment, target: Target, tmp_path: Path
) -> None:
    env = own_env
    await with_sink(env, target)
    copy = await restored(env, tmp_path / "restored")
    await env.ran("a", "INSERT INTO t VALUES (2)", "WAIT FOR SINKS s")
    async with opened(copy, tmp_path):
        await copy.ran("a", "INSERT INTO t VALUES (3)", "ALTER SINK s RESUME")
        said = await copy.query("a", "WAIT FOR SINKS s")
        assert "ERROR 55000" in said
        assert "which this database does not know" in said
        assert "HINT: The sink cannot go on. Drop it, empty the target" in said
        await env.ran("a", "INSERT INTO t VALUES (4)", "WAIT FOR SINKS s")
        await copy.ran("a", "DROP SINK s")
        await env.ran("a", "DELETE FROM t WHERE k = 1", "WAIT FOR SINKS s")
    found = await asyncio.to_thread(target.changes)
    assert found == [(1, -1), (1, 1), (2, 1), (4, 1)]


async def test_original_that_writes_beside_a_resumed_copy_stalls(
    own_env: TestEnvironment, target: Target, tmp_path: Path
) -> None:
    """The original runs, and has written nothing since the backup when the copy is resumed."""
    env = own_env
    await with_sink(env, target)
    copy = await restored(env, tmp_path / "restored")
    async with opened(copy, tmp_path):
        await copy.ran("a", "ALTER SINK s RESUME", "INSERT INTO t VALUES (2)", "WAIT FOR SINKS s")
        await env.ran("a", "INSERT INTO t VALUES (3)")
        said = await env.query("a", "WAIT FOR SINKS s")
        assert "ERROR 55000" in said
        assert "another copy of it" in said
        await copy.ran("a", "INSERT INTO t VALUES (4)", "WAIT FOR SINKS s")
        assert "another copy of it" in await env.query("a", "WAIT FOR SINKS s")
        await copy.ran("a", "DELETE FROM t WHERE k = 4", "WAIT FOR SINKS s")
    found = await asyncio.to_thread(target.changes)
    assert found == [(1, 1), (2, 1), (4, -1), (4, 1)]


async def test_only_one_of_two_databases_writes_if_both_begin_at_once(
    own_env: TestEnvironment, target: Target, tmp_path: Path
) -> None:
    env = own_env
    await with_sink(env, target)
    copy = await restored(env, tmp_path / "restored")
    async with opened(copy, tmp_path):
        await asyncio.gather(_insert(env, 100), copy.ran("a", "ALTER SINK s RESUME"))
        await asyncio.gather(_insert(env, 110), _insert(copy, 210))
        said = await asyncio.gather(*(each.query("a", "WAIT FOR SINKS s") for each in (env, copy)))
        assert sorted("ERROR 55000" in each for each in said) == [False, True], said
        winner = env if said[0].startswith("WAIT") else copy
        rows = await winner.query("a", "SELECT k FROM t ORDER BY k")
    found = await asyncio.to_thread(target.changes)
    assert found == [(int(row), 1) for row in rows.splitlines()[:-1]]


async def _insert(env: TestEnvironment, first: int) -> None:
    for number in range(first, first + 10):
        await env.ran("a", f"INSERT INTO t VALUES ({number})")
