"""What is wrong with a topic or its brokers is told, and mended by itself if it can be."""

import asyncio
import re
import sys
from collections.abc import Mapping

import pytest

from foreshore.storage.external.kafka import Client
from foreshore.storage.ingest.kafka import reader as readers
from foreshore.storage.ingest.kafka import upsert
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import STATUS, created, until
from tests.kafka import MockKafka


async def connected(env: TestEnvironment, kafka: MockKafka) -> None:
    await env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')")


async def stalled(env: TestEnvironment, *parts: str) -> None:
    """Wait until source `s` stalls with an error that has these parts."""
    for _ in range(1500):
        found = await env.query("a", STATUS)
        if found.startswith("stalled|") and all(part in found for part in parts):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(found)


async def test_a_topic_that_was_made_anew_stalls_its_source(own_env: TestEnvironment) -> None:
    env, first, second = own_env, MockKafka(), MockKafka()
    await connected(env, first)
    first.write("t", [(None, b"1"), (None, b"2")], partition=0)
    second.write("t", [(None, b"3")], partition=0)
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT")
    await until(env, "SELECT count(*) FROM s", "2")
    await env.ran("a", f"ALTER CONNECTION k SET (BROKER '{second.address}')")
    await stalled(env, "was created anew", "read up to offset 2, and ends at 1")
    assert await env.query("a", "SELECT count(*) FROM s") == "2\nSELECT 1"
    await env.ran("a", f"ALTER CONNECTION k SET (BROKER '{first.address}')")
    first.write("t", [(None, b"4")], partition=0)
    await until(env, "SELECT count(*) FROM s", "3")
    await env.ran("a", "DROP SOURCE s")


async def test_messages_that_are_gone_are_not_skipped(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, kafka = own_env, MockKafka()
    await connected(env, kafka)
    kafka.write("t", [(None, b"1")], partition=0)
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT")
    await until(env, "SELECT count(*) FROM s", "1")
    bounds = Client.bounds
    monkeypatch.setattr(Client, "bounds", lambda *_: (5, 9))
    env.ingest.last.kill()
    await stalled(env, "was read up to offset 1, and begins at 5")
    monkeypatch.setattr(Client, "bounds", bounds)
    kafka.write("t", [(None, b"2")], partition=0)
    await until(env, "SELECT count(*) FROM s", "2")


async def test_brokers_that_are_away_are_told(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", "CREATE CONNECTION k TO KAFKA (BROKER '127.0.0.1:1')")
    for statement in (
        "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT",
        "VALIDATE CONNECTION k",
    ):
        found = await env.query("a", statement)
        assert "ERROR 08006: could not read from Kafka at 127.0.0.1:1: " in found
        assert "Connection refused" in found, found


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ", SECURITY PROTOCOL 'ssl'",  # the handshake fails, or the broker ends it
            "0800[16]: could not read from Kafka at {0}: .*TLS",
        ),
        (
            ", SASL USERNAME 'u', SASL PASSWORD SECRET pw",
            "28P01: could not read from Kafka at {0}: Failed to init",
        ),
        (
            ", SSL CERTIFICATE AUTHORITY 'x'",
            "22023: the connection to Kafka is wrong: Failed to cre",
        ),
    ],
)
async def test_wrong_credentials_are_told(
    own_env: TestEnvironment, options: str, error: str
) -> None:
    env, kafka = own_env, MockKafka(log_level="0")
    env.environment.unlock_secrets(bytes(32))
    connection = f"BROKER '{kafka.address}'{options}"
    await env.ran("a", "CREATE SECRET pw AS 'x'", f"CREATE CONNECTION k TO KAFKA ({connection})")
    source = "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT"
    found = await env.query("a", source)
    assert re.search(f"ERROR {error.format(kafka.address)}", found, re.DOTALL), found


async def test_too_many_keys_for_the_memory_are_told(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, kafka = own_env, MockKafka()
    await connected(env, kafka)
    kafka.write("t", [(b"%d" % number, b"x") for number in range(100)])
    monkeypatch.setattr(upsert, "physical_bytes", lambda: 4 * 10_000)
    source = "FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT ENVELOPE UPSERT"
    await created(env, f"CREATE SOURCE s {source}")
    await stalled(env, "out of memory", "keeps 0 MB of rows at most")
    monkeypatch.undo()
    await until(env, "SELECT count(*) FROM s", "100")


async def test_a_missing_package_is_told(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.ran("a", "CREATE CONNECTION k TO KAFKA (BROKER '127.0.0.1:1')")
    monkeypatch.delitem(sys.modules, "foreshore.storage.external.kafka")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    found = await own_env.query("a", "VALIDATE CONNECTION k")
    assert '0A000: the Python package "confluent_kafka" is not installed' in found


async def test_a_source_waits_for_its_brokers(own_env: TestEnvironment) -> None:
    env, kafka = own_env, MockKafka()
    await connected(env, kafka)
    kafka.write("t", [(None, b"1")], partition=0)
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT")
    await until(env, "SELECT count(*) FROM s", "1")
    await env.ran("a", "ALTER CONNECTION k SET (BROKER '127.0.0.1:1')")
    await stalled(env, "could not read from Kafka at 127.0.0.1:1")
    kafka.write("t", [(None, b"2")], partition=0)
    await env.ran("a", f"ALTER CONNECTION k SET (BROKER '{kafka.address}')")
    await until(env, "SELECT count(*) FROM s", "2")
    gone, kafka.producer = kafka.producer, None
    del gone  # and with it the brokers
    await stalled(env, "could not read from Kafka")


class _Partitions:
    """Shows a reader fewer partitions than there are, at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, visible: int) -> None:
        self.visible = visible
        topic = Client.topic

        def shown(client: Client, name: str) -> object:
            found = topic(client, name)
            partitions: Mapping[int, object] = found.partitions
            found.partitions = {at: p for at, p in partitions.items() if at < self.visible}
            return found

        monkeypatch.setattr(Client, "topic", shown)


async def test_new_partitions_are_read_while_it_runs(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, kafka = own_env, MockKafka()
    monkeypatch.setattr(readers, "REFRESH_SECONDS", 0.1)
    partitions = _Partitions(monkeypatch, 1)
    await connected(env, kafka)
    for partition in range(3):
        kafka.write("t", [(None, b"x")], partition=partition)
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT")
    await until(env, "SELECT part FROM s_progress", "0")
    await until(env, "SELECT count(*) FROM s", "1")
    partitions.visible = 3
    await until(env, "SELECT count(*) FROM s", "3")
    await until(env, "SELECT count(*) FROM s_progress", "3")
    partitions.visible = 2
    await stalled(env, "it has fewer partitions than before")
