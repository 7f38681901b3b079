"""Roles in an environment: settings at login, secrets, and the audit."""

import pytest

from foreshore import session_variables
from foreshore.adapter.client import Startup
from foreshore.errors import DatabaseError, InvalidAuthorization
from tests.adapter.harness import TestEnvironment


@pytest.mark.parametrize("kept_for", ["ROLE long", "DATABASE foreshore"])
async def test_search_path_too_long_for_clients_is_refused_and_does_not_lock_out(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, kept_for: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE ROLE long LOGIN")
    names = ", ".join(f"a{number}" for number in range(30_000))
    keep = f"ALTER {kept_for} SET search_path TO {names}"
    assert 'ERROR 22023: invalid value for parameter "search_path"' in await env.query("a", keep)
    with monkeypatch.context() as patched:  # a value that was kept when there was no bound
        patched.setattr(session_variables, "LONGEST_REPORTED", 1 << 20)
        await env.ran("a", keep)
    session = await env.environment.connect(Startup("long", "foreshore", {}))
    reported = session.news.changed_parameters()
    assert reported["search_path"] == "public"
    assert [each.message for each in session.news.notices()] == [
        'invalid value for parameter "search_path"'
    ]
    await session.close()


async def test_audit_tells_what_happened_for_whom_and_no_secrets(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE ROLE ann LOGIN PASSWORD 'hush'",
        "CREATE TABLE t (x int)",
        "GRANT SELECT ON t TO ann",
        "ALTER ROLE ann PASSWORD 'hush, too'",
        "CREATE TEMPORARY TABLE unseen (x int)",
        "ALTER TABLE t OWNER TO ann",
    )
    await env.ran("a", "BEGIN", "DROP TABLE t", "ROLLBACK")
    events = (
        "SELECT event_type, object_type, details ->> 'name', details ->> 'changed', "
        "details ->> 'grantee', \"user\" FROM mz_catalog.mz_audit_events ORDER BY id"
    )
    told = await env.query("a", events)
    assert told.splitlines() == [
        "create|role|ann|NULL|NULL|foreshore",
        "create|table|t|NULL|NULL|foreshore",
        "grant|table|t|NULL|ann|foreshore",
        'alter|role|ann|["password"]|NULL|foreshore',
        "owner|table|t|NULL|NULL|foreshore",
        "SELECT 5",
    ]
    shown = await env.query("a", "SELECT details FROM mz_catalog.mz_audit_events")
    assert "hush" not in shown
    assert "SCRAM" not in shown
    await env.reopen()
    assert await env.query("a", events) == told


async def test_role_that_changes_during_its_login_gets_no_session(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE ROLE changing LOGIN PASSWORD 'one'")
    for change in (
        ("DROP ROLE changing", "CREATE ROLE changing SUPERUSER LOGIN PASSWORD 'one'"),
        ("ALTER ROLE changing PASSWORD 'two'",),
        ("ALTER ROLE changing RENAME TO another", "CREATE ROLE changing LOGIN"),
        ("DROP ROLE changing",),
    ):
        proven = env.environment.login("changing")
        assert proven is not None
        await env.ran("a", *change)
        with pytest.raises(InvalidAuthorization):
            await env.environment.connect(Startup("changing", "foreshore", {}, login=proven))
    await env.ran("a", "DROP ROLE another")


async def test_activity_shows_no_password(env: TestEnvironment) -> None:
    await env.query("a", "ALTER ROLE nobody PASSWORD 'hush'")
    shown = await env.query("b", "SELECT query FROM pg_stat_activity")
    assert "ALTER ROLE nobody PASSWORD '...'" in shown
    assert "hush" not in shown


async def test_settings_of_roles_and_databases_hold_from_login_on(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE ROLE bob LOGIN",
        "ALTER DATABASE foreshore SET lock_timeout = '1s'",
        "ALTER DATABASE foreshore SET statement_timeout = '10s'",
        "ALTER ROLE bob SET lock_timeout = '2s'",
        "ALTER ROLE bob IN DATABASE foreshore SET extra_float_digits = 2",
        "ALTER ROLE bob SET extra_float_digits = 1",
    )
    begun = await env.environment.connect(Startup("bob", "foreshore", {"statement_timeout": "20s"}))
    try:
        values = [
            begun.variables[name]
            for name in ("lock_timeout", "statement_timeout", "extra_float_digits")
        ]
        assert values == ["2s", "20s", "2"]
        assert begun.role.name == "bob"
    finally:
        await begun.close()
        await env.ran("a", "ALTER DATABASE foreshore RESET ALL", "DROP ROLE bob")


async def test_kept_settings_that_cannot_be_set_are_warned_of(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE ROLE bound LOGIN",
        "CREATE ROLE temporary",
        "GRANT temporary TO bound",
        "CREATE DATABASE closed",
        "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
        "ALTER ROLE bound SET role = 'temporary'",
    )
    begun = await env.environment.connect(Startup("bound", "foreshore", {}))
    assert begun.role.name == "temporary"
    await begun.close()
    await env.ran("a", "DROP ROLE temporary")
    begun = await env.environment.connect(Startup("bound", "foreshore", {}))
    assert begun.role.name == "bound"
    assert [each.message for each in begun.news.notices()] == ['role "temporary" does not exist']
    await begun.close()
    for asked in ({"role": "temporary"}, {"database": "closed"}, {"statement_timeout": "x"}):
        with pytest.raises(DatabaseError):
            await env.environment.connect(Startup("bound", "foreshore", asked))
    await env.ran("a", "DROP DATABASE closed", "DROP ROLE bound")


async def test_roles_keep_no_settings_that_they_may_not_set(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE ROLE humble")
    await env.ran("humble", "SET SESSION AUTHORIZATION humble")
    answer = await env.query("humble", "ALTER ROLE humble SET lc_messages = 'C'")
    assert answer.startswith('ERROR 42501: permission denied to set parameter "lc_messages"')


async def test_counts_of_violations_have_the_owner_of_their_view(env: TestEnvironment) -> None:
    owners = "SELECT relname, pg_get_userbyid(relowner) FROM pg_class WHERE relname ~ '^sound' ORDER BY 1"
    await env.ran(
        "a",
        "CREATE ROLE heir",
        "CREATE TABLE measured (x int)",
        "CREATE MATERIALIZED VIEW sound (x, CONSTRAINT few EXPECT (x < 9)) AS TABLE measured",
        "CREATE INDEX sound_counts ON sound_violations (violations)",
        "ALTER MATERIALIZED VIEW sound OWNER TO heir",
    )
    names = ("sound", "sound_counts", "sound_violations")
    assert await env.query("a", owners) == "".join(f"{each}|heir\n" for each in names) + "SELECT 3"
    await env.ran("a", "DROP TABLE measured CASCADE", "DROP ROLE heir")


async def test_replaced_view_keeps_rights_and_owner(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE ROLE eve",
        "CREATE VIEW kept AS SELECT 1 AS x, 2 AS y",
        "GRANT SELECT ON kept TO eve",
        "GRANT UPDATE (y) ON kept TO eve",
        "CREATE OR REPLACE VIEW kept AS SELECT 1 AS x, 3 AS y, 4 AS z",
    )
    shown = await env.query("a", "SELECT relacl FROM pg_class WHERE relname = 'kept'")
    assert "eve=r/foreshore" in shown
    assert (
        await env.query(
            "a",
            "SELECT has_column_privilege('eve', 'kept', 'y', 'UPDATE'), "
            "has_column_privilege('eve', 'kept', 'x', 'UPDATE')",
        )
        == "t|f\nSELECT 1"
    )


async def test_session_of_dropped_role_creates_nothing(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE ROLE gone LOGIN", "GRANT CREATE ON SCHEMA public TO PUBLIC")
    begun = await env.environment.connect(Startup("gone", "foreshore", {}))
    env.sessions["gone"] = begun
    await env.ran("gone", "BEGIN", "CREATE TEMP TABLE first (x int)")
    await env.ran("a", "DROP ROLE gone")
    refused = "was concurrently dropped"
    assert refused in await env.query("gone", "COMMIT")
    assert refused in await env.query("gone", "CREATE TABLE second (x int)")
    assert refused in await env.query("gone", "CREATE TEMP TABLE third (x int)")
    await env.ran("a", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert "SELECT 0" in await env.query("a", "SELECT * FROM pg_tables WHERE tableowner = 'gone'")


async def test_role_created_anew_and_rolled_back_is_the_former_one(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE ROLE anew", "CREATE TABLE of_anew (x int)")
    await env.ran("a", "GRANT SELECT ON of_anew TO anew")
    await env.ran("b", "SET ROLE anew", "BEGIN", "RESET ROLE", "REVOKE SELECT ON of_anew FROM anew")
    await env.ran("b", "DROP ROLE anew", "CREATE ROLE anew", "SET ROLE anew")
    assert "42501" in await env.query("b", "SELECT * FROM of_anew")
    await env.ran("b", "ROLLBACK")
    assert await env.query("b", "SELECT current_user") == "anew\nSELECT 1"
    assert await env.query("b", "SELECT * FROM of_anew") == "SELECT 0"
    await env.ran("b", "RESET ROLE", "BEGIN", "CREATE ROLE kept", "SET ROLE kept", "COMMIT")
    assert await env.query("b", "SELECT current_user") == "kept\nSELECT 1"
    await env.ran("a", "ALTER ROLE kept RENAME TO renamed")
    assert await env.query("b", "SELECT current_user") == "renamed\nSELECT 1"
    await env.ran("b", "RESET ROLE")
    await env.ran("a", "DROP TABLE of_anew", "DROP ROLE anew, renamed")


MEMBERSHIPS = "SELECT string_agg(r.rolname || ':' || m.rolname, ' ' ORDER BY r.rolname, m.rolname)"
MEMBERSHIPS += " FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid"
MEMBERSHIPS += " JOIN pg_roles m ON m.oid = a.member WHERE r.rolname NOT LIKE 'pg%'"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["GRANT a, b, c TO x, y"], "a:x a:y b:x b:y c:x c:y"),
        (["GRANT a, b, c TO x, y", "REVOKE a, c FROM x, y"], "b:x b:y"),
        (["CREATE ROLE z IN ROLE a, b, c"], "a:z b:z c:z"),
        (["CREATE ROLE z ROLE a, b, c"], "z:a z:b z:c"),
        (["CREATE ROLE z ADMIN a, b ROLE c"], "z:a z:b z:c"),
        (["GRANT a TO b", "GRANT b, c TO x, y", "REVOKE ADMIN OPTION FOR b, c FROM x"], None),
    ],
)
async def test_statement_may_name_several_roles(
    own_env: TestEnvironment, statements: list[str], expected: str | None
) -> None:
    await own_env.ran("s", *[f"CREATE ROLE {name}" for name in "abcxy"], *statements)
    found = (await own_env.query("s", MEMBERSHIPS)).splitlines()[0]
    assert found == (expected or "a:b b:x b:y c:x c:y")


async def test_default_rights_of_other_roles_are_refused_before_schemas_are_looked_up(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran("s", "CREATE ROLE ann LOGIN")
    env.sessions["ann"] = await env.environment.connect(Startup("ann", "foreshore", {}))
    change = "ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA missing GRANT SELECT ON TABLES TO ann"
    refused = await env.query("ann", change.format("foreshore"))
    assert 'ERROR 42501: must be member of role "foreshore"' in refused
    assert "ERROR 3F000" in await env.query("ann", change.format("ann"))
