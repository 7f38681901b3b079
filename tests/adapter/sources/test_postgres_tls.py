"""TLS to a PostgreSQL server, with certificates: for CREATE SOURCE, the stream, and sinks alike."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots
from tests.adapter.sources.replicated import until
from tests.harness import free_port, initialised_postgres, running_postgres
from tests.server.certificates import Authority, Issued

HBA = """
hostssl all postgres 127.0.0.1/32 trust
hostssl all reader all cert
"""
TABLES = """
DROP PUBLICATION IF EXISTS p;
DROP TABLE IF EXISTS a, totals;
CREATE TABLE a (id int PRIMARY KEY, v int);
ALTER TABLE a REPLICA IDENTITY FULL;
INSERT INTO a VALUES (1, 1);
CREATE PUBLICATION p FOR TABLE a;
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'reader') THEN
        CREATE ROLE reader LOGIN SUPERUSER;
    END IF;
END $$;
"""
SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
KEY = bytes(range(32))


@dataclass(frozen=True)
class Upstream:
    """A server that wants certificates of its clients, and what signs them."""

    port: int
    admin: "psycopg.Connection[tuple[object, ...]]"
    authority: Authority
    other: Authority
    client: Issued

    async def connect(self, env: TestEnvironment, host: str, mode: str, trusted: Authority) -> str:
        """Make a connection with the client's certificate anew; returns what validation says."""
        env.environment.unlock_secrets(KEY)
        await env.ran(
            "a",
            "DROP CONNECTION IF EXISTS pg CASCADE",
            "DROP SECRET IF EXISTS k",
            f"CREATE SECRET k AS '{self.client.key.read_text()}'",
            f"CREATE CONNECTION pg TO POSTGRES (HOST '{host}', PORT {self.port},"
            f" DATABASE 'postgres', USER 'reader', SSL MODE '{mode}',"
            f" SSL CERTIFICATE AUTHORITY '{trusted.file.read_text()}',"
            f" SSL CERTIFICATE '{self.client.certificate.read_text()}', SSL KEY SECRET k)",
        )
        return await env.query("a", "VALIDATE CONNECTION pg")


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    port, made = free_port(), tmp_path_factory.mktemp("certificates")
    authority, other = Authority(made), Authority(made, "other")
    issued, client = authority.issue("server", host="elsewhere"), authority.issue("reader")
    with initialised_postgres() as folder:
        data = folder / "data"
        owner = data.stat()
        for file, name in (
            (issued.certificate, "s.crt"),
            (issued.key, "s.key"),
            (authority.file, "ca.crt"),
        ):
            shutil.copy(file, data / name)
            os.chmod(data / name, 0o600)
            os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / "pg_hba.conf").write_text(HBA)
        settings = ("ssl=on", "ssl_cert_file=s.crt", "ssl_key_file=s.key", "ssl_ca_file=ca.crt")
        with (
            running_postgres(folder, settings=("wal_level=logical", *settings), port=port) as url,
            psycopg.connect(url, autocommit=True) as admin,
        ):
            yield Upstream(port, admin, authority, other, client)


@pytest.fixture
def upstream(publisher: Upstream) -> Upstream:
    drop_slots(f"postgres://postgres@127.0.0.1:{publisher.port}/postgres")
    publisher.admin.execute(TABLES)
    return publisher


async def test_a_source_and_a_sink_use_the_certificates_of_their_connection(
    own_env: TestEnvironment, upstream: Upstream
) -> None:
    env = own_env
    assert await upstream.connect(env, "127.0.0.1", "verify-full", upstream.authority) == (
        "VALIDATE CONNECTION"
    )
    await env.ran("a", SOURCE)
    await until(env, "SELECT id, v FROM a", "1|1")
    upstream.admin.execute("INSERT INTO a VALUES (2, 2)")
    await until(env, "SELECT id, v FROM a ORDER BY id", "1|1\n2|2")
    query = "SELECT ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)"
    assert upstream.admin.execute(query.encode()).fetchall() == [(True, "/CN=reader")]
    await env.ran(
        "a",
        "CREATE SINK k FROM a INTO POSTGRES CONNECTION pg (TABLE 'public.totals') KEY (id) NOT ENFORCED",
    )
    for _ in range(3_000):
        if upstream.admin.execute("SELECT count(*) FROM totals").fetchone() == (2,):
            break
        await asyncio.sleep(0.02)
    assert upstream.admin.execute("SELECT count(*) FROM totals").fetchone() == (2,)


async def test_who_cannot_be_trusted_is_told(own_env: TestEnvironment, upstream: Upstream) -> None:
    env = own_env
    found = await upstream.connect(env, "127.0.0.1", "verify-ca", upstream.other)
    assert "ERROR 08001" in found, found
    assert "certificate verify failed" in found
    assert "HINT: Check SSL MODE" in found
    assert "certificate verify failed" in await env.query("a", SOURCE)
    found = await upstream.connect(env, "localhost", "verify-full", upstream.authority)
    assert 'does not match host name "localhost"' in found, found
    for mode in ("verify-ca", "require"):
        found = await upstream.connect(env, "localhost", mode, upstream.authority)
        assert found == "VALIDATE CONNECTION"
    found = await upstream.connect(env, "127.0.0.1", "disable", upstream.authority)
    assert "ERROR 28000" in found, found
    assert "no encryption" in found
    await env.ran("a", "ALTER CONNECTION pg DROP (SSL CERTIFICATE)")
    await env.ran("a", "ALTER CONNECTION pg SET (SSL MODE = 'verify-full')")
    found = await env.query("a", SOURCE)
    assert "requires a valid client certificate" in found, found
    assert "HINT: Check SSL MODE" in found
