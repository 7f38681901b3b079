"""Columns of lake tables that are added, widened, renamed and dropped."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_files import allowed
from tests.adapter.sources.test_lake_tables import Published

deltalake = pytest.importorskip("deltalake")
STATUS = "SELECT status FROM mz_internal.mz_source_statuses"


async def until(env: TestEnvironment, query: str, *expected: str) -> None:
    """Wait until a query has these rows, while the source alters its relation."""
    while True:
        found = await env.query("a", query, alone=False)
        if found.splitlines()[:-1] == list(expected):
            return
        await asyncio.sleep(0.02)


async def test_columns_of_an_iceberg_table_are_followed(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    from pyiceberg.types import LongType

    env, place = own_env, allowed(own_env, tmp_path)
    rows = pa.table({"id": pa.array([1], pa.int32()), "p": ["a"], "q": ["b"]})
    made = Published(place, rows)
    options = "FORMAT iceberg, POLL INTERVAL '10 ms', SCHEMA CHANGES = APPLY"
    await env.ran("a", f"CREATE SOURCE s FROM FILES '{made.path}' ({options})")
    await env.ran("a", "CREATE VIEW v AS SELECT p FROM s")
    await until(env, "SELECT * FROM s", "1|a|b")

    def change(table: Any) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.rename_column("p", "other").delete_column("q").update_column("id", LongType())
        with table.update_schema() as update:
            update.add_column("q", LongType())
        table.append(pa.table({"id": [1 << 40], "other": ["c"], "q": [7]}))

    made.change(change)
    await until(env, "SELECT id, p, q FROM s ORDER BY 1", "1|a|NULL", f"{1 << 40}|c|7")
    assert "bigint" in await env.query("a", "SELECT pg_typeof(q) FROM s LIMIT 1", alone=False)
    await until(env, "SELECT * FROM v ORDER BY 1", "a", "c")
    made.change(lambda table: table.append(pa.table({"id": [2], "other": ["d"], "q": [8]})))
    await until(env, "SELECT p, q FROM s WHERE id = 2", "d|8")
    await until(env, STATUS, "running")


async def test_columns_of_a_delta_table_are_followed(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    table = str(place / "t")
    first = {"id": [1], "n": pa.array([1], pa.decimal128(10, 2)), "at": pa.array([0], pa.date32())}
    deltalake.write_deltalake(table, pa.table(first))
    options = "FORMAT delta, POLL INTERVAL '10 ms', SCHEMA CHANGES = APPLY"
    await env.ran("a", f"CREATE SOURCE s FROM FILES '{table}' ({options})")
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
    await until(env, "SELECT id, n, at FROM v", "1|1|1970-01-01")
    more = pa.table({"id": [2], "note": ["x"]})
    deltalake.write_deltalake(table, more, mode="append", schema_mode="merge")
    await until(env, "SELECT id, note FROM s ORDER BY 1", "1|NULL", "2|x")
    await until(env, "SELECT id, n FROM v ORDER BY 1", "1|1", "2|NULL")
    env.ingest.last.kill()
    more = pa.table({"id": [3], "note": ["y"]})
    deltalake.write_deltalake(table, more, mode="append", schema_mode="merge")
    await until(env, "SELECT id, note FROM s ORDER BY 1", "1|NULL", "2|x", "3|y")
    await until(env, STATUS, "running")
    other = pa.table({"id": ["z"], "note": ["y"]})
    deltalake.write_deltalake(table, other, mode="overwrite", schema_mode="overwrite")
    said = "SELECT status, error LIKE '%column \"n\" was dropped%not applied%v depends%'"
    await until(env, f"{said} FROM mz_internal.mz_source_statuses", "ceased|t")
    assert await env.query("a", "SELECT count(*) FROM s", alone=False) == "3\nSELECT 1"
    await env.query("a", "DROP MATERIALIZED VIEW v", alone=False)
    await until(env, "SELECT * FROM s", "z|y")
    assert "SCHEMA CHANGES = APPLY" in await env.query("a", "SHOW CREATE SOURCE s")
    answer = await env.query("a", f"CREATE SOURCE r (id int8) FROM FILES '{table}' ({options})")
    assert "ERROR 22023" in answer
