"""Errors in the data of a view name the view, whichever way they are read."""

from pathlib import Path

import pytest

from foreshore.adapter.introspection.failing_views import for_state
from foreshore.errors import DatabaseError, DataError
from tests.adapter.harness import TestEnvironment, in_environment, told

SETUP = (
    "CREATE SCHEMA s",
    "CREATE TABLE t (id int, a int)",
    "INSERT INTO t VALUES (1, 5), (2, 0)",
    "CREATE MATERIALIZED VIEW s.m AS SELECT id, 10 / a AS x FROM t",
    "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM s.m",
    "CREATE VIEW v AS SELECT id, 10 / a AS x FROM t",
    "CREATE INDEX v_id ON v (id)",
)
OF_M = "The error is in the data of materialized view s.m."
OF_V = "The error is in the data of view public.v."


async def _failure(env: TestEnvironment, sql: str) -> DatabaseError:
    """Return the error of a statement, as the client gets it."""
    session = await env.session("r")
    try:
        async for execution in session.simple(sql):
            await told(execution)
    except DatabaseError as error:
        shown = session.explained(error)
        await session.fail(shown)
        return shown
    raise AssertionError(f"{sql} did not fail")


def test_error_of_a_read_names_the_view_that_has_it(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", *SETUP)
        for sql, detail in (
            ("SELECT * FROM s.m", OF_M),
            ("SELECT * FROM s.m WHERE id = 1", OF_M),
            ("SELECT n FROM above", OF_M),
            ("SELECT count(*) FROM s.m JOIN t USING (id)", OF_M),
            ("SUBSCRIBE s.m", OF_M),
            ("SUBSCRIBE (SELECT sum(n) FROM above)", OF_M),
            *[("SELECT * FROM v WHERE id = 1", OF_V)] * 20,  # of a replica, then of a mirror
            ("SELECT * FROM v", OF_V),
            ("SELECT count(*) FROM v JOIN t USING (id)", OF_V),
            ("SUBSCRIBE v", OF_V),
        ):
            error = await _failure(env, sql)
            assert (error.sqlstate, error.message) == ("22012", "division by zero"), sql
            assert error.detail == detail, sql
            assert error.hint is not None, sql
            assert "mz_internal.mz_view_errors" in error.hint, sql
            skips = "ALTER MATERIALIZED VIEW s.m SET (ON ERROR = SKIP)" in error.hint
            assert skips == (detail == OF_M), sql
        own = await _failure(env, "SELECT 10 / a FROM t")  # it is of the query
        assert (own.detail, own.hint) == (None, None)
        with pytest.raises(DataError) as found:
            await env.environment.coordinator.compute.maintained.check_errors(
                [item.id for item in env.environment.coordinator.state.items() if item.name == "m"],
                env.environment.coordinator.oracle.read_ts(),
            )
        of_state = for_state(env.environment.coordinator, found.value)
        assert of_state.message == (
            "materialized view s.m cannot be read for an error in its data (22012):"
            " see mz_internal.mz_view_errors"
        )
        past = env.environment.coordinator.oracle.read_ts()
        await env.ran("s", "DELETE FROM t WHERE a = 0", "SELECT * FROM s.m")
        error = await _failure(env, f"SELECT * FROM s.m AS OF {past}")
        assert error.detail == OF_M
        assert error.hint is not None
        assert "mz_internal.mz_materialized_view_errors" in error.hint

    in_environment(tmp_path, scenario)
