"""Functions in Python that RETURN TABLE, in queries and in maintained views."""

from pathlib import Path

import pytest

from foreshore.python_functions.limits import ALLOWED
from tests.adapter.harness import TestEnvironment

WORDS = """CREATE FUNCTION words(line text) RETURNS TABLE (word text, length int, share numeric)
LANGUAGE python IMMUTABLE AS $$
from decimal import Decimal
def words(line):
    if line is None:
        return None
    found = line.split()
    return [(w, len(w), Decimal(len(w)) / Decimal(4)) if w != "-" else
            {"length": None, "share": None, "word": w} for w in found]
$$"""


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "1")


async def test_rows_of_several_columns_in_from(env: TestEnvironment) -> None:
    await env.ran("a", WORDS)
    for query, found in (
        ("SELECT * FROM words('to be -')", "to|2|0.5\nbe|2|0.5\n-|NULL|NULL\nSELECT 3"),
        ("SELECT length + share FROM words('four')", "5\nSELECT 1"),
        ("SELECT w.word FROM words('a b') AS w ORDER BY 1 DESC", "b\na\nSELECT 2"),
        ("SELECT x, n FROM words('a b') WITH ORDINALITY AS w(x, y, z, n)", "a|1\nb|2\nSELECT 2"),
        ("SELECT * FROM words(NULL)", "SELECT 0"),
        (
            "SELECT i, w.word FROM (VALUES (1, 'a b'), (2, ''), (3, 'c')) v(i, line)"
            " CROSS JOIN LATERAL words(v.line) w ORDER BY 1, 2",
            "1|a\n1|b\n3|c\nSELECT 3",
        ),
        (
            "SELECT i, w.word FROM (VALUES (1, 'a'), (2, '')) v(i, line)"
            " LEFT JOIN LATERAL words(v.line) w ON true ORDER BY 1, 2",
            "1|a\n2|NULL\nSELECT 2",
        ),
    ):
        assert await env.query("a", query) == found, query


async def test_rows_in_a_select_list_and_beside_others(env: TestEnvironment) -> None:
    await env.ran("a", WORDS.replace("words", "said"))
    await env.ran(
        "a",
        "CREATE FUNCTION ups(n int) RETURNS SETOF int LANGUAGE python IMMUTABLE AS"
        " 'def ups(n): return range(n)'",
        "CREATE TABLE spoken (id int, line text)",
        "INSERT INTO spoken VALUES (1, 'to be'), (2, ''), (3, NULL), (4, 'x')",
        "CREATE MATERIALIZED VIEW of_spoken AS SELECT id, (said(line)).* FROM spoken",
    )
    for query, found in (
        ("SELECT said('to -')", "(to,2,0.5)\n(-,,)\nSELECT 2"),
        ("SELECT id, (said(line)).word FROM spoken ORDER BY 1, 2", "1|be\n1|to\n4|x\nSELECT 3"),
        ("SELECT * FROM of_spoken ORDER BY 1, 2", "1|be|2|0.5\n1|to|2|0.5\n4|x|1|0.25\nSELECT 3"),
        ("SELECT said('a b'), ups(3)", "(a,1,0.25)|0\n(b,1,0.25)|1\nNULL|2\nSELECT 3"),
        (
            "SELECT * FROM ROWS FROM (said('a b'), ups(3), generate_series(5, 5))"
            " WITH ORDINALITY ORDER BY ordinality",
            "a|1|0.25|0|5|1\nb|1|0.25|1|NULL|2\nNULL|NULL|NULL|2|NULL|3\nSELECT 3",
        ),
        (
            "SELECT id, word, ups FROM spoken, ROWS FROM (said(line), ups(id)) ORDER BY 1, 3",
            "1|to|0\n1|be|NULL\n2|NULL|0\n2|NULL|1\n3|NULL|0\n3|NULL|1\n3|NULL|2\n4|x|0"
            "\n4|NULL|1\n4|NULL|2\n4|NULL|3\nSELECT 11",
        ),
    ):
        assert await env.query("a", query) == found, query
    await env.ran("a", "DELETE FROM spoken WHERE id = 1")
    assert await env.query("a", "TABLE of_spoken") == "4|x|1|0.25\nSELECT 1"
    assert (await env.query("a", "SELECT count(said('a'))")).startswith("ERROR 0A000")


async def test_view_over_lateral_rows_is_maintained(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", WORDS, "CREATE TABLE lines (id int, line text)")
    await env.ran("a", "INSERT INTO lines VALUES (1, 'to be or not to be'), (2, NULL)")
    await env.ran(
        "a",
        "CREATE MATERIALIZED VIEW v AS SELECT id, word, share FROM lines, words(line)",
        "CREATE MATERIALIZED VIEW counts AS SELECT word, count(*) AS n, sum(length) AS length"
        " FROM lines, words(line) GROUP BY word",
    )
    read = "SELECT * FROM counts WHERE n > 1 ORDER BY 1"
    assert await env.query("a", "SELECT count(*), sum(share) FROM v") == "6|3.25\nSELECT 1"
    assert await env.query("a", read) == "be|2|4\nto|2|4\nSELECT 2"
    await env.ran("a", "INSERT INTO lines VALUES (3, 'not now')", "UPDATE lines SET line = 'to to"
                  " to' WHERE id = 2", "DELETE FROM lines WHERE id = 1")  # fmt: skip
    assert await env.query("a", read) == "to|3|6\nSELECT 1"
    assert await env.query("a", "SELECT id, word FROM v WHERE id = 3 ORDER BY 2") == (
        "3|not\n3|now\nSELECT 2"
    )
    await env.reopen()
    await env.ran("a", "DELETE FROM lines")
    assert await env.query("a", "SELECT (SELECT count(*) FROM v), count(*) FROM counts") == (
        "0|0\nSELECT 1"
    )


KINDS = """CREATE FUNCTION kinds(n int) RETURNS TABLE (i int8, f float8, d date, at timestamptz,
 b bytea, u uuid, j jsonb, a int[], t text[], x numeric, v interval, o boolean)
LANGUAGE python IMMUTABLE AS $$
import datetime as dt, uuid
from decimal import Decimal
def kinds(n):
    yield (n, 1.5, dt.date(2020, 2, 29), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), b"\\0a",
           uuid.UUID(int=n), {"a": [n]}, [n, None], ["x", ""], Decimal("1.50"),
           dt.timedelta(days=1, seconds=1), True)
    yield [None] * 12
$$"""


async def test_columns_of_each_kind(env: TestEnvironment) -> None:
    await env.ran("a", KINDS)
    assert await env.query("a", "SELECT * FROM kinds(7)") == (
        "7|1.5|2020-02-29|2020-01-01 00:00:00+00|\\x0061|00000000-0000-0000-0000-000000000007"
        '|{"a": [7]}|{7,NULL}|{x,""}|1.50|1 day 00:00:01|t\n'
        + "|".join(["NULL"] * 12)
        + "\nSELECT 2"
    )


async def test_row_that_does_not_fit_is_an_error(env: TestEnvironment) -> None:
    bad = {
        "(1, 2, 3)": 'ERROR 42804: a row has 3 values, and not 2',
        "{'a': 1}": 'ERROR 42804: a row has no key "b"',
        "5": "ERROR 42804: a value of Python type int is no row",
        "('x', 'y')": "ERROR 42804: a value of Python type str is not of type integer",
        "(1 << 40, 'y')": "ERROR 22003: integer out of range",
    }  # fmt: skip
    for number, (row, error) in enumerate(bad.items()):
        source = f"def bad{number}(n): return [(1, 'x')] if n else [(0, 'y'), {row}]"
        await env.ran(
            "a",
            f"CREATE FUNCTION bad{number}(n int) RETURNS TABLE (a int, b text) LANGUAGE python"
            f" IMMUTABLE AS $${source}$$",
        )
        assert await env.query("a", f"SELECT * FROM bad{number}(1)") == "1|x\nSELECT 1"
        assert await env.query("a", f"SELECT * FROM bad{number}(0)") == error, row


async def test_vectorized_function_returns_lists_of_structs(env: TestEnvironment) -> None:
    source = """
import pyarrow as pa
def pairs(n: pa.Array) -> pa.Array:
    type = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    return pa.array([[{"a": i, "b": str(i)} for i in range(k)] for k in n.to_pylist()], type)
"""
    await env.ran(
        "a",
        "CREATE FUNCTION pairs(n int) RETURNS TABLE (a int, b text) LANGUAGE python IMMUTABLE"
        f" AS $${source}$$",
    )
    query = "SELECT n, a, b FROM generate_series(0, 2) n, pairs(n) ORDER BY 1, 2"
    assert await env.query("a", query) == "1|0|0\n2|0|0\n2|1|1\nSELECT 3"


async def test_one_column_volatile_and_definition(env: TestEnvironment, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    source = (
        f"def ids(n):\n    open('{calls}', 'a').write('x')\n    yield from range(n)\n    yield (n,)"
    )
    create = "CREATE FUNCTION ids(n int) RETURNS TABLE (id int) LANGUAGE python VOLATILE"
    await env.ran("a", f"{create} AS $${source}$$")
    assert await env.query("a", "SELECT * FROM ids(1)") == "0\n1\nSELECT 2"
    assert await env.query("a", "SELECT t.id AS x FROM ids(1) t") == "0\n1\nSELECT 2"
    assert len(calls.read_text()) == 2
    definition = await env.query("a", "SELECT pg_get_functiondef('ids'::regproc)")
    assert "RETURNS TABLE(id integer)" in definition
    await env.ran("a", definition.removesuffix("\nSELECT 1"))
    assert await env.query("a", "SELECT * FROM ids(0)") == "0\nSELECT 1"
