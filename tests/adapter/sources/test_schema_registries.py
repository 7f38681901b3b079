"""Schema registries over TLS, with a password, and beyond an SSH server."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("asyncssh")

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import created
from tests.adapter.sources.test_kafka_schemas import avro
from tests.adapter.sources.test_ssh_tunnels import bastion, create_tunnel, until
from tests.kafka import MockKafka
from tests.schema_registry import PASSWORD, USER, FakeRegistry, serving
from tests.server.certificates import Authority
from tests.ssh import SshServer

__all__ = ["bastion"]

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
LATER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "m", "type": "int", "default": 0}]}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def registry(authority: Authority) -> Iterator[FakeRegistry]:
    issued = authority.issue("localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.certificate, issued.key)
    with serving(tls) as registry:
        registry.url = registry.url.replace("127.0.0.1", "localhost")
        yield registry


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment) -> TestEnvironment:
    own_env.environment.unlock_secrets(bytes(32))
    runner.run(own_env.ran("a", f"CREATE SECRET pw AS '{PASSWORD}'", "CREATE SECRET x AS 'x'"))
    return own_env


def options(registry: FakeRegistry, authority: Authority, password: str = "pw") -> str:
    trusted = authority.file.read_text()
    return (
        f"URL '{registry.url}', USERNAME '{USER}', PASSWORD SECRET {password},"
        f" SSL CERTIFICATE AUTHORITY '{trusted}'"
    )


async def test_wrong_password_certificate_and_place_are_told(
    env: TestEnvironment, registry: FakeRegistry, authority: Authority, tmp_path: Path
) -> None:
    async def told(connection: str) -> str:
        create = "CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY"
        return await env.query("a", f"{create} ({connection}) WITH (VALIDATE)")

    wrong = await told(options(registry, authority, "x"))
    assert "ERROR 28P01: could not ask the schema registry at https://localhost" in wrong
    assert "HINT: Check USERNAME and PASSWORD" in wrong
    other = await told(options(registry, Authority(tmp_path, "other")))
    assert "ERROR 08001: could not ask the schema registry" in other
    assert "HINT: Check URL, SSL CERTIFICATE AUTHORITY" in other
    away = await told("URL 'http://127.0.0.1:1'")
    assert "ERROR 08006: could not ask the schema registry at http://127.0.0.1:1" in away
    assert await told(options(registry, authority)) == "CREATE CONNECTION"


async def test_registry_is_asked_through_a_tunnel_and_waited_for(
    env: TestEnvironment, registry: FakeRegistry, authority: Authority, bastion: SshServer
) -> None:
    kafka = MockKafka()
    await create_tunnel(env, bastion)
    first = registry.register("t-value", json.dumps(SCHEMA))
    kafka.write("t", [(None, avro(SCHEMA, {"n": 1}, first))], partition=0)
    await env.ran(
        "a",
        f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')",
        "CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY"
        f" ({options(registry, authority)}, SSH TUNNEL t) WITH (VALIDATE)",
    )
    format = "FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
    await created(env, f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') {format}")
    await until(env, "SELECT * FROM s", "1")
    assert ("localhost", int(registry.url.rpartition(":")[2])) in bastion.opened
    bastion.stop()
    second = registry.register("t-value", json.dumps(LATER))
    kafka.write("t", [(None, avro(LATER, {"n": 2, "m": 3}, second))], partition=0)
    status = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"
    await until(env, status, "could not connect to the SSH server")
    bastion.start()
    await until(env, "SELECT * FROM s ORDER BY n", "1\n2")
    await until(env, status, "running")
