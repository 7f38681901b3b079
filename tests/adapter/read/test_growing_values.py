"""Values that may be much longer than a row under a key are made in a process of their own."""

from typing import Any

import pytest

from foreshore.compute.isolated.engine import IsolatedEngine
from foreshore.expr import held
from tests.adapter.harness import TestEnvironment

SETUP = (
    "DROP TABLE IF EXISTS t",
    "CREATE TABLE t (id int PRIMARY KEY, s text, old text, new text, g int)",
    "CREATE INDEX by_g ON t (g)",
    "INSERT INTO t VALUES (1, 'aba', 'a', 'cd', 7), (2, 'b', 'b', 'c', 8)",
    "INSERT INTO t SELECT 3, repeat('ab', 5000), 'a', repeat('c', 3000), 9",
)
BY_KEY = ("id = {}", "id IN ({0}, -1)", "g = {0} + 6", "id IN (SELECT generate_series({0}, {0}))")


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with each evaluation in a process of its own."""
    begun: list[None] = []
    evaluations = IsolatedEngine.evaluations

    def counting(engine: IsolatedEngine, *args: Any) -> Any:
        begun.append(None)
        return evaluations(engine, *args)

    monkeypatch.setattr(IsolatedEngine, "evaluations", counting)
    return begun


@pytest.mark.parametrize("where", BY_KEY)
async def test_long_values_are_made_elsewhere(
    env: TestEnvironment, isolated: list[None], where: str
) -> None:
    await env.ran("x", *SETUP)
    isolated.clear()
    long, short = where.format(3), where.format(1)
    for sql, expected in (
        (f"SELECT length(repeat(s, 1000000)) FROM t WHERE {short}", "3000000\nSELECT 1"),
        (f"SELECT length(replace(s, old, new)) FROM t WHERE {long}", "15005000\nSELECT 1"),
        (f"SELECT id FROM t WHERE {long} AND length(replace(s, old, new)) > 1", "3\nSELECT 1"),
        (f"UPDATE t SET g = length(repeat(s, 1000000)) WHERE {short} AND g = 7", "UPDATE 1"),
        (f"UPDATE t SET g = 9 + 0 * length(replace(s, old, new)) WHERE {long}", "UPDATE 1"),
        (f"DELETE FROM t WHERE {long} AND length(replace(s, old, new)) > 1", "DELETE 1"),
    ):
        assert await env.ran("x", sql) == expected, sql
        assert isolated, sql
        isolated.clear()
    assert await env.ran("x", "SELECT id, g FROM t ORDER BY id") == "1|3000000\n2|8\nSELECT 2"


GATHERED = {
    "SELECT length(string_agg(s, '')) FROM long": "80002",
    "WITH RECURSIVE r AS (SELECT length(string_agg(s, '')) AS n FROM long UNION SELECT n FROM r)"
    " SELECT n FROM r": "80002",
    "SELECT length(string_agg(s, '')) FROM long, pg_class WHERE relname = 'long'": "80002",
}


@pytest.mark.parametrize("sql", GATHERED)
async def test_much_of_tables_is_gathered_elsewhere(
    env: TestEnvironment, isolated: list[None], monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    """Also if it is the same value, which the table's file has once."""
    monkeypatch.setattr(held, "MUCH", 50_000)
    await env.ran("x", "CREATE TABLE long (s text)")
    await env.ran("x", "INSERT INTO long SELECT repeat('x', 10) FROM generate_series(1, 8000)")
    await env.ran("x", "VACUUM long", "BEGIN", "INSERT INTO long VALUES ('yy')")
    isolated.clear()
    found = await env.ran("x", sql)
    await env.ran("x", "ROLLBACK", "DROP TABLE long")
    assert isolated
    assert found.split("\n")[0] == GATHERED[sql]


@pytest.mark.parametrize("where", BY_KEY)
async def test_short_values_are_made_here(
    env: TestEnvironment, isolated: list[None], where: str
) -> None:
    await env.ran("x", *SETUP)
    isolated.clear()
    short = where.format(1)
    replaced = f"SELECT replace(s, old, new), lpad(s, 5) FROM t WHERE {short}"
    assert await env.ran("x", replaced) == "cdbcd|  aba\nSELECT 1"
    assert await env.ran("x", f"UPDATE t SET s = replace(s, old, new) WHERE {short}") == "UPDATE 1"
    assert await env.ran("x", f"SELECT s FROM t WHERE {short}") == "cdbcd\nSELECT 1"
    assert not isolated


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT count(*) FROM unnest({numbers}::int[])", "20000\nSELECT 1"),
        (
            "SELECT sum(x) FROM unnest({numbers}::int[]::numeric(20,0)[]) AS x",
            "200010000\nSELECT 1",
        ),
        ("SELECT sum(x) FROM generate_series(1, 3000000) AS x", "4500001500000\nSELECT 1"),
        (
            "SELECT g, count(*) FROM t JOIN unnest({numbers}::int[]) AS x ON x = id + 0 * g"
            " WHERE id < 3 GROUP BY g ORDER BY g",
            "7|1\n8|1\nSELECT 2",
        ),
        (
            "UPDATE t SET g = x FROM unnest({numbers}::int[]) AS x WHERE x = id AND id < 3",
            "UPDATE 2",
        ),
    ],
)
async def test_long_arrays_are_read_as_rows(
    env: TestEnvironment, isolated: list[None], sql: str, expected: str
) -> None:
    await env.ran("x", *SETUP)
    isolated.clear()
    numbers = f"'{{{','.join(map(str, range(1, 20_001)))}}}'"
    assert await env.ran("x", sql.format(numbers=numbers)) == expected
    assert not isolated
