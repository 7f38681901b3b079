"""CREATE SINK ... INTO DELTA: each change once, in one commit with its frontier."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from foreshore.errors import ObjectInUse
from foreshore.storage.export.files.delta import DeltaExporter
from foreshore.storage.export.files.delta_kind import KIND
from foreshore.storage.export.messages import Export
from foreshore.storage.lake import delta
from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import delta_rows, until_rows
from tests.adapter.sinks.waiting import STATUS
from tests.adapter.sources.test_files import reaches
from tests.harness import object_store


async def test_each_change_arrives_once_over_kills_and_restarts(
    own_env: TestEnvironment, place: Path, tmp_path: Path
) -> None:
    env, drawn, held = own_env, random.Random(1), dict[int, str]()
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, n numeric(10, 2))")
    await env.ran("a", "INSERT INTO t VALUES (100, 'a', 1.5), (200, NULL, NULL)")
    into = f"INTO DELTA (URL '{place}/t') WITH (COMMIT INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SINK s FROM t {into}")
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
            env.environment.let_copy([str(place)], tmp_path / "data")
            await env.environment.equip_sources()
    table = [(row[0], row[1]) for row in sorted(held.items(), key=str)]
    while True:
        found = [(row[0], row[1]) for row in await asyncio.to_thread(delta_rows, place / "t")]
        if found == sorted([*table, (100, "a"), (200, None)], key=str):
            break
        await asyncio.sleep(0.05)
    assert (await env.query("a", STATUS)).startswith("running|NULL")


async def test_a_table_that_is_made_anew_gets_no_rest_of_the_changes(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    into = f"INTO DELTA (URL '{place}/t') MODE APPEND"
    await env.ran("a", f"CREATE SINK s FROM t {into}", "WAIT FOR SINKS s")
    shutil.rmtree(place / "t")
    for number in range(8):  # more versions than the sink has seen
        rows = pa.table({"k": pa.array([10 + number], pa.int32())})
        deltalake.write_deltalake(str(place / "t"), rows, mode="append")
    await env.ran("a", "INSERT INTO t VALUES (2)")
    await reaches(env, "SELECT status FROM mz_internal.mz_sink_statuses", "stalled")
    assert delta_rows(place / "t") == [(10 + number,) for number in range(8)]


async def test_a_merge_that_changes_no_rows_commits_its_frontier(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    into = f"INTO DELTA (URL '{place}/t') WITH (COMMIT INTERVAL '1 s')"
    await env.ran("a", f"CREATE SINK s FROM t {into}", "WAIT FOR SINKS s")
    env.export.last.kill()
    await env.ran("a", "INSERT INTO t VALUES (2)", "DELETE FROM t WHERE k = 2")
    await env.ran("a", "WAIT FOR SINKS s", "INSERT INTO t VALUES (3)", "WAIT FOR SINKS s")
    assert delta_rows(place / "t") == [(1,), (3,)]


async def test_a_table_that_is_away_stalls_the_sink_until_it_is_back(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    into = f"INTO DELTA (URL '{place}/t') WITH (COMMIT INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SINK s FROM t {into}", "WAIT FOR SINKS s")
    (place / "t").rename(place / "away")
    env.export.last.kill()
    await env.ran("a", "INSERT INTO t VALUES (2)")
    status = "SELECT status, error LIKE '%no Delta table (Bring it back%'"
    await reaches(env, f"{status} FROM mz_internal.mz_sink_statuses", "stalled|t")
    (place / "away").rename(place / "t")
    await until_rows(partial(delta_rows, place / "t"), (1,), (2,))


@pytest.mark.parametrize("mode", ["UPSERT", "APPEND"])
async def test_a_table_with_partitions_is_written_and_followed(
    own_env: TestEnvironment, place: Path, mode: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, d date, v text)")
    row = "i, date '2026-01-01' + i % 3, CASE i % 2 WHEN 0 THEN 'x/y=' || i END"
    await env.ran("a", f"INSERT INTO t SELECT {row} FROM generate_series(1, 9) i")
    into = f"INTO DELTA (URL '{place}/t', PARTITION BY 'd, v') MODE {mode} WITH (COMMIT INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SINK out FROM t {into}", "WAIT FOR SINKS out")
    table = deltalake.DeltaTable(str(place / "t"))
    assert table.metadata().partition_columns == ["d", "v"]
    await env.ran("a", "UPDATE t SET d = d + 1, v = 'z' WHERE k < 4", "DELETE FROM t WHERE k = 9")
    await env.ran("a", "WAIT FOR SINKS out")
    source = f"CREATE SOURCE s FROM FILES '{place}/t' (FORMAT delta, POLL INTERVAL '10 ms')"
    await env.ran("a", source)
    wanted = (await env.query("a", "SELECT * FROM t ORDER BY 1")).splitlines()[:-1]
    rows = "SELECT k, d, v FROM s ORDER BY 1"
    if mode == "APPEND":
        rows = "SELECT k, d, v FROM s GROUP BY k, d, v HAVING sum(mz_diff) > 0 ORDER BY 1"
    await reaches(env, rows, *wanted)


@pytest.mark.parametrize("mode", ["UPSERT", "APPEND"])
async def test_an_empty_value_that_has_no_partition_stalls_the_sink(
    own_env: TestEnvironment, place: Path, mode: str
) -> None:
    env = own_env
    await env.ran(
        "a", "CREATE TABLE t (k text PRIMARY KEY, v int)", "INSERT INTO t VALUES ('a', 1)"
    )
    into = (
        f"INTO DELTA (URL '{place}/t', PARTITION BY 'k') MODE {mode} WITH (COMMIT INTERVAL '10 ms')"
    )
    await env.ran("a", f"CREATE SINK s FROM t {into}", "WAIT FOR SINKS s")
    await env.ran("a", "INSERT INTO t VALUES ('', 2)")
    said = "SELECT status, error LIKE 'column \"k\": an empty value has no partition%'"
    await reaches(env, f"{said} FROM mz_internal.mz_sink_statuses", "stalled|t")
    assert [row[:2] for row in delta_rows(place / "t")] == [("a", 1)]


async def test_columns_that_differ_by_case_only_are_refused(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", 'CREATE TABLE t (k int PRIMARY KEY, v int, "V" int)')
    create = f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')"
    answer = await env.query("a", create)
    assert 'ERROR 42701: columns "v" and "V" differ by case only' in answer


async def test_changes_are_appended_with_their_times(own_env: TestEnvironment, place: Path) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    into = f"INTO DELTA (URL '{place}/t') ENVELOPE APPEND WITH (COMMIT INTERVAL '1 ms')"
    await env.ran("a", f"CREATE SINK s FROM t {into}")
    for number in range(2, 5):
        await env.ran("a", f"INSERT INTO t VALUES ({number})")
    await env.ran("a", "DELETE FROM t WHERE k = 1")
    while True:
        table = deltalake.DeltaTable(str(place / "t")).to_pyarrow_table()
        found = table.select(["k", "mz_diff"]).to_pylist()
        if {"k": 1, "mz_diff": -1} in found:
            break
        await asyncio.sleep(0.05)
    assert sorted(row["k"] * row["mz_diff"] for row in found) == [-1, 1, 2, 3, 4]
    assert len(set(table.column("mz_timestamp").to_pylist())) == 5
    query = "SELECT k, mz_diff FROM s2 ORDER BY mz_timestamp"
    source = f"CREATE SOURCE s2 FROM FILES '{place}/t' (FORMAT delta, POLL INTERVAL '10 ms')"
    await env.ran("a", source)
    expected = ["1|1", "2|1", "3|1", "4|1", "1|-1"]
    while True:
        if (await env.query("a", query)).splitlines()[:-1] == expected:
            break
        await asyncio.sleep(0.05)


async def test_rows_whose_keys_have_nulls_are_replaced(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", 'CREATE TABLE t (k int, j int NOT NULL, "V w" int)')
    await env.ran("a", "INSERT INTO t VALUES (NULL, 1, 1), (NULL, 2, 2), (1, 1, 3)")
    into = f"INTO DELTA (URL '{place}/t') KEY (k, j) NOT ENFORCED"
    await env.ran("a", f"CREATE SINK s FROM t {into} WITH (COMMIT INTERVAL '10 ms')")
    await until_rows(partial(delta_rows, place / "t"), (1, 1, 3), (None, 1, 1), (None, 2, 2))
    await env.ran("a", 'UPDATE t SET "V w" = "V w" + 10 WHERE j = 1')
    await until_rows(partial(delta_rows, place / "t"), (1, 1, 13), (None, 1, 11), (None, 2, 2))
    await env.ran("a", "DELETE FROM t WHERE k IS NULL")
    await until_rows(partial(delta_rows, place / "t"), (1, 1, 13))


async def test_a_key_that_is_not_unique_stalls_the_sink(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int, v int)", "INSERT INTO t VALUES (1, 1), (1, 2)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t') KEY (k) NOT ENFORCED")
    stalled = "stalled|the relation has several rows of one key (k)"
    while True:
        if stalled in await env.query("a", STATUS):
            break
        await asyncio.sleep(0.02)
    await env.ran("a", "DELETE FROM t WHERE v = 1")
    assert delta_rows(place / "t") == []


async def test_an_earlier_exporter_commits_nothing(own_env: TestEnvironment, place: Path) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')")
    await until_rows(partial(delta_rows, place / "t"), (1,))
    (described,) = env.environment.coordinator.exports.controller.statuses()
    running = env.environment.coordinator.exports.controller.description(described)
    assert running is not None
    export: Export = running.export
    await env.environment.coordinator.exports.controller.stop(described)
    older, newer = exporter(export), exporter(export)
    lower = await older.resume()
    assert lower is not None
    assert await newer.resume() == lower
    await newer.write(parts(2, lower), lower, lower + 10)
    with pytest.raises(Exception, match="another exporter"):
        await older.write(parts(3, lower), lower, lower + 20)
    assert delta_rows(place / "t") == [(1,), (2,)]
    assert await exporter(export).resume() == lower + 10


@pytest.mark.parametrize("envelope", ["UPSERT", "APPEND"])
async def test_commits_are_durable_before_they_are_confirmed(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch, envelope: str
) -> None:
    env, synced = own_env, set[str]()
    monkeypatch.setattr(delta, "sync_file", lambda path: synced.add(path.name))
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t') ENVELOPE {envelope}")
    await env.ran("a", "WAIT FOR SINKS s")
    files = [Path(uri).name for uri in deltalake.DeltaTable(str(place / "t")).file_uris()]
    assert synced == {*files, "00000000000000000001.json"}


async def test_a_merge_that_changes_no_rows_does_not_set_back_a_newer_frontier(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    await env.ran("a", f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')", "WAIT FOR SINKS s")
    controller = env.environment.coordinator.exports.controller
    (described,) = controller.statuses()
    running = controller.description(described)
    assert running is not None
    export: Export = running.export
    await controller.stop(described)
    older, newer = exporter(export), exporter(export)
    lower = await older.resume()
    assert lower is not None
    await newer.resume()
    merge = older._upsert

    def overtaken(*given: Any) -> None:
        merge(*given)
        asyncio.run(newer.write(parts(2, lower), lower, lower + 20))

    monkeypatch.setattr(older, "_upsert", overtaken)
    with pytest.raises(ObjectInUse, match="another exporter"):
        await older.write(parts(9, lower, -1), lower, lower + 10)
    assert await exporter(export).resume() == lower + 20
    assert delta_rows(place / "t") == [(1,), (2,)]


def exporter(export: Export) -> DeltaExporter:
    """Return another exporter of a sink."""
    made = KIND.exporter(export)
    assert isinstance(made, DeltaExporter)
    return made


async def parts(key: int, time: int, diff: int = 1) -> AsyncIterator[pa.Table]:
    """Yield an interval with one row."""
    yield pa.table(
        {"k": pa.array([key], pa.int32()), "__time": pa.array([time]), "__diff": pa.array([diff])}
    )


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("FROM t INTO DELTA", '22023: DELTA needs the option "url"'),
        ("FROM t INTO DELTA (URL '/etc/t')", '42501: the place "/etc/t" is not allowed'),
        ("FROM t INTO DELTA (URL 't')", "42602: relative path"),
        ("FROM t INTO DELTA (URL '{}/t') ENVELOPE DEBEZIUM", "0A000: ENVELOPE DEBEZIUM"),
        ("FROM u INTO DELTA (URL '{}/u') KEY (v) NOT ENFORCED", "0A000: column"),
        (
            "FROM b INTO DELTA (URL '{}/b', PARTITION BY 'v') MODE APPEND",
            "0A000: Delta tables with",
        ),
        ("FROM t INTO DELTA (URL '{}/files')", '55000: "{}/files" has files and is no Delta'),
        ("FROM t INTO DELTA (URL '{}/other')", '42703: the Delta table has no column "k"'),
        ("FROM w INTO DELTA (URL '{}/other') KEY (x) NOT ENFORCED", '42804: column "x" of the'),
    ],
)
async def test_what_cannot_be_done_is_refused(
    own_env: TestEnvironment, place: Path, statement: str, error: str
) -> None:
    env = own_env
    deltalake.write_deltalake(str(place / "other"), pa.table({"x": ["a"]}))
    (place / "files").mkdir()
    (place / "files" / "1.parquet").write_bytes(b"rows of others")
    await env.ran(
        "a",
        "CREATE TABLE t (k int PRIMARY KEY)",
        "CREATE TABLE u (v time)",
        "CREATE TABLE b (v bytea)",
        "CREATE TABLE w (x int)",
    )
    found = await env.query("a", f"CREATE SINK s {statement.format(place)}")
    assert f"ERROR {error.format(place)}" in found
    assert await env.query("a", "SHOW SINKS") == "SELECT 0"


async def test_it_needs_the_right_to_write_files(own_env: TestEnvironment, place: Path) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "CREATE ROLE r")
    await env.ran("a", "GRANT ALL ON SCHEMA public TO r", "GRANT SELECT ON t TO r")
    await env.ran("a", "GRANT ALL ON CLUSTER quickstart TO r", "SET ROLE r")
    create = f"CREATE SINK s FROM t INTO DELTA (URL '{place}/t')"
    assert "ERROR 42501: must be superuser or have privileges of the pg_write_server" in (
        await env.query("a", create)
    )
    await env.ran("a", "RESET ROLE", "GRANT pg_write_server_files TO r", "SET ROLE r", create)
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    assert f"INTO DELTA (URL = '{place}/t') KEY (k) NOT ENFORCED" in shown


@pytest.mark.full
async def test_tables_in_buckets(own_env: TestEnvironment, tmp_path: Path) -> None:
    env = own_env
    with object_store() as store:
        env.environment.let_copy([store.url("lake")], tmp_path / "data")
        await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text)")
        await env.ran("a", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        into = f"INTO DELTA (URL 's3://{store.bucket}/lake/t')"
        await env.ran("a", f"CREATE SINK s FROM t {into} WITH (COMMIT INTERVAL '10 ms')")
        for number in range(3):
            env.export.last.kill()
            await env.ran("a", f"UPDATE t SET v = v || '{number}' WHERE k = 1")
        options = {"aws_endpoint": store.endpoint, "allow_http": "true", "aws_region": "us-east-1"}

        def found() -> object:
            table = deltalake.DeltaTable(f"s3://{store.bucket}/lake/t", storage_options=options)
            return table.to_pyarrow_table().sort_by("k").to_pydict()

        while True:
            if await asyncio.to_thread(found) == {"k": [1, 2], "v": ["a012", "b"]}:
                break
            await asyncio.sleep(0.05)
