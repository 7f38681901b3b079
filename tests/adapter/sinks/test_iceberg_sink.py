"""CREATE SINK ... INTO ICEBERG CATALOG CONNECTION: each change once, in one commit with its end."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.iceberg_tables import CatalogTable
from foreshore.sinks.places import IcebergTarget
from foreshore.sinks.spec import SinkSpec
from foreshore.sources.files import PLACES
from foreshore.storage.export.files.iceberg import IcebergExporter
from foreshore.storage.export.messages import Export
from foreshore.storage.external.access import Access
from foreshore.storage.lake.places import CopyPlaces
from foreshore.types import INT4, ColumnType, RelationDesc
from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, connection, equipped, into, reading, until_rows
from tests.adapter.sources.test_files import reaches
from tests.iceberg_catalog import CLIENT, SECRET, IcebergCatalog
from tests.iceberg_deletes import by_value

pytest.importorskip("pyiceberg")
STATUS = "SELECT status FROM mz_internal.mz_sink_statuses"


async def test_each_change_arrives_once_over_kills_and_restarts(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    drawn, held = random.Random(1), dict[int, str]()
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, n numeric(10, 2), s int2)")
    await env.ran("a", "INSERT INTO t VALUES (100, 'a', 1.5, 3), (200, NULL, NULL, NULL)")
    await env.ran("a", f"CREATE SINK s FROM t {into('t', 'MODE UPSERT')}")
    for round in range(4):
        for _ in range(10):
            key = drawn.randrange(10)
            await env.ran("a", f"DELETE FROM t WHERE k = {key}")
            held.pop(key, None)
            if drawn.random() < 0.7:
                held[key] = f"r{round}"
                await env.ran("a", f"INSERT INTO t VALUES ({key}, 'r{round}', NULL)")
        env.export.last.kill()
        if round == 2:
            await env.reopen()
            await equipped(env, tmp_path)
    wanted = sorted([*held.items(), (100, "a"), (200, None)], key=repr)
    while True:
        found = await asyncio.to_thread(catalog.rows, "n.t")
        if sorted(((row[0], row[1]) for row in found), key=repr) == wanted:
            break
        await asyncio.sleep(0.05)
    await reaches(env, STATUS, "running")
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    assert "LOCAL FILES" in shown
    await env.ran("a", "DROP SINK s", shown)


async def test_changes_are_appended_with_their_times(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1), (2)")
    await env.ran("a", f"CREATE SINK s FROM t {into('log', 'MODE APPEND')}")
    await env.ran("a", "WAIT FOR SINKS s", "DELETE FROM t WHERE id = 1", "WAIT FOR SINKS s")
    table = catalog.tables.load_table("n.log")
    assert [field.name for field in table.schema().fields] == ["id", "_mz_diff", "_mz_timestamp"]
    changes = [(row[0], row[1]) for row in catalog.rows("n.log")]
    assert Counter(changes) == Counter([(1, 1), (2, 1), (1, -1)])


async def test_answers_to_commits_that_get_lost_repeat_nothing(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int)")
    await env.ran("a", f"CREATE SINK s FROM t {into('log', 'MODE APPEND')}")
    for number in range(6):
        catalog.lost, catalog.refused = number % 2, number % 3 // 2
        await env.ran("a", f"INSERT INTO t VALUES ({number})", "WAIT FOR SINKS s")
        assert not catalog.lost
    assert [row[:2] for row in catalog.rows("n.log")] == [(number, 1) for number in range(6)]


async def test_a_foreign_writer_may_commit_between(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int PRIMARY KEY, v text)")
    await env.ran("a", f"CREATE SINK s FROM t {into('t')}")
    ours, foreign = 0, 1000
    for number in range(8):
        catalog_rows = pa.table(
            {"id": pa.array([foreign + number], pa.int32()), "v": pa.array(["theirs"])}
        )
        append = asyncio.to_thread(_appended, catalog, catalog_rows)
        await asyncio.gather(append, env.ran("a", f"INSERT INTO t VALUES ({number}, 'ours')"))
        ours += 1
    await env.ran("a", "WAIT FOR SINKS s")
    rows = catalog.rows("n.t")
    assert Counter(row[1] for row in rows) == Counter({"ours": ours, "theirs": 8})
    await reaches(env, STATUS, "running")


def _appended(catalog: IcebergCatalog, rows: pa.Table) -> None:
    catalog.tables.load_table("n.t").append(rows)


async def test_columns_that_differ_by_case_only_are_read_and_not_written(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    rows = pa.table({"k": [1, 2], "K": [3, 4], "V": ["a", "b"], "v": ["c", "d"]})
    catalog.tables.create_table("n.t", rows.schema).append(rows)
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    by_value(catalog.tables.load_table("n.t"), "K", 3)
    await reaches(env, 'SELECT k, "K", v, "V" FROM s', "2|4|d|b")
    answer = await env.query("a", f"CREATE SINK o FROM s {into('o', 'KEY (k) NOT ENFORCED')}")
    assert 'ERROR 42701: columns "k" and "K" differ by case only' in answer


async def test_more_than_100_000_keys_are_deleted(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (k int, v text)")
    await env.ran("a", "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 150000) i")
    await env.ran("a", f"CREATE SINK s FROM t {into('t', 'KEY (k) NOT ENFORCED')}")
    await env.ran("a", "WAIT FOR SINKS s")
    await env.ran("a", "DELETE FROM t WHERE k % 1000 <> 0", "WAIT FOR SINKS s")
    assert catalog.rows("n.t") == sorted(((k, "x") for k in range(1000, 150001, 1000)), key=repr)


async def test_what_is_wrong_is_said_when_a_sink_is_created(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int, v text)", "CREATE SECRET no AS 'me:wrong'")
    await env.ran("a", connection("wrong", catalog, "no"), "VALIDATE CONNECTION c")
    fields = {"id": pa.int64(), "v": pa.string()}
    catalog.tables.create_table("n.other", pa.schema(fields))
    catalog.tables.create_table("n.less", pa.schema({"id": pa.int32()}))
    key = "KEY (id) NOT ENFORCED"
    for statement, error in (
        ("VALIDATE CONNECTION wrong", "ERROR 28000: the Iceberg catalog refuses the credential"),
        (f"CREATE SINK s FROM t {into('t', key, 'wrong')}", "ERROR 28000"),
        (f"CREATE SINK s FROM t {into('other', key)}", 'ERROR 42804: column "id" of the Iceberg'),
        (f"CREATE SINK s FROM t {into('less', key)}", "ERROR 42703: the Iceberg table has no col"),
        (f"CREATE SINK s FROM t {into('t', key).replace(chr(39) + 'n', chr(39) + 'm')}", "3F000"),
        (f"CREATE SINK s FROM t {into('t', key).replace(', LOCAL FILES', '')}", "ERROR 42501"),
    ):
        assert error in await env.query("a", statement), statement
    catalog.away = True
    for statement in ("VALIDATE CONNECTION c", f"CREATE SINK s FROM t {into('t', key)}"):
        answer = await env.query("a", statement)
        assert "ERROR 08006: the Iceberg catalog or its" in answer
        assert "HINT" in answer.upper()
        assert len(answer.splitlines()[0]) < 250, answer
    catalog.away = False
    await env.ran("a", "CREATE ROLE r", "GRANT CREATE ON SCHEMA public TO r")
    await env.ran("a", "GRANT CREATE ON CLUSTER quickstart TO r", "GRANT SELECT ON t TO r")
    await env.ran("a", "GRANT USAGE ON CONNECTION c TO r", "SET ROLE r")
    assert "ERROR 42501" in await env.query("a", f"CREATE SINK s FROM t {into('t', key)}")


async def test_a_catalog_that_is_away_stalls_a_sink_until_it_is_back(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t {into('t')}")
    await until_rows(partial(catalog.rows, "n.t"), (1,))
    catalog.away = True
    await env.ran("a", "INSERT INTO t VALUES (2)")
    status = "SELECT status, error LIKE 'the Iceberg catalog or%' FROM mz_internal.mz_sink_statuses"
    await reaches(env, status, "stalled|t")
    catalog.away = False
    await until_rows(partial(catalog.rows, "n.t"), (1,), (2,))
    await reaches(env, STATUS, "running")
    catalog.tables.rename_table("n.t", "n.gone")
    await env.ran("a", "INSERT INTO t VALUES (3)")
    status = "SELECT status, error LIKE '%no such table%' FROM mz_internal.mz_sink_statuses"
    await reaches(env, status, "stalled|t")
    catalog.tables.rename_table("n.gone", "n.t")
    await until_rows(partial(catalog.rows, "n.t"), (1,), (2,), (3,))


async def test_a_column_that_another_program_drops_stalls_a_sink_until_it_is_back(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    from pyiceberg.types import IntegerType, StringType

    env = await connected(own_env, catalog, tmp_path)
    await env.ran(
        "a", "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')"
    )
    await env.ran("a", f"CREATE SINK s FROM t {into('t')}", "WAIT FOR SINKS s")
    with catalog.tables.load_table("n.t").update_schema(True) as update:
        update.delete_column("v")
        update.add_column("more", IntegerType())
    await env.ran("a", "INSERT INTO t VALUES (2, 'b')")
    status = "SELECT status, error LIKE '%no column \"v\"%' FROM mz_internal.mz_sink_statuses"
    await reaches(env, status, "stalled|t")
    with catalog.tables.load_table("n.t").update_schema() as update:
        update.add_column("v", StringType())
    await until_rows(partial(catalog.rows, "n.t"), (1, None, None), (2, None, "b"))


async def test_dates_beyond_those_of_iceberg_stall_a_sink(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int PRIMARY KEY, d date, u timestamptz)")
    await env.ran("a", f"CREATE SINK s FROM t {into('t')}", "WAIT FOR SINKS s")
    status = "SELECT status, error LIKE '%Cast the column%' FROM mz_internal.mz_sink_statuses"
    for number, column in enumerate("du"):
        await env.ran("a", f"INSERT INTO t (id, {column}) VALUES ({number}, 'infinity')")
        await reaches(env, status, "stalled|t")
        await env.ran("a", f"UPDATE t SET {column} = '2026-01-01' WHERE id = {number}")
        await reaches(env, STATUS, "running")
    assert [row[0] for row in catalog.rows("n.t")] == [0, 1]


async def test_the_frontier_outlives_snapshots_that_expire(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t {into('log', 'MODE APPEND')}", "WAIT FOR SINKS s")
    await asyncio.to_thread(_replace_and_expire, catalog)
    env.export.last.kill()
    await env.ran("a", "INSERT INTO t VALUES (2)", "WAIT FOR SINKS s")
    assert [row[:2] for row in catalog.rows("n.log")] == [(1, 1), (2, 1)]


def _replace_and_expire(catalog: IcebergCatalog) -> None:
    """Let the table have one snapshot, which is another program's."""
    table = catalog.tables.load_table("n.log")
    table.overwrite(table.scan().to_arrow())
    current = table.current_snapshot().snapshot_id
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != current]
    table.maintenance.expire_snapshots().by_ids(old).commit()


async def test_a_table_that_is_made_anew_gets_no_rest_of_the_changes(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t {into('t')}", "WAIT FOR SINKS s")
    catalog.tables.drop_table("n.t")
    catalog.tables.create_table("n.t", pa.schema({"id": pa.int32()}))
    await env.ran("a", "INSERT INTO t VALUES (2)")
    status = "SELECT status, error LIKE '%lost how far%' FROM mz_internal.mz_sink_statuses"
    await reaches(env, status, "stalled|t")
    env.export.last.kill()
    await reaches(env, status, "stalled|t")
    assert catalog.rows("n.t") == []


class Exporters:
    """Makes exporters of one sink, in MODE APPEND."""

    def __init__(self, catalog: IcebergCatalog, tmp_path: Path) -> None:
        credential = f"{CLIENT}:{SECRET}"
        options = {"catalog type": "rest", "url": catalog.url, "credential": credential}
        places = CopyPlaces((str(tmp_path / "lake"),), None).as_options()
        self._accesses = {"c": Access("iceberg catalog", options), PLACES: Access("files", places)}
        self._catalog = catalog

    def create_table(self, **properties: str) -> None:
        columns = {"id": pa.int32(), "_mz_diff": pa.int32(), "_mz_timestamp": pa.int64()}
        given = {"format-version": "2", **properties}
        self._catalog.tables.create_table("n.t", pa.schema(columns), properties=given)

    def make(self) -> IcebergExporter:
        spec = SinkSpec(IcebergTarget(CatalogTable("c", "n", "t", None, True)), "append")
        desc = RelationDesc(("id",), (ColumnType(INT4),))
        return IcebergExporter(Export("sink", spec, desc, self._accesses))


async def parts(id: int) -> AsyncIterator[pa.Table]:
    """Yield a row."""
    yield pa.table(
        {
            "id": pa.array([id], pa.int32()),
            "__time": pa.array([5], pa.int64()),
            "__diff": pa.array([1], pa.int64()),
        }
    )


async def test_of_two_exporters_from_one_frontier_one_fails(
    catalog: IcebergCatalog, tmp_path: Path
) -> None:
    exporters = Exporters(catalog, tmp_path)
    exporters.create_table()
    first, second = exporters.make(), exporters.make()
    assert await first.resume() is None
    assert await second.resume() is None
    done = await asyncio.gather(
        first.write(parts(1), 0, 7), second.write(parts(2), 0, 9), return_exceptions=True
    )
    assert sorted(isinstance(each, Exception) for each in done) == [False, True], done
    assert len(catalog.rows("n.t")) == 1
    assert await exporters.make().resume() == (9 if isinstance(done[0], Exception) else 7)


async def test_a_table_that_was_replaced_or_rolled_back_has_no_frontier(
    catalog: IcebergCatalog, tmp_path: Path
) -> None:
    exporters = Exporters(catalog, tmp_path)
    exporters.create_table()
    table = catalog.tables.load_table("n.t")
    rows = pa.table({name: [0] for name in table.schema().column_names})
    table.append(rows.cast(table.schema().as_arrow()))
    begin = table.current_snapshot().snapshot_id
    exporter = exporters.make()
    assert await exporter.resume() is None
    await exporter.write(parts(1), 0, 7)
    table.refresh()
    table.manage_snapshots().set_current_snapshot(begin).commit()
    assert table.properties["foreshore.frontier.sink"] == "7"
    with pytest.raises(ObjectNotInPrerequisiteState, match="lost how far"):
        await exporter.write(parts(2), 7, 9)
    assert await exporters.make().resume() is None
    catalog.tables.drop_table("n.t")
    exporters.create_table(**{"foreshore.frontier.sink": "7"})
    assert await exporters.make().resume() is None


async def test_a_conflict_that_is_our_own_commit_keeps_its_files(
    catalog: IcebergCatalog, tmp_path: Path
) -> None:
    exporters = Exporters(catalog, tmp_path)
    exporters.create_table()
    exporter = exporters.make()
    await exporter.resume()
    catalog.repeated = 1
    await exporter.write(parts(1), 0, 7)
    assert catalog.repeated == 0
    assert [row[0] for row in catalog.rows("n.t")] == [1]
    await exporter.write(parts(2), 7, 9)
    assert [row[0] for row in catalog.rows("n.t")] == [1, 2]
