"""Recursions whose base and steps find rows by keys give the rows that columns give."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from foreshore.adapter.plans.row_read import RowRead
from foreshore.adapter.session import planner
from tests.adapter.harness import TestEnvironment

TABLES = (
    "DROP TABLE IF EXISTS staff, links",
    "CREATE TABLE staff (id int PRIMARY KEY, boss int, name text)",
    "CREATE INDEX staff_boss ON staff (boss)",
    "CREATE TABLE links (a int, b int, PRIMARY KEY (a, b))",
    "INSERT INTO staff SELECT i, CASE WHEN i > 1 THEN i / 3 END, 'n' || i FROM"
    " generate_series(1, 90) i",
)
QUERIES = (
    "WITH RECURSIVE w AS (SELECT * FROM staff WHERE id = $1 UNION ALL SELECT s.* FROM staff s"
    " JOIN w ON s.id = w.boss) SELECT * FROM w ORDER BY id",
    "WITH RECURSIVE w (id, depth, path) AS (SELECT id, 0, ARRAY[id] FROM staff WHERE id = $1"
    " UNION ALL SELECT s.id, depth + 1, path || s.id FROM staff s JOIN w ON s.boss = w.id WHERE"
    " depth < 3) SELECT w.*, name FROM w JOIN staff USING (id) ORDER BY path",
    "WITH RECURSIVE w (n) AS (SELECT $1::int UNION SELECT b FROM links JOIN w ON a = n)"
    " SELECT count(*), min(n), max(n) FROM w",
    "WITH RECURSIVE w (n) AS (SELECT b FROM links WHERE a = $1 UNION SELECT b FROM links JOIN w"
    " ON a = n), v (n) AS (SELECT n FROM w UNION ALL SELECT n - 50 FROM v WHERE n > 50)"
    " SELECT n FROM v ORDER BY n LIMIT 7",
    "WITH RECURSIVE w AS (SELECT id, boss, name FROM staff WHERE id = $1 UNION ALL SELECT s.id,"
    " s.boss, w.name || '<' || s.name FROM staff s JOIN w ON s.id = w.boss WHERE 60 / s.id < 60)"
    " SELECT name FROM w ORDER BY length(name) DESC LIMIT 1",
)


async def answers(env: TestEnvironment, name: str) -> list[str]:
    found = []
    for query in QUERIES:
        await env.ran(name, f"PREPARE p (int) AS {query}")
        for value in ("7", "1", "40", "NULL", "99"):
            found.append(await env.query(name, f"EXECUTE p ({value})"))
        await env.ran(
            name,
            "BEGIN",
            "UPDATE staff SET boss = 2 WHERE id = 40",
            "INSERT INTO links VALUES (7, 1), (40, 7) ON CONFLICT DO NOTHING",
        )
        found.append(await env.query(name, "EXECUTE p (40)"))
        await env.ran(name, "ROLLBACK", "DEALLOCATE p")
    return found


async def test_rows_are_those_of_columns(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(1)
    links = {(chosen.randrange(90), chosen.randrange(90)) for _ in range(120)}
    values = ", ".join(map(str, sorted(links)))
    await env.ran("w", *TABLES, f"INSERT INTO links VALUES {values}")
    count = 0
    results = RowRead._results

    def noted(read: RowRead, *args: Any) -> Mapping[Any, Any] | None:
        nonlocal count
        found = results(read, *args)
        count += found is not None
        return found

    with monkeypatch.context() as patch:
        patch.setattr(RowRead, "_results", noted)
        by_rows = await answers(env, "rows")
    assert count >= 6 * len(QUERIES) - 4
    with monkeypatch.context() as patch:
        patch.setattr(planner, "plan_optional_read", lambda peek, planned: None)
        await env.ran("w", "CREATE TABLE IF NOT EXISTS another (k int)")  # plans are made anew
        assert await answers(env, "columns") == by_rows


async def test_recursion_without_end_is_left_to_columns(env: TestEnvironment) -> None:
    await env.ran("w", *TABLES, "INSERT INTO links VALUES (1, 2), (2, 1)")
    query = (
        "WITH RECURSIVE w (n) AS (SELECT b FROM links WHERE a = 1 UNION ALL SELECT b FROM links"
        " JOIN w ON a = n) SELECT n FROM w LIMIT 3"
    )
    assert (await env.query("s", query)).split() == ["2", "1", "2", "SELECT", "3"]


async def test_row_read_by_step_conflicts_with_later_change(env: TestEnvironment) -> None:
    for key, refused in ((2, True), (50, False)):
        await env.ran("w", *TABLES)
        await env.ran("a", "BEGIN ISOLATION LEVEL SERIALIZABLE")
        await env.ran("a", QUERIES[0].replace("$1", "7"), "INSERT INTO links VALUES (3, 3)")
        await env.ran("b", f"UPDATE staff SET name = 'x' WHERE id = {key}")
        assert (await env.query("a", "COMMIT")).startswith("ERROR 40001") is refused
        await env.query("a", "ROLLBACK")
