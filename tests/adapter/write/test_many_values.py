"""VALUES with many rows that are not constants: numbered in order, all or none."""

import pytest

from tests.adapter.harness import TestEnvironment

SETUP = "CREATE TABLE t (k serial PRIMARY KEY, v int, w text CHECK (w <> 'bad'))"


@pytest.mark.parametrize("count", [1, 200, 300, 5000])
async def test_many_values_are_numbered_in_order(own_env: TestEnvironment, count: int) -> None:
    await own_env.query("s", SETUP)
    rows = ", ".join(f"({i} + length(current_user), current_user)" for i in range(count))
    told = await own_env.query("s", f"INSERT INTO t (v, w) VALUES {rows} RETURNING k, v - 9, w")
    expected = [f"{i + 1}|{i}|foreshore" for i in range(count)]
    assert told.splitlines() == [*expected, f"INSERT 0 {count}"]
    rows = ", ".join(f"({i + 1}, length(current_user))" for i in range(count + 1))
    upsert = f"INSERT INTO t (k, v) VALUES {rows} ON CONFLICT (k) DO UPDATE SET v = excluded.k"
    assert await own_env.query("s", upsert) == f"INSERT 0 {count + 1}"
    told = await own_env.query("s", "SELECT count(*), count(w), min(v - k), max(v - k) FROM t")
    low, high = sorted((0, 8 - count))  # of what is new
    assert told == f"{count + 1}|{count}|{low}|{high}\nSELECT 1"


@pytest.mark.parametrize("count", [10, 1000])
async def test_invalid_row_fails_whole_insert(own_env: TestEnvironment, count: int) -> None:
    await own_env.query("s", SETUP)
    for last, told in (
        ("1 / (length(current_user) - 9), ''", "division by zero"),
        ("1, replace(current_user, 'foreshore', 'bad')", "violates check constraint"),
        ("1, NULL), (1, current_user::int::text", "invalid input syntax for type integer"),
    ):
        rows = ", ".join([*["(length(current_user), current_user)"] * count, f"({last})"])
        said = await own_env.query("s", f"INSERT INTO t (v, w) VALUES {rows}", alone=False)
        assert told in said, said
    assert await own_env.query("s", "SELECT count(*) FROM t") == "0\nSELECT 1"
