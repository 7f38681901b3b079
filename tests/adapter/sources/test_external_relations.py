"""System relations about connections, and about what sources and sinks read and write."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment
from tests.kafka import MockKafka


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment) -> TestEnvironment:
    own_env.environment.unlock_secrets(bytes(32))
    runner.run(own_env.ran("a", "CREATE SECRET pw AS 'x'"))
    return own_env


async def test_relations_of_kafka_have_topics_formats_and_brokers(env: TestEnvironment) -> None:
    kafka = MockKafka()
    kafka.write("bids", [(b"k", b"{}")])
    await env.ran(
        "a",
        f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')",
        "CREATE CONNECTION two TO KAFKA (BROKER 'a:1, b:2', PROGRESS TOPIC 'p')",
        "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'bids', GROUP ID PREFIX 'g-')",
        "CREATE TABLE t FROM SOURCE s (REFERENCE bids)"
        " KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT",
        "CREATE TABLE u FROM SOURCE s (REFERENCE bids) FORMAT BYTES",
    )
    assert await env.query(
        "a",
        "SELECT c.name, brokers, sink_progress_topic FROM mz_kafka_connections k"
        " JOIN mz_connections c USING (id) ORDER BY 1",
    ) == (f"k|{{{kafka.address}}}|_foreshore-progress\ntwo|{{a:1,b:2}}|p\nSELECT 2")
    sources = "SELECT name, group_id_prefix, topic FROM mz_kafka_sources JOIN mz_sources USING (id)"
    assert await env.query("a", sources) == "s|g-|bids\nSELECT 1"
    assert await env.query(
        "a",
        "SELECT name, topic, envelope_type, key_format, value_format"
        " FROM mz_internal.mz_kafka_source_tables JOIN mz_objects USING (id) ORDER BY 1",
    ) == ("t|bids|upsert|text|json\nu|bids|none|NULL|bytes\nSELECT 2")
    await env.ran("a", "CREATE SOURCE own FROM KAFKA CONNECTION k (TOPIC 'bids') FORMAT JSON")
    assert await env.query(
        "a",
        "SELECT s.name, c.name, envelope_type, key_format, value_format FROM mz_sources s"
        " LEFT JOIN mz_connections c ON c.id = connection_id"
        " WHERE s.name IN ('s', 'own', 't', 's_progress') ORDER BY 1",
    ) == (
        "own|k|none|NULL|json\ns|k|NULL|NULL|NULL\ns_progress|NULL|NULL|NULL|NULL\n"
        "t|NULL|upsert|text|json\nSELECT 4"
    )


async def test_relations_of_webhooks_and_aws_have_paths_and_ids_of_secrets(
    env: TestEnvironment,
) -> None:
    await env.ran(
        "a",
        'CREATE SOURCE "a b" FROM WEBHOOK BODY FORMAT JSON',
        "CREATE CONNECTION w TO AWS (REGION 'r', ACCESS KEY ID 'id', SECRET ACCESS KEY SECRET pw)",
    )
    assert (
        await env.query("a", "SELECT name, url FROM mz_internal.mz_webhook_sources")
        == "a b|/api/webhook/foreshore/public/a%20b\nSELECT 1"
    )
    assert await env.query(
        "a",
        "SELECT region, access_key_id, endpoint, secret_access_key_secret_id = s.id"
        " FROM mz_internal.mz_aws_connections, mz_secrets s",
    ) == ("r|id|NULL|t\nSELECT 1")
