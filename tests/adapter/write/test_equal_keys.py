"""Keys that are equal in SQL are one key, however they are written."""

from __future__ import annotations

import pytest

from tests.adapter.harness import TestEnvironment

# A type, a key, another way to write it, and a key that differs.
EQUAL = [
    ("float8", "0", "-0", "5"),
    ("float8", "NaN", "nan", "5"),
    ("float4", "0", "-0", "5"),
    ("jsonb", "1", "1.0", "5"),
    ("jsonb", '{"a": [1.50]}', '{"a": [1.5]}', "5"),
    ("interval", "1 month", "30 days", "5 days"),
    ("numeric", "1", "1.00", "5"),
    ("bpchar", "x", "x ", "y"),
    ("float8[]", "{0}", "{-0}", "{5}"),
]


@pytest.mark.parametrize(("type", "key", "same", "other"), EQUAL)
@pytest.mark.parametrize("more", ["", ", w"])
async def test_row_with_equal_keys_is_found_once(
    env: TestEnvironment, type: str, key: str, same: str, other: str, more: str
) -> None:
    """A composite key, too."""
    among = f"k IN ('{key}', '{same}', '{key}') {more and 'AND w IN (0, 0)'}"
    matched = f"USING (VALUES ('{same}'::{type})) q(i) ON t.k = q.i {more and 'AND t.w = 0'}"

    async def says(sql: str, expected: str) -> None:
        assert await env.query("s", sql) == expected, sql

    await env.query("s", "DROP TABLE IF EXISTS t")
    await env.query("s", f"CREATE TABLE t (k {type}, w int, v int, PRIMARY KEY (k{more}))")
    for first in (
        f"INSERT INTO t VALUES ('{other}', 0, 5)",
        f"INSERT INTO t SELECT '{other}', 0, 5",
    ):
        await env.query("s", "DELETE FROM t")
        await env.query("s", f"INSERT INTO t VALUES ('{key}', 0, 1)")
        await env.query("s", f"BEGIN; {first}")
        await says(f"SELECT v FROM t WHERE {among}", "1\nSELECT 1\nT")
        await says(f"SELECT v FROM t WHERE {among} FOR UPDATE", "1\nSELECT 1\nT")
        await says(f"UPDATE t SET v = v + 1 WHERE {among} RETURNING v", "2\nUPDATE 1\nT")
        merge = f"MERGE INTO t {matched} WHEN MATCHED THEN UPDATE SET v = v + 1"
        await says(merge, "MERGE 1\nT")
        await says(f"SELECT v FROM t WHERE {among}", "3\nSELECT 1\nT")
        await says("SELECT v FROM t ORDER BY v", "3\n5\nSELECT 2\nT")
        await says("SAVEPOINT a", "SAVEPOINT\nT")
        await says(f"DELETE FROM t WHERE {among}", "DELETE 1\nT")
        await says("ROLLBACK TO a", "ROLLBACK\nT")
        await says(f"DELETE FROM t WHERE {among}", "DELETE 1\nT")
        await says(f"DELETE FROM t WHERE {among}", "DELETE 0\nT")
        await says("COMMIT", "COMMIT")
        await says("SELECT v FROM t", "5\nSELECT 1")
        await env.query("s", f"INSERT INTO t VALUES ('{key}', 0, 7)")
        clash = await env.query("s", f"INSERT INTO t VALUES ('{same}', 0, 8)")
        assert clash.startswith("ERROR 23505"), clash


@pytest.mark.parametrize(("type", "value", "same", "other"), EQUAL)
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
async def test_changes_from_another_table_remove_values_as_they_are_written(
    env: TestEnvironment, type: str, value: str, same: str, other: str, key: str
) -> None:
    """The old row goes, and no row that is merely equal to it."""
    for way in (value, same, other):
        await env.ran("s", "DROP TABLE IF EXISTS t", f"CREATE TABLE t (i int {key}, x {type})")
        await env.ran("s", f"INSERT INTO t SELECT 1, '{way}'")
        many = f"INSERT INTO t SELECT i, '{other}'::{type} FROM generate_series(2, 1500) i"
        await env.ran("s", many)
        await env.ran("s", "UPDATE t SET i = t.i FROM t AS u WHERE u.i = t.i")
        assert await env.query("s", "SELECT count(*) FROM t") == "1500\nSELECT 1"
        await env.ran("s", "DELETE FROM t USING t AS u WHERE u.i = t.i AND t.i > 1")
        expected = await env.query("s", f"SELECT 1, '{way}'::{type}")
        assert await env.query("s", "SELECT * FROM t") == expected


@pytest.mark.parametrize(("type", "value", "same", "other"), EQUAL)
async def test_equal_rows_without_key_change_as_they_are_written(
    env: TestEnvironment, type: str, value: str, same: str, other: str
) -> None:
    texts = [value, same, other, same]
    await env.ran("s", "DROP TABLE IF EXISTS t", f"CREATE TABLE t (i int, x {type})")
    for text in texts:
        await env.ran("s", f"INSERT INTO t VALUES (1, '{text}')")
    once = await env.query("s", "SELECT x::text FROM t ORDER BY 1")
    matched = "MERGE INTO t USING (VALUES (1)) AS v (k) ON i = k WHEN MATCHED THEN"
    for sql, tag in (
        ("UPDATE t SET i = 1 FROM (VALUES (1), (1)) AS v (k) WHERE k = i", "UPDATE 4"),
        (f"{matched} UPDATE SET i = 1", "MERGE 4"),
        ("UPDATE t SET i = 1 WHERE i = 1", "UPDATE 4"),
    ):
        assert await env.query("s", sql) == tag
        assert await env.query("s", "SELECT x::text FROM t ORDER BY 1") == once, sql
    assert await env.query("s", f"{matched} DELETE") == "MERGE 4"
    assert await env.query("s", "SELECT count(*) FROM t") == "0\nSELECT 1"
