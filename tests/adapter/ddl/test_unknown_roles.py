"""A directory of an older version may name what was dropped: readers show it, and do not fail."""

import pytest

from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.dangling import dangling, describe
from foreshore.catalog.forgetting import forget
from foreshore.catalog.role_names import FIRST_UNKNOWN_OID
from foreshore.catalog.state import with_objects
from tests.adapter.ddl.broken_catalog import break_catalog
from tests.adapter.harness import TestEnvironment


async def test_system_relations_show_unknown_roles(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    await break_catalog(env, monkeypatch)
    kinds = {each.reference.kind for each in dangling(env.environment.coordinator.state)}
    assert kinds == {
        "owner",
        "grantee",
        "grantor",
        "role of a membership",
        "grantor of a membership",
        "schema of default privileges",
        "database of settings",
        "network policy",
        "role of a policy",
    }
    with pytest.raises(AssertionError, match="grantee o"):
        await env.environment.coordinator.check_settled()
    await env.reopen()
    failed = {}
    for builtin in BUILTINS.values():
        relation = f'{builtin.schema}."{builtin.name}"'
        answer = await env.query("a", f"SELECT * FROM {relation}", alone=False)
        if "ERROR XX" in answer:
            failed[builtin.name] = answer
    assert not failed
    unknown = await env.ran("a", "SELECT relowner FROM pg_class WHERE relname = 'owned'")
    oid = int(unknown.splitlines()[0])
    assert oid > FIRST_UNKNOWN_OID
    shown = f"SELECT pg_get_userbyid({oid}), relacl FROM pg_class WHERE relname = 'ut'"
    assert f"unknown (OID={oid})|" in await env.ran("a", shown)
    assert f"{oid}=r*/foreshore" in await env.ran("a", shown)
    for sql in (
        "SHOW PRIVILEGES",
        "SHOW DEFAULT PRIVILEGES",
        "SHOW ROLE MEMBERSHIP",
        "SHOW CREATE ALL",
        "SELECT (aclexplode(relacl)).* FROM pg_class",
        "SELECT has_table_privilege('dd', 'ut', 'SELECT')",
        "SELECT * FROM ut",
    ):
        answer = await env.query("a", sql, alone=False)
        assert "ERROR" not in answer, (sql, answer)
    await env.ran("a", "SET ROLE dd", "SELECT count(*) FROM pg_roles")
    refused = await env.query("a", "SELECT * FROM owned_view", alone=False)
    assert refused.startswith("ERROR 42501"), refused


async def test_connection_of_an_unknown_role_can_be_given_to_another(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    await break_catalog(env, monkeypatch)
    await env.reopen()
    env.environment.unlock_secrets(bytes(32))
    export = "CREATE SINK again FROM ut INTO POSTGRES CONNECTION lost (TABLE 't') KEY (a)"
    for sql, error in (
        ("ALTER CONNECTION lost SET (PORT 2)", "ERROR 42704: role with OID 4000"),
        ("VALIDATE CONNECTION lost", "ERROR 08"),
        ("VALIDATE CONNECTION lost (PUBLICATION 'p')", "ERROR 08"),
        ("DROP SINK exported", "DROP SINK"),
        (f"{export} NOT ENFORCED", "ERROR 08"),
        ("ALTER CONNECTION lost OWNER TO dd", "ALTER CONNECTION"),
        ("ALTER CONNECTION lost SET (PORT 2)", "ALTER CONNECTION"),
        ("DROP CONNECTION lost CASCADE", "DROP CONNECTION"),
    ):
        answer = await env.query("a", sql, alone=False)
        assert answer.startswith(error), (sql, answer)


async def test_all_that_can_be_forgotten_is(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await break_catalog(own_env, monkeypatch)
    state = own_env.environment.coordinator.state
    lost = dangling(state)
    gone = {each.reference for each in lost}
    mended = {each.object.id: forget(each.object, gone.__contains__) for each in lost}
    assert not list(map(describe, dangling(with_objects(state, mended))))
