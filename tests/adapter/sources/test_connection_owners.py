"""Connections to PostgreSQL of roles that are not superusers: a password, which must be asked for."""

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import options_of
from tests.adapter.sources.replicated import SOURCE, Upstream, until
from tests.adapter.sources.replicated import env as env
from tests.adapter.sources.replicated import upstream as upstream

REQUIRED = "ERROR 2F003: password is required"
NOT_ASKED = "Non-superuser cannot connect if the server does not request a password."
STATUS = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"


async def of_a_maker(env: TestEnvironment) -> None:
    """Let `maker` be a role that may create connections, with a secret of its own."""
    env.environment.unlock_secrets(bytes(32))
    await env.ran(
        "a",
        "CREATE ROLE maker",
        "GRANT CREATE, USAGE ON SCHEMA public TO maker",
        "GRANT CREATE ON CLUSTER quickstart TO maker",
    )
    await env.ran("m", "SET SESSION AUTHORIZATION maker", "CREATE SECRET pw AS 'own'")


async def test_a_role_needs_a_password_that_is_asked_for(
    env: TestEnvironment, upstream: Upstream, publisher_url: str
) -> None:
    """The server of the tests trusts this machine, as many do."""
    await of_a_maker(env)
    options = options_of(publisher_url)
    create = f"CREATE CONNECTION mine TO POSTGRES ({options}{{}})"
    for tried in (create.format(""), create.format(", SSL CERTIFICATE 'c'")):
        found = await env.query("m", tried)
        assert found.startswith(REQUIRED), found
        assert "DETAIL: Non-superusers must provide a password in the connection string." in found
    validated = create.format(", PASSWORD SECRET pw") + " WITH (VALIDATE)"
    assert NOT_ASKED in await env.query("m", validated)
    await env.ran("m", create.format(", PASSWORD SECRET pw"))
    for tried in (
        "VALIDATE CONNECTION mine",
        "VALIDATE CONNECTION mine (PUBLICATION 'p')",
        SOURCE.replace("pg", "mine"),
    ):
        found = await env.query("m", tried)
        assert found.startswith(REQUIRED), (tried, found)
        assert NOT_ASKED in found
    assert (await env.query("m", "ALTER CONNECTION mine RESET (PASSWORD)")).startswith(REQUIRED)
    assert await env.query("a", "VALIDATE CONNECTION pg") == "VALIDATE CONNECTION"


@pytest.mark.parametrize("host", ["/tmp", "/", "@abstract", "db,/tmp", "127.0.0.1,127.0.0.1"])
async def test_a_host_is_one_name(env: TestEnvironment, upstream: Upstream, host: str) -> None:
    create = f"CREATE CONNECTION x TO POSTGRES (HOST '{host}', DATABASE 'd', USER 'u')"
    for tried in (create, f"ALTER CONNECTION pg SET (HOST '{host}')"):
        assert (await env.query("a", tried)).startswith("ERROR 22023: invalid value for option")


async def test_it_is_the_owner_of_the_connection_that_counts_at_each_time(
    env: TestEnvironment, upstream: Upstream
) -> None:
    await env.ran("a", "CREATE ROLE boss SUPERUSER", "ALTER CONNECTION pg OWNER TO boss", SOURCE)
    await until(env, "SELECT count(*) FROM b", "20")
    await env.ran("a", "ALTER ROLE boss NOSUPERUSER")
    await until(env, f"SELECT error LIKE '%password is required%' FROM ({STATUS}) e", "t")
    await env.ran("a", "ALTER ROLE boss SUPERUSER")
    upstream.execute("INSERT INTO up.b VALUES (1000, 0)")
    await until(env, "SELECT count(*) FROM b", "21")
