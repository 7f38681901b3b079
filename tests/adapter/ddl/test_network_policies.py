"""Network policies: from where sessions may come, and who may say so."""

import pytest

from foreshore.adapter.client import Startup
from foreshore.errors import InvalidAuthorization
from tests.adapter.harness import TestEnvironment

OFFICE = "here (ACTION = 'allow', DIRECTION = 'ingress', ADDRESS = '192.0.2.0/24')"
HOME = "home (action = 'allow', direction = 'ingress', address = '2001:db8::/32')"


async def may(env: TestEnvironment, role: str, peer: str) -> bool:
    """Return whether a role may connect from a place."""
    try:
        session = await env.environment.connect(Startup(role, "foreshore", {}, peer))
    except InvalidAuthorization:
        return False
    await session.close()
    return True


async def test_policies_of_the_system_and_of_roles_decide_at_login(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE ROLE bob LOGIN",
        f"CREATE NETWORK POLICY office (RULES ({OFFICE}))",
        f"CREATE NETWORK POLICY two (RULES ({OFFICE}, {HOME}))",
        "CREATE NETWORK POLICY nowhere (RULES ())",
    )
    office, mapped, home, other = "192.0.2.7:5", "::ffff:192.0.2.7:5", "2001:db8::1:5", "10.0.0.1:5"
    assert await may(env, "bob", other)
    await env.ran("a", "ALTER SYSTEM SET network_policy = office")
    assert [await may(env, "bob", each) for each in (office, mapped, home, other)] == [
        True, True, False, False
    ]  # fmt: skip
    await env.reopen()
    assert not await may(env, "foreshore", home)
    await env.ran("a", "ALTER ROLE bob SET network_policy = 'two'")
    assert await may(env, "bob", home)
    assert not await may(env, "foreshore", home)
    await env.ran("a", f"ALTER NETWORK POLICY two SET (RULES ({OFFICE}))")
    assert not await may(env, "bob", home)
    await env.ran("a", "ALTER ROLE bob SET network_policy = nowhere")
    assert not await may(env, "bob", office)
    for policy, user in (("office", "the system"), ("nowhere", "role bob")):
        answer = await env.query("a", f"DROP NETWORK POLICY {policy}")
        assert answer.startswith("ERROR 2BP01"), answer
        assert user in answer
    await env.ran(
        "a",
        "ALTER SYSTEM RESET network_policy",
        "ALTER ROLE bob RESET network_policy",
        "DROP NETWORK POLICY office",
        "DROP NETWORK POLICY IF EXISTS office",
        "COMMENT ON NETWORK POLICY two IS 'two'",
    )
    assert await may(env, "bob", other)
    shown = await env.query("a", "SHOW NETWORK POLICIES")
    assert sorted(shown.splitlines()) == [
        "SELECT 3", "default|open_ingress, open_ingress_ipv6|", "nowhere|NULL|", "two|here|two"
    ]  # fmt: skip
    rules = (
        "SELECT p.name, r.name, action, direction, address FROM mz_internal.mz_network_policies p "
        "JOIN mz_internal.mz_network_policy_rules r ON p.id = policy_id WHERE p.name = 'two'"
    )
    assert await env.query("a", rules) == "two|here|allow|ingress|192.0.2.0/24\nSELECT 1"


async def test_who_sets_a_policy_cannot_lock_itself_out(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", f"CREATE NETWORK POLICY office (RULES ({OFFICE}))")
    env.sessions["far"] = await env.environment.connect(
        Startup("foreshore", "foreshore", {}, "10.0.0.1:5")
    )
    env.sessions["near"] = await env.environment.connect(
        Startup("foreshore", "foreshore", {}, "192.0.2.1:5")
    )
    set_it = "ALTER SYSTEM SET network_policy = office"
    assert "ERROR 55000" in await env.query("far", set_it)
    await env.ran("near", set_it)
    change = f"ALTER NETWORK POLICY office SET (RULES ({HOME}))"
    assert "ERROR 55000" in await env.query("near", change)
    assert await may(env, "foreshore", "192.0.2.1:5")
    await env.ran("far", "ALTER SYSTEM RESET ALL")


async def test_only_those_with_rights_make_and_set_policies(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE ROLE bob LOGIN CREATEROLE",
        "CREATE ROLE guard LOGIN",
        "GRANT CREATENETWORKPOLICY ON SYSTEM TO guard",
        f"CREATE NETWORK POLICY office (RULES ({OFFICE}))",
        "ALTER ROLE bob SET network_policy = office",
    )
    for role in ("bob", "guard"):
        await env.ran(role, f"SET SESSION AUTHORIZATION {role}")
    for sql in (
        f"CREATE NETWORK POLICY mine (RULES ({HOME}))",
        f"ALTER NETWORK POLICY office SET (RULES ({HOME}))",
        "DROP NETWORK POLICY office",
        "ALTER NETWORK POLICY office OWNER TO bob",
        "COMMENT ON NETWORK POLICY office IS 'mine'",
        "ALTER ROLE bob SET network_policy = 'default'",
        "ALTER ROLE bob RESET network_policy",
        "ALTER ROLE guard SET network_policy = office",
        "ALTER SYSTEM SET network_policy = 'default'",
        "SET network_policy = 'default'",
    ):
        assert "ERROR" in await env.query("bob", sql), sql
    await env.ran("bob", "ALTER ROLE bob RESET ALL")
    assert not await may(env, "bob", "10.0.0.1:5")
    asked = Startup("bob", "foreshore", {"network_policy": "default"}, "10.0.0.1:5")
    with pytest.raises(InvalidAuthorization):
        await env.environment.connect(asked)
    await env.ran("guard", f"CREATE NETWORK POLICY own (RULES ({HOME}))", "DROP NETWORK POLICY own")
    privileges = "SELECT privileges FROM mz_catalog.mz_system_privileges"
    assert "=P/s1" in await env.query("a", privileges)


async def test_roles_are_dropped_beside_policies_and_settings(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE ROLE guard CREATENETWORKPOLICY",
        "CREATE ROLE other",
        "ALTER SYSTEM SET lock_timeout = '1s'",
        "CREATE TABLE t (x int)",
        "GRANT SELECT ON t TO other",
    )
    await env.ran("guard", "SET SESSION AUTHORIZATION guard")
    await env.ran("guard", f"CREATE NETWORK POLICY own (RULES ({HOME}))")
    await env.ran("a", "DROP OWNED BY other", "DROP ROLE other")
    answer = await env.query("a", "DROP ROLE guard")
    assert "owner of network policy own" in answer, answer
    await env.ran("a", "REASSIGN OWNED BY guard TO foreshore", "DROP ROLE guard")
    await env.ran("a", "ALTER NETWORK POLICY own OWNER TO foreshore")
    await env.reopen()
    await env.ran("a", "DROP NETWORK POLICY own")


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ("x (action = 'deny', direction = 'ingress', address = '10.0.0.0/8')", "22023"),
        ("x (action = 'allow', direction = 'egress', address = '10.0.0.0/8')", "22023"),
        ("x (action = 'allow', direction = 'ingress', address = '10.0.0.1/8')", "22023"),
        ("x (action = 'allow', direction = 'ingress', address = 'here')", "22023"),
        ("x (action = 'allow', direction = 'ingress')", "22023"),
        ("x (action = 'allow', action = 'allow')", "42601"),
        (f"{OFFICE}, {OFFICE}", "22023"),
        ("x (port = '1')", "42601"),
    ],
)
async def test_wrong_rules_are_refused(env: TestEnvironment, rules: str, code: str) -> None:
    answer = await env.query("a", f"CREATE NETWORK POLICY p (RULES ({rules}))")
    assert answer.startswith(f"ERROR {code}"), answer
