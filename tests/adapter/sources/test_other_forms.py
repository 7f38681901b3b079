"""Forms of statements about sources as Materialize writes them."""

import asyncio

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


async def test_columns_of_csv_may_have_names_only(env: TestEnvironment, kafka: MockKafka) -> None:
    kafka.write("csv", [(None, b"1,x")])
    topic = "FROM KAFKA CONNECTION k (TOPIC 'csv')"
    await env.ran(
        "a",
        f"CREATE SOURCE s (id, v) {topic} FORMAT CSV WITH 2 COLUMNS"
        " WITH (TIMESTAMP INTERVAL = '5 ms')",
        rf"CREATE SOURCE r (a, b) IN CLUSTER quickstart {topic} FORMAT REGEX '(\w+),(\w+)'",
    )
    await until(env, "SELECT id, v FROM s", "1|x")
    await until(env, "SELECT a, b FROM r", "1|x")
    assert "TIMESTAMP INTERVAL = '5 ms'" in await env.query("a", "SHOW CREATE SOURCE s")
    for statement, error in (
        (f"CREATE SOURCE x (a) {topic} FORMAT JSON", '42601: column "a" has no type'),
        (f"CREATE SOURCE x (a) {topic} FORMAT CSV WITH 2 COLUMNS", "22023: 1 columns are declared"),
        ("CREATE SOURCE x (a) FROM LOAD GENERATOR COUNTER", '42601: column "a" has no type'),
        (f"CREATE SOURCE x {topic} FORMAT TEXT WITH (TIMESTAMP INTERVAL '1 h')", "22023: option"),
        (f"CREATE SOURCE x {topic} FORMAT TEXT WITH (RETAIN HISTORY FOR '1 h')", "0A000: RETAIN"),
        (f"CREATE SOURCE x {topic} FORMAT TEXT WITH (SIZE = '1')", '42601: unknown option "size"'),
        (f"CREATE SOURCE x {topic} FORMAT TEXT ENVELOPE MATERIALIZE", "0A000: ENVELOPE MATERIAL"),
        (f"CREATE SOURCE x (a int, PRIMARY KEY (a) NOT ENFORCED) {topic}", "0A000: a constraint"),
        ("CREATE SOURCE x FROM S3 'a'", '42601: syntax error at or near "S3"'),
        ("ALTER SOURCE s ADD SUBSOURCE a WITH (TEXT COLUMNS [a.b])", "0A000: ALTER SOURCE ... ADD"),
        ("ALTER SOURCE s REFRESH REFERENCES", "0A000: ALTER SOURCE ... REFRESH REFERENCES is not"),
        ("CREATE SINK x FROM s INTO ICEBERG (URL '/x')", "0A000: sinks to Iceberg tables without"),
        ("CREATE SINK x FROM s INTO BIGQUERY CONNECTION b", '42601: syntax error at or near "BIG'),
        (
            "CREATE SOURCE x FROM LOAD GENERATOR COUNTER WITH (TIMESTAMP INTERVAL = '1 s')",
            '42601: unknown option "timestamp interval" of CREATE SOURCE',
        ),
    ):
        assert f"ERROR {error}" in await env.query("a", statement), statement


async def test_lists_may_be_in_brackets(env: TestEnvironment, kafka: MockKafka) -> None:
    kafka.write("listed", [(None, b"a"), (None, b"b")], partition=0)
    topic = "FROM KAFKA CONNECTION k (TOPIC 'listed', START OFFSET = [1, 0])"
    await env.ran("a", f"CREATE SOURCE s {topic} FORMAT TEXT")
    await until(env, "SELECT * FROM s", "b")


async def test_a_webhook_may_be_called_a_table_and_subsources_are_shown(
    env: TestEnvironment,
) -> None:
    await env.ran(
        "a",
        "CREATE TABLE w FROM WEBHOOK BODY FORMAT JSON INCLUDE HEADERS",
        "CREATE TABLE IF NOT EXISTS w FROM WEBHOOK BODY FORMAT TEXT",
        "CREATE SOURCE h FROM LOAD GENERATOR AUCTION (UP TO 1) FOR TABLES (bids, users)",
        "CREATE SOURCE g FROM LOAD GENERATOR AUCTION (UP TO 1) FOR TABLES (accounts)",
    )
    assert await env.query("a", "SHOW COLUMNS FROM w") == (
        "body|f|jsonb\nheaders|f|map[text=>text]\nSELECT 2"
    )
    assert "FROM WEBHOOK BODY FORMAT JSON" in await env.query("a", "SHOW CREATE TABLE w")
    needed = '22023: a table of source "h" needs a reference'
    assert needed in await env.query("a", "CREATE TABLE x FROM SOURCE h")
    of_h = "bids|subsource\nusers|subsource\nSELECT 2"
    assert await env.query("a", "SHOW SUBSOURCES ON h") == of_h
    assert await env.query("a", "SHOW SUBSOURCES LIKE 'a%'") == "accounts|subsource\nSELECT 1"
    await env.ran("a", "DROP TABLE w")
    assert await env.query("a", "SELECT count(*) FROM mz_sources WHERE name = 'w'") == "0\nSELECT 1"
