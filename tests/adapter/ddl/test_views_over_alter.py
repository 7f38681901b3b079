"""The columns of a table change under materialized views: these go on, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from foreshore.errors import QueryCanceled
from tests.adapter.harness import House, until

HISTORY = "WITH (RETAIN HISTORY FOR '1h')"


def now(house: House) -> int:
    return house.environment.coordinator.oracle.read_ts()


def signal_replicas(house: House, number: int) -> list[int]:
    pids = [each["pid"] for each in house.environment.coordinator.compute.status()]
    for pid in pids:
        os.kill(pid, number)
    return pids


async def begin(house: House, view: str) -> int:
    """Make a table of one row and a view of it; return a time at which the view has the row."""
    await house.query("s", "DROP TABLE IF EXISTS t CASCADE")
    await house.query("s", f"CREATE TABLE t (k int PRIMARY KEY, v int, x int) {HISTORY}")
    await house.query("s", f"CREATE MATERIALIZED VIEW m {HISTORY} AS {view}")
    await house.query("s", "INSERT INTO t VALUES (1, 1, 1)")
    await house.query("s", "SELECT * FROM m")
    return now(house)


@pytest.mark.parametrize(
    "block",
    [
        "UPDATE t SET v = v + 100; ALTER TABLE t ADD w int",
        "INSERT INTO t VALUES (2, 2); ALTER TABLE t DROP x",
        "TRUNCATE t; ALTER TABLE t ADD w int; INSERT INTO t VALUES (9, 9)",
    ],
)
def test_a_view_has_what_the_same_block_writes_at_its_very_time(
    runner: asyncio.Runner, house: House, block: str
) -> None:
    async def scenario() -> None:
        before = await begin(house, "SELECT sum(v) AS s FROM t")
        assert (await house.query("s", f"BEGIN; {block}; COMMIT")).endswith("COMMIT")
        await house.query("s", "SELECT * FROM m")
        found = await house.query("s", f"SELECT mz_timestamp FROM CHANGES(m, {before})")
        changes = {int(line) for line in found.splitlines()[:-1]}
        both = []
        for time in sorted({time + more for time in changes for more in (-1, 0, 1)} - {before}):
            answer = await house.query("s", f"SELECT sum(v) FROM t AS OF {time}")
            if not answer.startswith("ERROR 22023"):
                both.append((answer, await house.query("s", f"SELECT s FROM m AS OF {time}")))
        assert both
        assert all(table == view for table, view in both), both

    runner.run(scenario())


def test_a_replica_that_dies_before_the_commit_takes_no_past(
    runner: asyncio.Runner, house: House
) -> None:
    async def scenario() -> None:
        before = await begin(house, "SELECT count(*) AS n FROM t")
        await house.query("s", "BEGIN; ALTER TABLE t ADD w int")
        await asyncio.sleep(0.3)
        signal_replicas(house, signal.SIGKILL)
        assert await house.query("s", "COMMIT") == "COMMIT"
        assert await house.query("s", f"SELECT n FROM m AS OF {before}") == "1\nSELECT 1"
        await house.query("s", "INSERT INTO t (k) VALUES (2)")
        assert await house.query("s", "SELECT n FROM m") == "2\nSELECT 1"

    runner.run(scenario())


@pytest.fixture
def stopped(house: House) -> Iterator[list[int]]:
    """Let replicas that a test stops go on in the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_who_waits_for_a_view_that_stands_still_can_give_up_and_others_go_on(
    runner: asyncio.Runner, house: House, stopped: list[int]
) -> None:
    async def scenario() -> None:
        before = await begin(house, "SELECT count(*) AS n FROM t")
        stopped.extend(signal_replicas(house, signal.SIGSTOP))
        await house.query("s", "INSERT INTO t (k) VALUES (2)")
        altering = asyncio.create_task(house.query("s", "ALTER TABLE t ADD w int", alone=False))
        await asyncio.sleep(0.5)
        assert await house.query("x", "CREATE TABLE other (a int)") == "CREATE TABLE"
        assert await house.query("x", "ALTER TABLE other ADD b int") == "ALTER TABLE"
        assert await house.query("x", "DROP TABLE other") == "DROP TABLE"
        assert not altering.done()
        (await house.session("s")).interrupt(QueryCanceled())
        assert (await altering).startswith("ERROR 57014")
        await house.query("s", "SET statement_timeout = '300ms'")
        timed_out = await house.query("s", "ALTER TABLE t ADD w int")
        assert timed_out.startswith("ERROR 57014"), timed_out
        await house.query("s", "SET statement_timeout = 0")
        altering = asyncio.create_task(house.query("s", "ALTER TABLE t ADD w int", alone=False))
        await asyncio.sleep(0.2)
        signal_replicas(house, signal.SIGCONT)
        assert await altering == "ALTER TABLE"
        assert await house.query("s", f"SELECT n FROM m AS OF {before}") == "1\nSELECT 1"
        assert await house.query("s", "SELECT n FROM m") == "2\nSELECT 1"

    runner.run(scenario())


def test_a_view_that_is_dropped_is_waited_for_no_longer(
    runner: asyncio.Runner, house: House, stopped: list[int]
) -> None:
    async def scenario() -> None:
        await begin(house, "SELECT count(*) AS n FROM t")
        stopped.extend(signal_replicas(house, signal.SIGSTOP))
        await house.query("s", "INSERT INTO t (k) VALUES (2)")
        altering = asyncio.create_task(house.query("s", "ALTER TABLE t ADD w int", alone=False))
        await asyncio.sleep(0.5)
        assert await house.query("x", "DROP MATERIALIZED VIEW m") == "DROP MATERIALIZED VIEW"
        assert await altering == "ALTER TABLE"

    runner.run(scenario())


def test_a_view_over_one_that_nobody_maintains_is_not_waited_for(
    runner: asyncio.Runner, house: House
) -> None:
    async def scenario() -> None:
        await house.query("s", "CREATE CLUSTER idle (SIZE 'embedded', REPLICATION FACTOR 0)")
        await house.query("s", "CREATE TABLE u (a int)")
        await house.query("s", "CREATE MATERIALIZED VIEW below IN CLUSTER idle AS SELECT a FROM u")
        await begin(house, "SELECT count(*) AS n FROM u")
        made = "CREATE MATERIALIZED VIEW over_both AS SELECT t.k, below.a FROM t, below"
        assert await house.query("s", made) == "CREATE MATERIALIZED VIEW"
        await until(lambda: any(each["ready"] for each in status(house)))
        began = asyncio.get_running_loop().time()
        assert await house.query("s", "ALTER TABLE t ADD w int") == "ALTER TABLE"
        assert asyncio.get_running_loop().time() - began < 10
        await house.query("s", "DROP CLUSTER idle CASCADE; DROP TABLE u CASCADE")

    runner.run(scenario())


def status(house: House) -> list[dict[str, object]]:
    return house.environment.coordinator.compute.status()
