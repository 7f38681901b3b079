"""ALTER MATERIALIZED VIEW ... SET (ON ERROR = ...): at one time, with all dependents staying."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

DIVISION = "ERROR 22012: division by zero"
SETUP = (
    "CREATE TABLE t (id int, a int)",
    "INSERT INTO t VALUES (1, 5), (2, 0)",
    "CREATE MATERIALIZED VIEW m AS SELECT id, 10 / a AS x FROM t",
    "CREATE INDEX m_id ON m (id)",
    "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM m",
)
READS = {  # with what they return while rows with errors are skipped
    "SELECT * FROM m": "1|2\nSELECT 1",
    "SELECT x FROM m WHERE id = 1": "2\nSELECT 1",
    "SELECT n FROM above": "1\nSELECT 1",
    "SELECT count(*) FROM m JOIN t USING (id)": "1\nSELECT 1",
}


async def _reads(env: TestEnvironment, *, skips: bool, at: int | None = None) -> None:
    """Assert that all reads, as of a time if given, skip errors or fail."""
    for sql, rows in READS.items():
        if at is None or "id = 1" not in sql:
            when = "" if at is None else f" AS OF {at}"
            wanted = rows if skips else DIVISION
            assert await env.query("r", sql + when) == wanted, (sql + when, skips)


async def _altered(env: TestEnvironment, clause: str) -> int:
    """Alter the policy; return a time before, at which reads are as they were."""
    before = env.environment.coordinator.oracle.read_ts()
    assert await env.ran("s", f"ALTER MATERIALIZED VIEW m {clause}") == "ALTER MATERIALIZED VIEW"
    return before


def test_policy_changes_at_one_time_for_a_view_and_what_is_above_it(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", *SETUP)
        await _reads(env, skips=False)
        failing = await _altered(env, "SET (ON ERROR = SKIP)")
        await _reads(env, skips=True)
        await _reads(env, skips=False, at=failing)
        shown = await env.query("s", "SHOW CREATE MATERIALIZED VIEW m")
        assert "CONSTRAINT ON ERROR SKIP" in shown
        await env.reopen()
        await _reads(env, skips=True)
        await _reads(env, skips=False, at=failing)
        await env.query("f", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE above")
        first = await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
        assert first.split("|")[2] == "1\nFETCH 1\nT", first
        skipping = await _altered(env, "RESET (ON ERROR)")
        ended = await env.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
        assert ended.startswith(DIVISION), ended
        await env.query("f", "ROLLBACK")
        await _reads(env, skips=False)
        await env.reopen()
        await _reads(env, skips=True, at=skipping)
        await _reads(env, skips=False, at=failing)
        await _reads(env, skips=False)
        await _altered(env, "SET (on_error = skip)")
        await env.ran("s", "UPDATE t SET a = 10 WHERE id = 2")
        assert await env.query("r", "SELECT * FROM m ORDER BY id") == "1|2\n2|1\nSELECT 2"
        await _altered(env, "SET (ON ERROR FAIL)")
        assert await env.query("r", "SELECT n FROM above") == "2\nSELECT 1"

    in_environment(tmp_path, scenario, lag_ms=3_600_000)


def test_altered_policy_is_rolled_back_and_refused(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", *SETUP)
        await env.ran("s", "BEGIN; ALTER MATERIALIZED VIEW m SET (ON ERROR = SKIP); ROLLBACK")
        await _reads(env, skips=False)
        twice = ("SET (ON ERROR = SKIP)", "SET (ON ERROR = FAIL)", "SET (ON ERROR = SKIP)")
        altered = "; ".join(f"ALTER MATERIALIZED VIEW m {each}" for each in twice)
        await env.ran("s", f"BEGIN; {altered}; COMMIT")
        await _reads(env, skips=True)
        for sql, error in (
            ("ALTER MATERIALIZED VIEW m SET (ON ERROR = NULL)", "ERROR 0A000"),
            ("ALTER MATERIALIZED VIEW m SET (ON ERROR = OTHER)", "ERROR 42601"),
            ("ALTER MATERIALIZED VIEW x SET (ON ERROR = SKIP)", "ERROR 42P01"),
            ("ALTER VIEW m SET (ON ERROR = SKIP)", "ERROR 0A000"),
        ):
            assert (await env.query("s", sql)).startswith(error), sql
        await env.ran(
            "s",
            "CREATE MATERIALIZED VIEW r AS WITH MUTUALLY RECURSIVE r (x int) AS"
            " (SELECT id FROM t UNION SELECT 10 / x FROM r) SELECT x FROM r",
        )
        refused = await env.query("s", "ALTER MATERIALIZED VIEW r SET (ON ERROR = SKIP)")
        assert refused.startswith("ERROR 0A000: ON ERROR = SKIP of a recursive query"), refused
        await env.ran("s", "CREATE ROLE other")
        await env.ran("o", "SET SESSION AUTHORIZATION other")
        refused = await env.query("o", "ALTER MATERIALIZED VIEW m SET (ON ERROR = FAIL)")
        assert refused.startswith("ERROR 42501"), refused

    in_environment(tmp_path, scenario)
