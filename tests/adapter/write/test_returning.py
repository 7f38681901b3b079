"""RETURNING computes a list over the written rows and reads nothing else."""

import pytest

from tests.adapter.harness import TestEnvironment


@pytest.mark.parametrize(
    "listed",
    [
        "(SELECT max(n) FROM t)",
        "(SELECT count(*) FROM t AS l WHERE l.n < t.n)",
    ],
)
async def test_subqueries_over_few_rows_are_refused(own_env: TestEnvironment, listed: str) -> None:
    await own_env.ran("a", "CREATE TABLE t (s text, n int)")
    said = await own_env.query("a", f"INSERT INTO t VALUES ('x', 2) RETURNING {listed}")
    assert said.splitlines()[0] == "ERROR 0A000: subqueries in RETURNING are not supported"


async def test_functions_of_much_work_over_columns_are_refused(own_env: TestEnvironment) -> None:
    await own_env.ran("a", "CREATE TABLE t (s text, n int)")
    insert = "INSERT INTO t SELECT 'x', g FROM generate_series(1, 2) AS g RETURNING repeat(s, n)"
    said = await own_env.query("a", insert)
    error = "ERROR 0A000: functions of much work in RETURNING are not supported"
    assert said.splitlines()[0] == error
