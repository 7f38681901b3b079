"""Views whose rows enter and leave as time passes, read at many times and over a restart."""

import pytest

from tests.adapter.harness import TestEnvironment

ROWS = 12
STEP_MS = 150  # between the ends of two rows
READ = (
    "SELECT mz_now(), (SELECT count(*) FROM events WHERE mz_now() < ends),"
    " (SELECT count(*) FROM current), (SELECT n FROM counted), (SELECT count(*) FROM linear)"
)


async def now(env: TestEnvironment) -> int:
    """Return the time of a read."""
    answer = await env.ran("w", "SELECT mz_now() FROM events LIMIT 1")
    return int(answer.splitlines()[0])


async def define(env: TestEnvironment, cluster: str) -> None:
    """Create the views, and wait until they can be read."""
    await env.ran(
        "w",
        f"SET cluster = {cluster}",
        "CREATE TABLE events (id int, ends bigint)",
        "INSERT INTO events VALUES (0, 0)",
        "CREATE VIEW current AS SELECT id, ends FROM events WHERE mz_now() < ends",
        "CREATE INDEX ON current (id)",
        "CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM events WHERE mz_now() < ends",
        "CREATE MATERIALIZED VIEW linear AS SELECT id FROM events WHERE mz_now() < ends AND id > 0",
    )
    await env.ran("r", f"SET cluster = {cluster}", READ)


async def fill(env: TestEnvironment) -> int:
    """Insert rows that end one after the other; return the end of the first."""
    first = await now(env) + 3 * STEP_MS
    rows = ", ".join(f"({i + 1}, {first + i * STEP_MS})" for i in range(ROWS))
    await env.ran("w", f"INSERT INTO events VALUES {rows}")
    return first


def there(first: int, time: int) -> int:
    """Return how many rows are there at a time."""
    return sum(time < first + i * STEP_MS for i in range(ROWS))


async def watch(env: TestEnvironment, first: int, until: int) -> set[int]:
    """Read until so many rows are left, and check each answer; return the counts."""
    seen: set[int] = set()
    while not seen or min(seen) > until:
        answer = await env.ran("r", READ)
        time, *counts = map(int, answer.splitlines()[0].split("|"))
        assert counts == [there(first, time)] * 4, (time - first, counts)
        seen.add(counts[0])
    return seen


@pytest.mark.parametrize("cluster", ["quickstart", "duckdb"])
async def test_rows_leave_at_their_times(own_env: TestEnvironment, cluster: str) -> None:
    env = own_env
    await env.ran("w", "CREATE CLUSTER duckdb (SIZE 'duckdb')")
    await define(env, cluster)
    await env.ran(
        "s",
        f"SET cluster = {cluster}",
        "BEGIN",
        "DECLARE c CURSOR FOR SUBSCRIBE"
        " (SELECT count(*) FROM events WHERE mz_now() < ends AND id > 0)",
    )
    while "|" not in await env.ran("s", "FETCH ALL c WITH (TIMEOUT = '50ms')"):
        pass
    first = await fill(env)
    await watch(env, first, ROWS // 2)
    await env.environment.coordinator.allow_compaction()
    changes: list[list[int]] = []
    while not any(change[1:] == [1, 0] for change in changes):
        answer = await env.ran("s", "FETCH ALL c WITH (TIMEOUT = '50ms')")
        changes += [[*map(int, line.split("|"))] for line in answer.splitlines() if "|" in line]
    counts: dict[int, int] = {}
    for time, diff, count in changes:
        if diff > 0:
            counts[time] = count
    assert counts == {time: there(first, time) for time in counts}
    ends = {first + i * STEP_MS for i in range(ROWS)}
    assert set(counts) >= {end for end in ends if end > min(counts)}, "one change for each row"
    assert await watch(env, first, 0) == {0}


async def test_rows_leave_at_their_times_after_a_restart(own_env: TestEnvironment) -> None:
    env = own_env
    await define(env, "quickstart")
    first = await fill(env)
    await watch(env, first, ROWS - 2)
    await env.reopen()
    await watch(env, first, 0)


async def test_deleted_rows_leave_once(own_env: TestEnvironment) -> None:
    env = own_env
    await define(env, "quickstart")
    first = await fill(env)
    await env.ran("w", f"DELETE FROM events WHERE id > {ROWS // 2}")
    await env.ran("w", f"INSERT INTO events VALUES (50, {first + ROWS * STEP_MS})")
    while (answer := await env.ran("r", READ)).splitlines()[0].split("|")[1] != "0":
        _, *counts = answer.splitlines()[0].split("|")
        assert len(set(counts)) == 1, counts
    assert answer.splitlines()[0].split("|")[1:] == ["0"] * 4


async def test_rows_of_a_view_can_be_read_as_of_the_past(own_env: TestEnvironment) -> None:
    env = own_env
    await define(env, "quickstart")
    first = await fill(env)
    await watch(env, first, ROWS - 4)
    for i in range(3):
        for time in (first + i * STEP_MS - 1, first + i * STEP_MS):
            for view in ("current", "linear"):
                answer = await env.ran("r", f"SELECT count(*) FROM {view} AS OF {time}")
                assert answer.splitlines()[0] == str(there(first, time)), (view, i)


async def test_view_of_constants_changes_with_time(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("w", "CREATE TABLE events (id int)", "INSERT INTO events VALUES (1)")
    begin = await now(env)
    await env.ran(
        "w",
        "CREATE MATERIALIZED VIEW later AS SELECT n FROM generate_series(1, 3) n"
        f" WHERE mz_now() >= {begin} + n * 400",
    )
    seen: set[int] = set()
    while seen != {0, 1, 2, 3}:
        answer = await env.ran("r", "SELECT mz_now(), count(*) FROM later, (SELECT FROM events) e")
        time, count = map(int, answer.splitlines()[0].split("|"))
        assert count == sum(time >= begin + n * 400 for n in (1, 2, 3))
        seen.add(count)


async def test_condition_without_columns_over_an_index(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "w",
        "CREATE TABLE events (id int)",
        "INSERT INTO events VALUES (1), (1), (2)",
        "CREATE VIEW counted AS SELECT id, count(*) AS n FROM events GROUP BY id",
        "CREATE INDEX ON counted (id)",
    )
    assert await env.ran("r", "SELECT 1 FROM counted WHERE mz_now() > 5") == "1\n1\nSELECT 2"
    assert await env.ran("r", "SELECT 1 FROM counted WHERE mz_now() < 5") == "SELECT 0"
