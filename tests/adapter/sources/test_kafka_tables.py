"""Tables of a Kafka source: each reads the topic with a format and an envelope of its own."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import created, until
from tests.kafka import MockKafka
from tests.schema_registry import PASSWORD, USER, serving


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment, kafka: MockKafka) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')"))
    return own_env


async def table(env: TestEnvironment, text: str) -> None:
    assert await env.query("a", f"CREATE TABLE {text}") == "CREATE TABLE"


async def test_tables_of_a_topic_differ_in_format_and_envelope(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    kafka.write("t", [(b"a", b'{"x": 1}'), (b"b", b'{"x": 2}'), (b"a", b'{"x": 3}')], partition=0)
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't')")
    await table(env, "every (x int NOT NULL) FROM SOURCE s (REFERENCE t) FORMAT JSON")
    await until(env, "SELECT x FROM every ORDER BY x", "1\n2\n3")
    upsert = "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT"
    await table(env, f"last (x int) FROM SOURCE s (REFERENCE t) {upsert}")
    await table(env, "raw FROM SOURCE s FORMAT TEXT INCLUDE OFFSET")
    other = await env.query("a", "CREATE TABLE x (a) FROM SOURCE s (REFERENCE t) FORMAT TEXT")
    assert '42804: table "t" of the source has other columns' in other
    bare = await env.query("a", "CREATE TABLE x FROM SOURCE s")
    assert "22023: a table of a topic needs a format" in bare
    await until(env, "SELECT * FROM last ORDER BY key", "a|3\nb|2")
    await until(env, 'SELECT * FROM raw ORDER BY "offset"', '{"x": 1}|0\n{"x": 2}|1\n{"x": 3}|2')
    kafka.write("t", [(b"b", None), (b"c", b"wrong")], partition=0)
    await until(env, "SELECT * FROM last", "a|3")
    await until(env, "SELECT count(*) FROM raw", "5")
    await until(
        env,
        'SELECT output, "offset" FROM s_errors ORDER BY 1, 2',
        "t as every|3\nt as every|4\nt as last|4",
    )
    await env.reopen()
    kafka.write("t", [(b"a", b'{"x": 4}')], partition=0)
    await until(env, "SELECT * FROM last", "a|4")
    await until(env, "SELECT sum(x), count(*) FROM every", "10|4")
    assert await env.query("a", "DROP SOURCE s") == "DROP SOURCE"
    assert "42P01" in await env.query("a", "SELECT * FROM raw")


async def test_schema_is_changed_from_blue_to_green(env: TestEnvironment, kafka: MockKafka) -> None:
    kafka.write("bg", [(None, b'{"n": 1, "new": "a"}'), (None, b'{"n": 2, "new": "b"}')])
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'bg')")
    await table(env, "blue (n int) FROM SOURCE s (REFERENCE bg) FORMAT JSON")
    await env.ran("a", "CREATE VIEW v AS SELECT sum(n) AS total FROM blue")
    await until(env, "SELECT total FROM v", "3")
    await table(env, "green (n int, new text) FROM SOURCE s (REFERENCE bg) FORMAT JSON")
    await until(env, "SELECT * FROM green ORDER BY n", "1|a\n2|b")
    await env.ran("a", "CREATE OR REPLACE VIEW v AS SELECT sum(n) AS total FROM green")
    await env.ran("a", "DROP SOURCE blue")
    kafka.write("bg", [(None, b'{"n": 3, "new": "c"}')])
    await until(env, "SELECT total FROM v", "6")
    await table(env, "blue (n int) FROM SOURCE s (REFERENCE bg) FORMAT JSON")
    await until(env, "SELECT count(*) FROM blue", "3")


async def test_table_keeps_the_schema_that_the_registry_had(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    with serving() as registry:
        first = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
        registry.register("av-value", first)
        env.environment.unlock_secrets(bytes(32))
        given = f"URL '{registry.url}', USERNAME '{USER}', PASSWORD SECRET pw"
        await env.ran(
            "a",
            f"CREATE SECRET pw AS '{PASSWORD}'",
            f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY ({given})",
        )
        kafka.write("av", [(None, b"\0\0\0\0\x01\x02")])
        await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'av')")
        avro = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
        await table(env, f"x FROM SOURCE s (REFERENCE av) {avro}")
        await until(env, "SELECT * FROM x", "1")
        assert "2BP01" in await env.query("a", "DROP CONNECTION r")
        await env.ran("a", "DROP CONNECTION r CASCADE")
        assert "42P01" in await env.query("a", "SELECT * FROM x")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("t FROM SOURCE s (REFERENCE other) FORMAT TEXT", '42P01: table "other" does not exist'),
        ("t FROM SOURCE s (REFERENCE refused)", "22023: a table of a topic needs a format"),
        ("t FROM SOURCE s (REFERENCE refused) INCLUDE OFFSET", "22023: messages of Kafka need a"),
        (
            "t (a int) FROM SOURCE s (REFERENCE refused) FORMAT TEXT",
            "22023: the format has columns",
        ),
        ("t (a int UNIQUE) FROM SOURCE s (REFERENCE refused) FORMAT JSON", "0A000: a constraint"),
        ("t FROM SOURCE g (REFERENCE bids) FORMAT TEXT", '22023: tables of source "g" have no'),
    ],
)
async def test_table_that_cannot_be_is_refused(
    env: TestEnvironment, kafka: MockKafka, text: str, error: str
) -> None:
    kafka.write("refused", [(None, b"")])
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'refused')")
    await created(env, "CREATE SOURCE g FROM LOAD GENERATOR AUCTION")
    assert f"ERROR {error}" in await env.query("a", f"CREATE TABLE {text}")


async def test_show_create_is_the_statement(env: TestEnvironment, kafka: MockKafka) -> None:
    kafka.write("shown", [(None, b"")])
    await created(env, "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'shown')")
    declared = "(x int4 NOT NULL) FROM SOURCE foreshore.public.s (REFERENCE shown)"
    text = f"foreshore.public.t {declared} FORMAT JSON INCLUDE PARTITION AS p ENVELOPE NONE"
    await table(env, text)
    assert f"CREATE TABLE {text}" in (await env.query("a", "SHOW CREATE SOURCE t")).replace(
        "integer", "int4"
    )
    assert "FOR TABLES" not in await env.query("a", "SHOW CREATE SOURCE s")


async def test_late_messages_go_to_relations_beside_their_tables(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    def message(second: int) -> tuple[None, bytes]:
        return None, f'{{"at": "2020-01-01 00:01:{second}"}}'.encode()

    mark = "(at timestamp NOT NULL, WATERMARK FOR at AS at - INTERVAL '5 seconds')"
    kafka.write("late", [message(30), message(20)], partition=0)
    topic = "FROM KAFKA CONNECTION k (TOPIC 'late')"
    await created(env, f"CREATE SOURCE s {mark} {topic} FORMAT JSON")
    await created(env, f"CREATE SOURCE plain {topic}")
    await table(env, f"first {mark} FROM SOURCE plain (REFERENCE late) FORMAT JSON")
    for name in ("s", "first"):
        await until(env, f"SELECT count(*) FROM {name}", "2")
    kafka.write("late", [message(24), message(25), message(59)], partition=0)
    for name in ("s", "first"):
        await until(env, f"SELECT count(*) FROM {name}", "4")
        await until(env, f"SELECT at FROM {name}_late", "2020-01-01 00:01:24")
    await env.reopen()
    kafka.write("late", [message(53)], partition=0)
    for name in ("s", "first"):
        await until(env, f"SELECT count(*) FROM {name}_late", "2")
    shown = await env.query("a", "SHOW CREATE SOURCE first")
    assert "first (at timestamp without time zone NOT NULL, WATERMARK FOR at AS at - " in shown
    assert await env.query("a", "DROP SOURCE first") == "DROP SOURCE"
    assert "42P01" in await env.query("a", "SELECT * FROM first_late")
    upsert = "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT"
    found = await env.query("a", f"CREATE SOURCE u {mark} {topic} {upsert}")
    assert found.startswith("ERROR 0A000: a watermark needs a source that only adds rows")
