"""ALTER SYSTEM: settings of all sessions, and of the server."""

import pytest

from foreshore.adapter.client import Startup
from foreshore.adapter.coordinator.catalog_commit import FEW_OBJECTS
from foreshore.adapter.introspection.audit_retention import AuditRetention
from foreshore.clock import ManualClock
from tests.adapter.harness import TestEnvironment


async def _begun(env: TestEnvironment, role: str, **asked: str) -> dict[str, str]:
    session = await env.environment.connect(Startup(role, "foreshore", asked))
    try:
        return dict(session.variables)
    finally:
        await session.close()


async def test_settings_of_the_system_are_below_all_others(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE ROLE bob LOGIN",
        "ALTER SYSTEM SET statement_timeout = '10s'",
        "ALTER SYSTEM SET lock_timeout TO 2000",
        "ALTER SYSTEM SET search_path = a, b",
        "ALTER ROLE bob SET lock_timeout = '3s'",
    )
    begun = await _begun(env, "bob", statement_timeout="20s")
    names = ("statement_timeout", "lock_timeout", "search_path")
    assert [begun[each] for each in names] == ["20s", "3s", "a, b"]
    await env.reopen()
    begun = await _begun(env, "foreshore")
    assert [begun[each] for each in names] == ["10s", "2s", "a, b"]
    await env.ran("a", "ALTER SYSTEM RESET lock_timeout")
    assert (await _begun(env, "foreshore"))["lock_timeout"] == "0"
    await env.ran("a", "BEGIN", "ALTER SYSTEM RESET ALL", "ROLLBACK")
    assert (await _begun(env, "foreshore"))["statement_timeout"] == "10s"
    await env.ran("a", "ALTER SYSTEM SET statement_timeout = DEFAULT", "ALTER SYSTEM RESET ALL")
    assert (await _begun(env, "foreshore"))["search_path"] == "public"
    told = "SELECT details ->> 'changed' FROM mz_catalog.mz_audit_events WHERE object_type = "
    answer = await env.query("a", told + "'system' ORDER BY id")
    assert answer.splitlines()[-3:-1] == ['["statement_timeout"]', '["search_path"]']


async def test_only_superusers_set_what_is_for_all(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE ROLE maker LOGIN CREATEROLE CREATEDB",
        "ALTER ROLE maker SET lc_messages = 'C'",
        "ALTER ROLE maker SET lock_timeout = '1s'",
    )
    await env.ran("maker", "SET SESSION AUTHORIZATION maker")
    for sql in (
        "ALTER SYSTEM SET lock_timeout = 1",
        "ALTER SYSTEM RESET ALL",
        "ALTER SYSTEM SET audit_retention = '1d'",
        "ALTER ROLE maker RESET lc_messages",
        "ALTER ROLE maker SET audit_retention = '1d'",
        "SET audit_retention = '1d'",
    ):
        assert "ERROR" in await env.query("maker", sql), sql
    await env.ran("maker", "ALTER ROLE maker RESET ALL")
    kept = "SELECT setconfig FROM pg_db_role_setting"
    assert await env.query("a", kept) == "{lc_messages=C}\nSELECT 1"
    for sql, code in (
        ("ALTER SYSTEM SET nothing = 1", "42704"),
        ("ALTER SYSTEM SET lock_timeout = 'x'", "22023"),
        ("ALTER SYSTEM SET server_version = '16'", "55P02"),
        ("ALTER SYSTEM SET role = 'maker'", "55P02"),
        ("ALTER SYSTEM SET audit_retention = 'x'", "22023"),
    ):
        answer = await env.query("a", sql)
        assert answer.startswith(f"ERROR {code}"), (sql, answer)
    await env.ran("a", "ALTER SYSTEM SET audit_retention = '1d'")
    assert (await _begun(env, "maker"))["audit_retention"] == "1d"


async def test_audit_is_kept_as_long_as_the_system_says(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    coordinator = env.environment.coordinator
    retention, day = AuditRetention(coordinator), 86_400_000
    clock = ManualClock(coordinator.clock.now())
    monkeypatch.setattr(coordinator, "clock", clock)
    await env.ran("a", "CREATE TABLE old (x int)")
    clock.advance(3 * day)
    await env.ran("a", "CREATE TABLE new (x int)")
    names = (
        "SELECT details ->> 'name' FROM mz_catalog.mz_audit_events WHERE object_type = 'table' "
        "ORDER BY id"
    )
    await retention.trim()
    assert await env.query("a", names) == "old\nnew\nSELECT 2", "a year is the default"
    await env.ran("a", "ALTER SYSTEM SET audit_retention = 0")
    clock.advance(400 * day)
    await retention.trim()
    assert await env.query("a", names) == "old\nnew\nSELECT 2", "0 is for ever"
    await env.ran("a", "ALTER SYSTEM SET audit_retention = '402d'")
    await retention.trim()
    assert await env.query("a", names) == "new\nSELECT 1"
    clock.advance(3 * day)
    await retention.trim()
    assert await env.query("a", names) == "SELECT 0"
    changes = "SELECT count(*) FROM mz_catalog.mz_audit_events WHERE object_type = 'system'"
    assert await env.query("a", changes) == "1\nSELECT 1"


async def test_audit_of_many_objects_tells_each(own_env: TestEnvironment) -> None:
    env, count = own_env, FEW_OBJECTS + 8
    await env.ran(
        "a", "CREATE SCHEMA s", *(f"CREATE TYPE s.t{i} AS ENUM ('x')" for i in range(count))
    )
    await env.ran("a", "DROP SCHEMA s CASCADE")
    dropped = "SELECT count(*), count(DISTINCT id) FROM mz_catalog.mz_audit_events WHERE "
    answer = await env.query("a", dropped + "event_type = 'drop' AND object_type = 'type'")
    assert answer == f"{count}|{count}\nSELECT 1"
