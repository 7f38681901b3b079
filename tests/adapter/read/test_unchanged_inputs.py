"""Views are exact right after commits to other tables, of which replicas hear later."""

import random

import pytest

from foreshore.compute.controller.cluster import Cluster
from foreshore.compute.protocol import Feed
from foreshore.storage import shard
from tests.adapter.harness import TestEnvironment

TABLES = (
    "CREATE TABLE a (k int PRIMARY KEY, g int, v int)",
    "CREATE TABLE b (k int PRIMARY KEY, g int, v int)",
    "CREATE TABLE apart (k int PRIMARY KEY)",
    "INSERT INTO a SELECT i, i % 3, i FROM generate_series(1, 9) i",
    "INSERT INTO b SELECT i, i % 3, i FROM generate_series(1, 9) i",
    "CREATE VIEW plain AS SELECT g, count(*) n, sum(v) s FROM a GROUP BY g",
    "CREATE INDEX ON plain (g)",
    "CREATE MATERIALIZED VIEW stored AS SELECT g, max(v) m FROM b GROUP BY g",
    "CREATE INDEX ON stored (g)",
    "CREATE MATERIALIZED VIEW above AS SELECT g, n + m AS x FROM plain JOIN stored USING (g)",
    "CREATE INDEX ON above (g)",
    "CREATE MATERIALIZED VIEW timed AS SELECT g, k FROM a WHERE mz_now() < 4102444800000 + v",
)
READS = {
    "SELECT * FROM plain WHERE g = 1": "SELECT g, count(*), sum(v) FROM a WHERE g = 1 GROUP BY g",
    "SELECT * FROM stored WHERE g = 1": "SELECT g, max(v) FROM b WHERE g = 1 GROUP BY g",
    "SELECT * FROM stored ORDER BY g": "SELECT g, max(v) FROM b GROUP BY g ORDER BY g",
    "SELECT * FROM above WHERE g = 2": """SELECT 2, (SELECT count(*) FROM a WHERE g = 2)
        + max(v) FROM b WHERE g = 2""",
    "SELECT count(*) FROM timed": "SELECT count(*) FROM a",
}

BY_KEY = [sql for sql in READS if "WHERE" in sql]


async def opened(env: TestEnvironment, monkeypatch: pytest.MonkeyPatch) -> list[Feed]:
    """Create tables and views; return a list that gets what replicas hear of shards from now on."""
    monkeypatch.setattr(shard, "QUIET_SECONDS", 3600.0)
    await env.reopen()
    await env.ran("s", *TABLES)
    heard: list[Feed] = []
    send = Cluster.send

    def told(self: Cluster, message: object, tables: object = ()) -> None:
        if isinstance(message, Feed):
            heard.append(message)
        send(self, message, tables)  # type: ignore[arg-type]

    monkeypatch.setattr(Cluster, "send", told)
    return heard


async def test_a_commit_to_another_table_is_no_news_to_replicas(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    heard = await opened(env, monkeypatch)
    for k in range(50):  # at first the indexes have no mirrors
        heard.clear()
        await env.ran("s", f"INSERT INTO apart VALUES ({k})")
        for sql in BY_KEY:
            await env.ran("s", sql)
        if not heard:
            break
    for k in range(50, 60):
        await env.ran("s", f"INSERT INTO apart VALUES ({k})")
        for sql in BY_KEY:
            await env.ran("s", sql)
    assert not heard


@pytest.mark.parametrize("seed", range(3))
async def test_views_are_exact_after_each_commit(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    env, rng = own_env, random.Random(seed)
    await opened(env, monkeypatch)
    for step in range(60):
        table = rng.choice(("a", "b", "apart", "apart"))
        if table == "apart":
            await env.ran("s", f"INSERT INTO apart VALUES ({step + 100})")
        elif rng.random() < 0.5:
            await env.ran("s", f"UPDATE {table} SET v = v + {step} WHERE k = {rng.randint(1, 9)}")
        else:
            await env.ran("s", f"INSERT INTO {table} VALUES ({step + 100}, {step % 3}, {step})")
        for read, same in rng.sample(list(READS.items()), 2):
            assert await env.ran("s", read) == await env.ran("s", same), (step, read)
