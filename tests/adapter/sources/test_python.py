"""CREATE SOURCE ... FROM PYTHON: what a function yields, each row once."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources import yielding

MODULE = "tests.adapter.sources.yielding"


async def reaches(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has this row."""
    while True:
        if (await env.query("a", query)).splitlines()[0] == expected:
            return
        await asyncio.sleep(0.02)


async def test_rows_come_once_over_kills_and_in_all_forms(own_env: TestEnvironment) -> None:
    env = own_env
    env.environment.let_import([MODULE])
    source = f"FROM PYTHON '{MODULE}:numbers' (until 400)"
    created = await env.query("a", f"CREATE SOURCE s (n int8 NOT NULL, doc jsonb) {source}")
    assert created == "CREATE SOURCE"
    await reaches(env, "SELECT error LIKE '%no column \"doc\"' FROM s_errors LIMIT 1", "t")
    await env.ran("a", "DROP SOURCE s", f"CREATE SOURCE s (n int4 NOT NULL) {source}")
    env.ingest.last.kill()
    counted = "SELECT count(*), count(DISTINCT n), max(n) FROM s"
    await reaches(env, counted, "400|400|399")
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SOURCE s", shown)
    await reaches(env, counted, "400|400|399")
    assert await env.query("a", "SELECT * FROM s_progress") == "position|400\nSELECT 1"


async def test_positions_have_parts_and_rows_are_taken_back(own_env: TestEnvironment) -> None:
    env = own_env
    env.environment.let_import([MODULE])
    await env.ran("a", f"CREATE SOURCE s (n int8) FROM PYTHON '{MODULE}:parts'")
    await reaches(env, "SELECT status FROM mz_internal.mz_source_statuses", "finished")
    await reaches(env, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM s", "1 3")
    await reaches(
        env, "SELECT string_agg(part || \"offset\", ' ' ORDER BY 1) FROM s_progress", "a3 b1"
    )


async def test_functions_that_wait_hold_up_no_others(own_env: TestEnvironment) -> None:
    env, many = own_env, min(32, (os.cpu_count() or 1) + 4) + 1  # as many threads asyncio has
    yielding.RELEASED.clear()
    env.environment.let_import([MODULE])
    for number in range(many):
        await env.ran("a", f"CREATE SOURCE w{number} (n int8) FROM PYTHON '{MODULE}:waiting'")
    await env.ran(
        "a", f"CREATE SOURCE s (n int4 NOT NULL) FROM PYTHON '{MODULE}:numbers' (until 9)"
    )
    await reaches(env, "SELECT max(n) FROM s", "9")
    yielding.RELEASED.set()
    for number in range(many):
        await reaches(env, f"SELECT n FROM w{number}", "1")


async def test_a_function_that_fails_is_called_again(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, file = own_env, tmp_path / "on"
    env.environment.let_import([MODULE])
    await env.ran("a", f"CREATE SOURCE s (n int8) FROM PYTHON '{MODULE}:flaky' (file '{file}')")
    status = "SELECT status, error LIKE '%the device is off' FROM mz_internal.mz_source_statuses"
    await reaches(env, status, "stalled|t")
    file.touch()
    await reaches(env, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM s", "1 3")
    await reaches(env, 'SELECT "offset", error LIKE \'%"x"\' FROM s_errors', "2|t")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("(n int8) FROM PYTHON 'os:walk'", "42501"),
        (f"(n int8) FROM PYTHON '{MODULE}:none'", "22023"),
        (f"(n int8) FROM PYTHON '{MODULE}'", "22023"),
        (f"(n int8) FROM PYTHON '{MODULE}:flaky' (flie 'x')", "22023: function"),
        (f"FROM PYTHON '{MODULE}:parts'", "22023"),
        ("FROM MYSQL CONNECTION c", "0A000"),
        ("FROM SQL SERVER CONNECTION c", "0A000"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, source: str, error: str
) -> None:
    env.environment.let_import([MODULE])
    assert f"ERROR {error}" in await env.query("a", f"CREATE SOURCE x {source}")


async def test_only_superusers_call_functions(own_env: TestEnvironment) -> None:
    env = own_env
    env.environment.let_import([MODULE])
    await env.ran("a", "CREATE ROLE r", "GRANT CREATE ON SCHEMA public TO r", "SET ROLE r")
    source = f"CREATE SOURCE s (n int8) FROM PYTHON '{MODULE}:parts'"
    assert "ERROR 42501" in await env.query("a", source)
