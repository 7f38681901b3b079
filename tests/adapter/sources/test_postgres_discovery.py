"""CREATE SOURCE asks the external system for its tables, and keeps what it has found."""

from urllib.parse import urlparse

import psycopg
import pytest

from foreshore.sources.postgres import PostgresSource
from foreshore.storage.external.access import Access
from foreshore.storage.ingest.postgres.kind import KIND
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots, options_of

TABLES = """
CREATE SCHEMA discovered;
CREATE TABLE discovered.orders (id bigint PRIMARY KEY, total numeric(10, 2), "At" timestamptz NOT NULL);
CREATE TABLE discovered.other (tags text[]);
ALTER TABLE discovered.orders REPLICA IDENTITY FULL;
ALTER TABLE discovered.other REPLICA IDENTITY FULL;
CREATE PUBLICATION discovered FOR TABLE discovered.orders, discovered.other;
"""
DROPPED = (
    "DROP PUBLICATION IF EXISTS discovered",
    "DROP SCHEMA IF EXISTS discovered CASCADE",
)


@pytest.fixture
def upstream(publisher_url: str) -> str:
    """Return the options of a connection to a server with a publication."""
    drop_slots(publisher_url)
    with psycopg.connect(publisher_url, autocommit=True) as connection:
        for statement in DROPPED:
            connection.execute(statement)
        connection.execute(TABLES)
    return options_of(publisher_url)


async def test_tables_have_the_columns_that_they_have_upstream(
    own_env: TestEnvironment, upstream: str
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream})")
    source = "FROM POSTGRES CONNECTION pg (PUBLICATION 'discovered')"
    await env.ran("a", f"CREATE SOURCE s {source} FOR TABLES (orders AS o, discovered.other)")
    await env.reopen()
    columns = "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
    found = await env.query("a", f"{columns} WHERE table_name = 'o' ORDER BY ordinal_position")
    assert found.splitlines()[:3] == [
        "id|bigint|NO",
        "total|numeric|YES",
        "At|timestamp with time zone|NO",
    ]
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0]
    assert shown.split(" FROM ")[1] == (
        "POSTGRES CONNECTION foreshore.public.pg (PUBLICATION = 'discovered') FOR TABLES "
        "(discovered.orders AS foreshore.public.o, discovered.other AS foreshore.public.other) "
        "EXPOSE PROGRESS AS foreshore.public.s_progress"
    )
    assert "2BP01" in await env.query("a", "DROP CONNECTION pg")
    await env.ran("a", "CREATE ROLE r", "GRANT CREATE ON SCHEMA public TO r", "SET ROLE r")
    assert "42501: permission denied for connection pg" in await env.query(
        "a", f"CREATE SOURCE t {source} FOR ALL TABLES"
    )
    await env.ran("a", "RESET ROLE", "DROP CONNECTION pg CASCADE")
    assert await env.query("a", "SHOW SOURCES") == "SELECT 0"


async def test_a_table_that_is_not_published_is_refused(
    own_env: TestEnvironment, upstream: str
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream})")
    source = "CREATE SOURCE s FROM POSTGRES CONNECTION pg"
    no_table = f"{source} (PUBLICATION 'discovered') FOR TABLES (none)"
    assert '42P01: table "none" does not exist in the source' in await env.query("a", no_table)
    no_publication = f"{source} (PUBLICATION 'none') FOR ALL TABLES"
    assert '42704: publication "none" does not exist' in await env.query("a", no_publication)
    assert await env.query("a", "SHOW SOURCES") == "SELECT 0"


async def test_columns_are_excluded_or_read_as_text(
    own_env: TestEnvironment, upstream: str
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream})")
    source = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'discovered'"
    wrong = f"{source}, TEXT COLUMNS (discovered.orders.none)) FOR ALL TABLES"
    assert '42703: column "discovered.orders.none" does not exist' in await env.query("a", wrong)
    options = 'TEXT COLUMNS (discovered.other.tags), EXCLUDE COLUMNS (orders."At")'
    await env.ran("a", f"{source}, {options}) FOR ALL TABLES")
    columns = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = "
    found = await env.query("a", f"{columns} 'orders' ORDER BY ordinal_position")
    assert found.splitlines()[:-1] == ["id|bigint", "total|numeric"]
    assert (await env.query("a", f"{columns} 'other'")).splitlines()[0] == "tags|text"
    shown = await env.query("a", "SHOW CREATE SOURCE s")
    assert 'EXCLUDE COLUMNS = (discovered.orders."At")' in shown


async def test_a_table_without_a_column_of_its_key_has_no_key(
    publisher_url: str, upstream: str
) -> None:
    where = urlparse(publisher_url)
    options = {
        "host": str(where.hostname),
        "port": str(where.port),
        "database": where.path[1:] or "postgres",
        "user": where.username or "postgres",
    }
    accesses = {"c": Access("postgres", options, by_superuser=True)}
    whole = await KIND.discover(PostgresSource("c", "discovered"), accesses)
    assert whole.outputs["discovered.orders"].key == ("id",)
    spec = PostgresSource("c", "discovered", exclude_columns=("discovered.orders.id",))
    less = await KIND.discover(spec, accesses)
    assert less.outputs["discovered.orders"].key == ()
    assert isinstance(less.spec, PostgresSource)
    assert isinstance(whole.spec, PostgresSource)
    assert less.spec.slot.startswith("foreshore_")
    assert less.spec.slot != whole.spec.slot
    assert (await KIND.discover(less.spec, accesses)).spec == less.spec


async def test_what_cannot_be_followed_is_refused(
    own_env: TestEnvironment, upstream: str, publisher_url: str, postgres_url: str
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream})")
    with psycopg.connect(publisher_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE discovered.other REPLICA IDENTITY DEFAULT")
        connection.execute("CREATE TYPE discovered.mood AS ENUM ('sad')")
        connection.execute("ALTER TABLE discovered.orders ADD m discovered.mood")
    source = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'discovered'"
    found = await env.query("a", f"{source}) FOR TABLES (other)")
    assert '55000: table "discovered.other" does not replicate the old rows' in found
    found = await env.query("a", f"{source}) FOR TABLES (orders)")
    assert '55000: column "m" of table "discovered.orders" has the type discovered.mood' in found
    await env.ran("a", f"{source}, TEXT COLUMNS (discovered.orders.m)) FOR TABLES (orders)")
    await env.ran("a", f"CREATE CONNECTION no_log TO POSTGRES ({options_of(postgres_url)})")
    found = await env.query(
        "a", "CREATE SOURCE t FROM POSTGRES CONNECTION no_log (PUBLICATION 'x') FOR ALL TABLES"
    )
    assert '55000: the PostgreSQL server has wal_level "replica" instead of "logical"' in found


async def test_the_table_of_our_own_sinks_is_left_out_of_all_tables(
    own_env: TestEnvironment, upstream: str, publisher_url: str
) -> None:
    env = own_env
    await env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({upstream})", "CREATE TABLE t (id int)")
    into = "INTO POSTGRES CONNECTION pg (TABLE 'discovered.written') ENVELOPE APPEND"
    await env.ran("a", f"CREATE SINK k FROM t {into}")
    with psycopg.connect(publisher_url, autocommit=True) as connection:
        connection.execute("ALTER PUBLICATION discovered ADD TABLE foreshore.frontiers")
        source = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'discovered')"
        told = 'NOTICE: table "foreshore.frontiers" is left out'
        assert told in await env.query("a", "VALIDATE CONNECTION pg (PUBLICATION 'discovered')")
        assert "55000" in await env.query("a", f"{source} FOR TABLES (foreshore.frontiers)")
        assert told in await env.query("a", f"{source} FOR ALL TABLES")
        names = "SELECT name FROM mz_sources WHERE type = 'subsource' ORDER BY 1"
        found = (await env.query("a", names)).splitlines()
        assert found == ["orders", "other", "s_errors", "SELECT 3"]
