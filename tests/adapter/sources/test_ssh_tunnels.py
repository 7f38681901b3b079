"""Connections to PostgreSQL and Kafka through an SSH server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

pytest.importorskip("asyncssh")

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots, options_of
from tests.broker import Front, serving
from tests.harness import free_port
from tests.server.certificates import Authority
from tests.ssh import SshServer

KEYS = "SELECT public_key_1, public_key_2 FROM mz_ssh_tunnel_connections"
STATUS = "SELECT status, error FROM mz_internal.mz_{}_statuses WHERE name = '{}'"


@pytest.fixture
def bastion() -> Iterator[SshServer]:
    found = SshServer()
    yield found
    found.close()


@pytest.fixture
def env(own_env: TestEnvironment) -> TestEnvironment:
    own_env.environment.unlock_secrets(bytes(32))
    return own_env


async def create_tunnel(env: TestEnvironment, bastion: SshServer) -> None:
    """Create the connection t, and let its keys in."""
    await env.ran(
        "a",
        f"CREATE CONNECTION t TO SSH TUNNEL (HOST '127.0.0.1', PORT {bastion.port}, USER 'bastion')",
    )
    bastion.keys = await keys(env)


async def keys(env: TestEnvironment) -> list[str]:
    return (await env.query("a", KEYS)).splitlines()[0].split("|")


async def until(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until the answer to a query has a text in it."""
    async with asyncio.timeout(60):
        while expected not in (found := await env.query("a", query)):
            await asyncio.sleep(0.05)
            assert found is not None


async def test_tunnel_is_validated_and_its_keys_rotate(
    env: TestEnvironment, bastion: SshServer
) -> None:
    await create_tunnel(env, bastion)
    first, second = bastion.keys
    assert first.startswith("ssh-ed25519 AAAA")
    assert first != second
    bastion.keys = []
    answer = await env.query("a", "VALIDATE CONNECTION t")
    assert "refuses the keys of user bastion" in answer
    assert "authorized_keys" in answer
    bastion.keys = [second]
    assert await env.query("a", "VALIDATE CONNECTION t") == "VALIDATE CONNECTION"
    assert await env.query("a", "ALTER CONNECTION t ROTATE KEYS") == "ALTER CONNECTION"
    assert (await keys(env))[0] == second
    assert (await keys(env))[1] not in (first, second)
    assert await env.query("a", "VALIDATE CONNECTION t") == "VALIDATE CONNECTION"
    bastion.stop()
    assert "could not connect to the SSH server" in await env.query("a", "VALIDATE CONNECTION t")


async def test_host_key_is_kept_at_first_use(env: TestEnvironment, bastion: SshServer) -> None:
    import asyncssh

    await create_tunnel(env, bastion)
    assert await env.query("a", "VALIDATE CONNECTION t") == "VALIDATE CONNECTION"
    bastion.stop()
    bastion.host_key = asyncssh.generate_private_key("ssh-ed25519")
    bastion.start()
    answer = await env.query("a", "VALIDATE CONNECTION t")
    shown = " ".join(bastion.host_key.export_public_key().decode().split()[:2])
    assert f"has another host key than before: {shown}" in answer
    await env.ran("a", f"ALTER CONNECTION t SET (HOST KEY '{shown}')")
    assert await env.query("a", "VALIDATE CONNECTION t") == "VALIDATE CONNECTION"
    await env.ran("a", "ALTER CONNECTION t SET (HOST KEY 'nonsense')")
    assert "is no public key" in await env.query("a", "VALIDATE CONNECTION t")


async def test_tunnel_is_named_shown_and_kept_while_it_is_used(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE CONNECTION t TO SSH TUNNEL (HOST 'b', USER 'u')")
    pg = "POSTGRES (HOST 'h', DATABASE 'd', USER 'u', SSH TUNNEL {})"
    await env.ran("a", f"CREATE CONNECTION pg TO {pg.format('t')}")
    shown = await env.query("a", "SHOW CREATE CONNECTION pg")
    assert "SSH TUNNEL = foreshore.public.t)" in shown
    assert "2BP01" in await env.query("a", "DROP CONNECTION t")
    assert "42809" in await env.query("a", f"CREATE CONNECTION x TO {pg.format('pg')}")
    assert "42704" in await env.query("a", f"CREATE CONNECTION x TO {pg.format('none')}")
    assert "42809" in await env.query("a", "ALTER CONNECTION pg ROTATE KEYS")
    aws = "CREATE CONNECTION x TO AWS (REGION 'r', SSH TUNNEL t)"
    assert 'have no option "ssh tunnel"' in await env.query("a", aws)
    await env.ran("a", "CREATE ROLE ann LOGIN", "GRANT CREATE ON SCHEMA public TO ann")
    denied = await env.query("b", f"SET ROLE ann; CREATE CONNECTION x TO {pg.format('t')}")
    assert "permission denied for connection t" in denied
    await env.ran("a", "ALTER CONNECTION pg DROP (SSH TUNNEL)", "DROP CONNECTION t")
    await env.reopen()
    assert "SSH TUNNEL" not in await env.query("a", "SHOW CREATE CONNECTION pg")


async def in_sink(upstream: psycopg.Connection[tuple[object, ...]]) -> None:
    """Wait until the sink has written both rows."""
    async with asyncio.timeout(60):
        while True:
            if upstream.execute("SELECT count(*) FROM far.b").fetchone() == (2,):
                return
            await asyncio.sleep(0.05)


@pytest.mark.full
async def test_postgres_source_and_sink_recover_when_tunnel_breaks(
    env: TestEnvironment, bastion: SshServer, publisher_url: str
) -> None:
    await create_tunnel(env, bastion)
    with psycopg.connect(publisher_url, autocommit=True) as upstream:
        upstream.execute(
            "DROP PUBLICATION IF EXISTS p; DROP SCHEMA IF EXISTS far CASCADE; CREATE SCHEMA far;"
            "CREATE TABLE far.a (id int PRIMARY KEY); CREATE TABLE far.b (id int PRIMARY KEY);"
            "ALTER TABLE far.a REPLICA IDENTITY FULL; INSERT INTO far.a VALUES (1);"
            "CREATE PUBLICATION p FOR TABLE far.a"
        )
        options = f"{options_of(publisher_url)}, SSH TUNNEL t"
        await env.ran(
            "a",
            f"CREATE CONNECTION pg TO POSTGRES ({options}) WITH (VALIDATE)",
            "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES",
            "CREATE SINK k FROM a INTO POSTGRES CONNECTION pg (TABLE 'far.b')",
        )
        await until(env, "SELECT * FROM a", "1")
        assert bastion.opened
        bastion.stop()
        away = "could not connect to the SSH server"
        await until(env, STATUS.format("source", "s"), away)
        upstream.execute("INSERT INTO far.a VALUES (2)")
        bastion.start()
        await until(env, STATUS.format("source", "s"), "running")
        await until(env, "SELECT max(id) FROM a", "2")
        await in_sink(upstream)
        await env.ran("a", "DROP SOURCE s CASCADE", "DROP CONNECTION pg")
    await env.close()
    await env.open()
    drop_slots(publisher_url)


async def test_place_that_ssh_server_does_not_reach_is_told(
    env: TestEnvironment, bastion: SshServer
) -> None:
    await create_tunnel(env, bastion)
    port = free_port()
    answer = await env.query(
        "a",
        f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {port}, DATABASE 'd', USER 'u',"
        " SSH TUNNEL t) WITH (VALIDATE)",
    )
    assert f"does not reach 127.0.0.1:{port}" in answer


@pytest.mark.full
@pytest.mark.parametrize("with_tls", [False, True])
async def test_kafka_source_and_sink_go_through_tunnel(
    env: TestEnvironment, bastion: SshServer, tmp_path: Path, with_tls: bool
) -> None:
    await create_tunnel(env, bastion)
    with serving(tmp_path / "broker") as broker:
        broker.create("t", 2)
        broker.create("u", 2)
        producer = broker.producer()
        for number in range(100):
            producer.produce("t", b"%d" % number)
        producer.flush(30)
        options = f"BROKER '{broker.address}'"
        if with_tls:
            authority = Authority(tmp_path)
            issued = authority.issue("127.0.0.1")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(issued.certificate, issued.key)
            front = Front(broker.address, {}, context)
            options = (
                f"BROKER '{front.address}',"
                f" SSL CERTIFICATE AUTHORITY '{authority.file.read_text()}'"
            )
        await env.ran(
            "a",
            f"CREATE CONNECTION k TO KAFKA ({options}, SSH TUNNEL t) WITH (VALIDATE)",
            "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT TEXT",
            "CREATE TABLE r (id int PRIMARY KEY)",
            "INSERT INTO r VALUES (7)",
            "CREATE SINK o FROM r INTO KAFKA CONNECTION k (TOPIC 'u') KEY (id) FORMAT JSON"
            " ENVELOPE UPSERT",
        )
        await until(env, "SELECT count(*) FROM s", "100")
        await until(env, STATUS.format("sink", "o"), "running")
        back = "CREATE SOURCE back FROM KAFKA CONNECTION k (TOPIC 'u') FORMAT TEXT"
        await env.ran("a", back)
        await until(env, "SELECT count(*) FROM back", "1")
        bastion.stop()
        await until(env, STATUS.format("source", "s"), "SSH server")
        producer.produce("t", b"more")
        producer.flush(30)
        bastion.start()
        await until(env, "SELECT count(*) FROM s", "101")
        await until(env, STATUS.format("source", "s"), "running")
        await env.ran("a", "DROP SOURCE s", "DROP SOURCE back", "DROP SINK o")
