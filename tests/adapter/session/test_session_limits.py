"""What one session may keep is bounded by settings that only superusers set."""

import pytest

from foreshore.adapter.client import Startup
from foreshore.settings import KEPT
from tests.adapter.harness import TestEnvironment

MOST = 3

# The statements before, one that keeps one more object, and one that gives up one of them.
CASES = {
    "max_listens": ((), "LISTEN c{}", "UNLISTEN c{}"),
    "max_portals": (
        ("BEGIN",),
        "DECLARE c{} CURSOR FOR SELECT 1",
        "CLOSE c{}",
    ),
    "max_prepared_statements": ((), "PREPARE p{} AS SELECT 1", "DEALLOCATE p{}"),
    "max_savepoints": (("BEGIN",), "SAVEPOINT s{}", "RELEASE s{}"),
    "max_temporary_objects": ((), "CREATE TEMP TABLE t{} (a int)", "DROP TABLE t{}"),
}
OTHERS = (
    ("max_listens", ("BEGIN",), "LISTEN c{}"),
    ("max_portals", (), "DECLARE c{} CURSOR WITH HOLD FOR SELECT 1"),
    ("max_temporary_objects", (), "CREATE TEMP VIEW v{} AS SELECT 1 AS a"),
    ("max_temporary_objects", ("BEGIN",), "CREATE TEMP TABLE t{} (a int)"),
)


async def limited(env: TestEnvironment, setting: str) -> None:
    """Open session `small` of a role with this setting."""
    await env.ran("admin", "CREATE ROLE small LOGIN", f"ALTER ROLE small SET {setting} = {MOST}")
    env.sessions["small"] = await env.environment.connect(Startup("small", "foreshore", {}))


def test_every_limit_is_tried() -> None:
    assert CASES.keys() == KEPT.keys()


@pytest.mark.parametrize(
    ("setting", "before", "more"),
    [(name, before, more) for name, (before, more, _) in CASES.items()] + list(OTHERS),
)
async def test_session_may_not_keep_more_than_its_setting(
    own_env: TestEnvironment, setting: str, before: tuple[str, ...], more: str
) -> None:
    env = own_env
    await limited(env, setting)
    await env.ran("small", *before, *(more.format(i) for i in range(MOST)))
    refused = await env.query("small", more.format(MOST))
    assert refused.startswith("ERROR 53400: too many"), refused
    if before:
        await env.query("small", "ROLLBACK")
    assert "ERROR 42501" in await env.query("small", f"SET {setting} = 0")
    await env.ran("admin", *before, *(more.format(i) for i in range(MOST + 1)))


@pytest.mark.parametrize("setting", [name for name, case in CASES.items() if case[2] is not None])
async def test_what_is_given_up_does_not_count(own_env: TestEnvironment, setting: str) -> None:
    before, more, less = CASES[setting]
    assert less is not None
    await limited(own_env, setting)
    await own_env.ran("small", *before)
    for i in range(2 * MOST):
        await own_env.ran("small", more.format(i), less.format(i))


async def test_prepared_statements_and_portals_of_the_protocol_count(
    own_env: TestEnvironment,
) -> None:
    await limited(own_env, "max_prepared_statements")
    session = own_env.sessions["small"]
    for i in range(MOST):
        await session.parse(f"p{i}", "SELECT 1", ())
        await session.parse("", f"SELECT {i}", ())
    with pytest.raises(Exception, match="too many prepared statements"):
        await session.parse("another", "SELECT 1", ())


async def test_texts_of_prepared_statements_are_bounded(own_env: TestEnvironment) -> None:
    await limited(own_env, "max_prepared_statements")
    await own_env.ran("admin", "ALTER ROLE small SET max_prepared_size = '10kB'")
    session = await own_env.environment.connect(Startup("small", "foreshore", {}))
    await session.parse("one", "SELECT 1" + " " * 6000, ())
    with pytest.raises(Exception, match="are too long"):
        await session.parse("two", "SELECT 1" + " " * 6000, ())
