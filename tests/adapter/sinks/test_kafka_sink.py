"""CREATE SINK ... INTO KAFKA: each change is in the topic once, whatever ends in between."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from tests.broker import Broker, serving

from tests.adapter.harness import TestEnvironment
from tests.kafka_topics import TopicReader, reading, rows_of

STATUS = "SELECT status, error FROM mz_internal.mz_sink_statuses"
FAST = "WITH (COMMIT INTERVAL '10 ms')"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment, broker: Broker) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')"))
    return own_env


async def until_equal(env: TestEnvironment, relation: str, reader: TopicReader) -> None:
    """Wait until the newest message of each key is the row of the relation."""
    while True:
        text = await env.query("a", f"SELECT coalesce(json_agg(t), '[]') FROM {relation} t")
        here = sorted(json.loads(text.rpartition("\n")[0]), key=str)
        if rows_of(await asyncio.to_thread(reader.newest)) == here:
            return
        await asyncio.sleep(0.05)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something that takes a while to find out holds."""
    while True:
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.02)


async def until_read(reader: TopicReader, count: int) -> list[Any]:
    """Wait until the topic has so many messages."""
    while True:
        found = await asyncio.to_thread(reader.read)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.02)


async def test_each_change_arrives_once_over_kills_and_restarts(
    env: TestEnvironment, broker: Broker
) -> None:
    drawn = random.Random(1)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, n float8)")
    await env.ran("a", "INSERT INTO t VALUES (1, 'a \"b\", c', 1.5), (2, NULL, 2), (3, '', NULL)")
    into = "INTO KAFKA CONNECTION k (TOPIC 'once', TOPIC PARTITION COUNT 3)"
    await env.ran("a", f"CREATE SINK s FROM t {into} FORMAT JSON ENVELOPE UPSERT {FAST}")
    with reading(broker.address, "once") as reader:
        await until_equal(env, "t", reader)
        for round in range(5):
            for _ in range(20):
                key = drawn.randrange(10)
                await env.ran("a", f"DELETE FROM t WHERE k = {key}")
                if drawn.random() < 0.7:
                    await env.ran("a", f"INSERT INTO t VALUES ({key}, 'r{round}', {key})")
            env.export.last.kill()
            if round == 2:
                await env.reopen()
        await until_equal(env, "t", reader)
        assert {each.partition for each in reader.messages} == {0, 1, 2}
        keys = {json.dumps({"k": key}, separators=(",", ":")).encode() for key in range(10)}
        assert {each.key for each in reader.messages} == keys
        for key in keys:  # a message that repeats the one before would be written twice
            values = [each.value for each in reader.messages if each.key == key]
            assert all(a != b for a, b in pairwise(values))
    assert (await env.query("a", STATUS)).startswith("running|NULL")
    with reading(broker.address, "_foreshore-progress") as progress:
        assert progress.newest()
        await env.ran("a", "DROP SINK s")
        await until(lambda: not progress.newest())
