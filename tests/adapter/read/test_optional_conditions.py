"""Conditions that hold if an argument says so find rows by keys unless it does."""

from collections.abc import Callable
from typing import Any

import pytest

from foreshore.adapter.plans.row_read import RowRead
from tests.adapter.harness import TestEnvironment

TABLES = (
    "DROP TABLE IF EXISTS shops",
    "CREATE TABLE shops (id int PRIMARY KEY, city text, owner int, open bool)",
    "CREATE INDEX shops_city ON shops (city)",
    "CREATE INDEX shops_owner ON shops (owner, id)",
    "INSERT INTO shops SELECT i, 'c' || i % 7, i % 5, i % 2 = 0 FROM generate_series(1, 70) i",
)
Left = Callable[[Any, Any], tuple[object, ...]]
# Conditions, what means the same without them, and for which arguments rows are found by keys.
QUERIES: dict[str, tuple[Left, Callable[[Any, Any], bool]]] = {
    "($1 IS NULL OR id = $1) AND ($2::text IS NULL OR city = $2)": (
        lambda a, b: (a is None or f"id = {a}", b is None or f"city = '{b}'"),
        lambda a, b: a is not None or b is not None,
    ),
    "($1 IS NULL OR $1 < 0 OR owner = $1 OR id = $1) AND open": (
        lambda a, b: (a is None or a < 0 or f"(owner = {a} OR id = {a})", "open"),
        lambda a, b: a is not None and a >= 0,
    ),
    "($1 IS NULL OR owner = $1) AND id > 20 AND $2::text IS DISTINCT FROM 'x'": (
        lambda a, b: (a is None or f"owner = {a}", "id > 20", b != "x"),
        lambda a, b: a is not None,
    ),
    "($1 = 0 OR id = 12 / $1)": (
        lambda a, b: (a == 0 or (f"id = {12 // a}" if a and a > 0 else "id IS NULL"),),
        lambda a, b: a != 0,
    ),
}


@pytest.mark.parametrize("condition", QUERIES)
async def test_rows_are_those_of_conditions_that_are_left(
    env: TestEnvironment, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran("w", *TABLES)
    left, is_by_keys = QUERIES[condition]
    answered: list[bool] = []
    rows = RowRead.rows

    def noted(read: RowRead, *args: object) -> object:
        found = rows(read, *args)  # type: ignore[arg-type]
        answered.append(found is not None and read.is_by_keys)
        return found

    name = f"s{[*QUERIES].index(condition)}"
    for ending in ("", " LIMIT 3", " DESC LIMIT 2 OFFSET 1"):
        query = f"SELECT id, city FROM shops WHERE {condition} ORDER BY id{ending}"
        await env.ran(name, f"PREPARE p (int, text) AS {query}")
        for a in (None, 0, 3, 4, -1, 99):
            for b in (None, "c3", "x"):
                kept = " AND ".join(str(each) for each in left(a, b) if each is not True)
                plain = f"SELECT id, city FROM shops WHERE {kept or 'true'} ORDER BY id{ending}"
                wanted = await env.ran(name, plain)
                args = ", ".join("NULL" if e is None else f"'{e}'" for e in (a, b))
                with monkeypatch.context() as patch:
                    patch.setattr(RowRead, "rows", noted)
                    answered.clear()
                    assert await env.query(name, f"EXECUTE p ({args})") == wanted, (plain, args)
                if is_by_keys(a, b):
                    assert answered == [True], args
        await env.ran(name, "DEALLOCATE p")
