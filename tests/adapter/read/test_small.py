"""Queries over few stored rows are answered without the cluster's engine, and as it would."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.adapter.read.bound import small
from foreshore.compute.local.small import rows
from foreshore.storage import decoded_files
from foreshore.storage.decoded_files import DecodedFiles, TooLong
from tests.adapter.harness import TestEnvironment

SETUP = (
    "CREATE TABLE a (id int, g int, v numeric(8, 2))",
    "CREATE TABLE b (g int, name text)",
    "INSERT INTO a SELECT i, i % 3, i FROM generate_series(1, 100) AS i",
    "INSERT INTO b VALUES (0, 'zero'), (1, 'one'), (NULL, 'none')",
    "DELETE FROM a WHERE id > 90",
)
QUERIES = {
    "SELECT name, count(*), sum(v) FROM a JOIN b USING (g) GROUP BY name ORDER BY name": (
        "one|30|1335.00\nzero|30|1395.00\nSELECT 2"
    ),
    "SELECT b.name, max(id) FROM b LEFT JOIN a ON a.g = b.g GROUP BY b.name ORDER BY 1": (
        "none|NULL\none|88\nzero|90\nSELECT 3"
    ),
    "SELECT g FROM a EXCEPT SELECT g FROM b": "2\nSELECT 1",
    "SELECT id FROM a ORDER BY v DESC LIMIT 2": "90\n89\nSELECT 2",
    "SELECT count(DISTINCT g), count(*) FILTER (WHERE id > 80) FROM a": "3|10\nSELECT 1",
    "SELECT count(*) FROM a WHERE g IN (SELECT g FROM b WHERE name = 'one')": "30\nSELECT 1",
}


async def test_engine_is_asked_only_for_many_rows_and_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    compute = env.environment.coordinator.compute
    peek = compute.peek
    asked: list[str] = []

    async def counted(cluster: str, request: Any) -> Any:
        asked.append(cluster)
        return await peek(cluster, request)

    monkeypatch.setattr(compute, "peek", counted)
    try:
        for sql in SETUP:
            assert "ERROR" not in await env.query("s", sql)
        asked.clear()
        for sql, expected in QUERIES.items():
            assert await env.query("s", sql) == expected, sql
        assert not asked
        assert await env.query("s", "SELECT sum(1 / (id - 5)) FROM a") == (
            "ERROR 22012: division by zero"
        )
        assert asked
        asked.clear()
        monkeypatch.setattr(small, "FEW_ROWS", 10)
        for sql, expected in QUERIES.items():
            assert await env.query("s", sql) == expected, sql
        assert len(asked) == len(QUERIES)
    finally:
        await env.close()


async def test_cluster_without_replicas_is_refused(tmp_path: Path) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    try:
        await env.query("s", "CREATE TABLE a (id int)")
        await env.query("s", "CREATE CLUSTER c (SIZE 'embedded', REPLICATION FACTOR 0)")
        await env.query("s", "SET cluster = c")
        assert "has no replicas" in await env.query("s", "SELECT count(*) FROM a")
    finally:
        await env.close()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT sum(length(repeat('x', id))) FROM a", "4095"),
        ("SELECT count(*) FROM a, generate_series(1, a.id)", "4095"),
        ("SELECT count(*) FROM a x, a y, a z WHERE x.g = y.g AND y.g = z.g", "81000"),
    ],
)
async def test_what_may_grow_is_left_to_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, expected: str
) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    try:
        for each in SETUP:
            await env.query("s", each)
        monkeypatch.setattr(rows, "MOST_ROWS", 5_000)
        monkeypatch.setattr(
            small, "collected", lambda parts: pytest.fail("it was evaluated in this process")
        )
        assert await env.query("s", sql) == f"{expected}\nSELECT 1"
    finally:
        await env.close()


def test_decoded_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"c": pa.array(range(1000))})
    path = str(tmp_path / "a.parquet")
    pq.write_table(table, path)
    monkeypatch.setattr(decoded_files, "KEPT_BYTES", 3 * table.nbytes)
    files = DecodedFiles()
    first = files.table("0", path)
    assert files.table("0", "is not read again") is first
    for key in range(1, 5):
        assert files.table(str(key), path).equals(table)
    monkeypatch.setattr(decoded_files, "MOST_BYTES", 1000)
    with pytest.raises(TooLong):
        files.table("5", path)
    with pytest.raises(FileNotFoundError):
        files.table("0", str(tmp_path / "it was forgotten"))
