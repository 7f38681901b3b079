"""Tables WITH (APPEND ONLY): rows never leave, and views over them know that."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

TABLE = "CREATE TABLE t (k int, v int, PRIMARY KEY (k, v)) WITH (APPEND ONLY)"
VIEW = "CREATE MATERIALIZED VIEW m AS SELECT k, min(v), max(v) FROM t GROUP BY k"
READ = "SELECT * FROM m ORDER BY k"
CHANGES = (
    "DELETE FROM t WHERE k = 7",
    "UPDATE t SET v = 1 WHERE k = 7",
    "TRUNCATE t",
    "INSERT INTO t VALUES (7, 7) ON CONFLICT (k, v) DO UPDATE SET v = 8",
    "MERGE INTO t USING (VALUES (1)) s(k) ON t.k = s.k WHEN MATCHED THEN DELETE",
    "DELETE FROM above",
    "BEGIN; INSERT INTO t VALUES (8, 8); DELETE FROM t WHERE k = 8",
)


def test_rows_of_append_only_tables_never_leave(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", TABLE, "INSERT INTO t VALUES (1, 1), (1, 2), (1, 3), (2, 5)", VIEW)
        await env.ran("s", "CREATE TABLE above (k int PRIMARY KEY)")
        await env.ran("s", "INSERT INTO above VALUES (1)")
        reference = "k int REFERENCES above ON DELETE CASCADE"
        await env.ran("s", f"CREATE TABLE child ({reference}) WITH (APPEND ONLY)")
        await env.ran("s", "INSERT INTO child VALUES (1)")
        for change in CHANGES:
            answer = await env.query("s", change)
            assert "55000" in answer, answer
            assert "append-only table" in answer
            await env.query("s", "ROLLBACK")
        await env.ran("s", "CREATE TABLE w (at timestamp, WATERMARK FOR at AS at)")
        assert "or a watermark" in await env.query("s", "DELETE FROM w")
        assert await env.query("s", "INSERT INTO t VALUES (1, 1) ON CONFLICT DO NOTHING")
        assert await env.query("s", READ) == "1|1|3\n2|5|5\nSELECT 2"
        await env.ran("s", "ALTER TABLE t ADD COLUMN w int DEFAULT 7")
        await env.reopen()
        await env.ran("s", "INSERT INTO t VALUES (1, 0), (2, 6)")
        assert await env.query("s", READ) == "1|0|3\n2|5|6\nSELECT 2"
        explained = await env.query("s", "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW m")
        assert "first and last rows, as the input is monotonic" in explained
        shown = await env.query("s", "SHOW CREATE TABLE t")
        assert "PRIMARY KEY (k, v)) WITH (APPEND ONLY)" in shown

    in_environment(tmp_path, scenario)


def test_options_of_tables_are_said_once(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        for options, code in {
            "(APPEND ONLY, RETAIN HISTORY FOR '1 hour')": "CREATE TABLE",
            "(APPEND ONLY, APPEND ONLY)": "42601",
            "(APPEND)": "42601",
            "(APPEND ONLY, nothing)": "0A000",
        }.items():
            assert code in await env.query("s", f"CREATE TABLE o (k int) WITH {options}")
        shown = await env.query("s", "SHOW CREATE TABLE o")
        assert "WITH (APPEND ONLY, RETAIN HISTORY FOR '01:00:00')" in shown
        temporary = "CREATE TEMP TABLE p (k int) WITH (APPEND ONLY) ON COMMIT DELETE ROWS"
        assert "42P16" in await env.query("s", temporary)

    in_environment(tmp_path, scenario)
