"""Secrets: their values can be read by the process, and are shown to nobody."""

import logging
from pathlib import Path

import pytest

from foreshore.catalog.item import Secret
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.secret_box import SecretBox, WrongKey
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import AlterSecret, CreateSecret
from foreshore.sql.planner import plan_statement
from tests.adapter.harness import TestEnvironment, in_environment
from tests.sql.catalog import TestCatalog

VALUE = "hunter2hunter2"
KEY = bytes(range(32))


def value_of(env: TestEnvironment, name: str) -> bytes:
    coordinator = env.environment.coordinator
    (secret,) = (each for each in coordinator.state.all(Secret) if each.name == name)
    return coordinator.secrets.read(secret.id)


async def refused(env: TestEnvironment, sql: str, sqlstate: str) -> str:
    """Return what a statement says that fails with this SQLSTATE."""
    answer = await env.query("s", sql)
    assert answer.startswith(f"ERROR {sqlstate}: "), (sql, answer)
    return answer


def test_secret_has_its_value_and_shows_it_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario(env: TestEnvironment) -> None:
        env.environment.unlock_secrets(KEY)
        created = await env.query("s", f"CREATE SECRET pw AS '{VALUE}'")
        assert created == "CREATE SECRET"
        assert value_of(env, "pw") == VALUE.encode()
        await env.query("s", r"CREATE SECRET bytes AS '\x00ff'::bytea")
        assert value_of(env, "bytes") == b"\x00\xff"
        await env.query("s", "CREATE SECRET IF NOT EXISTS pw AS 'other'")
        assert value_of(env, "pw") == VALUE.encode()
        shown = [
            await env.query("s", sql)
            for sql in (
                "SHOW SECRETS",
                "SHOW CREATE SECRET pw",
                "SELECT * FROM mz_secrets",
                "SELECT * FROM mz_objects",
                "SELECT query FROM pg_stat_activity",
                "SELECT * FROM mz_audit_events",
            )
        ]
        assert shown[0] == "bytes\npw\nSELECT 2"
        assert "CREATE SECRET" in shown[1]
        await env.query("s", f"ALTER SECRET pw AS '{VALUE[::-1]}'")
        assert value_of(env, "pw") == VALUE[::-1].encode()
        changes = "SELECT details ->> 'changed' FROM mz_audit_events WHERE event_type = 'alter'"
        assert await env.query("s", changes) == '["value"]\nSELECT 1'
        await env.query("s", "ALTER SECRET pw RENAME TO password")
        assert value_of(env, "password") == VALUE[::-1].encode()
        for sql, sqlstate in (
            (f"CREATE SECRET password AS '{VALUE}'", "42710"),
            (f"CREATE SECRET x AS '{VALUE}'::int", "22023"),
            (f"CREATE SECRET x AS lower('{VALUE}') || now()", "22023"),
            (f"CREATE SECRET x AS (SELECT '{VALUE}')", "22023"),
            (f"CREATE SECRET x AS decode('{VALUE}', 'hex')", "22023"),
            (f"CREATE SECRET nowhere.x AS '{VALUE}'", "3F000"),
            (f"ALTER SECRET missing AS '{VALUE}'", "42704"),
            ("CREATE SECRET x AS 5", "22023"),
        ):
            shown.append(await refused(env, sql, sqlstate))
        told = "\n".join(shown) + caplog.text
        assert VALUE not in told
        assert VALUE[::-1] not in told
        await env.query("s", "DROP SECRET password, bytes")
        await refused(env, "DROP SECRET password", "42704")
        assert await env.query("s", "SELECT name FROM mz_secrets") == "SELECT 0"

    in_environment(tmp_path, scenario)


def test_secret_is_encrypted_in_the_catalog_and_bound_to_its_key(tmp_path: Path) -> None:
    async def create(env: TestEnvironment) -> None:
        env.environment.unlock_secrets(KEY)
        await env.query("s", "CREATE SCHEMA other")
        await env.query("s", f"CREATE SECRET other.pw AS '{VALUE}'")
        error = await refused(env, "DROP SCHEMA other", "2BP01")
        assert "secret pw depends on schema other" in error

    async def read(env: TestEnvironment) -> None:
        await refused(env, "CREATE SECRET x AS 'x'", "55000")
        env.environment.unlock_secrets(KEY)
        assert value_of(env, "pw") == VALUE.encode()
        env.environment.unlock_secrets(KEY[::-1])
        with pytest.raises(
            ObjectNotInPrerequisiteState, match='secret "pw" cannot be read with the key'
        ):
            value_of(env, "pw")
        await env.query("s", "DROP SCHEMA other CASCADE")
        assert await env.query("s", "SELECT name FROM mz_secrets") == "SELECT 0"

    in_environment(tmp_path, create)
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert not any(VALUE.encode() in each.read_bytes() for each in files)
    in_environment(tmp_path, read)


def test_role_without_rights_neither_creates_nor_changes_secrets(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        env.environment.unlock_secrets(KEY)
        await env.query("s", f"CREATE SECRET pw AS '{VALUE}'")
        await env.query("s", "CREATE ROLE nobody")
        await env.query("s", "SET ROLE nobody")
        for sql in ("CREATE SECRET mine AS 'x'", "ALTER SECRET pw AS 'x'"):
            await refused(env, sql, "42501")
        assert value_of(env, "pw") == VALUE.encode()

    in_environment(tmp_path, scenario)


def test_drop_owned_leaves_rights_on_secrets_of_other_databases(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        env.environment.unlock_secrets(KEY)
        await env.ran("s", "CREATE ROLE user_of_both", "CREATE DATABASE there")
        for database in ("foreshore", "there"):
            await env.ran(
                "s",
                f"SET database = {database}",
                f"CREATE SECRET pw AS '{VALUE}'",
                "GRANT USAGE ON SECRET pw TO user_of_both",
            )
        await env.ran("s", "SET database = foreshore", "DROP OWNED BY user_of_both")
        error = await refused(env, "DROP ROLE user_of_both", "2BP01")
        assert "1 object in database there" in error
        await env.ran("s", "SET database = there", "DROP OWNED BY user_of_both")
        await env.ran("s", "DROP ROLE user_of_both")

    in_environment(tmp_path, scenario)


def test_sealed_value_belongs_to_its_object() -> None:
    box = SecretBox(KEY)
    sealed = box.seal(b"value", "x1")
    assert box.open(sealed, "x1") == b"value"
    assert box.seal(b"value", "x1") != sealed
    changed = sealed[:-6] + ("A" if sealed[-6] != "A" else "B") + sealed[-5:]
    for text, id in ((sealed, "x2"), (changed, "x1"), ("1:", "x1"), ("1:%", "x1")):
        with pytest.raises(WrongKey):
            box.open(text, id)


def test_plan_does_not_show_the_value() -> None:
    for sql, plan in (("CREATE", CreateSecret), ("ALTER", AlterSecret)):
        found = plan_statement(parse(f"{sql} SECRET a AS '{VALUE}'")[0], TestCatalog())
        assert isinstance(found, plan)
        assert VALUE not in repr(found)
