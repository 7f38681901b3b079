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


async def test_broker_that_asks_for_a_certificate_gets_that_of_the_connection(
    own_env: TestEnvironment, broker: Broker, tmp_path: Path
) -> None:
    env, authority = own_env, Authority(tmp_path)
    of_server, client = authority.issue("127.0.0.1"), authority.issue("reader")
    stranger = Authority(tmp_path, "other").issue("stranger")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(of_server.certificate, of_server.key)
    tls.load_verify_locations(authority.file)
    tls.verify_mode = ssl.CERT_REQUIRED
    env.environment.unlock_secrets(bytes(32))
    broker.create("t", 1)
    write(broker, b"1")
    front = Front(broker.address, {}, tls)
    trusted = f"BROKER '{front.address}', SSL CERTIFICATE AUTHORITY '{authority.file.read_text()}'"
    certificate = f"SSL CERTIFICATE '{client.certificate.read_text()}', SSL KEY SECRET k"
    await env.ran(
        "a",
        f"CREATE SECRET k AS '{stranger.key.read_text()}'",
        f"CREATE CONNECTION k TO KAFKA ({trusted})",
    )
    lacking = await env.query("a", "VALIDATE CONNECTION k")
    assert "ERROR 0800" in lacking
    assert "Do the brokers want a certificate of clients" in lacking
    wrong = await env.query("a", f"ALTER CONNECTION k SET ({certificate}) WITH (VALIDATE)")
    assert "ERROR 22023: the connection to Kafka is wrong: " in wrong
    await env.ran(
        "a",
        f"ALTER SECRET k AS '{client.key.read_text()}'",
        f"ALTER CONNECTION k SET ({certificate}) WITH (VALIDATE)",
    )
    await created(env, SOURCE)
    await until(env, "SELECT * FROM s", "1")
    shown = await env.query("a", "SHOW CREATE CONNECTION k")
    assert "SSL KEY = SECRET foreshore.public.k" in shown
    await env.ran("a", "DROP SOURCE s")
    front.close()


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
