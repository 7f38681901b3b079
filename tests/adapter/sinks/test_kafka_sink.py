"""CREATE SINK ... INTO KAFKA: each change is in the topic once, whatever ends in between."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from typing import Any

import fastavro
import pytest

from foreshore.storage import consolidate
from foreshore.storage.export.kafka import exporter
from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import STATUS, until, until_read
from tests.broker import Broker, serving
from tests.harness import ROOT
from tests.kafka_topics import TopicReader, reading, rows_of
from tests.schema_registry import PASSWORD, USER, FakeRegistry
from tests.schema_registry import serving as serving_registry

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
        for name in keys:  # a message that repeats the one before would be written twice
            values = [each.value for each in reader.messages if each.key == name]
            assert all(a != b for a, b in pairwise(values))
    assert (await env.query("a", STATUS)).startswith("running|NULL")
    with reading(broker.address, "_foreshore-progress") as progress:
        assert progress.newest()
        await env.ran("a", "DROP SINK s")
        await until(lambda: not progress.newest())


async def test_many_changes_of_one_time_are_put_in_order_on_disk(
    env: TestEnvironment, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "GATHERED_BYTES", 1_000)
    monkeypatch.setattr(consolidate, "IN_MEMORY", 10_000)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, h map[text=>text])")
    await env.ran("a", "INSERT INTO t SELECT i, 'a', '{n=>1}' FROM generate_series(1, 5000) i")
    into = "INTO KAFKA CONNECTION k (TOPIC 'many', TOPIC PARTITION COUNT 2) KEY (k) NOT ENFORCED"
    await env.ran(
        "a", f"CREATE SINK s FROM t {into} HEADERS h FORMAT JSON ENVELOPE DEBEZIUM {FAST}"
    )
    with reading(broker.address, "many") as reader:
        await until_read(reader, 5000)
        await env.ran("a", "UPDATE t SET v = 'b', h = '{n=>2}' WHERE k <= 3000")
        await env.ran("a", "DELETE FROM t WHERE k > 4000")
        found = await until_read(reader, 9000)
    assert len(found) == 9000
    values = [json.loads(each.value or b"") for each in found]
    assert sum(each["before"] is None for each in values) == 5000
    assert sum(each["after"] is None for each in values) == 1000
    assert all(
        a["k"] == b["k"] for each in values if (a := each["before"]) and (b := each["after"])
    )
    changed = [m.headers for m, each in zip(found, values, strict=True) if each["after"]]
    assert changed.count((("n", b"2"),)) == 3000


async def test_changes_of_one_time_stay_together(env: TestEnvironment, broker: Broker) -> None:
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v int)")
    await env.ran("a", "INSERT INTO t VALUES (1, 1), (2, 1)")
    into = "INTO KAFKA CONNECTION k (TOPIC 'changes', TOPIC PARTITION COUNT 1)"
    await env.ran("a", f"CREATE SINK s FROM t {into} FORMAT JSON ENVELOPE DEBEZIUM {FAST}")
    with reading(broker.address, "changes") as reader:
        await until_read(reader, 2)
        await env.ran("a", "BEGIN", "UPDATE t SET v = 2", "DELETE FROM t WHERE k = 1", "COMMIT")
        found = await until_read(reader, 4)
    assert all(each.key is None for each in found)
    assert sorted(each.value or b"" for each in found[:2]) == [
        b'{"before":null,"after":{"k":1,"v":1}}',
        b'{"before":null,"after":{"k":2,"v":1}}',
    ]


async def test_debezium_with_a_key_pairs_the_rows(env: TestEnvironment, broker: Broker) -> None:
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v int)")
    await env.ran("a", "INSERT INTO t VALUES (1, 1), (2, 1)")
    into = "INTO KAFKA CONNECTION k (TOPIC 'pairs', TOPIC PARTITION COUNT 1) KEY (k)"
    await env.ran(
        "a",
        f"CREATE SINK s FROM t {into} KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE DEBEZIUM {FAST}",
    )
    with reading(broker.address, "pairs") as reader:
        await until_read(reader, 2)
        await env.ran("a", "BEGIN", "UPDATE t SET v = 2", "DELETE FROM t WHERE k = 1", "COMMIT")
        found = await until_read(reader, 4)
    assert sorted((each.key, each.value) for each in found[2:]) == [
        (b"1", b'{"before":{"k":1,"v":1},"after":null}'),
        (b"2", b'{"before":{"k":2,"v":1},"after":{"k":2,"v":2}}'),
    ]


async def test_text_bytes_and_headers(env: TestEnvironment, broker: Broker) -> None:
    await env.ran(
        "a",
        "CREATE TABLE t (k text PRIMARY KEY, v bytea, h map[text=>text])",
        "INSERT INTO t VALUES ('a', '\\x00ff', '{one=>1,none=>NULL}'), ('b', 'b', NULL)",
    )
    into = "INTO KAFKA CONNECTION k (TOPIC 'plain', COMPRESSION TYPE 'zstd')"
    formats = "HEADERS h KEY FORMAT TEXT VALUE FORMAT BYTES"
    await env.ran("a", f"CREATE SINK s FROM t {into} KEY (k) {formats} ENVELOPE UPSERT {FAST}")
    with reading(broker.address, "plain") as reader:
        found = await until_read(reader, 2)
        await env.ran("a", "DELETE FROM t WHERE k = 'a'")
        found = sorted(await until_read(reader, 3), key=lambda each: (each.key, each.value is None))
    headers = (("one", b"1"), ("none", None))
    assert [(each.key, each.value) for each in found] == [
        (b"a", b"\x00\xff"),
        (b"a", None),
        (b"b", b"b"),
    ]
    assert [sorted(each.headers) for each in found] == [sorted(headers), sorted(headers), []]


async def test_avro_schemas_are_registered(
    env: TestEnvironment, broker: Broker, registry: FakeRegistry
) -> None:
    await env.ran(
        "a",
        "CREATE TABLE t (k int8 PRIMARY KEY, n numeric(10, 2), at timestamptz)",
        "INSERT INTO t VALUES (1, 1.5, '2024-01-31 12:00:00.5Z'), (2, NULL, NULL)",
    )
    into = "INTO KAFKA CONNECTION k (TOPIC 'avro')"
    format = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr"
    await env.ran("a", f"CREATE SINK s FROM t {into} {format} ENVELOPE UPSERT {FAST}")
    (key_id,), (value_id,) = registry.subjects["avro-key"], registry.subjects["avro-value"]
    with reading(broker.address, "avro") as reader:
        found = await until_read(reader, 2)
    rows = {
        decoded(registry, key_id, each.key)["k"]: decoded(registry, value_id, each.value)
        for each in found
    }
    assert {k: (row["k"], str(row["n"])) for k, row in rows.items()} == {
        1: (1, "1.50"),
        2: (2, "None"),
    }
    source = f"CREATE SOURCE back FROM KAFKA CONNECTION k (TOPIC 'avro') {format} ENVELOPE UPSERT"
    await env.ran("a", source)
    here = (await env.query("a", "SELECT k, n, at FROM t ORDER BY k")).rpartition("\n")[0]
    while True:
        back = await env.query("a", "SELECT k, n, at FROM back ORDER BY k")
        if back.rpartition("\n")[0] == here:
            break
        await asyncio.sleep(0.05)
    columns = "k int8 PRIMARY KEY, n numeric(10, 2) NOT NULL, at timestamptz"
    await env.ran("a", f"CREATE TABLE full_t ({columns})")
    said = await env.query("a", "ALTER SINK s SET FROM full_t")
    assert 'ERROR 42804: column "n" may be NULL in one of the two relations' in said
    registry.refused.add("refused-value")
    into = "INTO KAFKA CONNECTION k (TOPIC 'refused')"
    error = await env.query("a", f"CREATE SINK x FROM t {into} {format} ENVELOPE UPSERT")
    assert "ERROR 22023: the schema registry at" in error
    assert "the schema is incompatible" in error


async def test_records_have_names_and_subjects_rules(
    env: TestEnvironment, broker: Broker, registry: FakeRegistry
) -> None:
    registry.levels["named-key"] = "NONE"
    options = (
        "AVRO KEY FULLNAME = 'com.example.Key', AVRO VALUE FULLNAME = 'Order',"
        " KEY COMPATIBILITY LEVEL = 'full', VALUE COMPATIBILITY LEVEL = 'FORWARD', NULL DEFAULTS,"
        " DOC ON COLUMN t.v = 'a text', VALUE DOC ON TYPE public.t = 'rows'"
    )
    avro = f"AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr ({options})"
    sink = f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC 'named') KEY (k) FORMAT {avro}"
    await env.ran(
        "a",
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, NULL)",
        f"{sink} ENVELOPE DEBEZIUM",
        "WAIT FOR SINKS s",
    )
    (key_id,), (value_id,) = registry.subjects["named-key"], registry.subjects["named-value"]
    key, value = (json.loads(registry.schemas[id]["schema"]) for id in (key_id, value_id))
    assert (key["namespace"], key["name"]) == ("com.example", "Key")
    assert (value.get("namespace"), value["name"]) == (None, "Order")
    row = value["fields"][0]["type"][1]
    assert (row["doc"], [each.get("doc") for each in row["fields"]]) == ("rows", [None, "a text"])
    assert registry.levels == {"named-key": "NONE", "named-value": "FORWARD"}
    with reading(broker.address, "named") as reader:
        (message,) = await until_read(reader, 1)
    found = decoded(registry, value_id, message.value)
    assert found == {"before": None, "after": {"k": 1, "v": None}}
    (shown,) = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[:-1]
    assert (
        "(AVRO VALUE FULLNAME = 'Order', VALUE COMPATIBILITY LEVEL = 'FORWARD', VALUE DOC ON TYPE"
        " foreshore.public.t = 'rows', VALUE DOC ON COLUMN foreshore.public.t.v = 'a text')"
    ) in shown
    assert "(AVRO KEY FULLNAME = 'com.example.Key', KEY COMPATIBILITY LEVEL = 'FULL')" in shown
    await env.ran("a", "DROP SINK s", shown.partition("|")[2])
    assert await env.query("a", "SHOW CREATE SINK s") == f"{shown}\nSHOW"
    await env.ran("a", "DROP SINK s")
    alike = "KEY COMPATIBILITY LEVEL 'FULL', VALUE COMPATIBILITY LEVEL 'FULL'"
    await env.ran("a", f"{sink.replace(options, alike)} ENVELOPE UPSERT")
    shown = await env.query("a", "SHOW CREATE SINK s")
    assert "KEY COMPATIBILITY LEVEL = 'FULL'" in shown
    assert "VALUE COMPATIBILITY LEVEL = 'FULL'" in shown
    await env.ran("a", "DROP SINK s")
    for wrong, error in (
        ("AVRO KEY FULLNAME '1x'", '22023: "1x" cannot be the name of an Avro record'),
        ("VALUE COMPATIBILITY LEVEL 'x'", '22023: invalid value for option "value compatibility'),
        ("NULL DEFAULTS = false", "0A000: NULL DEFAULTS = FALSE is not supported"),
    ):
        found = await env.query("a", sink.replace(options, wrong))
        assert f"ERROR {error}" in found, found


def decoded(registry: FakeRegistry, id: int, message: bytes | None) -> Any:
    """Return an Avro message, which has to be of this schema."""
    assert message is not None
    assert message[:5] == b"\0" + id.to_bytes(4, "big")
    schema: Any = fastavro.parse_schema(json.loads(registry.schemas[id]["schema"]))
    return fastavro.schemaless_reader(BytesIO(message[5:]), schema, None)


@pytest.fixture
def registry(runner: asyncio.Runner, env: TestEnvironment) -> Iterator[FakeRegistry]:
    env.environment.unlock_secrets(bytes(32))
    with serving_registry() as registry:
        options = f"URL '{registry.url}', USERNAME '{USER}', PASSWORD SECRET pw"
        runner.run(
            env.ran(
                "a",
                f"CREATE SECRET pw AS '{PASSWORD}'",
                f"CREATE CONNECTION csr TO CONFLUENT SCHEMA REGISTRY ({options})",
            )
        )
        yield registry


async def test_the_statement_that_is_shown_makes_the_same_sink(
    env: TestEnvironment, broker: Broker
) -> None:
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, h map[text=>text])")
    options = (
        "TOPIC = 'shown', TOPIC PARTITION COUNT = 2, TOPIC REPLICATION FACTOR = 1, TOPIC CONFIG ="
        " MAP['cleanup.policy' => 'compact', 'retention.ms' => '-1'], COMPRESSION TYPE = 'gzip',"
        " PROGRESS GROUP ID PREFIX = 'g-', TRANSACTIONAL ID PREFIX = 't-'"
    )
    text = (
        "CREATE SINK foreshore.public.s IN CLUSTER quickstart FROM foreshore.public.t INTO"
        f" KAFKA CONNECTION foreshore.public.k ({options}) KEY (k) NOT ENFORCED HEADERS h KEY"
        " FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT WITH (SNAPSHOT = false, COMMIT INTERVAL ="
        " '20 ms')"
    )
    await env.ran("a", text)
    shown = await env.query("a", "SHOW CREATE SINK s")
    assert text in shown
    await env.ran("a", "DROP SINK s", text)
    assert await env.query("a", "SHOW CREATE SINK s") == shown
    kafka = "SELECT topic, format, key_format, value_format FROM mz_catalog.mz_kafka_sinks k"
    found = await env.query("a", f"{kafka} JOIN mz_sinks s USING (id)")
    assert found.startswith("shown|NULL|text|json\n")


INTO = "INTO KAFKA CONNECTION k"


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (f"{INTO} FORMAT JSON ENVELOPE UPSERT", '22023: KAFKA CONNECTION needs the option "topic"'),
        (f"{INTO} (TOPIC 't') ENVELOPE UPSERT", "22023: KAFKA CONNECTION needs a format"),
        (f"{INTO} (TOPIC 'a/b') FORMAT JSON", '22023: "a/b" cannot be the name of a topic'),
        (f"{INTO} (TOPIC 't', X 1) FORMAT JSON", '42601: unknown option "x"'),
        (f"{INTO} (TOPIC 't') FORMAT JSON ENVELOPE APPEND", "0A000: ENVELOPE APPEND"),
        (f"{INTO} (TOPIC 't') FORMAT CSV WITH 2 COLUMNS", "0A000: sinks write the formats"),
        (f"{INTO} (TOPIC 't') FORMAT TEXT ENVELOPE DEBEZIUM", "22023: ENVELOPE DEBEZIUM needs"),
        (f"{INTO} (TOPIC 't') FORMAT TEXT", "22023: the value has 2 columns"),
        (f"{INTO} (TOPIC 't') KEY (k, v) FORMAT TEXT", "42703"),
        (f"{INTO} (TOPIC 't') HEADERS w FORMAT JSON", "42804: HEADERS needs type map"),
        (
            f"{INTO} (TOPIC 't') KEY FORMAT TEXT VALUE FORMAT BYTES ENVELOPE UPSERT",
            "22023: the value has 2 columns",
        ),
        (
            f"{INTO} (TOPIC 't', TOPIC CONFIG MAP['no.such' => '1'], TOPIC PARTITION COUNT 0)"
            " FORMAT JSON",
            '22023: option "topic partition count" must be',
        ),
        ("INTO KAFKA CONNECTION away (TOPIC 't') FORMAT JSON", "08006: could not write to Kafka"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, statement: str, error: str
) -> None:
    await env.ran(
        "a",
        "CREATE CONNECTION away TO KAFKA (BROKER '127.0.0.1:1')",
        "CREATE TABLE t (k int PRIMARY KEY, w int, x int)",
    )
    assert f"ERROR {error}" in await env.query("a", f"CREATE SINK s FROM t {statement}")
    assert await env.query("a", "SHOW SINKS") == "SELECT 0"


async def test_the_example_of_the_docs_runs(own_env: TestEnvironment, broker: Broker) -> None:
    page = (ROOT / "docs" / "sinks.md").read_text().partition("## Kafka")[2]
    example = page.partition("```sql\n")[2].partition("```")[0]
    statements = example.replace("broker:9092", broker.address).split(";\n")[:-1]
    await own_env.ran("a", *statements, "INSERT INTO orders VALUES (1, 'tea', 2.50)")
    for topic in ("sales", "orders"):
        with reading(broker.address, topic) as reader:
            (message,) = await until_read(reader, 1)
            for part in (message.key, message.value):
                assert f"`{(part or b'').decode()}`" in page.replace("\n", " "), part
