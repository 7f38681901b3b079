"""Avro messages whose schemas are in a registry of AWS Glue, against moto."""

import json
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import created, until
from tests.adapter.sources.test_kafka_schemas import avro
from tests.harness import object_store
from tests.kafka import MockKafka

boto3 = pytest.importorskip("boto3")
pytestmark = pytest.mark.full

OLD: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "m", "type": "int", "default": 7}]}
KEYS = "REGION 'us-east-1', ACCESS KEY ID 'test', SECRET ACCESS KEY SECRET pw"
SOURCE = "FROM KAFKA CONNECTION k (TOPIC 't')"
AVRO = "FORMAT AVRO USING AWS GLUE SCHEMA REGISTRY CONNECTION g"


@pytest.fixture
def endpoint() -> Iterator[str]:
    with object_store() as store:
        yield store.endpoint


@pytest.fixture
def glue(endpoint: str) -> Any:
    return boto3.client("glue", region_name="us-east-1", endpoint_url=endpoint)


def framed(version: str, message: bytes, *, packed: bool = False) -> bytes:
    head = bytes((3, 5 if packed else 0)) + uuid.UUID(version).bytes
    return head + (zlib.compress(message) if packed else message)


async def test_messages_of_all_versions_are_read_as_the_newest(
    own_env: TestEnvironment, glue: Any, endpoint: str
) -> None:
    env, kafka = own_env, MockKafka()
    env.environment.unlock_secrets(bytes(32))
    await env.ran(
        "a",
        "CREATE SECRET pw AS 'test'",
        f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')",
        f"CREATE CONNECTION g TO AWS GLUE SCHEMA REGISTRY ({KEYS}, ENDPOINT '{endpoint}',"
        " REGISTRY 'ours')",
    )
    missing = await env.query("a", "VALIDATE CONNECTION g")
    assert 'ERROR 42704: the schema registry "ours" at http://127.0.0.1' in missing
    glue.create_registry(RegistryName="ours")
    await env.ran("a", "VALIDATE CONNECTION g")
    kafka.write("t", [(None, b"wrong")])
    lacking = await env.query("a", f"CREATE SOURCE s {SOURCE} {AVRO}")
    assert 'ERROR 42704: the schema registry "ours"' in lacking
    assert 'has no schema of "t"' in lacking
    of = {"RegistryName": "ours", "SchemaName": "t"}
    made = glue.create_schema(
        RegistryId={"RegistryName": "ours"},
        SchemaName="t",
        DataFormat="AVRO",
        Compatibility="BACKWARD",
        SchemaDefinition=json.dumps(OLD),
    )
    first = made["SchemaVersionId"]
    second = glue.register_schema_version(SchemaId=of, SchemaDefinition=json.dumps(NEW))
    kafka.write(
        "t",
        [
            (None, framed(first, avro(OLD, {"n": 1}))),
            (None, framed(second["SchemaVersionId"], avro(NEW, {"n": 2, "m": 3}), packed=True)),
            (None, framed(str(uuid.uuid4()), b"\2")),
        ],
        partition=0,
    )
    await created(env, f"CREATE SOURCE s {SOURCE} {AVRO}")
    await until(env, "SELECT n, m FROM s ORDER BY n", "1|7\n2|3")
    await until(env, "SELECT count(*) FROM s_errors WHERE error LIKE '%AWS Glue%'", "1")
    await until(env, "SELECT count(*) FROM s_errors WHERE error LIKE '%no schema of%'", "1")
    shown = await env.query("a", "SHOW CREATE SOURCE s")
    assert "AVRO USING AWS GLUE SCHEMA REGISTRY CONNECTION foreshore.public.g ENV" in shown
    await created(env, f"CREATE SOURCE other {SOURCE} {AVRO} (SCHEMA NAME 't')")
    await until(env, "SELECT count(*) FROM other", "2")
    await env.ran("a", "ALTER CONNECTION g SET (ENDPOINT 'http://127.0.0.1:1')")
    away = await env.query("a", "VALIDATE CONNECTION g")
    assert "ERROR 08006: could not ask the schema registry at http://127.0.0.1:1" in away


@pytest.mark.parametrize(
    ("format", "error"),
    [
        ("PROTOBUF USING AWS GLUE SCHEMA REGISTRY CONNECTION g", "0A000: FORMAT PROTOBUF with a"),
        (f"{AVRO.removeprefix('FORMAT ')} VALUE STRATEGY ID 1", "0A000: strategies of schemas"),
        ("AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION g", '42809: connection "g" is to AWS'),
    ],
)
async def test_what_glue_does_not_have_is_refused(
    own_env: TestEnvironment, format: str, error: str
) -> None:
    env = own_env
    env.environment.unlock_secrets(bytes(32))
    await env.ran(
        "a",
        "CREATE SECRET pw AS 'test'",
        "CREATE CONNECTION k TO KAFKA (BROKER 'b:1')",
        f"CREATE CONNECTION g TO AWS GLUE SCHEMA REGISTRY ({KEYS})",
    )
    assert f"ERROR {error}" in await env.query("a", f"CREATE SOURCE s {SOURCE} FORMAT {format}")
