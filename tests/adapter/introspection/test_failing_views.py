"""Views whose data make reads fail are called failing, with the errors and their rows."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.metrics.scrape import EnvironmentMetrics
from foreshore.compute.replica import reports
from tests.adapter.harness import TestEnvironment, in_environment
from tests.adapter.introspection.test_metrics import values

ERRORS = (
    "SELECT o.name, c.name, sqlstate, error, rows, all_rows FROM mz_internal.mz_view_errors e"
    " JOIN mz_objects o ON o.id = object_id JOIN mz_objects c ON c.id = cause_id"
    " ORDER BY 1, 2, 5 DESC"
)
STATES = (
    "SELECT o.name, state, failure FROM mz_internal.mz_dataflow_statuses d"
    " JOIN mz_objects o ON o.id = d.object_id ORDER BY 1"
)
DIVISION, TEXT = "division by zero", 'invalid input syntax for type integer: "x"'
SETUP = (
    "CREATE TABLE t (id int, a text)",
    "INSERT INTO t VALUES (1, '1'), (2, '0'), (3, '0'), (4, 'x')",
    "CREATE MATERIALIZED VIEW m AS SELECT id, 10 / a::int AS x FROM t",
    "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM m",
    "CREATE VIEW v AS SELECT id, 10 / a::int AS x FROM t",
    "CREATE INDEX v_id ON v (id)",
    "CREATE INDEX v_x ON v (x)",
)


@pytest.fixture(autouse=True)
def _frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "STATUS_SECONDS", 0.05)


async def _until_rows(env: TestEnvironment, sql: str, rows: list[str], session: str = "s") -> None:
    """Wait until a query has these rows."""
    answer: list[str] = []
    try:
        async with asyncio.timeout(30):
            while answer != rows:
                await asyncio.sleep(0.02)
                answer = (await env.query(session, sql)).splitlines()[:-1]
    except TimeoutError:
        raise AssertionError(f"{answer} where {rows} were expected") from None


def test_failing_views_have_a_state_and_their_errors(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", *SETUP)
        await _until_rows(
            env,
            ERRORS,
            [
                f"above|m|22012|{DIVISION}|2|3",
                f"above|m|22P02|{TEXT}|1|3",
                f"m|m|22012|{DIVISION}|2|3",
                f"m|m|22P02|{TEXT}|1|3",
                f"v|v|22012|{DIVISION}|2|3",
                f"v|v|22P02|{TEXT}|1|3",
            ],
        )
        several = f"{DIVISION} and other errors (3 rows)"
        states = [
            f"above|failing|{several}, in m",
            f"m|failing|{several}",
            f"v_id|failing|{several}",
            f"v_x|failing|{several}",
        ]
        await _until_rows(env, STATES, states)
        found = await EnvironmentMetrics(env.environment, 1000).metrics()
        assert values(found, "foreshore_views")["failing"] == 4
        assert values(found, "foreshore_views")["running"] == 0
        assert set(values(found, "foreshore_view_error_rows").values()) == {3}
        assert set(values(found, "foreshore_view_errors").values()) == {1}
        await env.ran("s", "DELETE FROM t WHERE a = '0'")
        await _until_rows(
            env,
            ERRORS,
            [f"above|m|22P02|{TEXT}|1|1", f"m|m|22P02|{TEXT}|1|1", f"v|v|22P02|{TEXT}|1|1"],
        )
        await env.ran("s", "DELETE FROM t WHERE a = 'x'")
        await _until_rows(env, ERRORS, [])
        await _until_rows(
            env, STATES, [f"{name}|running|NULL" for name in ("above", "m", "v_id", "v_x")]
        )

    in_environment(tmp_path, scenario)


def test_errors_are_shown_to_roles_that_may_read_their_view(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", *SETUP, "CREATE ROLE reader", "GRANT SELECT ON above TO reader")
        await _until_rows(env, f"SELECT count(*) FROM ({ERRORS}) e", ["6"])
        await env.ran("r", "SET SESSION AUTHORIZATION reader")
        hidden = [
            "above|m|22012|NULL|2|3",
            "above|m|22P02|NULL|1|3",
            "m|m|22012|NULL|2|3",
            "m|m|22P02|NULL|1|3",
        ]
        of_views = f"SELECT * FROM ({ERRORS}) e (o, c, s, e, n, a) WHERE o <> 'v' ORDER BY o, s"
        assert (await env.query("r", of_views)).splitlines()[:-1] == hidden
        names = ("above", "m", "v_id", "v_x")
        await _until_rows(env, STATES, [f"{name}|failing|NULL" for name in names], "r")
        await env.ran("s", "GRANT SELECT ON m TO reader")
        assert f"m|m|22012|{DIVISION}|2|3" in await env.query("r", of_views)

    in_environment(tmp_path, scenario)


def test_view_that_skips_errors_is_read_without_them_also_after_a_restart(tmp_path: Path) -> None:
    skipped = ["m|m|22012|division by zero|1|1"]

    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE TABLE t (id int, a int)",
            "INSERT INTO t VALUES (1, 5), (2, 0)",
            "CREATE MATERIALIZED VIEW m WITH (ON ERROR = SKIP) AS SELECT id, 10 / a AS x FROM t",
            "CREATE INDEX m_id ON m (id)",
            "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM m",
        )
        await check(env)
        assert "CONSTRAINT ON ERROR SKIP" in await env.query("s", "SHOW CREATE MATERIALIZED VIEW m")
        await env.reopen()
        await check(env)
        await env.ran("s", "UPDATE t SET a = 10 WHERE id = 2")
        assert await env.query("s", "SELECT * FROM m WHERE id = 2") == "2|1\nSELECT 1"
        await _until_rows(env, ERRORS, [])

    async def check(env: TestEnvironment) -> None:
        assert await env.query("s", "SELECT * FROM m") == "1|2\nSELECT 1"
        assert await env.query("s", "SELECT x FROM m WHERE id = 1") == "2\nSELECT 1"
        assert await env.query("s", "SELECT n FROM above") == "1\nSELECT 1"
        await _until_rows(env, ERRORS, skipped)
        running = [f"{name}|running|NULL" for name in ("above", "m", "m_id")]
        await _until_rows(env, STATES, running)
        found = await EnvironmentMetrics(env.environment, 1000).metrics()
        assert set(values(found, "foreshore_view_errors").values()) == {0}
        assert sorted(values(found, "foreshore_view_error_rows").values()) == [0, 0, 1]

    in_environment(tmp_path, scenario)
