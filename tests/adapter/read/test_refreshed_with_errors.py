"""A view with a schedule cannot be read while its rows are those of a refresh that lacked some."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

DIVISION = "ERROR 22012: division by zero"
VIEWS = {
    "nightly": "WITH (REFRESH AT CREATION, REFRESH EVERY '1 day')",
    "lagging": "WITH (TARGET LAG = '1 day')",
}


async def _reads(env: TestEnvironment, expected: str, *, at: str = "") -> None:
    for name in (*VIEWS, "above"):
        found = await env.query("r", f"SELECT n FROM {name}{at}")
        assert found.startswith(expected), (name, found)


def test_errors_of_inputs_last_until_the_next_refresh(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE TABLE t (id int, a int)",
            "INSERT INTO t VALUES (1, 5), (2, 0)",
            "CREATE MATERIALIZED VIEW m AS SELECT id, 10 / a AS x FROM t",
        )
        for name, options in VIEWS.items():
            await env.ran(
                "s", f"CREATE MATERIALIZED VIEW {name} {options} AS SELECT count(*) AS n FROM m"
            )
        await env.ran(
            "s",
            "CREATE MATERIALIZED VIEW above WITH (REFRESH EVERY '1 day') AS SELECT n FROM nightly",
        )
        await _reads(env, DIVISION)
        failed = env.environment.coordinator.oracle.read_ts()
        await env.ran("s", "UPDATE t SET a = 1 WHERE id = 2")
        assert await env.query("r", "SELECT count(*) FROM m") == "2\nSELECT 1"
        await _reads(env, DIVISION)
        # Rows that are skipped are not missed.
        await env.ran("s", "ALTER MATERIALIZED VIEW m SET (ON ERROR = SKIP)")
        await _reads(env, "1\n")
        await env.ran("s", "ALTER MATERIALIZED VIEW m SET (ON ERROR = FAIL)")
        await _reads(env, DIVISION)
        await env.reopen()
        assert (await env.query("r", "SELECT n FROM above")).startswith(DIVISION)
        for name in (*VIEWS, "above"):
            await env.ran("s", f"REFRESH MATERIALIZED VIEW {name}")
        await _reads(env, "2\n")
        await _reads(env, DIVISION, at=f" AS OF {failed}")

    in_environment(tmp_path, scenario, lag_ms=3_600_000)
