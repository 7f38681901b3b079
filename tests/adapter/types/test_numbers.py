"""Numerics without a scale in tables, maintained views, indexes, and directories of old versions."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foreshore.catalog.item import Item
from foreshore.catalog.reader import Reader
from foreshore.catalog.transaction import Transaction
from tests.adapter.harness import TestEnvironment, in_environment

VALUES = (
    "1.5", "1.50", "2", "2.00", "-1.5", "0.0", "NaN", "Infinity", "-Infinity", "1e30",
    "12345678901234567890.123456789012345678901", "0.00000000000000000000000000012", None,
)  # fmt: skip
VIEWS = {
    "sums": "SELECT g, sum(x) AS s, avg(x) AS a, stddev(x) AS d FROM t GROUP BY g",
    "groups": "SELECT x, count(*) AS n FROM t GROUP BY x",
    "ends": "SELECT g, min(x) AS l, max(x) AS h, count(DISTINCT x) AS n FROM t GROUP BY g",
    "pairs": "SELECT a.id AS i, b.id AS j, a.x AS x FROM t AS a JOIN t AS b ON a.x = b.x",
    "first": "SELECT id, x FROM t ORDER BY x DESC NULLS LAST, id LIMIT 3",
    "parts": "SELECT id, x + 1 AS p, x * x AS q, round(x, 1) AS r FROM t WHERE x > -2",
    "others": "SELECT x FROM t WHERE g = 1 EXCEPT SELECT x FROM t WHERE g = 2",
    "places": "SELECT id, rank() OVER (ORDER BY x) AS r, sum(x) OVER (ORDER BY id) AS s FROM t",
}


async def _rows(env: TestEnvironment, query: str) -> list[str]:
    answer = await env.query("a", query)
    assert "ERROR" not in answer, (query, answer)
    return sorted(answer.split("\n")[:-1])


async def test_views_equal_queries_at_every_time(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE t (id int, g int, x numeric)")
    for name, query in VIEWS.items():
        await env.ran("a", f"CREATE MATERIALIZED VIEW {name} AS {query}")
    choose = random.Random(7)
    for step in range(5):
        for number in range(3):
            value = choose.choice(VALUES)
            shown = "NULL" if value is None else f"'{value}'"
            await env.ran(
                "a", f"INSERT INTO t VALUES ({3 * step + number}, {number % 2 + 1}, {shown})"
            )
        await env.ran("a", f"DELETE FROM t WHERE id = {choose.randrange(3 * step + 3)}")
        for name, query in VIEWS.items():
            assert await _rows(env, f"SELECT * FROM {name}") == await _rows(env, query), (
                step,
                name,
            )


async def test_scales_are_kept(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE k (x numeric PRIMARY KEY)")
    await env.ran("a", "INSERT INTO k VALUES (1.50), (2), ('NaN'), (1e40)")
    answer = await env.query("a", "INSERT INTO k VALUES (1.500)")
    assert answer.startswith("ERROR 23505"), answer
    await env.ran("a", "PREPARE p AS INSERT INTO k VALUES ($1::numeric * 2)", "EXECUTE p(0.10)")
    answer = await env.query("a", "SELECT x FROM k WHERE x = 1.5 OR x < 1 ORDER BY x")
    assert answer == "0.20\n1.50\nSELECT 2"
    answer = await env.query("a", "SELECT 1.5 UNION ALL SELECT 1.50 UNION ALL SELECT 2")
    assert sorted(answer.split("\n")) == ["1.5", "1.50", "2", "SELECT 3"]
    await env.ran("a", "CREATE TABLE c AS SELECT avg(x) AS a, 2.50 AS b FROM k WHERE x < 2")
    assert await env.query("a", "SELECT * FROM c") == "0.85000000000000000000|2.50\nSELECT 1"
    await env.reopen()
    assert await env.query("a", "SELECT x FROM k ORDER BY x LIMIT 2") == "0.20\n1.50\nSELECT 2"


async def test_extremes_of_equal_values_show_the_least(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE e (g int, x numeric, i interval)")
    query = "SELECT g, max(x) a, min(x) b, max(i) c, min(i) d FROM e GROUP BY g"
    await env.ran("a", f"CREATE MATERIALIZED VIEW m AS {query}")
    for x, i in (("1.50", "1 mon"), ("1.5", "29 days 24:00:00"), ("1.500", "30 days")):
        await env.ran("a", f"INSERT INTO e VALUES (1, {x}, '{i}'), (1, -{x}, '-100 days')")
        assert await _rows(env, "SELECT * FROM m") == await _rows(env, query)
    assert await _rows(env, query) == ["1|1.5|-1.5|29 days 24:00:00|-100 days"]


async def test_arrays_and_keys_beside_those_with_a_scale(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE p (x numeric[], y numeric(5, 2)[], z numeric)")
    await env.ran("a", "INSERT INTO p VALUES ('{1.5,NaN}', '{1.5,2}', 2), ('{2.0}', '{2}', 1.5)")
    for query, expected in (
        ("SELECT z FROM p WHERE x = ARRAY[1.50, 'NaN']", ["2"]),
        ("SELECT z FROM p WHERE x = y", ["1.5"]),
        ("SELECT z FROM p WHERE x @> ARRAY[2.0]", ["1.5"]),
        ("SELECT z FROM p WHERE z = ANY (y)", ["2"]),
        ("SELECT x || y FROM p", ["{1.5,NaN,1.50,2.00}", "{2.0,2.00}"]),
        (
            "SELECT x FROM p UNION ALL SELECT y FROM p WHERE z = 2",
            ["{1.5,NaN}", "{1.50,2.00}", "{2.0}"],
        ),
        ("SELECT * FROM (VALUES (1.50), ('NaN'), (2)) AS v", ["1.50", "2", "NaN"]),
        ("SELECT * FROM (VALUES ('1.50'::numeric), ('1e30')) AS v", ["1.50", "1" + 30 * "0"]),
    ):
        assert await _rows(env, query) == expected, query


async def test_foreign_keys_beside_numerics_with_a_scale(env: TestEnvironment) -> None:
    await env.ran("a", "CREATE TABLE parent (x numeric PRIMARY KEY)")
    await env.ran(
        "a", "CREATE TABLE child (x numeric(5, 2) REFERENCES parent, i int REFERENCES parent)"
    )
    await env.ran("a", "INSERT INTO parent VALUES (1.500), (2), ('NaN'), (1e30)")
    await env.ran("a", "INSERT INTO child VALUES (1.5, 2)")
    for statement in (
        "INSERT INTO child VALUES (1.51, NULL)",
        "INSERT INTO child VALUES (NULL, 1)",
        "DELETE FROM parent WHERE x = 1.5",
        "DELETE FROM parent WHERE x = 2",
    ):
        answer = await env.query("a", statement)
        assert answer.startswith("ERROR 23503"), (statement, answer)
    await env.ran("a", "UPDATE parent SET x = 2.000 WHERE x = 2", "DELETE FROM parent WHERE x > 3")
    assert await env.query("a", "SELECT x FROM parent ORDER BY x") == "1.500\n2.000\nSELECT 2"


async def test_too_many_digits_are_refused_where_a_function_has_no_form(
    env: TestEnvironment,
) -> None:
    await env.ran("a", "CREATE TABLE n (x numeric)", "INSERT INTO n VALUES ('NaN')")
    answer = await env.query("a", "SELECT numrange(x, NULL) FROM n")
    assert answer.startswith("ERROR 0A000"), answer


def test_items_of_old_versions_keep_their_numerics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of a version in which numerics had 20 digits after the point."""

    async def as_then(env: TestEnvironment) -> None:
        put = Transaction.put

        def forgetful(self: Transaction, value: Any) -> Any:
            if isinstance(value, Item):
                value = msgspec.structs.replace(value, keeps_digits=msgspec.UNSET)
            return put(self, value)

        with monkeypatch.context() as then:
            then.setattr(Transaction, "put", forgetful)
            then.setattr(Reader, "keeps_digits", False)
            await env.ran("a", "CREATE TABLE t (x numeric, y numeric(5, 2))")
            await env.ran(
                "a", "CREATE MATERIALIZED VIEW v AS SELECT x, sum(x + 1.50) AS s FROM t GROUP BY x"
            )
            await env.ran("a", "INSERT INTO t VALUES (1.50, 1)")
        await env.reopen()
        await env.ran("a", "INSERT INTO t VALUES (2.50, 2)")
        assert await _rows(env, "SELECT * FROM v") == ["1.5|3", "2.5|4"]
        await env.ran("a", "ALTER TABLE t ADD COLUMN z numeric", "UPDATE t SET z = 3.10")
        assert await _rows(env, "SELECT x, z FROM t") == ["1.5|3.1", "2.5|3.1"]
        await env.ran("a", "CREATE TABLE u AS SELECT x FROM t", "INSERT INTO u VALUES (2.50)")
        assert await _rows(env, "SELECT x FROM u") == ["1.5", "2.5", "2.50"]
        await env.reopen()
        assert await _rows(env, "SELECT * FROM v") == ["1.5|3", "2.5|4"]

    in_environment(tmp_path, as_then)
