"""CREATE SOURCE ... FROM PYTHON ... OVER a view that fails."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_memo import MODULE, reaches


async def test_source_begins_when_its_failing_input_is_mended(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env = own_env
    env.environment.let_import([MODULE])
    await env.ran(
        "a",
        "CREATE TABLE t (n int, a int)",
        "INSERT INTO t VALUES (1, 1), (2, 0)",
        "CREATE MATERIALIZED VIEW q AS SELECT n / a AS n FROM t",
        f"CREATE SOURCE s (answer text NOT NULL) FROM PYTHON '{MODULE}:answer'"
        f" (calls '{tmp_path / 'calls'}') OVER q",
    )
    status = "SELECT status, error FROM mz_internal.mz_source_statuses"
    stalled = (
        "the rows of the source cannot be read: materialized view public.q cannot be read for an"
        " error in its data (22012): see mz_internal.mz_view_errors"
    )
    await reaches(env, status, f"stalled|{stalled}")
    await env.ran("a", "UPDATE t SET a = 1")
    await reaches(env, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM s", "1 2")
    await env.ran("a", "INSERT INTO t VALUES (3, 1)")
    await reaches(env, "SELECT string_agg(n::text, ' ' ORDER BY n) FROM s", "1 2 3")
