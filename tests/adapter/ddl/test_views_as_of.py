"""CREATE MATERIALIZED VIEW ... AS OF: a view with a history before its creation."""

import asyncio
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment
from tests.adapter.read.test_future_times import YEAR_9999, soon, waiting

LONG = "WITH (RETAIN HISTORY FOR '1 hour')"


async def written(env: TestEnvironment, session: str, *values: int) -> list[int]:
    """Return the times at which each of `values` had been added to the sum of `parts`."""
    times = []
    for value in values:
        await env.query(session, f"INSERT INTO parts VALUES ({value})")
        times.append(env.environment.coordinator.oracle.read_ts())
    return times


async def check(env: TestEnvironment, view: str, times: list[int], sums: list[int]) -> None:
    for time, sum_ in zip(times, sums, strict=True):
        answer = await env.query("r", f"SELECT n FROM {view} AS OF {time}")
        assert answer == f"{sum_}\nSELECT 1", (time, answer)


def test_view_as_of_is_exact_from_its_time_also_after_restart(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path, lag_ms=50)
        await env.open()
        await env.query("w", f"CREATE TABLE parts (k int) {LONG}")
        times = await written(env, "w", 1, 2, 3)
        made = (
            f"CREATE MATERIALIZED VIEW sums {LONG} AS"
            f" SELECT sum(k) AS n FROM parts AS OF {times[1]}"
        )
        assert await env.query("w", made) == "CREATE MATERIALIZED VIEW"
        times += await written(env, "w", 4)
        await check(env, "sums", times[1:], [3, 6, 10])
        await check(env, "sums", times[:1], [1])  # its query, over what the table had
        changes = await env.query("r", "SELECT n, mz_diff FROM CHANGES(sums) ORDER BY 1, 2")
        assert changes == "3|-1\n6|-1\n6|1\n10|1\nSELECT 4"
        above = f"CREATE MATERIALIZED VIEW above AS SELECT n + 1 AS n FROM sums AS OF {times[2]}"
        assert await env.query("w", above) == "CREATE MATERIALIZED VIEW"
        await check(env, "above", times[2:], [7, 11])
        assert "AS OF" not in await env.query("r", "SHOW CREATE MATERIALIZED VIEW sums")
        await env.environment.coordinator.allow_compaction()
        await env.reopen()
        await check(env, "sums", times[1:], [3, 6, 10])
        await env.query("w", "ALTER TABLE parts ADD b int")
        assert await env.query("r", "SELECT n FROM above") == "11\nSELECT 1"
        await env.close()

    asyncio.run(main())


@pytest.mark.parametrize("on", ["parts", "sums"])
def test_index_as_of_is_exact_from_its_time(tmp_path: Path, on: str) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path, lag_ms=50)
        await env.open()
        await env.query("w", f"CREATE TABLE parts (k int) {LONG}")
        await env.query("w", "CREATE VIEW sums AS SELECT sum(k) AS k FROM parts")
        times = await written(env, "w", 1, 2, 3)
        made = f"CREATE INDEX i ON {on} (k) {LONG} AS OF {times[1]}"
        assert await env.query("w", made) == "CREATE INDEX"
        state, as_ofs = env.environment.coordinator.state, env.environment.coordinator.as_ofs
        (index,) = (item for item in state.items() if item.name == "i")
        assert as_ofs[index.id] == times[1]
        for time, sum_ in zip(times, (1, 3, 6), strict=True):
            answer = await env.query("r", f"SELECT sum(k) FROM {on} AS OF {time}")
            assert answer == f"{sum_}\nSELECT 1", (time, answer)
        assert "AS OF" not in await env.query("r", "SHOW CREATE INDEX i")
        await env.reopen()
        assert await env.query("r", f"SELECT sum(k) FROM {on}") == "6\nSELECT 1"
        await env.close()

    asyncio.run(main())


def test_unhydrated_view_as_of_keeps_its_time_after_restart(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("w", "CREATE CLUSTER nobody (SIZE 'embedded', REPLICATION FACTOR 0)")
        await env.query("w", f"CREATE TABLE parts (k int) {LONG}")
        times = await written(env, "w", 1, 2)
        await env.query(
            "w",
            f"CREATE MATERIALIZED VIEW sums IN CLUSTER nobody {LONG} AS"
            f" SELECT sum(k) AS n FROM parts AS OF {times[0]}",
        )
        await env.reopen()
        await env.query("w", "CREATE CLUSTER REPLICA nobody.r1 (SIZE 'embedded')")
        times += await written(env, "w", 3)
        await check(env, "sums", times, [1, 3, 6])
        await env.close()

    asyncio.run(main())


def test_inputs_of_view_as_of_are_held_until_created(tmp_path: Path) -> None:
    async def main(env: TestEnvironment) -> None:
        await env.query("w", "CREATE TABLE parts (k int)")
        (time,) = await written(env, "w", 1)
        await env.query(
            "m",
            f"BEGIN; CREATE MATERIALIZED VIEW sums {LONG} AS SELECT sum(k) AS n FROM parts"
            f" AS OF AT LEAST {time - 60_000}",
        )
        coordinator = env.environment.coordinator
        (parts,) = [item.id for item in coordinator.state.items() if item.name == "parts"]
        began = coordinator.since(parts)
        (later,) = await written(env, "w", 2)
        await asyncio.sleep(0.2)
        await coordinator.allow_compaction()
        assert coordinator.since(parts) == began <= time
        assert await env.query("m", "COMMIT") == "COMMIT"
        await check(env, "sums", [time, later], [1, 3])
        await asyncio.sleep(0.2)
        await coordinator.allow_compaction()
        assert coordinator.since(parts) > later
        await check(env, "sums", [time, later], [1, 3])

    in_environment(tmp_path, main, lag_ms=50)


async def test_create_view_as_of_future_time_waits(env: TestEnvironment) -> None:
    await env.query("w", "CREATE TABLE parts (k int)")
    time = soon(env)
    create = f"CREATE MATERIALIZED VIEW ahead AS SELECT sum(k) AS n FROM parts AS OF {time}"
    task = await waiting(env, "m", create)
    await written(env, "w", 5)
    assert await task == "CREATE MATERIALIZED VIEW"
    await check(env, "ahead", [time], [5])


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (
            "CREATE MATERIALIZED VIEW old AS SELECT k FROM there AS OF 5",
            "ERROR 22023: cannot read as of 5",
        ),
        (
            "BEGIN; CREATE TABLE fresh (k int);"
            " CREATE MATERIALIZED VIEW v AS SELECT k FROM fresh AS OF now()",
            "ERROR 55000: AS OF over relations that the same transaction has made is not possible",
        ),
        ("CREATE VIEW v AS SELECT k FROM there AS OF now()", "ERROR 0A000: AS OF is for queries"),
        ("CREATE INDEX ON there (k) AS OF 5", "ERROR 22023: cannot read as of 5"),
        (
            "BEGIN; CREATE TABLE fresh (k int); CREATE INDEX ON fresh (k) AS OF now()",
            "ERROR 55000: AS OF over relations that the same transaction has made is not possible",
        ),
    ],
)
async def test_what_is_refused(env: TestEnvironment, statement: str, error: str) -> None:
    await env.query("w", "CREATE TABLE IF NOT EXISTS there (k int)")
    answer = await env.query("w", statement)
    assert error in answer, answer
    await env.query("w", "ROLLBACK")


async def test_create_if_not_exists_leaves_existing_view(env: TestEnvironment) -> None:
    await env.query("w", "CREATE MATERIALIZED VIEW taken AS VALUES (1)")
    again = f"CREATE MATERIALIZED VIEW IF NOT EXISTS taken AS VALUES (2) AS OF {YEAR_9999}"
    assert await env.query("w", again) == (
        'CREATE MATERIALIZED VIEW\nNOTICE: relation "taken" already exists, skipping'
    )
