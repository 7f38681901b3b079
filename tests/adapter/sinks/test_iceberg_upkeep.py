"""Iceberg tables that a sink looks after: snapshots expire, with the files that only they had."""

from pathlib import Path

import pytest

from foreshore.storage.export.files import iceberg_upkeep
from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, reading
from tests.adapter.sources.test_files import reaches
from tests.iceberg_catalog import IcebergCatalog

ICEBERG = "ICEBERG CATALOG CONNECTION c (NAMESPACE 'n', TABLE 't', LOCAL FILES, RETENTION '1 ms')"


@pytest.mark.full
async def test_old_snapshots_expire_with_the_files_that_only_they_had(
    own_env: TestEnvironment,
    catalog: IcebergCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iceberg_upkeep, "COMMITS", 8)
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v int)", "INSERT INTO t VALUES (0, 0)")
    await env.ran("a", f"CREATE SINK s FROM t INTO {ICEBERG} WITH (COMMIT INTERVAL '1 ms')")
    await env.ran("a", "WAIT FOR SINKS s", f"CREATE SOURCE r {reading('t')}")
    await reaches(env, "SELECT k, v FROM r", "0|0")
    for number in range(1, 25):
        await env.ran("a", f"UPDATE t SET v = {number}", "WAIT FOR SINKS s")
    table = catalog.tables.load_table("n.t")
    assert len(table.snapshots()) <= 8
    named = {each["file_path"] for each in table.inspect.all_files().to_pylist()}
    there = {f"file://{file}" for file in (tmp_path / "lake").rglob("*.parquet")}
    assert {each.removeprefix("file://") for each in named} == {
        each.removeprefix("file://") for each in there
    }
    lists = {Path(each.manifest_list.removeprefix("file://")) for each in table.snapshots()}
    assert lists == set((tmp_path / "lake").rglob("snap-*.avro"))
    await reaches(env, "SELECT k, v FROM r", "0|24")
