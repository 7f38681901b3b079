"""A broker that asks for a password over TLS, and one with aborted transactions."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import created, until
from tests.adapter.sources.test_kafka_failures import stalled
from tests.broker import Broker, Front, serving
from tests.server.certificates import Authority

pytestmark = pytest.mark.full
SOURCE = "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with serving(tmp_path / "broker") as found:
        yield found


def write(broker: Broker, *values: bytes) -> None:
    producer = broker.producer()
    for each in values:
        producer.produce("t", each, partition=0)
    assert producer.flush(30) == 0


async def test_password_over_tls_is_told_and_mended(
    own_env: TestEnvironment, broker: Broker, tmp_path: Path
) -> None:
    env, authority = own_env, Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.certificate, issued.key)
    env.environment.unlock_secrets(bytes(32))
    broker.create("t", 1)
    write(broker, b"1")
    front = Front(broker.address, {"me": "right"}, tls)
    certificate = authority.file.read_text()
    connection = (
        f"BROKER '{front.address}', SASL USERNAME 'me', SASL PASSWORD SECRET pw,"
        f" SSL CERTIFICATE AUTHORITY '{certificate}'"
    )
    await env.ran(
        "a", "CREATE SECRET pw AS 'wrong'", f"CREATE CONNECTION k TO KAFKA ({connection})"
    )
    for statement in (SOURCE, "VALIDATE CONNECTION k"):
        found = await env.query("a", statement)
        assert "ERROR 28P01: could not read from Kafka at" in found
        assert "wrong password" in found, found
    await env.ran("a", "ALTER SECRET pw AS 'right'")
    await created(env, SOURCE)
    await until(env, "SELECT * FROM s", "1")
    await env.ran("a", "ALTER SECRET pw AS 'old'")
    await stalled(env, "SASL authentication error: wrong password")
    write(broker, b"2")
    await env.ran("a", "ALTER SECRET pw AS 'right'")
    await until(env, "SELECT * FROM s ORDER BY 1", "1\n2")
    front.close()
    await stalled(env, "could not read from Kafka")


async def test_aborted_messages_are_not_read(own_env: TestEnvironment, broker: Broker) -> None:
    env = own_env
    broker.create("t", 1)
    await env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')")
    await created(env, SOURCE)
    for name, commits in (("one", False), ("two", True)):
        producer = broker.producer(**{"transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", name.encode(), partition=0)
        assert producer.flush(30) == 0
        if not commits:
            await until(env, 'SELECT "offset" FROM s_progress', "0")
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    await until(env, 'SELECT "offset" FROM s_progress', "4")  # the marks of both ends count
    assert await env.query("a", "SELECT * FROM s") == "two\nSELECT 1"
