"""Delta tables that a sink looks after: few files, a short log, and small rewrites by buckets."""

from pathlib import Path

import deltalake
import pytest

from foreshore.storage.export.files import delta_upkeep
from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import delta_rows
from tests.adapter.sources.test_files import reaches


def small_files(place: Path) -> int:
    return len(deltalake.DeltaTable(str(place)).file_uris())


@pytest.mark.full
async def test_small_files_are_merged_and_the_source_reads_nothing_again(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int)")
    into = f"INTO DELTA (URL '{place}/t', RETENTION '1 h') MODE APPEND"
    await env.ran("a", f"CREATE SINK s FROM t {into} WITH (COMMIT INTERVAL '1 ms')")
    source = f"CREATE SOURCE r FROM FILES '{place}/t' (FORMAT delta, POLL INTERVAL '10 ms')"
    await env.ran("a", source)
    for number in range(40):
        await env.ran("a", f"INSERT INTO t VALUES ({number})", "WAIT FOR SINKS s")
    assert small_files(place / "t") < 20
    history = deltalake.DeltaTable(str(place / "t")).history()
    assert "OPTIMIZE" in {each["operation"] for each in history}
    await reaches(env, "SELECT count(*), count(DISTINCT k) FROM r", "40|40")
    shown = await env.query("a", "SHOW CREATE SINK s")
    assert "RETENTION = '3600000 ms'" in shown


async def test_a_merge_rewrites_the_buckets_of_its_keys_only(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int, s text, v text, PRIMARY KEY (k, s))")
    await env.ran("a", "INSERT INTO t SELECT i, 'a', 'old' FROM generate_series(1, 500) i")
    into = f"INTO DELTA (URL '{place}/t', PARTITION BY 'bucket(32, k)')"
    await env.ran("a", f"CREATE SINK out FROM t {into}", "WAIT FOR SINKS out")
    before = set(deltalake.DeltaTable(str(place / "t")).file_uris())
    await env.ran("a", "UPDATE t SET v = 'new' WHERE k = 7", "WAIT FOR SINKS out")
    after = set(deltalake.DeltaTable(str(place / "t")).file_uris())
    assert len(before) == 32
    assert len(before - after) == 1
    await env.ran("a", "DELETE FROM t WHERE k = 7", "INSERT INTO t VALUES (501, 'b', 'x')")
    await env.ran("a", "WAIT FOR SINKS out")
    found = {row[:3] for row in delta_rows(place / "t")}
    assert found == {*((k, "a", "old") for k in range(1, 501) if k != 7), (501, "b", "x")}
    answer = await env.query(
        "a", f"CREATE SINK x FROM t INTO DELTA (URL '{place}/x', PARTITION BY 'bucket(4, v)')"
    )
    assert 'column "v" is not in the key' in answer


async def test_a_table_keeps_its_buckets_whatever_another_sink_says(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int UNIQUE NULLS NOT DISTINCT, v text)")
    await env.ran("a", "INSERT INTO t SELECT nullif(i, 9), 'old' FROM generate_series(1, 50) i")
    into = f"CREATE SINK {{}} FROM t INTO DELTA (URL '{place}/t'{{}}) KEY (k)"
    parted = ", PARTITION BY 'bucket({}, k)'".format
    await env.ran("a", into.format("s", parted(32)), "WAIT FOR SINKS s", "DROP SINK s")
    answer = await env.query("a", into.format("s", parted(4)))
    assert 'ERROR 22023: the Delta table has bucket(32, "k") instead of bucket(4, "k")' in answer
    before = {*delta_rows(place / "t")}
    for number, more in enumerate(("", parted(32))):
        sink = f"s{number}"
        await env.ran("a", into.format(sink, more), f"WAIT FOR SINKS {sink}")
        assert {*delta_rows(place / "t")} == before
        await env.ran("a", f"UPDATE t SET v = '{sink}' WHERE k IS NULL OR k = 3")
        await env.ran("a", f"WAIT FOR SINKS {sink}", f"DROP SINK {sink}")
        rows = delta_rows(place / "t")
        assert len(rows) == 50
        assert {row[0] for row in rows if row[1] == sink} == {None, 3}
        before = {*rows}
    answer = await env.query("a", into.format("s", "").replace("KEY (k)", "ENVELOPE APPEND"))
    assert 'no column "mz_timestamp"' in answer


def test_files_and_versions_older_than_the_retention_are_removed(tmp_path: Path) -> None:
    import pyarrow as pa

    place = str(tmp_path / "t")
    schema = deltalake.Schema.from_arrow(pa.schema([("k", pa.int32())]))
    kept = delta_upkeep.kept_properties(0) | {delta_upkeep.OLD_FILES: "interval 0 seconds"}
    table = deltalake.DeltaTable.create(place, schema, configuration=kept)
    upkeep = delta_upkeep.DeltaUpkeep(clock=iter(range(0, 10**9, 10**6)).__next__)
    for number in range(delta_upkeep.COMMITS * 2):
        deltalake.write_deltalake(
            table, pa.table({"k": pa.array([number], pa.int32())}), mode="append"
        )
        upkeep.after_commit(table)
    live = {Path(each).name for each in table.file_uris()}
    assert {file.name for file in Path(place).glob("*.parquet")} == live
    assert table.to_pyarrow_table().num_rows == delta_upkeep.COMMITS * 2
