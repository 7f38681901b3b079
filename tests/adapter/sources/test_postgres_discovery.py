"""CREATE SOURCE asks the external system for its tables, and keeps what it has found."""

from urllib.parse import urlparse

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment

TABLES = """
CREATE SCHEMA discovered;
CREATE TABLE discovered.orders (id bigint PRIMARY KEY, total numeric(10, 2), "At" timestamptz NOT NULL);
CREATE TABLE discovered.other (tags text[]);
CREATE PUBLICATION discovered FOR TABLE discovered.orders, discovered.other;
"""
DROPPED = (
    "DROP PUBLICATION IF EXISTS discovered",
    "DROP SCHEMA IF EXISTS discovered CASCADE",
)


@pytest.fixture
def upstream(postgres_url: str) -> str:
    """Return the options of a connection to a server with a publication."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in DROPPED:
            connection.execute(statement)
        connection.execute(TABLES)
    where = urlparse(postgres_url)
    return (
        f"HOST '{where.hostname}', PORT {where.port}, "
        f"DATABASE '{where.path[1:] or 'postgres'}', USER '{where.username or 'postgres'}'"
    )


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
