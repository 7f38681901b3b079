"""Sinks to Iceberg tables by UPSERT: what a commit writes, and that each reader sees the rows."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.errors import FeatureNotSupported
from foreshore.storage.export.files import iceberg_change
from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, into, reading, until_rows
from tests.adapter.sources.test_files import reaches
from tests.iceberg_catalog import IcebergCatalog

pytest.importorskip("pyiceberg")
pytestmark = pytest.mark.full
SAME = "SELECT (SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE s))"
SAME += " + (SELECT count(*) FROM (TABLE s EXCEPT ALL TABLE t))"


@pytest.fixture
def large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each file count as large."""
    monkeypatch.setattr(iceberg_change, "SMALL_BYTES", 0)


def summary(catalog: IcebergCatalog, name: str = "n.t") -> dict[str, int]:
    """Return the amounts that the newest snapshot of a table has."""
    snapshot = catalog.tables.load_table(name).current_snapshot()
    said = snapshot.summary.additional_properties
    return {key: int(value) for key, value in said.items() if value.isdecimal()}


async def test_few_keys_are_deleted_by_position(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path, large_files: None
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text)")
    await env.ran("a", "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 1000) i")
    await env.ran("a", f"CREATE SINK out FROM t {into('t')}", "WAIT FOR SINKS out")
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    (first,) = catalog.tables.load_table("n.t").scan().plan_files()
    await env.ran("a", "UPDATE t SET v = 'y' WHERE k % 100 = 0", "WAIT FOR SINKS out")
    await env.ran("a", "DELETE FROM t WHERE k = 7", "WAIT FOR SINKS out")
    await reaches(env, SAME, "0")
    tasks = {
        task.file.file_path: task for task in catalog.tables.load_table("n.t").scan().plan_files()
    }
    (deletes,) = tasks[first.file.file_path].delete_files  # one file has all of them
    assert deletes.record_count == 11
    assert summary(catalog)["total-position-deletes"] == 11
    assert len(catalog.rows("n.t")) == 999
    await env.ran("a", "UPDATE t SET v = 'z' WHERE k % 3 = 0", "WAIT FOR SINKS out")
    await reaches(env, SAME, "0")
    paths = [task.file.file_path for task in catalog.tables.load_table("n.t").scan().plan_files()]
    assert first.file.file_path not in paths  # more than a quarter of it: it was rewritten
    assert summary(catalog)["total-position-deletes"] < 20


async def test_a_table_may_want_its_files_rewritten(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path, large_files: None
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    schema = pa.schema({"k": pa.int32()})
    copies = {"write.merge.mode": "copy-on-write"}
    catalog.tables.create_table("n.t", schema, properties=copies)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)")
    await env.ran("a", "INSERT INTO t SELECT generate_series(1, 100)")
    await env.ran("a", f"CREATE SINK out FROM t {into('t')}", "WAIT FOR SINKS out")
    await env.ran("a", "DELETE FROM t WHERE k = 7", "WAIT FOR SINKS out")
    assert summary(catalog)["total-delete-files"] == 0
    assert len(catalog.rows("n.t")) == 99


@pytest.mark.parametrize("partition", [None, "identity", "bucket"])
async def test_random_changes_are_there_whatever_is_rewritten_deleted_or_merged(
    own_env: TestEnvironment,
    catalog: IcebergCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partition: str | None,
) -> None:
    monkeypatch.setattr(iceberg_change, "SMALL_BYTES", 1200)
    monkeypatch.setattr(iceberg_change, "MOST_SMALL", 3)
    env, drawn = await connected(own_env, catalog, tmp_path), random.Random(4)
    table = catalog.tables.create_table("n.t", pa.schema({"k": pa.int32(), "p": pa.string()}))
    if partition is not None:
        partition_by(table, "p", partition)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, p text)")
    await env.ran("a", "INSERT INTO t SELECT i, 'p' || i % 3 FROM generate_series(1, 900) i")
    await env.ran("a", f"CREATE SINK out FROM t {into('t')}", "WAIT FOR SINKS out")
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    for _ in range(25):
        low, wide = drawn.randrange(900), drawn.choice([1, 1, 3, 40])
        await env.ran(
            "a",
            drawn.choice(
                [
                    f"UPDATE t SET p = 'p{drawn.randrange(3)}' WHERE k BETWEEN {low} AND {low + wide}",
                    f"DELETE FROM t WHERE k BETWEEN {low} AND {low + wide}",
                    f"INSERT INTO t SELECT i, NULL FROM generate_series({low}, {low + wide}) i"
                    " ON CONFLICT DO NOTHING",
                ]
            ),
            "WAIT FOR SINKS out",
        )
    await reaches(env, SAME, "0")
    held = (await env.query("a", "SELECT * FROM t")).splitlines()[:-1]
    rows = sorted(
        "|".join("NULL" if x is None else str(x) for x in row) for row in catalog.rows("n.t")
    )
    assert rows == sorted(held)
    assert summary(catalog)["total-position-deletes"] > 0
    manifests = catalog.tables.load_table("n.t").current_snapshot().manifests(table.io)
    assert len(manifests) < 20
    assert summary(catalog)["total-records"] - summary(catalog)["total-position-deletes"] == len(
        rows
    )


def partition_by(table: Any, column: str, transform: str) -> None:
    """Let a table have partitions from here on."""
    from pyiceberg.transforms import parse_transform

    name = {"bucket": "bucket[4]", "truncate": "truncate[3]"}.get(transform, transform)
    with table.update_spec() as update:
        update.add_field(column, parse_transform(name), "part")


@pytest.mark.parametrize(
    ("column", "transform"),
    [
        ("at", "day"),
        ("at", "month"),
        ("d", "year"),
        ("v", "truncate"),
        ("k", "bucket"),
        ("v", "identity"),
    ],
)
async def test_tables_with_partitions_are_written_and_read(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path, column: str, transform: str
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    fields = {"k": pa.int32(), "v": pa.string(), "d": pa.date32(), "at": pa.timestamp("us", "UTC")}
    table = catalog.tables.create_table("n.t", pa.schema(fields))
    partition_by(table, column, transform)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, d date, at timestamptz)")
    row = "i, 'v' || i % 3, date '2026-01-01' + i * 40, '2026-01-01Z'::timestamptz + i * '9 days'::interval"
    await env.ran("a", f"INSERT INTO t SELECT {row} FROM generate_series(1, 9) i")
    await env.ran("a", "INSERT INTO t VALUES (10)")
    await env.ran("a", f"CREATE SINK out FROM t {into('t')}", "WAIT FOR SINKS out")
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, SAME, "0")
    assert len(list(catalog.tables.load_table("n.t").scan().plan_files())) > 1
    await env.ran("a", "UPDATE t SET v = 'w', d = '2031-01-01', at = now() WHERE k IN (2, 3, 10)")
    await env.ran("a", "DELETE FROM t WHERE k = 4", "WAIT FOR SINKS out")
    await reaches(env, SAME, "0")
    with catalog.tables.load_table("n.t").update_spec() as update:  # partitions change
        update.remove_field("part")
    await env.ran("a", "UPDATE t SET v = 'x' WHERE k IN (1, 2)", "WAIT FOR SINKS out")
    await reaches(env, SAME, "0")
    await until_rows(lambda: [len(catalog.rows("n.t"))], 9)


async def test_manifests_keep_partitions_by_columns_that_were_dropped(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    rows = pa.table({"k": pa.array([1, 2], pa.int32()), "q": pa.array([7, 8], pa.int32())})
    table = catalog.tables.create_table("n.t", rows.schema)
    partition_by(table, "q", "identity")
    table.append(rows)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)")
    await env.ran("a", f"CREATE SINK out FROM t {into('t')}", "WAIT FOR SINKS out")
    with catalog.tables.load_table("n.t").update_spec() as update:
        update.remove_field("part")
    with catalog.tables.load_table("n.t").update_schema() as change:
        change.delete_column("q")
    for key in range(2, 13):  # replaces one of the two files, and merges manifests
        await env.ran("a", f"INSERT INTO t VALUES ({key})", "WAIT FOR SINKS out")
    assert catalog.rows("n.t") == sorted([(key,) for key in range(1, 13)], key=repr)
    table = catalog.tables.load_table("n.t")
    manifests = table.current_snapshot().manifests(table.io)
    assert len(manifests) < 9
    entries = [each for one in manifests for each in one.fetch_manifest_entry(table.io)]
    parts = [each.data_file.partition[0] for each in entries if each.data_file.spec_id == 1]
    assert parts == [7]


async def test_a_nan_that_has_no_partition_stalls_the_sink(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    table = catalog.tables.create_table("n.t", pa.schema({"k": pa.int32(), "f": pa.float64()}))
    partition_by(table, "f", "identity")
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, f float8)")
    await env.ran("a", f"CREATE SINK out FROM t {into('t')}", "INSERT INTO t VALUES (1, 'NaN')")
    status = "SELECT status, error LIKE '%has no partition%' FROM mz_internal.mz_sink_statuses"
    await reaches(env, status, "stalled|t")
    await env.ran("a", "UPDATE t SET f = 2")
    await until_rows(partial(catalog.rows, "n.t"), (1, 2.0))


def test_tables_of_format_version_3_are_refused(catalog: IcebergCatalog) -> None:
    table = catalog.tables.create_table("n.t", pa.schema({"k": pa.int32()}))
    table.metadata = table.metadata.model_copy(update={"format_version": 3})
    with pytest.raises(FeatureNotSupported, match="format version 3"):
        iceberg_change.check_writable(table)


async def test_a_sink_makes_a_table_with_partitions(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", 'CREATE TABLE t (k int PRIMARY KEY, "P" text, at timestamptz)')
    await env.ran("a", "INSERT INTO t SELECT i, 'p' || i % 2, now() FROM generate_series(1, 9) i")

    def sink(by: str) -> str:
        given = into("t").replace("LOCAL FILES", f"LOCAL FILES, PARTITION BY '{by}'")
        return f"CREATE SINK out FROM t {given}"

    for by, error in (
        ("x", 'ERROR 42703: column "x" of PARTITION BY does not exist'),
        ("month(at), k, day(at)", 'ERROR 42701: column "at" is in PARTITION BY more than once'),
        ("k, k", 'ERROR 42701: column "k" is in PARTITION BY more than once'),
        ("day(k)", 'ERROR 42804: PARTITION BY day("k")'),
        ("bucket(k)", 'ERROR 22023: option "partition by": "bucket(k)" is no partition'),
        ("day(at", "ERROR 22023"),
        ("nonsense(at)", "ERROR 22023"),
        ("k,,at", "ERROR 22023"),
    ):
        assert error in await env.query("a", sink(by)), by
    await env.ran("a", sink('month(at), "P", bucket(4, k)'), "WAIT FOR SINKS out")
    spec = catalog.tables.load_table("n.t").spec()
    assert [str(field.transform) for field in spec.fields] == ["month", "identity", "bucket[4]"]
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, SAME, "0")
    shown = (await env.query("a", "SHOW CREATE SINK out")).splitlines()[0].split("|")[1]
    assert """PARTITION BY = 'month("at"), "P", bucket(4, "k")'""" in shown
    await env.ran("a", "DROP SINK out", shown)
