"""EXPLAIN in all its forms: of views and indexes, as JSON, with columns by their names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment

OBJECTS = ("MATERIALIZED VIEW m", "INDEX i", "VIEW v")
STAGES = (
    "EXPLAIN {}",
    "EXPLAIN FOR {}",
    "EXPLAIN PLAN FOR {}",
    *(
        f"EXPLAIN {stage} PLAN{form} FOR {{}}"
        for stage in ("RAW", "DECORRELATED", "LOCALLY OPTIMIZED", "OPTIMIZED", "PHYSICAL")
        for form in ("", " AS TEXT", " AS VERBOSE TEXT", " WITH (arity, join implementations)")
    ),
)
STATEMENTS = (
    "SELECT a FROM t",
    "CREATE MATERIALIZED VIEW x AS SELECT a FROM t",
    "CREATE VIEW x AS SELECT a FROM t",
    "CREATE INDEX x ON t (a)",
)
# Plans of queries whose columns have names, also where two inputs share one.
NAMED = {
    "SELECT a FROM t WHERE b = 2": "Project (a)\n  Filter eq(b, 2)\n    Get foreshore.public.t",
    'SELECT "B c" FROM o WHERE "B c" <> \'#0\'': (
        "Filter ne(\"B c\", '#0')\n  Get foreshore.public.o"
    ),
    "SELECT x.a FROM t x JOIN t y ON x.a = y.a": "on=(a#0 = a#1)",
    "SELECT a, count(*) FROM t GROUP BY a": "Reduce group_by=(a) aggregates=[count(*)]",
    "SELECT a, b + 1 AS c FROM t ORDER BY a DESC LIMIT 1": "order_by=[a desc] limit=1",
    "SELECT sum(a) OVER (PARTITION BY b ORDER BY a) FROM t": "partition_by=(b) order_by=[a]",
    "SELECT sum(n), b FROM n GROUP BY b HAVING count(*) > 1": (
        "Project (b, sum(n))\n    Filter gt(count(*), 1::bigint)\n      Reduce group_by=(b)"
    ),
    "SELECT sum(n) / 2 + 1 FROM n": "Map (add<numeric,numeric>(divide<numeric,numeric>(sum(n), 2",
    "SELECT b, avg(n) FROM n GROUP BY b ORDER BY 2": "average<numeric,int8>(sum(n), count(n))",
    "SELECT * FROM (VALUES (1, 2)) v(x, y), t WHERE x = a": "column1",
    "SELECT g FROM t, generate_series(1, a) g": "Project (generate_series)",
}
# The same query at each stage: with subqueries, with joins in their place, optimized.
STAGED = {
    "RAW": "Filter gt(n, 3::numeric) AND any(eq(^b, a))[1]\n    Subquery 1\n      Project (a)",
    "DECORRELATED": "Filter gt(n, 3::numeric)\n        Get foreshore.public.n",
    "LOCALLY OPTIMIZED": "Join on=(b = a)",
    "OPTIMIZED": "Join on=(b = a)",
}


def _kinds(document: object) -> Iterator[str]:
    """Yield the kinds of all nodes of a document."""
    if isinstance(document, list):
        for each in document:
            yield from _kinds(each)
    elif isinstance(document, dict):
        if "Node Type" in document:
            yield document["Node Type"]
        for each in document.values():
            yield from _kinds(each)


async def _made(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE TABLE t (a int, b int)",
        'CREATE TABLE o ("B c" text)',
        "CREATE TABLE n (b int, n numeric(10, 2))",
        "CREATE INDEX i ON t (a, (b + 1))",
        "CREATE VIEW v AS SELECT b, max(a) AS most FROM t GROUP BY b",
        "CREATE MATERIALIZED VIEW m AS SELECT b FROM t WHERE a > 3",
        "CREATE MATERIALIZED VIEW s AS SELECT b, sum(n) FROM n"
        " WHERE n > 3 AND b IN (SELECT a FROM t) GROUP BY b HAVING count(*) > 1",
        "CREATE VIEW w AS SELECT n FROM n WHERE n > 3 AND b IN (SELECT a FROM t)",
        "CREATE INDEX j ON w (n)",
    )


def test_each_stage_of_each_object_is_shown(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _made(env)
        for of in OBJECTS:
            for stage in STAGES:
                shown = await env.ran("a", stage.format(of))
                assert "Get foreshore.public.t" in shown, (of, stage)
        assert "Index by (a, add<int4,int4>(b, 1))\n  Get foreshore.public.t" in (
            await env.ran("a", "EXPLAIN INDEX i")
        )
        assert "Filter gt(a, 3)" in await env.ran("a", "EXPLAIN REPLAN MATERIALIZED VIEW m")
        for sql, error in {
            "EXPLAIN INDEX m": '42809: "m" is not an index',
            "EXPLAIN VIEW nope": '42P01: view "nope" does not exist',
            "EXPLAIN TIMESTAMP FOR INDEX i": "0A000: EXPLAIN TIMESTAMP FOR INDEX is not supported",
            "EXPLAIN OPTIMIZED PLAN AS DOT FOR INDEX i": "0A000: EXPLAIN ... AS DOT",
            "EXPLAIN OPTIMIZED PLAN INDEX i": "42601: syntax error",
        }.items():
            assert (await env.query("a", sql)).startswith(f"ERROR {error}"), sql

    in_environment(tmp_path, scenario)


def test_each_form_is_json(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _made(env)
        forms = [
            f"EXPLAIN {stage} PLAN AS JSON FOR {of}"
            for stage in ("RAW", "DECORRELATED", "OPTIMIZED", "PHYSICAL")
            for of in (*OBJECTS, *STATEMENTS)
        ]
        forms += [f"EXPLAIN AS JSON FOR {of}" for of in (*OBJECTS, *STATEMENTS)]
        for sql in (*forms, "EXPLAIN TIMESTAMP AS JSON FOR SELECT a FROM t"):
            shown = (await env.ran("a", sql)).rpartition("\n")[0]
            (document,) = json.loads(shown)
            assert document.get("Plan", document)  # of a timestamp there is no plan
            assert all(kind.replace(" ", "").isalpha() for kind in _kinds(document)), sql
            assert "foreshore.public." in shown, sql
        shown = await env.ran("a", "EXPLAIN PHYSICAL PLAN AS JSON FOR MATERIALIZED VIEW s")
        (document,) = json.loads(shown.rpartition("\n")[0])
        assert document["Access Path"] == "Materialized view"
        assert document["Plan"]["Node Type"] == "Project"
        assert {*_kinds(document)} >= {"Reduce", "Filter", "Get", "Engine", "Arrangement", "Rows"}
        lines = await env.ran("a", "EXPLAIN AS JSON FOR SELECT * FROM o WHERE \"B c\" = E'x\\n  y'")
        assert "x\\n  y" in lines

    in_environment(tmp_path, scenario)


def test_columns_are_shown_by_their_names(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _made(env)
        for sql, part in NAMED.items():
            assert part in await env.ran("a", f"EXPLAIN {sql}"), sql

    in_environment(tmp_path, scenario)


def test_each_stage_is_that_stage(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _made(env)
        query = "SELECT n FROM n WHERE n > 3 AND b IN (SELECT a FROM t)"
        for stage, part in STAGED.items():
            for of in (query, "INDEX j", *(["VIEW w"] if stage != "OPTIMIZED" else [])):
                shown = await env.ran("a", f"EXPLAIN {stage} PLAN FOR {of}")
                unindented = re.sub("^  ", "", shown, flags=re.MULTILINE)
                assert part in shown or part in unindented, (stage, of, shown)
            shown = await env.ran("a", f"EXPLAIN {stage} PLAN FOR MATERIALIZED VIEW s")
            assert ("Subquery 1" in shown, "Join on" in shown) == (stage == "RAW", stage != "RAW")
        await env.ran("a", "ALTER TABLE n RENAME TO renamed")
        for of in ("MATERIALIZED VIEW s", "INDEX j"):
            assert "Get foreshore.public.renamed" in await env.ran(
                "a", f"EXPLAIN RAW PLAN FOR {of}"
            )
        assert "Get" in await env.ran("a", "EXPLAIN BROKEN PLAN FOR SELECT a FROM t")
        assert "Get" in await env.ran("a", "EXPLAIN RAW PLAN FOR BROKEN SELECT a FROM t")

    in_environment(tmp_path, scenario)


def test_what_is_maintained_names_its_columns(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _made(env)
        for of in ("MATERIALIZED VIEW s", "MATERIALIZED VIEW m", "INDEX j", "SELECT n FROM n, t"):
            shown = await env.ran("a", f"EXPLAIN PHYSICAL PLAN FOR {of}")
            assert re.findall(r"(?<!\w)#\d", shown) == [], shown

    in_environment(tmp_path, scenario)


def test_filter_pushdown_counts_the_parts_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreshore.storage.batch.ROW_GROUP_BYTES", 4_000)

    async def scenario(env: TestEnvironment) -> None:
        await _made(env)
        await env.ran("a", "INSERT INTO t SELECT g, 1 FROM generate_series(1, 1000) g")
        await env.storage._wal.seal()
        await env.storage._compacter.settle()
        counts = {}
        for sql in (
            "SELECT * FROM t",
            "SELECT b FROM t WHERE a > 500",
            "SELECT 1 FROM t WHERE a < 0",
        ):
            shown = await env.ran("a", f"EXPLAIN FILTER PUSHDOWN FOR {sql}")
            name, *numbers = shown.split("\n")[0].split("|")
            counts[sql] = [*map(int, numbers)]
            assert name == "foreshore.public.t"
        whole, half, none = counts.values()
        assert whole[0] == whole[1] > 0
        assert whole[2] == whole[3] >= 2
        assert (half[0], half[2]) == (none[0], none[2]) == (whole[0], whole[2])
        assert 0 < half[1] < half[0]
        assert 0 < half[3] < half[2]
        assert none[1::2] == [0, 0]
        assert "public.n|" in await env.ran("a", "EXPLAIN FILTER PUSHDOWN FOR MATERIALIZED VIEW s")
        await env.ran("a", "CREATE MATERIALIZED VIEW of_now AS SELECT a + 1 AS a FROM t")
        assert "of_now|" in await env.ran("a", "EXPLAIN FILTER PUSHDOWN FOR SELECT * FROM of_now")
        for refused in ("FOR SELECT * FROM t AS OF 5", "AS JSON FOR SELECT * FROM t"):
            answer = await env.query("a", f"EXPLAIN FILTER PUSHDOWN {refused}")
            assert answer.startswith("ERROR 0A000"), answer

    in_environment(tmp_path, scenario)
