"""FAILING_ROWS finds the rows of a view's inputs for which its expressions fail."""

from __future__ import annotations

from tests.adapter.harness import TestEnvironment

SETUP = (
    "CREATE TABLE t (id int, a text, note text)",
    "INSERT INTO t VALUES (1, '5', NULL), (2, '0', 'none'), (3, 'x', 'what'), (4, '0', 'none')",
    "CREATE TABLE u (id int, b int)",
    "INSERT INTO u VALUES (1, 0), (2, 0), (2, 1)",
    "CREATE MATERIALIZED VIEW m AS SELECT id, 10 / a::int AS x FROM t WHERE id < 4",
    "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM m",
    "CREATE VIEW v AS SELECT id + 1 AS y FROM t WHERE a::int > 0",
    "CREATE MATERIALIZED VIEW joined AS SELECT t.id, 7 / b AS q FROM t JOIN u USING (id)",
    "CREATE MATERIALIZED VIEW sums AS SELECT id, 7 / sum(b) AS s FROM u GROUP BY id",
)


async def _found(env: TestEnvironment, view: str) -> list[str]:
    rows = await env.ran("a", f"SELECT * FROM failing_rows({view}) ORDER BY row::text, error")
    return rows.splitlines()[:-1]


async def test_rows_are_found_with_all_columns_of_their_relation(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", *SETUP)
    zero = 'public.t|22012|division by zero|{"a": "0", "id": 2, "note": "none"}'
    text = (
        'public.t|22P02|invalid input syntax for type integer: "x"'
        '|{"a": "x", "id": 3, "note": "what"}'
    )
    assert await _found(env, "m") == [zero, text]
    assert await _found(env, "v") == [text]
    await env.ran("a", "ALTER MATERIALIZED VIEW m SET (ON ERROR = SKIP)")
    assert await _found(env, "m") == [zero, text]
    assert await _found(env, "above") == []
    counted = "SELECT f.error, count(*) FROM FAILING_ROWS(public.m) f WHERE f.row ->> 'id' = '2'"
    assert await env.query("a", f"{counted} GROUP BY 1") == "division by zero|1\nSELECT 1"
    await env.ran("a", "UPDATE t SET a = '1'")
    assert await _found(env, "m") == []


async def test_rows_of_joins_and_groups_have_the_columns_that_are_known(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran("a", *SETUP)
    rows = await _found(env, "joined")
    assert len(rows) == 2, rows
    assert {row.split("|")[2] for row in rows} == {"division by zero"}
    assert all('"u.b": 0' in row or '"b": 0' in row for row in rows), rows
    assert await _found(env, "sums") == ['public.u|22012|division by zero|{"id": 1}']


async def test_reading_failing_rows_needs_the_rights_on_what_the_view_reads(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    await env.ran("a", *SETUP, "CREATE ROLE r", "GRANT SELECT ON m TO r")
    await env.ran("r", "SET SESSION AUTHORIZATION r")
    refused = await env.query("r", "SELECT * FROM failing_rows(m)")
    assert refused == "ERROR 42501: permission denied for table t"
    await env.ran("a", "GRANT SELECT ON t TO r")
    assert await env.ran("r", "SELECT id FROM (SELECT row -> 'id' AS id FROM failing_rows(m)) f")
    await env.ran("a", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    for sql, error in (
        ("SELECT * FROM failing_rows(m)", "0A000"),
        ("SELECT * FROM failing_rows(t)", "42"),
        ("SELECT * FROM failing_rows(1)", "42883"),
        ("SELECT * FROM failing_rows(nothing)", "42P01"),
    ):
        assert f"ERROR {error}" in await env.query("r", sql), sql
    in_view = await env.query("a", "CREATE VIEW w AS SELECT * FROM failing_rows(m)")
    assert in_view.startswith("ERROR 0A000"), in_view
    assert "HINT: Use it in the query that reads the view." in in_view
    recursive = "WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT 6 / n FROM r WHERE n < 3)"
    await env.ran("a", f"CREATE VIEW rounds AS {recursive} SELECT n FROM r")
    refused = await env.query("a", "SELECT * FROM failing_rows(rounds)")
    assert refused.startswith("ERROR 0A000: FAILING_ROWS of a recursive query"), refused
    assert "HINT: Compute what may fail in a view that the recursion reads" in refused


async def test_rows_are_found_through_failing_views_below(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        *SETUP,
        "INSERT INTO t VALUES (0, '20', 'zero')",
        "CREATE MATERIALIZED VIEW inverse AS SELECT id, 7 / x AS y FROM m",
        "CREATE MATERIALIZED VIEW pairs AS SELECT a.y FROM inverse a JOIN m b USING (id)",
        "CREATE MATERIALIZED VIEW top AS SELECT count(*) AS n FROM pairs",
    )
    zero = 'public.t|22012|division by zero|{"a": "0", "id": 2, "note": "none"}'
    text = (
        'public.t|22P02|invalid input syntax for type integer: "x"'
        '|{"a": "x", "id": 3, "note": "what"}'
    )
    own = 'public.m|22012|division by zero|{"x": 0, "id": 0}'
    assert await _found(env, "above") == [zero, text]
    for view in ("inverse", "pairs", "top"):
        assert await _found(env, view) == [zero, text, own], view
    await env.ran("a", "ALTER MATERIALIZED VIEW m SET (ON ERROR = SKIP)")
    assert await _found(env, "top") == [own]
    await env.ran("a", "ALTER MATERIALIZED VIEW inverse SET (ON ERROR = SKIP)")
    assert await _found(env, "top") == []
    assert await _found(env, "inverse") == [own]
    await env.ran(
        "a",
        "ALTER MATERIALIZED VIEW m RESET (ON ERROR)",
        "CREATE MATERIALIZED VIEW daily WITH (REFRESH EVERY '1000 days') AS SELECT x FROM m",
        "CREATE MATERIALIZED VIEW over_daily AS SELECT 1 / x AS z FROM daily",
    )
    refused = await env.query("a", "SELECT * FROM failing_rows(over_daily)")
    assert refused == "ERROR 22012: division by zero"  # of `m`, at the last refresh
    await env.ran("a", "UPDATE t SET a = '1' WHERE id IN (2, 3)")
    await env.ran("a", "REFRESH MATERIALIZED VIEW daily")
    assert await _found(env, "over_daily") == ['public.daily|22012|division by zero|{"x": 0}']
