"""MEMORY LIMIT lets a view that takes more stand still, tells why, and lets others go on."""

import asyncio

import pytest

from foreshore.compute.memory_limit import ReplicaMemory
from foreshore.compute.replica import dataflow, reports
from tests.adapter.harness import TestEnvironment

STALLED = (
    "ERROR 53200: materialized view foreshore.public.large cannot be kept up to date:"
    " memory limit of 200 kB exceeded"
)
HINT = "HINT: Raise it with ALTER ... SET (MEMORY LIMIT = ...), or drop the object."


@pytest.fixture(autouse=True)
def weighed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each step be followed by a look at the memory, and reports be frequent."""
    monkeypatch.setattr(dataflow, "WEIGHED_SECONDS", 0.0)
    monkeypatch.setattr(reports, "STATUS_SECONDS", 0.05)


async def begun(env: TestEnvironment) -> None:
    """Make the table anew."""
    await env.ran(
        "s",
        "DROP TABLE IF EXISTS t CASCADE",
        "CREATE TABLE t (k int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 100) AS i",
    )


async def state_of(env: TestEnvironment, name: str) -> str:
    """Return the state that replicas report of an object."""
    answer = await env.ran(
        "s",
        "SELECT state FROM mz_internal.mz_dataflow_statuses s JOIN mz_objects o"
        f" ON o.id = s.object_id WHERE o.name = '{name}'",
    )
    return answer.splitlines()[0]


async def becomes(env: TestEnvironment, name: str, state: str) -> None:
    """Wait until replicas report a state of an object."""
    for _ in range(3_000):
        if await state_of(env, name) == state:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(await state_of(env, name))


VIEW = "CREATE MATERIALIZED VIEW large WITH (MEMORY LIMIT = '200kB') AS"
OF = "SELECT k, count(*), max(n) FROM t GROUP BY k"


async def test_view_that_grows_beyond_its_limit_stands_still(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran(
        "s",
        f"{VIEW} {OF}",
        "CREATE MATERIALIZED VIEW small AS SELECT count(*) FROM t",
        "SELECT count(*) FROM large",
    )
    await becomes(env, "large", "running")
    await env.ran("s", "INSERT INTO t SELECT i, i FROM generate_series(101, 9000) AS i")
    answer = await env.query("s", "SELECT count(*) FROM large")
    assert answer.splitlines() == [STALLED, HINT]
    await becomes(env, "large", "stalled")
    assert await env.ran("s", "SELECT * FROM small") == "9000\nSELECT 1"
    freshness = await env.ran("s", "EXPLAIN FRESHNESS FOR MATERIALIZED VIEW large")
    assert "|stalled|" in freshness
    assert "memory limit of 200 kB exceeded" in freshness
    sizes = "SELECT count(*) FROM mz_introspection.mz_arrangement_sizes s JOIN mz_objects o"
    for _ in range(3_000):
        kept = await env.ran("s", f"{sizes} ON o.id = s.object_id WHERE o.name = 'large'")
        if kept == "0\nSELECT 1":
            break
        await asyncio.sleep(0.01)
    assert kept == "0\nSELECT 1"


async def test_raised_limit_lets_view_go_on_exactly(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("s", f"{VIEW} {OF}", "SELECT count(*) FROM large")
    await env.ran("s", "INSERT INTO t SELECT i, i FROM generate_series(101, 9000) AS i")
    await becomes(env, "large", "stalled")
    await env.ran("s", "DELETE FROM t WHERE k <= 50", "UPDATE t SET n = -1 WHERE k = 60")
    await env.ran("s", "ALTER MATERIALIZED VIEW large SET (MEMORY LIMIT = '100 MB')")
    await becomes(env, "large", "running")
    assert await env.ran("s", "SELECT count(*), min(max) FROM large") == "8950|-1\nSELECT 1"
    await env.ran("s", "INSERT INTO t VALUES (1, 1)")
    assert await env.ran("s", "SELECT count(*) FROM large") == "8951\nSELECT 1"


async def test_index_too_large_to_hydrate_stands_still_until_reset(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran(
        "s",
        "INSERT INTO t SELECT i, i FROM generate_series(101, 9000) AS i",
        f"CREATE VIEW grouped AS {OF}",
        "CREATE INDEX by_k ON grouped (k) WITH (MEMORY LIMIT = '200kB')",
    )
    await becomes(env, "by_k", "stalled")
    # Without a hydrated index the query is computed from the table.
    assert await env.ran("s", "SELECT count(*) FROM grouped") == "9000\nSELECT 1"
    await env.ran("s", "ALTER INDEX by_k RESET (MEMORY LIMIT)")
    await becomes(env, "by_k", "running")
    assert await env.ran("s", "SELECT max FROM grouped WHERE k = 8000") == "8000\nSELECT 1"


async def test_drop_of_stalled_view_is_clean(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("s", "INSERT INTO t SELECT i, i FROM generate_series(101, 9000) AS i")
    await env.ran("s", f"{VIEW} {OF}")
    await becomes(env, "large", "stalled")
    await env.ran("s", "DROP MATERIALIZED VIEW large", f"CREATE MATERIALIZED VIEW large AS {OF}")
    assert await env.ran("s", "SELECT count(*) FROM large") == "9000\nSELECT 1"


async def test_replica_without_memory_stalls_its_largest_view(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(env)
    await env.ran(
        "s",
        "INSERT INTO t SELECT i, i FROM generate_series(101, 9000) AS i",
        f"CREATE MATERIALIZED VIEW large AS {OF}",
        "CREATE MATERIALIZED VIEW small AS SELECT count(*) FROM t",
        "SELECT count(*) FROM large, small",
    )
    with monkeypatch.context() as exhausted:
        exhausted.setattr(ReplicaMemory, "is_exceeded", property(lambda _: True))
        await becomes(env, "large", "stalled")
    await env.ran("s", "INSERT INTO t VALUES (0, 0)")
    answer = await env.query("s", "SELECT count(*) FROM large")
    assert "ERROR 53200" in answer
    assert "memory limit of the replica" in answer
    assert await env.ran("s", "SELECT * FROM small") == "9001\nSELECT 1"


async def test_limit_is_shown_and_survives_restart(env: TestEnvironment) -> None:
    await begun(env)
    await env.ran("s", f"{VIEW} {OF}")
    shown = await env.ran("s", "SHOW CREATE MATERIALIZED VIEW large")
    assert "WITH (MEMORY LIMIT = '200 kB')" in shown
    await env.reopen()
    assert "WITH (MEMORY LIMIT = '200 kB')" in await env.ran(
        "s", "SHOW CREATE MATERIALIZED VIEW large"
    )


@pytest.mark.parametrize("size", ["much", "0 MB", "5", "-1 MB"])
async def test_invalid_size_is_refused(env: TestEnvironment, size: str) -> None:
    await begun(env)
    answer = await env.query(
        "s", f"CREATE MATERIALIZED VIEW v WITH (MEMORY LIMIT = '{size}') AS {OF}"
    )
    assert answer.startswith(f'ERROR 22023: invalid value for MEMORY LIMIT: "{size}"')


async def test_who_follows_an_index_goes_on_when_its_limit_is_raised(env: TestEnvironment) -> None:
    """A client's subscription and a mirror receive what came while the index stood still."""
    await begun(env)
    await env.ran(
        "s",
        f"CREATE VIEW grouped AS {OF}",
        "CREATE INDEX by_k ON grouped (k) WITH (MEMORY LIMIT = '200kB')",
    )
    await becomes(env, "by_k", "running")  # until then the key of the table is read, and kept
    await mirrored(env, 100)
    await env.ran("f", "BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE grouped")
    assert (await env.query("f", "FETCH 100 c")).count("|") == 400
    await env.ran("s", "INSERT INTO t SELECT i, i FROM generate_series(101, 9000) AS i")
    await becomes(env, "by_k", "stalled")
    await env.ran("s", "ALTER INDEX by_k RESET (MEMORY LIMIT)")
    await becomes(env, "by_k", "running")
    async with asyncio.timeout(30):
        found = 0
        while found < 8900:
            answer = await env.query("f", "FETCH ALL c WITH (TIMEOUT = '500ms')")
            found += sum("|" in line for line in answer.splitlines())
    assert found == 8900
    await mirrored(env, 9000)


async def mirrored(env: TestEnvironment, rows: int) -> None:
    """Read the view until its index has a mirror with so many rows."""
    sizes = (
        "SELECT s.records FROM mz_introspection.mz_arrangement_sizes s JOIN mz_objects o"
        " ON o.id = s.object_id WHERE o.name = 'by_k' AND s.name = 'mirror'"
    )
    async with asyncio.timeout(30):
        while await env.ran("s", sizes) != f"{rows}\nSELECT 1":
            await env.ran("s", "SELECT * FROM grouped WHERE k = 5")
            await asyncio.sleep(0.01)
