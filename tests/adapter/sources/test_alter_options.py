"""ALTER SOURCE, ALTER SINK and ALTER CONNECTION change options of what runs, and say why not."""

import asyncio
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import until
from tests.kafka import MockKafka


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment, kafka: MockKafka) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')"))
    return own_env


async def test_interval_of_kafka_source_changes_while_it_runs(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    kafka.write("t", [(None, b"1")])
    await env.ran("a", "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT")
    await until(env, "SELECT * FROM s", "1")
    await env.ran("a", "ALTER SOURCE s SET (TIMESTAMP INTERVAL = '5 ms')")
    assert "TIMESTAMP INTERVAL = '5 ms'" in await env.query("a", "SHOW CREATE SOURCE s")
    kafka.write("t", [(None, b"2")])
    await until(env, "SELECT * FROM s ORDER BY 1", "1\n2")
    await env.reopen()
    assert "TIMESTAMP INTERVAL = '5 ms'" in await env.query("a", "SHOW CREATE SOURCE s")
    await env.ran("a", "ALTER SOURCE s RESET (TIMESTAMP INTERVAL)")
    assert "TIMESTAMP INTERVAL = '100 ms'" in await env.query("a", "SHOW CREATE SOURCE s")
    await env.ran("a", "ALTER SOURCE s SET (RETAIN HISTORY FOR '1 h')")
    for statement, error in (
        ("ALTER SOURCE s SET (TIMESTAMP INTERVAL = '1 min')", '22023: option "timestamp interval"'),
        ("ALTER SOURCE s SET (POLL INTERVAL = '1 s')", "22023: sources of KAFKA have no option"),
        ("ALTER SOURCE s SET (TOPIC = 'u')", '42601: unknown option "topic" of ALTER SOURCE'),
        ("ALTER SOURCE s RESET (TIMESTAMP INTERVAL = '1 s')", "42601: RESET takes no values"),
        ("ALTER SOURCE s_errors SET (POLL INTERVAL = '1 s')", '42809: "s_errors" is a relation of'),
        ("ALTER SOURCE nope SET (POLL INTERVAL = '1 s')", "42P01"),
    ):
        assert f"ERROR {error}" in await env.query("a", statement), statement


async def test_commit_interval_of_sink_changes_while_it_runs(
    env: TestEnvironment, tmp_path: Path
) -> None:
    place = tmp_path / "out"
    place.mkdir()
    env.environment.let_copy([str(place)], tmp_path / "data")
    await env.ran(
        "a",
        "CREATE TABLE t (x int)",
        f"CREATE SINK k FROM t INTO FILES (URL '{place}/d', FORMAT json)"
        " WITH (COMMIT INTERVAL = '1 h')",
        "ALTER SINK k SET (COMMIT INTERVAL = '10 ms')",
        "INSERT INTO t VALUES (1)",
        "WAIT FOR SINKS k",
    )
    assert '"x":1' in "".join(each.read_text() for each in (place / "d").glob("*.json"))
    assert "COMMIT INTERVAL = '10 ms'" in await env.query("a", "SHOW CREATE SINK k")
    wrong = await env.query("a", "ALTER SINK k SET (TIMEOUT = '1 s')")
    assert 'ERROR 22023: sinks to FILES have no option "timeout"' in wrong
    await env.ran("a", "ALTER SINK k RESET (COMMIT INTERVAL)")
    assert "COMMIT INTERVAL = '1000 ms'" in await env.query("a", "SHOW CREATE SINK k")


async def test_altered_connection_is_validated_first(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    before = await env.query("a", "SHOW CREATE CONNECTION k")
    wrong = "ALTER CONNECTION k SET (BROKER '127.0.0.1:1') WITH (VALIDATE)"
    assert "ERROR 08006: could not read from Kafka at 127.0.0.1:1" in await env.query("a", wrong)
    assert await env.query("a", "SHOW CREATE CONNECTION k") == before
    await env.ran(
        "a",
        f"ALTER CONNECTION k SET (BROKER '{kafka.address}', PROGRESS TOPIC 'p') WITH (VALIDATE)",
        "ALTER CONNECTION k RESET (PROGRESS TOPIC), SET (SECURITY PROTOCOL 'plaintext')"
        " WITH (VALIDATE = TRUE)",
    )
    shown = await env.query("a", "SHOW CREATE CONNECTION k")
    assert "SECURITY PROTOCOL = 'plaintext'" in shown
    assert "PROGRESS TOPIC" not in shown
    missing = await env.query("a", "ALTER CONNECTION IF EXISTS no SET (URL 'x') WITH (VALIDATE)")
    assert missing.count('connection "no" does not exist, skipping') == 1
