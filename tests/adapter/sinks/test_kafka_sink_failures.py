"""Sinks to Kafka when something is wrong: what their state says, and that they recover."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from foreshore.storage.export.kafka import producer, topics
from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import STATUS, until_read, until_state
from tests.broker import Broker, Front, serving
from tests.kafka_topics import reading
from tests.schema_registry import PASSWORD, USER
from tests.schema_registry import serving as serving_registry

FAST = "WITH (COMMIT INTERVAL '10 ms')"
KEYED = f"KEY (k) KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT {FAST}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment, broker: Broker) -> TestEnvironment:
    own_env.environment.unlock_secrets(bytes(32))
    runner.run(
        own_env.ran(
            "a",
            f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')",
            "CREATE TABLE t (k int PRIMARY KEY, v text)",
            "INSERT INTO t VALUES (1, 'a')",
        )
    )
    return own_env


async def until_values(broker: Broker, topic: str, expected: list[str]) -> None:
    """Wait until a topic has messages with these values of v, and no others."""
    with reading(broker.address, topic) as reader:
        found = await until_read(reader, len(expected))
    assert [json.loads(each.value or b"")["v"] for each in found] == expected


async def test_a_broker_that_was_away_gets_each_change_once(
    env: TestEnvironment, broker: Broker
) -> None:
    into = "INTO KAFKA CONNECTION k (TOPIC 'away', TOPIC PARTITION COUNT 1)"
    await env.ran("a", f"CREATE SINK s FROM t {into} {KEYED}")
    await until_values(broker, "away", ["a"])
    await asyncio.to_thread(broker.stop)
    try:
        await env.ran("a", "UPDATE t SET v = 'b'")
        assert "could not write to Kafka at" in await until_state(env, "stalled|")
    finally:
        await asyncio.to_thread(broker.start)
    await until_values(broker, "away", ["a", "b"])
    await env.ran("a", "UPDATE t SET v = 'c'")
    await until_values(broker, "away", ["a", "b", "c"])
    assert (await env.query("a", STATUS)).startswith("running|NULL")


async def test_brokers_that_do_not_answer_are_not_waited_for(
    env: TestEnvironment, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "COMMIT_SECONDS", 2.0)
    monkeypatch.setattr(topics, "ANSWER_SECONDS", 2.0)
    front = Front(broker.address, {})
    try:
        await env.ran("a", f"CREATE CONNECTION f TO KAFKA (BROKER '{front.address}')")
        into = "INTO KAFKA CONNECTION f (TOPIC 'silent', TOPIC PARTITION COUNT 1)"
        await env.ran("a", f"CREATE SINK s FROM t {into} {KEYED}")
        await until_values(broker, "silent", ["a"])
        front.silence()
        await env.ran("a", "UPDATE t SET v = 'b'")
        assert "could not write to Kafka at" in await until_state(env, "stalled|")
        front.speak()
        await until_values(broker, "silent", ["a", "b"])
        await until_state(env, "running")
    finally:
        front.close()


async def test_a_topic_that_was_deleted_stalls_the_sink(
    env: TestEnvironment, broker: Broker
) -> None:
    into = "INTO KAFKA CONNECTION k (TOPIC 'gone', TOPIC PARTITION COUNT 1)"
    await env.ran("a", f"CREATE SINK s FROM t {into} {KEYED}")
    await until_values(broker, "gone", ["a"])
    await asyncio.to_thread(broker.delete, "gone")
    await env.ran("a", "UPDATE t SET v = 'b'")
    while True:
        if 'topic "gone" does not exist' in await until_state(env, "stalled|"):
            break
        await asyncio.sleep(0.05)
    await asyncio.to_thread(broker.create, "gone", 1)
    await until_values(broker, "gone", ["b"])


async def test_a_wrong_password_is_told_and_mended(env: TestEnvironment, broker: Broker) -> None:
    front = Front(broker.address, {"me": "right"})
    try:
        options = f"BROKER '{front.address}', SASL USERNAME 'me', SASL PASSWORD SECRET pw"
        await env.ran(
            "a",
            "CREATE SECRET pw AS 'wrong'",
            f"CREATE CONNECTION guarded TO KAFKA ({options}) WITH (VALIDATE = false)",
        )
        into = "INTO KAFKA CONNECTION guarded (TOPIC 'secret', TOPIC PARTITION COUNT 1)"
        error = await env.query("a", f"CREATE SINK s FROM t {into} {KEYED}")
        assert "ERROR 28P01: could not write to Kafka" in error
        assert "wrong password" in error
        await env.ran("a", "ALTER SECRET pw AS 'right'", f"CREATE SINK s FROM t {into} {KEYED}")
        await until_values(broker, "secret", ["a"])
        await env.ran("a", "ALTER SECRET pw AS 'wrong'", "UPDATE t SET v = 'b'")
        assert "wrong password" in await until_state(env, "stalled|could not")
        await env.ran("a", "ALTER SECRET pw AS 'right'")
        await until_values(broker, "secret", ["a", "b"])
    finally:
        front.close()


async def test_a_registry_that_is_away_stalls_the_sink(
    env: TestEnvironment, broker: Broker
) -> None:
    with serving_registry() as registry:
        await env.ran(
            "a",
            f"CREATE SECRET pw AS '{PASSWORD}'",
            f"CREATE CONNECTION csr TO CONFLUENT SCHEMA REGISTRY (URL '{registry.url}', USERNAME"
            f" '{USER}', PASSWORD SECRET pw)",
        )
        into = "INTO KAFKA CONNECTION k (TOPIC 'schemas')"
        format = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr"
        await env.ran("a", f"CREATE SINK s FROM t {into} {format} ENVELOPE UPSERT {FAST}")
        with reading(broker.address, "schemas") as reader:
            await until_read(reader, 1)
            nowhere = "http://127.0.0.1:1"
            await env.ran("a", f"ALTER CONNECTION csr SET (URL '{nowhere}')")
            error = await until_state(env, "stalled|")
            assert f"could not ask the schema registry at {nowhere}" in error
            refused = await env.query("a", f"CREATE SINK x FROM t {into} {format} ENVELOPE UPSERT")
            assert f"ERROR 08006: could not ask the schema registry at {nowhere}" in refused
            await env.ran("a", "UPDATE t SET v = 'b'")
            await env.ran("a", f"ALTER CONNECTION csr SET (URL '{registry.url}')")
            assert len(await until_read(reader, 2)) == 2


async def test_two_rows_of_a_key_stall_the_sink(env: TestEnvironment, broker: Broker) -> None:
    await env.ran("a", "CREATE TABLE u (k int, v text)")
    into = "INTO KAFKA CONNECTION k (TOPIC 'twice', TOPIC PARTITION COUNT 1)"
    keyed = KEYED.replace("(k)", "(k) NOT ENFORCED", 1)
    await env.ran("a", f"CREATE SINK s FROM u {into} {keyed}")
    await until_state(env, "running")
    await env.ran("a", "INSERT INTO u VALUES (1, 'a'), (1, 'b'), (2, 'c')")
    assert "several rows have the same key (k)" in await until_state(env, "stalled|")


async def test_two_rows_of_a_key_at_first_stall_the_sink(
    env: TestEnvironment, broker: Broker
) -> None:
    await env.ran("a", "CREATE TABLE u (k int, v text)")
    await env.ran("a", "INSERT INTO u VALUES (1, 'a')", "INSERT INTO u VALUES (1, 'b'), (2, 'c')")
    into = "INTO KAFKA CONNECTION k (TOPIC 'twice-at-first', TOPIC PARTITION COUNT 1)"
    keyed = KEYED.replace("(k)", "(k) NOT ENFORCED", 1)
    await env.ran("a", f"CREATE SINK s FROM u {into} {keyed}")
    assert "several rows have the same key (k)" in await until_state(env, "stalled|")
    await env.ran("a", "DROP SINK s", "DELETE FROM u WHERE v = 'b'")
    await env.ran("a", f"CREATE SINK s FROM u {into} {keyed}")
    await until_values(broker, "twice-at-first", ["a", "c"])


async def test_a_large_message_is_written(env: TestEnvironment, broker: Broker) -> None:
    into = "INTO KAFKA CONNECTION k (TOPIC 'large', TOPIC PARTITION COUNT 1)"
    await env.ran("a", f"CREATE SINK s FROM t {into} {KEYED}")
    await until_values(broker, "large", ["a"])
    await env.ran("a", "UPDATE t SET v = repeat('x', 3000000)")
    with reading(broker.address, "large") as reader:
        (_, large) = await until_read(reader, 2)
    assert len(large.value or b"") > 3_000_000
