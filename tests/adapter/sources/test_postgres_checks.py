"""What a PostgreSQL server lacks is told before anything is made: one message, with what helps."""

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import options_of
from tests.adapter.sources.replicated import SOURCE, Upstream, equal, until
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream
from tests.harness import free_port, postgres_account, program
from tests.harness import until as until_true

VALIDATE = "VALIDATE CONNECTION pg (PUBLICATION 'p')"


async def told(env: TestEnvironment, before: Upstream, statement: str, *parts: str) -> None:
    """Both statements fail alike after a statement upstream, with these texts."""
    before.execute(statement.encode())
    found = {each: await env.query("a", each) for each in (VALIDATE, SOURCE)}
    for each in found.values():
        assert each.startswith("ERROR"), found
        for part in parts:
            assert part in each, found
        assert "HINT: " in each, found
    assert await env.query("a", "SHOW SOURCES") == "SELECT 0"


@pytest.mark.parametrize(
    ("statement", "parts"),
    [
        ('ALTER PUBLICATION p RENAME TO "P"', ("42704", 'Perhaps you mean "P"')),
        ("ALTER PUBLICATION p SET (publish = 'insert')", ("does not publish all changes",)),
        (
            "ALTER PUBLICATION p SET TABLE up.a, up.b WHERE (id > 3)",
            ('55000: the publication has a condition for table "up.b"', "in a view here"),
        ),
        (
            "ALTER PUBLICATION p SET TABLE up.a (id, v), up.b",
            ('the publication has a column list for table "up.a"', "EXCLUDE COLUMNS"),
        ),
        (
            "ALTER TABLE up.a REPLICA IDENTITY DEFAULT; ALTER TABLE up.b REPLICA IDENTITY NOTHING",
            ('"up.a" does not replicate the old rows', 'others: table "up.b"', "up.a REPLICA"),
        ),
        (
            'CREATE TABLE up."T.x" (i int); ALTER PUBLICATION p ADD TABLE up."T.x"',
            ('up."T.x" REPLICA',),
        ),
        ("ALTER TABLE up.a ADD w tsvector", ("type tsvector", "TEXT COLUMNS (up.a.w)")),
        (
            'CREATE TABLE up."Q" (a int, "W w" tsvector); ALTER TABLE up."Q" REPLICA IDENTITY FULL;'
            ' ALTER PUBLICATION p ADD TABLE up."Q"',
            ("type tsvector", 'TEXT COLUMNS (up."Q"."W w")'),
        ),
        ("ALTER PUBLICATION p DROP TABLE up.a, up.b", ("42P01", "no tables")),
    ],
)
async def test_what_a_publication_lacks_is_told(
    env: TestEnvironment, upstream: Upstream, statement: str, parts: tuple[str, ...]
) -> None:
    await told(env, upstream, statement, *parts)


async def test_a_table_with_a_condition_keeps_no_other_from_being_followed(
    env: TestEnvironment, upstream: Upstream
) -> None:
    upstream.execute("ALTER PUBLICATION p SET TABLE up.a, up.b WHERE (id > 3)")
    await env.ran("a", SOURCE.replace("ALL TABLES", "TABLES (up.a)"))
    await until(env, "SELECT count(*) FROM a", "24")


async def test_a_condition_that_comes_later_lets_the_table_cease(
    env: TestEnvironment, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreshore.storage.ingest.postgres.stream.LOOK_SECONDS", 0.1)
    await env.ran("a", SOURCE)
    await equal(env, upstream)
    upstream.execute("ALTER PUBLICATION p SET TABLE up.a, up.b WHERE (id > 3)")
    ceased = "SELECT error FROM mz_internal.mz_source_statuses WHERE name = 'b'"
    await until(env, ceased, 'table "up.b" has a condition in the publication')
    upstream.execute("INSERT INTO up.b VALUES (2000, 1), (-1, 1)")
    upstream.execute("INSERT INTO up.a (id, v) VALUES (2000, 1)")
    await until(env, "SELECT count(*) FROM a WHERE id = 2000", "1")
    await until(env, "SELECT count(*) FROM b", "20")


async def test_the_closest_table_is_named(env: TestEnvironment, upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE up.orders (id int); ALTER PUBLICATION p ADD TABLE up.orders")
    found = await env.query("a", SOURCE.replace("ALL TABLES", "TABLES (up.order)"))
    assert 'HINT: Perhaps you mean "up.orders". It has up.a, up.b, up.orders.' in found


async def test_equal_names_in_two_schemas_need_other_names(
    env: TestEnvironment, upstream: Upstream
) -> None:
    upstream.execute(
        'DROP SCHEMA IF EXISTS "Other" CASCADE; CREATE SCHEMA "Other";'
        ' CREATE TABLE "Other".a ("Key" int); ALTER TABLE "Other".a REPLICA IDENTITY FULL;'
        ' INSERT INTO "Other".a VALUES (7); ALTER PUBLICATION p ADD TABLE "Other".a'
    )
    found = await env.query("a", SOURCE)
    assert "two tables of the source would be called a: Other.a and up.a" in found, found
    await env.ran("a", SOURCE.replace("ALL TABLES", 'TABLES (up.a, "Other".a AS "A")'))
    await until(env, 'SELECT "Key" FROM "A"', "7")
    upstream.execute('INSERT INTO "Other".a VALUES (8)')
    await until(env, 'SELECT sum("Key") FROM "A"', "15")


async def test_validation_without_a_publication_tells_what_sources_would_lack(
    env: TestEnvironment, upstream: Upstream, postgres_url: str
) -> None:
    assert await env.query("a", "VALIDATE CONNECTION pg") == "VALIDATE CONNECTION"
    found = await env.query("a", VALIDATE)
    assert found == 'VALIDATE CONNECTION\nNOTICE: publication "p" has up.a, up.b'
    assert "42601" in await env.query("a", "VALIDATE CONNECTION pg (PUBLICATION)")
    await env.ran("a", f"CREATE CONNECTION plain TO POSTGRES ({options_of(postgres_url)})")
    found = await env.query("a", "VALIDATE CONNECTION plain")
    assert found.startswith("VALIDATE CONNECTION"), found
    assert 'sinks can: the PostgreSQL server has wal_level "replica" instead' in found
    await env.ran("a", "CREATE CONNECTION aws TO AWS (REGION 'x')")
    found = await env.query("a", "VALIDATE CONNECTION aws (PUBLICATION 'p')")
    assert "42809" in found


@contextmanager
def pooler(url: str, ignored: str) -> Iterator[int]:
    """Run a PgBouncer in front of a server; yields its port."""
    (host, port) = url.rpartition("@")[2].partition("/")[0].split(":")
    own = free_port()
    with tempfile.TemporaryDirectory() as folder:
        account = postgres_account(Path(folder))
        config = Path(folder, "pgbouncer.ini")
        config.write_text(
            f"[databases]\n* = host={host} port={port}\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
            f"listen_port={own}\nunix_socket_dir=\nauth_type=any\npool_mode=session\n"
            f"ignore_startup_parameters={ignored}\n"
            f"[databases]\npostgres = host={host} port={port} user=postgres\n"
        )
        config.chmod(0o644)
        process = subprocess.Popen(
            [program("pgbouncer"), str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **account,
        )

        def answers() -> bool:
            with socket.socket() as tried:
                return tried.connect_ex(("127.0.0.1", own)) == 0

        try:
            until_true(answers, "PgBouncer answers", 10)
            yield own
        finally:
            process.terminate()
            process.wait(10)


@pytest.mark.full
@pytest.mark.parametrize("ignored", ["extra_float_digits", "extra_float_digits,options"])
async def test_a_pooler_in_between_is_told(
    env: TestEnvironment, upstream: Upstream, publisher_url: str, ignored: str
) -> None:
    with pooler(publisher_url, ignored) as port:
        await env.ran("a", f"ALTER CONNECTION pg SET (PORT = {port})")
        found = {each: await env.query("a", each) for each in (VALIDATE, SOURCE)}
        for each in found.values():
            assert each.startswith("ERROR"), found
            assert "PgBouncer is in between" in each, found
