"""A PostgreSQL server that refuses or is away: told by CREATE SOURCE, and by the source's state."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from foreshore.storage.external import libpq
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots
from tests.harness import free_port, initialised_postgres, running_postgres

HBA = """
host all postgres 127.0.0.1/32 trust
host all refused 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""
TABLES = """
DROP PUBLICATION IF EXISTS p;
DROP SCHEMA IF EXISTS up CASCADE;
CREATE SCHEMA up;
CREATE TABLE up.a (id int PRIMARY KEY, v int);
CREATE TABLE up.b (id int PRIMARY KEY, v int);
ALTER TABLE up.a REPLICA IDENTITY FULL;
ALTER TABLE up.b REPLICA IDENTITY FULL;
INSERT INTO up.a VALUES (1, 1);
CREATE PUBLICATION p FOR TABLE up.a, up.b;
DO $$ DECLARE r text; BEGIN
    FOREACH r IN ARRAY ARRAY['reader', 'refused', 'plain'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            EXECUTE format('CREATE ROLE %I', r);
        END IF;
        EXECUTE format('ALTER ROLE %I LOGIN REPLICATION PASSWORD ''right''', r);
        EXECUTE format('GRANT USAGE ON SCHEMA up TO %I', r);
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA up TO %I', r);
    END LOOP;
END $$;
ALTER ROLE plain NOREPLICATION;
"""
KEY = bytes(range(32))
SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
STATUS = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"


@dataclass(frozen=True)
class Upstream:
    """A server that asks roles for passwords, and a superuser's connection to it."""

    folder: Path
    port: int
    admin: "psycopg.Connection[tuple[object, ...]]"

    def options(self, role: str = "reader") -> str:
        """Return the options of a connection."""
        where = f"HOST '127.0.0.1', PORT {self.port}, DATABASE 'postgres'"
        return f"{where}, USER '{role}', PASSWORD SECRET pw"

    def let_in(self, hba: str) -> None:
        """Write pg_hba.conf, and end the connections of ours that are there."""
        (self.folder / "data" / "pg_hba.conf").write_text(hba)
        self.admin.execute("SELECT pg_reload_conf()")

    def cut(self) -> None:
        """End all connections of ours."""
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
        self.admin.execute(query)


@pytest.fixture(scope="module")
def publisher() -> Iterator[Upstream]:
    port = free_port()
    with initialised_postgres() as folder:
        (folder / "data" / "pg_hba.conf").write_text(HBA)
        settings = ("wal_level=logical", "max_replication_slots=2")
        with (
            running_postgres(folder, settings=settings, port=port) as url,
            psycopg.connect(url, autocommit=True) as admin,
        ):
            yield Upstream(folder, port, admin)


@pytest.fixture
def upstream(publisher: Upstream) -> Upstream:
    drop_slots(f"postgres://postgres@127.0.0.1:{publisher.port}/postgres")
    publisher.admin.execute(TABLES)
    publisher.let_in(HBA)
    return publisher


async def follow(env: TestEnvironment, upstream: Upstream) -> None:
    """Make the source, whose connection has a password."""
    env.environment.unlock_secrets(KEY)
    await env.ran("a", "CREATE SECRET pw AS 'right'")
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream.options()})", SOURCE)


async def open_again(env: TestEnvironment) -> None:
    """Open the environment as a server does."""
    await env.open()
    env.environment.unlock_secrets(KEY)
    await env.environment.equip_sources()


async def until(env: TestEnvironment, query: str, *parts: str) -> None:
    """Wait until the answer of a query begins with the first text and has the others."""
    found = ""
    for _ in range(1500):
        found = await env.query("a", query)
        if found.startswith(parts[0]) and all(part in found for part in parts):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{found} instead of {parts}")


@pytest.mark.parametrize(
    ("role", "password", "before", "told"),
    [
        ("reader", "wrong", "", ("28P01", "password authentication failed", "PASSWORD")),
        ("absent", "right", "", ("28P01", "authentication failed", "USER")),
        ("refused", "right", "", ("28000", "pg_hba.conf rejects connection", "reload")),
        ("plain", "right", "", ("42501", "replication", "ALTER ROLE plain REPLICATION")),
        (
            "reader",
            "right",
            "REVOKE SELECT ON up.b FROM reader",
            ('55000: permission denied for table "up.b"', "GRANT SELECT ON up.b TO reader"),
        ),
        (
            "reader",
            "right",
            "ALTER TABLE up.b ENABLE ROW LEVEL SECURITY",
            ('row-level security of table "up.b" hides rows', "BYPASSRLS"),
        ),
        ("reader", "right", "DROP PUBLICATION p", ("42704", "CREATE PUBLICATION")),
        (
            "reader",
            "right",
            "SELECT pg_create_physical_replication_slot(n) FROM unnest(ARRAY['x', 'y']::name[]) n",
            ("55000: all 2 replication slots", "max_replication_slots"),
        ),
    ],
)
async def test_create_says_why_it_is_refused(
    own_env: TestEnvironment,
    upstream: Upstream,
    role: str,
    password: str,
    before: str,
    told: tuple[str, ...],
) -> None:
    env = own_env
    if before:
        upstream.admin.execute(before.encode())
    env.environment.unlock_secrets(KEY)
    await env.ran("a", f"CREATE SECRET pw AS '{password}'")
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream.options(role)})")
    found = await env.query("a", SOURCE)
    assert found.startswith("ERROR"), found
    for part in told:
        assert part in found
    assert "HINT: " in found
    assert await env.query("a", "SHOW SOURCES") == "SELECT 0"


async def test_a_host_that_is_away_or_silent_is_told_in_time(
    own_env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libpq, "CONNECT_SECONDS", 2)  # libpq's least
    env = own_env
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        reach = f"HOST '127.0.0.1', PORT {port}, DATABASE 'postgres', USER 'reader'"
        await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({reach})")
        found = await env.query("a", SOURCE)
        assert "timeout expired" in found, found
        assert "HINT: Check HOST and PORT" in found
        assert "timeout expired" in await env.query("a", "VALIDATE CONNECTION pg")
    await env.ran("a", f"ALTER CONNECTION pg SET (PORT = {free_port()})")
    found = await env.query("a", SOURCE)
    assert "refused" in found, found
    await env.ran("a", "ALTER CONNECTION pg SET (HOST = 'no.such.host.invalid')")
    found = await env.query("a", "VALIDATE CONNECTION pg")
    assert "could not connect to the PostgreSQL server at no.such.host.invalid:" in found


@pytest.mark.parametrize(
    ("broken", "told", "mended"),
    [
        (
            "ALTER ROLE reader PASSWORD 'another'",
            ("password authentication failed", "Check USER and PASSWORD"),
            "ALTER ROLE reader PASSWORD 'right'",
        ),
        (
            "ALTER ROLE reader NOREPLICATION",
            ("replication", "ALTER ROLE reader REPLICATION"),
            "ALTER ROLE reader REPLICATION",
        ),
        ("", ("pg_hba.conf rejects connection", "reload that server"), ""),
    ],
)
async def test_a_source_that_is_refused_stalls_and_recovers(
    own_env: TestEnvironment,
    upstream: Upstream,
    broken: str,
    told: tuple[str, ...],
    mended: str,
) -> None:
    env = own_env
    await follow(env, upstream)
    await until(env, "SELECT id, v FROM a", "1|1")
    if broken:
        upstream.admin.execute(broken.encode())
    else:
        upstream.let_in(
            HBA.replace(
                "host all all 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 reject"
            )
        )
    upstream.cut()
    await until(env, STATUS, "stalled|", *told)
    upstream.admin.execute("INSERT INTO up.a VALUES (2, 2)")
    if mended:
        upstream.admin.execute(mended.encode())
    else:
        upstream.let_in(HBA)
    await until(env, STATUS, "running|NULL")
    await until(env, "SELECT id, v FROM a ORDER BY id", "1|1\n2|2")


@pytest.mark.parametrize("reader", ["other", "foreshore 0123456789ab"])  # a restored database
async def test_a_slot_that_somebody_else_reads_is_left_to_him(
    own_env: TestEnvironment, upstream: Upstream, reader: str
) -> None:
    env = own_env
    await follow(env, upstream)
    await until(env, "SELECT id, v FROM a", "1|1")
    row = upstream.admin.execute("SELECT slot_name FROM pg_replication_slots").fetchone()
    assert row is not None
    await env.close()
    await asyncio.to_thread(drop_readers, upstream)
    other = psycopg.connect(
        f"postgres://postgres@127.0.0.1:{upstream.port}/postgres?replication=database"
        f"&application_name={quote(reader)}",
        autocommit=True,
    )
    with closing(other):
        other.pgconn.send_query(
            f'START_REPLICATION SLOT "{row[0]}" LOGICAL 0/0'
            " (proto_version '1', publication_names 'p')".encode()
        )
        active = "SELECT active FROM pg_replication_slots"
        while upstream.admin.execute(active).fetchone() != (True,):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await open_again(env)
        await until(env, STATUS, "stalled|", "is in use by another client", "end the other one")
        assert upstream.admin.execute(active).fetchone() == (True,)
    upstream.admin.execute("INSERT INTO up.a VALUES (2, 2)")
    await until(env, "SELECT id, v FROM a ORDER BY id", "1|1\n2|2")


def drop_readers(upstream: Upstream) -> None:
    """End whoever reads a slot."""
    active = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
    while upstream.admin.execute(active).fetchall():
        pass


async def test_a_right_that_is_missing_when_all_is_read_again_is_told(
    own_env: TestEnvironment, upstream: Upstream
) -> None:
    env = own_env
    await follow(env, upstream)
    await until(env, "SELECT id, v FROM a", "1|1")
    upstream.admin.execute("REVOKE SELECT ON up.b FROM reader")
    await env.close()
    await asyncio.to_thread(drop_readers, upstream)
    upstream.admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    upstream.admin.execute("INSERT INTO up.b VALUES (5, 5)")
    await open_again(env)
    await until(env, STATUS, "stalled|", "permission denied for table b", "SELECT")
    upstream.admin.execute("GRANT SELECT ON up.b TO reader")
    await until(env, "SELECT id, v FROM b", "5|5")


async def test_a_table_that_has_ceased_has_its_own_state(
    own_env: TestEnvironment, upstream: Upstream
) -> None:
    env = own_env
    states = (
        "SELECT name, type, status, error FROM mz_internal.mz_source_statuses"
        " WHERE type <> 'progress' ORDER BY name"
    )
    await follow(env, upstream)
    await until(env, "SELECT id, v FROM a", "1|1")
    all_run = "a|subsource|running|NULL\nb|subsource|running|NULL\ns|postgres|running|NULL"
    await until(env, states, all_run)
    upstream.admin.execute("ALTER TABLE up.b RENAME v TO w")
    upstream.admin.execute("INSERT INTO up.b VALUES (1, 1)")
    reason = 'column "v" of "up.b" was dropped or renamed'
    ceased = f"a|subsource|running|NULL\nb|subsource|ceased|{reason}\ns|postgres|running|NULL"
    await until(env, states, ceased)
    await env.close()
    await open_again(env)
    await until(env, states, ceased)
    history = (
        "SELECT status, error FROM mz_internal.mz_source_status_history WHERE error IS NOT NULL"
    )
    await until(env, history, f"ceased|{reason}")
    await env.ran("a", "ALTER SOURCE s DROP TABLE b", "ALTER SOURCE s ADD TABLE b")
    await until(env, states, all_run)
