"""Avro and Protobuf: the schema of a registry gives the columns, and later ones are read as it."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from foreshore.storage.ingest.formats.protobuf import _message_class, compiled
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import created, until
from tests.adapter.sources.test_kafka_failures import stalled
from tests.kafka import MockKafka
from tests.schema_registry import PASSWORD, USER, FakeRegistry, serving

KEY = bytes(range(32))
USER_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {
            "name": "paid",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "home",
            "type": {
                "type": "record",
                "name": "Home",
                "fields": [{"name": "city", "type": "string"}],
            },
        },
        {"name": "either", "type": ["int", "string"]},
    ],
}
BASE = {
    "id": 1,
    "name": None,
    "paid": Decimal("2.50"),
    "born": date(2000, 1, 2),
    "at": datetime(2020, 1, 1, tzinfo=UTC),
    "tags": ["a", "b"],
    "home": {"city": "x"},
    "either": "e",
}


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with serving() as registry:
        yield registry


@pytest.fixture
def env(
    runner: asyncio.Runner, own_env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> TestEnvironment:
    own_env.environment.unlock_secrets(KEY)
    to_registry = f"(URL '{registry.url}', USERNAME '{USER}', PASSWORD SECRET pw)"
    runner.run(
        own_env.ran(
            "a",
            f"CREATE SECRET pw AS '{PASSWORD}'",
            f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')",
            f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY {to_registry}",
        )
    )
    return own_env


def avro(schema: Any, value: Any, id: int | None = None) -> bytes:
    data = BytesIO(b"" if id is None else b"\0" + id.to_bytes(4, "big"))
    data.seek(0, 2)
    fastavro.schemaless_writer(data, schema, value)
    return data.getvalue()


async def test_avro_of_a_later_schema_is_read_as_the_first(
    env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> None:
    first = registry.register("users-value", json.dumps(USER_SCHEMA))
    key_schema = {
        "type": "record",
        "name": "UserKey",
        "fields": [{"name": "id", "type": "long"}],
    }
    key = registry.register("users-key", json.dumps(key_schema))
    message = (avro(key_schema, {"id": 1}, key), avro(USER_SCHEMA, BASE, first))
    kafka.write("users", [message], partition=0)
    source = "FROM KAFKA CONNECTION k (TOPIC 'users') FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY"
    await created(env, f"CREATE SOURCE s {source} CONNECTION r ENVELOPE UPSERT")
    line = '2.50|2000-01-02|2020-01-01 00:00:00+00|{a,b}|{"city": "x"}|"e"'
    await until(env, "SELECT * FROM s", f"1|NULL|{line}")
    await created(env, f"CREATE SOURCE named {source} CONNECTION r INCLUDE KEY AS k")
    await until(env, "SELECT k, id FROM named", "1|1")
    fields = [*USER_SCHEMA["fields"][1:], {"name": "more", "type": "int", "default": 0}]
    later = {**USER_SCHEMA, "fields": [USER_SCHEMA["fields"][0], *fields]}
    second = registry.register("users-value", json.dumps(later))
    unreadable = {**USER_SCHEMA, "fields": USER_SCHEMA["fields"][:1]}
    third = registry.register("users-value", json.dumps(unreadable))
    kafka.write(
        "users",
        [
            (avro(key_schema, {"id": 2}, key), avro(later, {**BASE, "id": 2, "more": 5}, second)),
            (avro(key_schema, {"id": 1}, key), avro(unreadable, {"id": 1}, third)),
            (avro(key_schema, {"id": 1}, key), b"\0\0\0"),
        ],
        partition=0,
    )
    await until(env, "SELECT * FROM s ORDER BY id", f"1|NULL|{line}\n2|NULL|{line}")
    await until(env, 'SELECT "offset" FROM s_errors ORDER BY 1', "2\n3")
    env.ingest.last.kill()
    kafka.write("users", [(avro(key_schema, {"id": 1}, key), None)], partition=0)
    await until(env, "SELECT id FROM s", "2")


async def test_changes_in_avro_are_rows(
    env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> None:
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": ["null", "string"]}],
    }
    change = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    key_schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    value_id = registry.register("changes-value", json.dumps(change))
    key_id = registry.register("changes-key", json.dumps(key_schema))

    def message(id: int, before: Any, after: Any) -> tuple[bytes, bytes]:
        value = {"before": before, "after": after, "op": "u"}
        return avro(key_schema, {"id": id}, key_id), avro(change, value, value_id)

    kafka.write(
        "changes",
        [
            message(1, None, {"id": 1, "v": "a"}),
            message(2, None, {"id": 2, "v": "b"}),
            message(1, {"id": 1, "v": "a"}, {"id": 1, "v": None}),
            message(2, {"id": 2, "v": "b"}, None),
        ],
        partition=0,
    )
    source = "FROM KAFKA CONNECTION k (TOPIC 'changes') FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY"
    await created(env, f"CREATE SOURCE s {source} CONNECTION r ENVELOPE DEBEZIUM")
    await until(env, "SELECT * FROM s", "1|NULL")


PROTO = """syntax = "proto3";
package shop;
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated string tags = 3;
  Money total = 4;
  enum Kind { NEW = 0; OLD = 1; }
  Kind kind = 5;
}
message Money { int64 units = 1; }
"""


async def test_protobuf_gives_columns(
    env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> None:
    order = _message_class(compiled({"schema.proto": PROTO}, None))
    made = order(id=7, tags=["a", "b"], total={"units": 3}, kind=1)
    id = registry.register("orders-value", PROTO, "PROTOBUF")
    framed = b"\0" + id.to_bytes(4, "big") + b"\0" + made.SerializeToString()
    kafka.write("orders", [(None, framed), (None, b"\0\0\0\0\1\0\xff")], partition=0)
    source = "FROM KAFKA CONNECTION k (TOPIC 'orders') FORMAT PROTOBUF USING CONFLUENT SCHEMA"
    await created(env, f"CREATE SOURCE s {source} REGISTRY CONNECTION r")
    await until(env, "SELECT * FROM s", '7|NULL|{a,b}|{"units": "3"}|OLD')
    await until(env, 'SELECT "offset" FROM s_errors', "1")
    kafka.write("money", [(None, order(total={"units": 4}).total.SerializeToString())])
    text = f"FORMAT PROTOBUF MESSAGE 'shop.Money' USING SCHEMA '{PROTO}'"
    await created(env, f"CREATE SOURCE m FROM KAFKA CONNECTION k (TOPIC 'money') {text}")
    await until(env, "SELECT units FROM m", "4")
    shown = (await env.query("a", "SHOW CREATE SOURCE m")).splitlines()[0]
    assert "FORMAT PROTOBUF MESSAGE 'shop.Money' USING SCHEMA 'syntax" in shown
    files = b64decode(json.loads(compiled({"schema.proto": PROTO}, None))["files"])
    packed = text.replace(PROTO, rf"\x{files.hex()}")
    await created(env, f"CREATE SOURCE p FROM KAFKA CONNECTION k (TOPIC 'money') {packed}")
    shown = (await env.query("a", "SHOW CREATE SOURCE p")).partition("|")[2].partition("\n")[0]
    await env.ran("a", "DROP SOURCE p", shown)
    await until(env, "SELECT units FROM p", "4")
    for wrong, error in (
        (packed.replace("Money", "None"), '22023: the Protobuf schema has no message "shop.None"'),
        (packed[:-9] + "'", "22023: the Protobuf schema is no whole FileDescriptorSet"),
        (text.replace(PROTO, r"\x"), "22023: the Protobuf schema is no whole FileDescriptorSet"),
    ):
        source = f"CREATE SOURCE x FROM KAFKA CONNECTION k (TOPIC 'money') {wrong}"
        assert error in await env.query("a", source)


async def test_schemas_of_a_registry_may_refer_to_others(
    env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [
        {"name": "cents", "type": "long"}, {"name": "unit", "type": "Unit"}]}  # fmt: skip
    unit = {"type": "enum", "name": "Unit", "namespace": "shop", "symbols": ["EUR", "USD"]}
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "price", "type": "Money"}, {"name": "paid", "type": ["null", "shop.Money"]}]}  # fmt: skip
    registry.register("unit", json.dumps(unit))
    registry.register("money", json.dumps(money), refers_to={"shop.Unit": "unit"})
    id = registry.register("orders-value", json.dumps(order), refers_to={"shop.Money": "money"})
    whole = {**order, "fields": [
        {"name": "price", "type": {**money, "fields": [money["fields"][0], {"name": "unit", "type": unit}]}},
        order["fields"][1]]}  # fmt: skip
    out = BytesIO()
    row = {"price": {"cents": 5, "unit": "USD"}, "paid": {"cents": 4, "unit": "EUR"}}
    fastavro.schemaless_writer(out, whole, row)
    kafka.write("orders", [(None, b"\0" + id.to_bytes(4, "big") + out.getvalue())])
    avro = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
    await created(env, f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'orders') {avro}")
    shown = '{"unit": "USD", "cents": 5}|{"unit": "EUR", "cents": 4}'
    await until(env, "SELECT price, paid FROM s", shown)
    common = 'syntax = "proto3"; package shop; message Unit { string name = 1; }'
    price = 'syntax = "proto3"; import "shop/common.proto"; message Price { shop.Unit unit = 1; }'
    root = (
        'syntax = "proto3"; import "price.proto"; message Item { int64 id = 1; Price price = 2; }'
    )
    file = "shop/common.proto"  # which is the name of a subject, too
    registry.register(file, common, "PROTOBUF")
    registry.register("price", price, "PROTOBUF", refers_to={file: file})
    id = registry.register("items-value", root, "PROTOBUF", refers_to={"price.proto": "price"})
    message = b"\x08\x07\x12\x06\x0a\x04\x0a\x02kg"  # id 7, price { unit { name "kg" } }
    kafka.write("items", [(None, b"\0" + id.to_bytes(4, "big") + b"\0" + message)])
    protobuf = "FORMAT PROTOBUF USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
    await created(env, f"CREATE SOURCE p FROM KAFKA CONNECTION k (TOPIC 'items') {protobuf}")
    await until(env, "SELECT id, price FROM p", '7|{"unit": {"name": "kg"}}')
    registry.register("lost-value", json.dumps(order), refers_to={"shop.Money": "money"})
    del registry.subjects["money"]
    lost = f"CREATE SOURCE l FROM KAFKA CONNECTION k (TOPIC 'items') {avro}".replace(
        "items", "lost"
    )
    kafka.write("lost", [(None, b"")])
    assert "42704: the schema registry at" in await env.query("a", lost)


async def test_unknown_schema_is_an_error_and_a_registry_away_is_waited_for(
    env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    id = registry.register("away-value", schema)
    framed = b"\0" + id.to_bytes(4, "big")
    kafka.write("away", [(None, framed + b"\x02"), (None, b"\0\0\0\x03\xe8\x02")], partition=0)
    avro = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
    await created(env, f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'away') {avro}")
    await until(env, "SELECT a FROM s", "1")
    await until(env, "SELECT count(*) FROM s_errors", "1")
    later = registry.register("away-value", schema.replace('"a"', '"a", "doc": "later"'))
    await env.ran("a", "ALTER CONNECTION r SET (URL = 'http://127.0.0.1:1')")
    kafka.write("away", [(None, b"\0" + later.to_bytes(4, "big") + b"\x04")], partition=0)
    await stalled(env, "could not ask the schema registry at http://127.0.0.1:1")
    await env.ran("a", f"ALTER CONNECTION r SET (URL = '{registry.url}')")
    await until(env, "SELECT a FROM s ORDER BY 1", "1\n2")
    await until(env, "SELECT count(*) FROM s_errors", "1")


async def test_a_registry_that_does_not_help_is_told(
    env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> None:
    kafka.write("none", [(None, b"x")])
    source = "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'none') FORMAT"
    avro_of = f"{source} AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION"
    assert "42704: the schema registry at http://127.0.0.1:" in await env.query("a", f"{avro_of} r")
    registry.register("none-value", PROTO, "PROTOBUF")
    assert '22023: the schema of "none-value" is PROTOBUF' in await env.query("a", f"{avro_of} r")
    await env.ran("a", "VALIDATE CONNECTION r", "VALIDATE CONNECTION k")
    url = registry.url
    await env.ran("a", f"CREATE CONNECTION w TO CONFLUENT SCHEMA REGISTRY (URL '{url}')")
    for statement in (f"{avro_of} w", "VALIDATE CONNECTION w"):
        found = await env.query("a", statement)
        assert "28P01: could not ask the schema registry" in found
        assert "401" in found
    wrong = f"{source} PROTOBUF USING SCHEMA 'message'"
    assert "22023: the Protobuf schema is wrong: schema.proto:" in await env.query("a", wrong)


async def test_schema_of_a_source_may_be_an_earlier_one_or_written(
    env: TestEnvironment, kafka: MockKafka, registry: FakeRegistry
) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "m", "type": "int", "default": 0}]}
    first = registry.register("pinned-value", json.dumps(old))
    second = registry.register("pinned-value", json.dumps(new))
    key = registry.register("pinned-key", json.dumps("string"))
    written = [(1, first, old, {"n": 1}), (2, second, new, {"n": 2, "m": 9})]
    kafka.write(
        "pinned",
        [(avro("string", f"k{n}", key), avro(s, value, id)) for n, id, s, value in written],
        partition=0,
    )
    avro_of = "AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
    source = f"FROM KAFKA CONNECTION k (TOPIC 'pinned') FORMAT {avro_of}"
    await created(env, f"CREATE SOURCE earlier {source} VALUE STRATEGY ID {first}")
    await until(env, "SELECT * FROM earlier ORDER BY n", "1\n2")
    inline = json.dumps({**old, "fields": [{"name": "m", "type": "int", "default": 5}]})
    both = f"KEY STRATEGY ID {key} VALUE STRATEGY INLINE '{inline}'"
    await created(env, f"CREATE SOURCE s {source} {both} INCLUDE KEY AS k ENVELOPE UPSERT")
    await until(env, "SELECT k, m FROM s ORDER BY k", "k1|5\nk2|9")
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).partition("|")[2].partition("\n")[0]
    assert f"VALUE FORMAT {avro_of.removesuffix('r')}" in shown
    assert f"KEY STRATEGY ID {key} VALUE FORMAT" in shown
    await env.ran("a", "DROP SOURCE s", shown)
    await until(env, "SELECT k, m FROM s ORDER BY k", "k1|5\nk2|9")
    seed = f"SEED KEY SCHEMA '\"string\"' VALUE SCHEMA '{inline}'"
    await created(env, f"CREATE SOURCE seeded {source} {seed} INCLUDE KEY AS k ENVELOPE UPSERT")
    await until(env, "SELECT k, m FROM seeded ORDER BY k", "k1|5\nk2|9")
    missing = await env.query("a", f"CREATE SOURCE x {source} VALUE STRATEGY ID 99")
    assert "ERROR 42704: the schema registry at" in missing
    twice = f"CREATE SOURCE x {source} VALUE STRATEGY LATEST VALUE STRATEGY LATEST"
    assert "42601: VALUE STRATEGY is given twice" in await env.query("a", twice)
