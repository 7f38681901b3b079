"""Views on views: a view is planned from its own text, and expanded where it is read."""

import re
from pathlib import Path
from time import thread_time

import pytest

from foreshore.adapter.session.planner import SessionPlanner
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import walk_relations
from foreshore.sql import view_expansion
from foreshore.view_over import ViewOver
from tests.adapter.harness import TestEnvironment, in_environment

SHAPES = {
    "columns": "SELECT a, b + 1 AS b FROM {}",
    "rows": "SELECT a, b FROM {} WHERE b > 0",
    "groups": "SELECT a, sum(b)::int AS b FROM {} GROUP BY a",
    "join": "SELECT v.a, t.b FROM {} AS v JOIN t USING (a)",
    "two uses": "SELECT x.a, y.b FROM {0} AS x LEFT JOIN (SELECT a, max(b) AS b FROM {0} AS z GROUP BY a)"
    " AS y USING (a)",
    "subquery": "SELECT a, b FROM {} WHERE a IN (SELECT a FROM t)",
    "with": "WITH q AS MATERIALIZED (SELECT a, sum(b)::int AS b FROM {} GROUP BY a)"
    " SELECT q.a, r.b FROM q JOIN q AS r USING (a)",
    "recursion": "WITH RECURSIVE c AS (SELECT a, b FROM {} UNION SELECT a, b - 1 FROM c WHERE b > 9)"
    " SELECT a, max(b) AS b FROM c GROUP BY a",
    "union": "SELECT a, b FROM {} EXCEPT SELECT 99, 99",
    "first": "SELECT a, b FROM {} ORDER BY a LIMIT 3",
    "window": "SELECT a, (b + 0 * rank() OVER (ORDER BY a))::int AS b FROM {}",
}


def parts(env: TestEnvironment, name: str) -> int:
    """Return how many nodes the plan of a view itself has."""
    catalog = env.environment.coordinator.catalog
    (item,) = (each for each in catalog.state.items() if each.name == name)
    body = catalog.planned[item.id].body
    assert body is not None
    return len(list(walk_relations(body)))


@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "recursion"])
def test_plan_of_view_does_not_grow_with_stack(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded: list[object] = []

    def expand(view: ViewOver) -> Relation:
        expanded.append(view)
        return real(view)

    real = view_expansion.expand
    monkeypatch.setattr(view_expansion, "expand", expand)

    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE TABLE t (a int, b int)")
        for number in range(4):
            over = f"v{number - 1}" if number else "t"
            await env.ran("s", f"CREATE VIEW v{number} AS {SHAPES[shape].format(over)}")
        assert parts(env, "v3") == parts(env, "v1")
        assert not expanded
        await env.ran("s", "SELECT * FROM v3")
        assert expanded

    in_environment(tmp_path, scenario)


@pytest.mark.parametrize(
    "below",
    [
        "columns",
        "with",
        "recursion",
        *(
            pytest.param(each, marks=pytest.mark.full)
            for each in SHAPES
            if each not in ("columns", "with", "recursion")
        ),
    ],
)
def test_view_on_view_returns_rows_of_query_with_view_put_in(below: str, tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE TABLE t (a int, b int)")
        await env.ran("s", "INSERT INTO t VALUES (1, 10), (1, 11), (2, 20), (3, 30), (4, 0)")
        inner, order = SHAPES[below].format("t"), "ORDER BY 1, 2"
        await env.ran("s", f"CREATE VIEW below AS {inner}")
        for shape, outer in SHAPES.items():
            is_named = "{} AS" in outer or "{0} AS" in outer
            apart = re.sub(r"\bc\b", "d", inner)  # else a recursion would seem to read itself
            put_in = f"({apart})" + ("" if is_named else " AS below")
            await env.ran("s", f"CREATE VIEW top AS {outer.format('below')}")
            wanted = await env.ran("s", f"SELECT * FROM ({outer.format(put_in)}) AS r {order}")
            assert await env.ran("s", f"SELECT * FROM top {order}") == wanted, shape
            await env.ran("s", "DROP VIEW top")

    in_environment(tmp_path, scenario)


def test_view_follows_what_is_changed_below_it(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE TABLE t (a int NOT NULL, b int)",
            "INSERT INTO t VALUES (1, 10), (2, 20)",
            "CREATE VIEW v AS SELECT a, b FROM t",
            "CREATE VIEW w AS SELECT a AS x, b FROM v",
            "CREATE VIEW top AS SELECT x, b FROM w WHERE x > 0",
        )
        read = "SELECT * FROM top ORDER BY 1"
        assert await env.query("s", read) == "1|10\n2|20\nSELECT 2"
        await env.ran("s", "CREATE OR REPLACE VIEW v AS SELECT a, b + 1 AS b, 7 AS more FROM t")
        assert await env.query("s", read) == "1|11\n2|21\nSELECT 2"
        await env.ran("s", "ALTER TABLE t ADD COLUMN c int", "ALTER TABLE t RENAME b TO d")
        assert await env.query("s", read) == "1|11\n2|21\nSELECT 2"
        await env.ran("s", "ALTER VIEW w RENAME COLUMN x TO y", "ALTER VIEW v RENAME TO u")
        assert await env.query("s", read) == "1|11\n2|21\nSELECT 2"
        assert "42703" in await env.query("s", "SELECT x FROM w")
        await env.reopen()
        assert await env.query("s", read) == "1|11\n2|21\nSELECT 2"
        await env.ran("s", "CREATE INDEX ON w (y)", "CREATE MATERIALIZED VIEW m AS TABLE top")
        assert await env.query("s", read.replace("top", "m")) == "1|11\n2|21\nSELECT 2"
        await env.ran("s", "INSERT INTO t VALUES (3, 30)")
        assert await env.query("s", read.replace("top", "m")) == "1|11\n2|21\n3|31\nSELECT 3"

    in_environment(tmp_path, scenario)


def test_view_made_in_transaction_reads_its_writes(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE TABLE t (a int)",
            "CREATE MATERIALIZED VIEW m AS SELECT a FROM t",
            "CREATE VIEW v AS SELECT a FROM m",
        )
        await env.query("s", "BEGIN; INSERT INTO t VALUES (1)")
        await env.query("s", "CREATE VIEW w AS SELECT a + 1 AS a FROM v")
        assert await env.query("s", "SELECT * FROM w") == "2\nSELECT 1\nT"
        await env.query("s", "COMMIT")
        assert await env.query("s", "SELECT * FROM w") == "2\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_volatile_calls_are_made_for_each_use_of_view(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE VIEW v AS SELECT random() AS a",
            "CREATE VIEW w AS SELECT x.a = y.a AS same FROM v AS x, v AS y",
        )
        assert await env.query("s", "SELECT * FROM w") == "f\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_zone_of_reader_counts_in_whole_stack(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE TABLE t (at timestamptz)",
            "INSERT INTO t VALUES ('2024-01-01 00:00Z')",
            "CREATE VIEW v AS SELECT at::timestamp AS at FROM t",
            "CREATE VIEW w AS SELECT extract(hour FROM at) AS h FROM v",
            "CREATE VIEW top AS SELECT h FROM w",
        )
        assert (await env.ran("s", "SELECT h::int FROM top")).startswith("0\n")
        await env.ran("s", "SET timezone = 'Asia/Tokyo'")
        assert (await env.ran("s", "SELECT h::int FROM top")).startswith("9\n")

    in_environment(tmp_path, scenario)


def test_policies_count_for_who_reads_stack(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "s",
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (1), (2)",
            "CREATE ROLE reader LOGIN",
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY p ON t USING (a = 1)",
            "CREATE VIEW v WITH (security_invoker = true) AS SELECT a FROM t",
            "CREATE VIEW w WITH (security_invoker = true) AS SELECT a FROM v",
            "GRANT SELECT ON t, v, w TO reader",
        )
        assert await env.query("s", "SELECT * FROM w ORDER BY 1") == "1\n2\nSELECT 2"
        await env.ran("s", "SET ROLE reader")
        assert await env.query("s", "SELECT * FROM w ORDER BY 1") == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_too_deep_stack_is_refused_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_expansion, "MAX_LEVELS", 5)

    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE TABLE v0 (a int)", "INSERT INTO v0 VALUES (1)")
        for i in range(1, 9):
            await env.ran("s", f"CREATE VIEW v{i} AS SELECT a + 1 AS a FROM v{i - 1}")
        refused = await env.query("s", "SELECT * FROM v8")
        assert refused.startswith("ERROR 54001: stack depth limit exceeded"), refused
        for i in (3, 6, 8):  # whatever has been expanded before
            found = await env.query("s", f"SELECT * FROM v{i}")
            wanted = f"{i + 1}\nSELECT 1" if i < 6 else "ERROR 54001"
            assert found.startswith(wanted), (i, found)

    in_environment(tmp_path, scenario)


@pytest.mark.full
@pytest.mark.parametrize("shape", ["columns", "rows", "groups", "join"])
def test_creation_on_400_views_costs_no_more_than_on_few(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []
    plan, verify = SessionPlanner._prepare, SessionPlanner.verify_sql_round_trip

    def timed_plan(self: SessionPlanner, *args: object) -> None:
        began = thread_time()
        plan(self, *args)  # type: ignore[arg-type]
        seconds.append(thread_time() - began)

    def timed_verify(self: SessionPlanner, *args: object) -> None:
        began = thread_time()
        verify(self, *args)  # type: ignore[arg-type]
        seconds[-1] += thread_time() - began

    monkeypatch.setattr(SessionPlanner, "_prepare", timed_plan)
    monkeypatch.setattr(SessionPlanner, "verify_sql_round_trip", timed_verify)

    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int, b int)", alone=False)
        for i in range(401):
            sql = SHAPES[shape].format(f"v{i - 1}" if i else "t")
            answer = await env.query("s", f"CREATE VIEW v{i} AS {sql}", alone=False)
            assert answer == "CREATE VIEW"
        few, many = sorted(seconds[20:60])[20], sorted(seconds[-40:])[20]
        assert many < 2 * few, (few, many)
        assert many < 0.05, (few, many)

    in_environment(tmp_path, scenario)
