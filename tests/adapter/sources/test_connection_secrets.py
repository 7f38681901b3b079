"""The owner of a connection may not send a secret elsewhere that is not the owner's to use."""

from tests.adapter.harness import TestEnvironment


async def test_alter_needs_usage_on_the_secrets_that_stay(own_env: TestEnvironment) -> None:
    env = own_env
    env.environment.unlock_secrets(bytes(32))
    await env.ran(
        "a",
        "CREATE SECRET pw AS 'hidden'",
        "CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://h', PASSWORD SECRET pw)",
        "CREATE ROLE ann",
        "GRANT ALL ON SCHEMA public TO ann",
        "ALTER CONNECTION r OWNER TO ann",
        "SET ROLE ann",
    )
    elsewhere = "ALTER CONNECTION r SET (URL 'http://mine')"
    for statement in (elsewhere, f"{elsewhere} WITH (VALIDATE)"):
        denied = await env.query("a", statement)
        assert "ERROR 42501: permission denied for secret pw" in denied
    assert "http://h" in await env.query("a", "SHOW CREATE CONNECTION r")
    await env.ran("a", "RESET ROLE", "GRANT USAGE ON SECRET pw TO ann", "SET ROLE ann", elsewhere)
    await env.ran("a", "RESET ROLE", "REVOKE USAGE ON SECRET pw FROM ann", "SET ROLE ann")
    await env.ran("a", "ALTER CONNECTION r DROP (PASSWORD)")
