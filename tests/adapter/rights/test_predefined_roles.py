"""What the predefined roles give their members, and that nobody gets at them."""

from foreshore.catalog.predefined import PREDEFINED
from tests.adapter.harness import TestEnvironment


async def _members(env: TestEnvironment, *roles: str) -> None:
    """Give the session of each role, called as it is, the predefined role that it is named for."""
    for role in roles:
        await env.ran("admin", f"CREATE ROLE {role}", f"GRANT pg_{role} TO {role}")
        await env.ran(role, f"SET SESSION AUTHORIZATION {role}")


async def test_read_all_data_reads_and_write_all_data_writes(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "admin",
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (a int PRIMARY KEY)",
        "INSERT INTO s.t VALUES (1)",
        "CREATE VIEW s.v AS SELECT a FROM s.t",
        "CREATE SEQUENCE s.q",
    )
    await _members(env, "read_all_data", "write_all_data")
    for sql in ("TABLE s.t", "TABLE s.v", "SELECT a FROM s.t WHERE a = 1"):
        assert await env.query("read_all_data", sql) == "1\nSELECT 1"
        assert "42501" in await env.query("write_all_data", sql)
    assert await env.query("write_all_data", "INSERT INTO s.t VALUES (2)") == "INSERT 0 1"
    assert await env.query("write_all_data", "DELETE FROM s.t") == "DELETE 2"
    for sql in ("INSERT INTO s.t VALUES (4)", "DELETE FROM s.t", "TRUNCATE s.t"):
        assert "42501" in await env.query("read_all_data", sql), sql
    assert "42501" in await env.query("write_all_data", "TRUNCATE s.t")
    for name in ("pg_authid", "pg_hba_file_rules"):  # verifiers are no data
        assert "42501" in await env.query("read_all_data", f"SELECT * FROM {name}")
    forged = "INSERT INTO mz_catalog.mz_audit_events VALUES (1, 'x', 'x', '1', 'x', now())"
    assert await env.query("write_all_data", forged) != "INSERT 0 1"
    asked = (
        "SELECT has_table_privilege('{0}', 's.t', '{1}'), has_schema_privilege('{0}', 's', 'USAGE')"
    )
    for role, right, has in (
        ("read_all_data", "SELECT", "t"),
        ("read_all_data", "INSERT", "f"),
        ("write_all_data", "INSERT", "t"),
        ("write_all_data", "SELECT", "f"),
    ):
        answer = await env.query("admin", asked.format(role, right))
        assert answer == f"{has}|t\nSELECT 1", (role, right)
    seen = "SELECT table_name FROM information_schema.tables WHERE table_schema = 's'"
    assert await env.query("read_all_data", seen + " ORDER BY 1") == "t\nv\nSELECT 2"


async def test_monitors_see_what_others_do_and_signal_only_by_their_right(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran("admin", "CREATE ROLE nobody")
    await _members(env, "monitor", "signal_backend", "checkpoint")
    await env.ran("worker", "SET SESSION AUTHORIZATION nobody", "SELECT 4471")
    queries = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%4471'"
    assert await env.query("monitor", queries.replace("%4471", "%4471%")) == "2\nSELECT 1"
    assert await env.query("signal_backend", queries) == "0\nSELECT 1"
    assert "ERROR" not in await env.query("monitor", "SHOW data_directory")
    assert "42501" in await env.query("checkpoint", "SHOW data_directory")
    assert "ERROR" not in await env.query("monitor", "TABLE mz_catalog.mz_audit_events")
    pid, admin = env.sessions["worker"].pid, env.sessions["admin"].pid
    cancel = "SELECT pg_cancel_backend({})"
    assert "42501" in await env.query("monitor", cancel.format(pid))
    assert await env.query("signal_backend", cancel.format(pid)) == "t\nSELECT 1"
    assert "42501" in await env.query("signal_backend", cancel.format(admin))
    assert "42501" in await env.query("monitor", "CHECKPOINT")
    assert "42501" not in await env.query("checkpoint", "CHECKPOINT")


async def test_rights_of_the_database_owner_follow_the_owner(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "admin",
        "CREATE ROLE lord",
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (a int)",
        "GRANT USAGE ON SCHEMA s TO pg_database_owner",
        "GRANT SELECT ON s.t TO pg_database_owner",
        "CREATE TABLE s.owned (a int)",
        "ALTER TABLE s.owned OWNER TO pg_database_owner",
    )
    await env.ran("lord", "SET SESSION AUTHORIZATION lord")
    assert "42501" in await env.query("lord", "TABLE s.t")
    assert "42501" in await env.query("lord", "ALTER TABLE s.owned ADD b int")
    assert "0LP01" in await env.query("admin", "GRANT pg_database_owner TO lord")
    await env.ran("admin", "ALTER DATABASE foreshore OWNER TO lord")
    assert await env.query("lord", "TABLE s.t") == "SELECT 0"
    await env.ran("lord", "ALTER TABLE s.owned ADD b int")
    await env.reopen()
    await env.ran("lord", "SET SESSION AUTHORIZATION lord")
    assert await env.query("lord", "TABLE s.owned") == "SELECT 0"
    assert (
        await env.query("admin", "SELECT has_table_privilege('lord', 's.t', 'SELECT')")
        == "t\nSELECT 1"
    )


async def test_predefined_roles_are_not_changed_and_not_had_by_who_creates_roles(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran(
        "admin",
        "CREATE ROLE maker CREATEROLE",
        "CREATE ROLE ops LOGIN IN ROLE pg_write_server_files",
        "CREATE ROLE boss",
        "GRANT pg_monitor TO boss WITH ADMIN OPTION",
    )
    await env.ran("maker", "SET SESSION AUTHORIZATION maker")
    await env.ran("boss", "SET SESSION AUTHORIZATION boss")
    for role in PREDEFINED:
        for sql in (
            f"GRANT {role.name} TO maker",
            f"CREATE ROLE x IN ROLE {role.name}",
            f"SET ROLE {role.name}",
        ):
            assert "ERROR" in await env.query("maker", sql), sql
        for sql in (
            f"DROP ROLE {role.name}",
            f"ALTER ROLE {role.name} LOGIN",
            f"ALTER ROLE {role.name} RENAME TO x",
            f"ALTER ROLE {role.name} SET search_path = x",
            f"GRANT boss TO {role.name}",
            f"GRANT CREATEDB ON SYSTEM TO {role.name}",
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {role.name} GRANT SELECT ON TABLES TO boss",
            f"DROP OWNED BY {role.name}",
            f"CREATE ROLE {role.name}",
        ):
            assert "ERROR" in await env.query("admin", sql), sql
    for sql in ("GRANT ops TO maker", "ALTER ROLE ops PASSWORD 'mine'"):
        assert "42501" in await env.query("maker", sql), sql
    await env.ran("boss", "CREATE TEMP TABLE own (x int)", "GRANT pg_monitor TO maker")
    await env.ran("admin", "REVOKE pg_monitor FROM maker", "DROP ROLE maker")
    assert await env.query("admin", "SHOW ROLES") == "boss\nforeshore\nops\nSELECT 3"
    await env.reopen()
    of_ops = "SELECT pg_has_role('ops', 'pg_write_server_files', 'USAGE')"
    assert await env.query("admin", of_ops) == "t\nSELECT 1"
