"""What one session may keep is bounded by settings that only superusers set."""

from collections.abc import Callable

import pytest

from foreshore.adapter.client import Startup
from foreshore.session_limits import SessionLimitExceeded
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
        await session.extended.parse(f"p{i}", "SELECT 1", ())
        await session.extended.parse("", f"SELECT {i}", ())
    with pytest.raises(Exception, match="too many prepared statements"):
        await session.extended.parse("another", "SELECT 1", ())


TEXT = "x" * 6000
KEEPERS: dict[str, Callable[[int], tuple[str, ...]]] = {
    "a prepared statement": lambda i: (f"PREPARE p{i} AS SELECT '{TEXT}'",),
    "a setting": lambda i: (f"SET app.s{i} = '{TEXT}'",),
    "a setting of PostgreSQL": lambda i: (f"SET search_path = '{TEXT[:5990]}'",),
    "settings that savepoints keep": lambda i: (
        *(() if i else ("BEGIN",)),
        f"SET app.s = '{TEXT}'",
        f"SAVEPOINT s{i}",
    ),
    "a cursor": lambda i: (f"DECLARE c{i} CURSOR WITH HOLD FOR SELECT '{TEXT}'",),
}


async def sized(env: TestEnvironment, size: str) -> None:
    await env.ran(
        "admin", "CREATE ROLE small LOGIN", f"ALTER ROLE small SET max_session_size = {size}"
    )
    env.sessions["small"] = await env.environment.connect(Startup("small", "foreshore", {}))


@pytest.mark.parametrize("one", list(KEEPERS))
@pytest.mark.parametrize("other", list(KEEPERS))
async def test_what_a_session_keeps_is_bounded_in_all(
    own_env: TestEnvironment, one: str, other: str
) -> None:
    await sized(own_env, "'10kB'")
    await own_env.ran("small", *KEEPERS[one](0))
    if one == other == "a setting of PostgreSQL":  # it replaces the former one
        return
    for sql in KEEPERS[other](1):
        if sql.startswith("SAVEPOINT"):
            continue
        refused = await own_env.query("small", sql)
        assert refused.startswith("ERROR 53400: this session keeps too much"), refused
    await own_env.query("small", "ROLLBACK")
    await own_env.ran("small", "DISCARD ALL", *KEEPERS[other](0))


# What is assigned again and again in one transaction, and has gone as often.
REPLACED: dict[str, tuple[str, ...]] = {
    "local values": (f"SET LOCAL app.s = '{TEXT}'",),
    "values of the session": (f"SET app.s = '{TEXT}'",),
    "both": (f"SET app.s = '{TEXT}'", f"SET LOCAL app.t = '{TEXT[:4096]}'"),
    "values by a function": (f"SELECT set_config('app.s', '{TEXT}', true)",),
    "values that are reset": (f"SET LOCAL app.s = '{TEXT}'", "RESET app.s"),
    "savepoints that are released": (
        "SAVEPOINT s",
        f"SET LOCAL app.s = '{TEXT}'",
        "RELEASE s",
    ),
    "savepoints that are returned to": (
        "SAVEPOINT s",
        f"SET LOCAL app.s = '{TEXT}'",
        "ROLLBACK TO s",
    ),
}


@pytest.mark.parametrize("kind", list(REPLACED))
async def test_replaced_settings_do_not_count(own_env: TestEnvironment, kind: str) -> None:
    await sized(own_env, "'18kB'")  # three texts; one stays until the commit
    await own_env.ran("small", "BEGIN")
    for _ in range(5):
        await own_env.ran("small", *REPLACED[kind])
    await own_env.ran("small", "COMMIT")


async def test_settings_that_savepoints_keep_count_until_the_end(own_env: TestEnvironment) -> None:
    await sized(own_env, "'16kB'")
    for _ in range(3):
        await own_env.ran("small", "BEGIN", "SAVEPOINT a")
        for name in ("b", "c"):  # the same text would be kept once
            await own_env.ran("small", f"SET LOCAL app.s = '{TEXT}{name}'", f"SAVEPOINT {name}")
        refused = await own_env.query("small", f"SET LOCAL app.s = '{TEXT}d'")
        assert refused.startswith("ERROR 53400"), refused
        await own_env.ran("small", "ROLLBACK TO b", f"SET LOCAL app.s = '{TEXT}e'", "COMMIT")


async def test_arguments_of_portals_are_bounded(own_env: TestEnvironment) -> None:
    await sized(own_env, "'10kB'")
    session = own_env.sessions["small"]
    await session.extended.parse("s", "SELECT $1::text", ())
    await session.extended.bind("one", "s", (TEXT,), (), len(TEXT))
    for _ in range(3):
        await session.extended.bind("", "s", (TEXT,), (), len(TEXT))
    with pytest.raises(SessionLimitExceeded):
        await session.extended.bind("two", "s", (TEXT,), (), len(TEXT))
    await session.extended.close_portal("one")
    await session.extended.bind("two", "s", (TEXT,), (), len(TEXT))


async def test_session_without_a_limit_keeps_all(own_env: TestEnvironment) -> None:
    await sized(own_env, "0")
    for make in KEEPERS.values():
        await own_env.ran("small", *make(0), *make(1), "COMMIT")


@pytest.mark.parametrize("before", [(), ("BEGIN",)])
async def test_channel_that_is_listened_to_may_be_listened_to_again(
    own_env: TestEnvironment, before: tuple[str, ...]
) -> None:
    await limited(own_env, "max_listens")
    await own_env.ran("small", *before, *(f"LISTEN c{i}" for i in range(MOST)), "LISTEN c0")
