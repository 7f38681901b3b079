"""COPY with files of the server: what goes out comes in again, all or none, with the rights for it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Event

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from foreshore.compute.isolated.engine import Answer, _Worker
from foreshore.errors import DatabaseError
from foreshore.storage.lake.columns import WrongValue, cast, from_file
from foreshore.storage.lake.places import CopyPlaces
from foreshore.storage.lake.writing import Writer
from foreshore.types import DATE, TEXT, TIMESTAMP, TIMESTAMPTZ, SqlType
from tests.adapter.files.tables import COLUMNS, SETTLED, filled, settled
from tests.adapter.harness import TestEnvironment, until
from tests.harness import object_store
from tests.stopped_process import stop_process


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
async def test_rows_that_went_out_come_in_again(
    own_env: TestEnvironment, outside: Path, format: str
) -> None:
    env, place = own_env, outside / "out"
    await filled(env, place)
    columns = [column.split()[0] for column in COLUMNS.split(", ")]
    if format == "json":  # arrays of JSON are no arrays of PostgreSQL
        columns = [name for name in columns if name not in ("a", "ta")]
    names = ", ".join(columns)
    await env.ran("a", "CREATE TABLE again (LIKE t)")
    url = f"file://{place}/one"
    assert await env.query("a", f"COPY t ({names}) TO '{url}' (FORMAT {format})") == "COPY 3"
    success = json.loads((place / "one" / "_SUCCESS").read_bytes())
    assert success["rows"] == 3
    assert {each["file"] for each in success["files"]} == {
        path.name for path in (place / "one").iterdir() if path.name != "_SUCCESS"
    }
    answer = await env.query("a", f"COPY again ({names}) FROM '{url}' (FORMAT {format})")
    assert answer == "COPY 3"
    if format != "csv":  # Parquet has no scale of a single value, and null is no value in JSON
        await env.ran("a", "UPDATE t SET nn = trim_scale(nn)")
    if format == "json":
        await env.ran(
            "a", "UPDATE t SET j = NULL WHERE j = 'null'", "UPDATE t SET nn = 1.50 WHERE k = 1"
        )
    expected = await env.ran("a", f"SELECT {names} FROM t ORDER BY k")
    assert await env.ran("a", f"SELECT {names} FROM again ORDER BY k") == expected
    assert [path.name for path in place.iterdir()] == ["one"]
    assert "58P02" in await env.query("a", f"COPY t TO '{url}' (FORMAT {format})")


async def test_a_query_goes_to_one_file_or_to_many_of_a_size(
    own_env: TestEnvironment, outside: Path
) -> None:
    env, place = own_env, outside / "out"
    await filled(env, place)
    query = "SELECT x, repeat(x::text, 20) AS y FROM generate_series(1, 100000) AS g (x) ORDER BY x DESC"
    await env.ran("a", f"COPY ({query}) TO '{place}/rows.parquet'")
    table = pq.read_table(place / "rows.parquet")
    assert table.column("x").to_pylist() == list(range(100000, 0, -1))
    await env.ran(
        "a", f"COPY ({query}) TO '{place}/many' (FORMAT csv, HEADER, MAX FILE SIZE '1MB')"
    )
    files = sorted((place / "many").glob("part-*.csv"))
    assert len(files) > 5
    assert max(path.stat().st_size for path in files) < 8_000_000
    await env.ran("a", "CREATE TABLE many (x int, y text)")
    assert (
        await env.query(
            "a", f"COPY many FROM 'file://{place}/many/*.csv' (FORMAT csv, HEADER match)"
        )
        == "COPY 100000"
    )
    assert await env.ran(
        "a", "SELECT count(*), sum(x) FROM many WHERE y = repeat(x::text, 20)"
    ) == ("100000|5000050000\nSELECT 1")


async def test_a_wrong_row_is_told_by_file_and_row_and_leaves_nothing(
    own_env: TestEnvironment, outside: Path
) -> None:
    env, place = own_env, outside / "in"
    await filled(env, place)
    await env.ran("a", "CREATE TABLE s (x int CHECK (x < 100), y text NOT NULL)")
    (place / "1.csv").write_text("1,a\n2,b\n")
    (place / "2.csv").write_text("3,c\nfour,d\n")
    session = await env.session("a")
    answer = await env.query("a", f"COPY s FROM '{place}/*.csv'")
    assert answer.startswith("ERROR 22P02"), answer
    for content, code, row in (
        ("3,c\n400,d\n", "23514", 2),
        ("3,c\n4,d\n5,\n", "23502", 3),
        ("3,c\n4\n", "22P04", None),
    ):
        (place / "2.csv").write_text(content)
        with pytest.raises(DatabaseError, match=r".") as caught:
            async for _ in session.simple(f"COPY s FROM '{place}/*.csv'"):
                pass
        await session.fail()
        assert caught.value.sqlstate == code, caught.value
        if row is not None:
            assert caught.value.where == f"COPY s, file 2.csv, row {row}"
    assert await env.ran("a", "SELECT count(*) FROM s") == "0\nSELECT 1"
    pq.write_table(pa.table({"y": ["p"], "x": [7]}), place / "3.parquet")
    assert await env.query("a", f"COPY s FROM '{place}/3.parquet'") == "COPY 1"
    assert "22P04" in await env.query("a", f"COPY s (y) FROM '{place}/1.csv' (FORMAT parquet)")


def test_times_in_iso_form_are_those_of_casts() -> None:
    texts = ("2024-02-29", "2024-02-29 23:59:59.999999", "0001-01-01 00:00", "1969-12-31T23:59:60")
    others = (
        "infinity",
        "2024-02-30",
        "20240229",
        "12024-01-01",
        "24-1-1",
        "2024-01-01 03:04:05.1234567",
    )
    zones = ("", "Z", "+02", "-0330", "+05:45", " UTC", " America/New_York")
    for type in (DATE, TIMESTAMP, TIMESTAMPTZ):
        for text in (base + zone for base in (*texts, *others) for zone in zones):
            values = pa.array([text])
            found: list[object] = []
            for convert in (partial(from_file, "x"), _cast_of_text):
                try:
                    found.append(convert(values, type).view(_storage(type)).to_pylist())
                except WrongValue as wrong:
                    found.append(wrong.error.sqlstate)
            assert found[0] == found[1], (type, text)


def _cast_of_text(values: pa.Array, type: SqlType) -> pa.Array:
    return cast(values, TEXT, type)


def _storage(type: SqlType) -> pa.DataType:
    return pa.int32() if type == DATE else pa.int64()


async def test_only_allowed_places_and_roles_use_files(
    own_env: TestEnvironment, outside: Path
) -> None:
    env, place = own_env, outside / "in"
    await env.ran("a", "CREATE TABLE s (x int)")
    (outside / "other").mkdir()
    (outside / "other" / "1.csv").write_text("1\n")
    refused = "ERROR 42501: the place"
    assert refused in await env.query(
        "a", f"COPY s FROM '{outside}/other/1.csv'"
    )  # none by default
    place.mkdir()
    env.environment.let_copy([f"file://{place}"], env.data_dir)
    (place / "link").symlink_to(outside / "other")
    (place / "file.csv").symlink_to(outside / "other" / "1.csv")
    for url in (
        f"{outside}/other/1.csv",
        f"{place}/../other/1.csv",
        f"{place}/*/../../other/1.csv",
        f"file://{place}/link/1.csv",
        f"{place}/file.csv",
        f"{place}/file*.csv",
        f"{env.data_dir}/x.csv",
        "s3://bucket/x.csv",
    ):
        assert refused in await env.query("a", f"COPY s FROM '{url}'"), url
        if "*" not in url and not url.endswith("file.csv"):
            assert refused in await env.query("a", f"COPY s TO '{url}'"), url
    (place / "[d]").symlink_to(outside / "other")  # is a pattern only in FROM
    for url in (f"{place}/[d]/2.csv", f"{place}/[d]"):
        assert refused in await env.query("a", f"COPY s TO '{url}' (FORMAT csv)"), url
    assert refused in await env.query("a", f"COPY s FROM '{place}/[d]' (FORMAT delta)")
    (place / "*.json").write_text('{"x": 1}')
    (place / "2.json").write_text('{"x": 2}')
    assert await env.query("a", f"COPY s FROM '{place}/[*].json'") == "COPY 1"
    await env.ran("a", "DELETE FROM s")
    env.environment.let_copy([str(env.data_dir.parent)], env.data_dir)
    (env.data_dir / "1.csv").write_text("1\n")
    inside = f"{env.data_dir.parent}/{env.data_dir.name[:-1]}?/1.csv"
    assert refused in await env.query("a", f"COPY s FROM '{inside}'")
    env.environment.let_copy([str(place)], env.data_dir)
    assert "42602" in await env.query("a", "COPY s FROM 'x.csv'")
    assert "58P01" in await env.query("a", f"COPY s FROM '{place}/none.csv'")
    await env.ran("a", "CREATE ROLE r", "GRANT ALL ON s TO r", f"COPY s TO '{place}/x.csv'")
    await env.ran("r", "SET SESSION AUTHORIZATION r")
    needed = "ERROR 42501: must be superuser or have privileges of the pg_"
    assert f"{needed}read_server_files role to COPY from a file" in await env.query(
        "r", f"COPY s FROM '{place}/x.csv'"
    )
    assert f"{needed}write_server_files role to COPY to a file" in await env.query(
        "r", f"COPY s TO '{place}/y.csv'"
    )
    await env.ran("a", "GRANT pg_read_server_files, pg_write_server_files TO r")
    assert await env.query("r", f"COPY s FROM '{place}/x.csv'") == "COPY 0"
    assert await env.query("r", f"COPY s TO '{place}/y.csv'") == "COPY 0"


async def test_a_cancelled_export_leaves_nothing_and_is_shown_while_it_runs(
    own_env: TestEnvironment, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, place = own_env, outside / "out"
    await filled(env, place)
    go_on = Event()
    write = Writer.write

    def held(writer: Writer, batch: pa.RecordBatch) -> None:
        write(writer, batch)
        go_on.wait(30)

    monkeypatch.setattr(Writer, "write", held)
    copies = env.environment.coordinator.copies
    assert isinstance(copies.places, CopyPlaces)
    query = "SELECT x FROM generate_series(1, 1000000) AS g (x)"
    running = asyncio.create_task(
        env.query("a", f"COPY ({query}) TO '{place}/x' (FORMAT csv)", alone=False)
    )
    await until(lambda: any(each.rows for each in copies.running.values()))
    shown = "SELECT command, type, relid, tuples_processed > 0 FROM pg_stat_progress_copy"
    assert await env.query("b", shown, alone=False) == "COPY TO|FILE|0|t\nSELECT 1"
    (pid,) = copies.running
    await env.query("b", f"SELECT pg_cancel_backend({pid})", alone=False)
    go_on.set()
    assert "57014" in await running
    assert list(place.iterdir()) == []
    assert copies.running == {}
    assert await env.ran("a", "SELECT * FROM pg_stat_progress_copy") == "SELECT 0"


@pytest.mark.parametrize("end", ["cancel request", "end of the task"])
async def test_import_ends_in_the_middle_of_a_file(
    own_env: TestEnvironment, outside: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The process that reads answers nothing; the import ends at once, and so does the process."""
    env, path = own_env, outside / "x.parquet"
    pq.write_table(pa.table({"x": range(1000)}), path)
    stopped, ask = Event(), _Worker._ask

    def held(worker: _Worker, kind: bytes, *pieces: bytes) -> tuple[bytes, Answer]:
        stop_process(worker.pid)
        stopped.set()
        return ask(worker, kind, *pieces)

    monkeypatch.setattr(_Worker, "_ask", held)
    env.environment.let_copy([f"file://{outside}"], env.data_dir)
    await env.ran("a", "CREATE TABLE s (x int)")
    coordinator = env.environment.coordinator
    running = asyncio.create_task(env.query("a", f"COPY s FROM '{path}'", alone=False))
    await until(stopped.is_set)
    (pid,) = coordinator.copies.running
    if end == "cancel request":
        await env.query("b", f"SELECT pg_cancel_backend({pid})", alone=False)
        async with asyncio.timeout(60):
            assert "57014" in await running
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    await until(lambda: not coordinator.isolated._all)
    assert coordinator.copies.running == {}


async def test_a_bucket_takes_and_gives_files(own_env: TestEnvironment) -> None:
    env = own_env
    with object_store() as store:
        env.environment.let_copy([store.url("allowed")], env.data_dir)
        await env.ran(
            "a", "CREATE TABLE s (x int, y text)", "INSERT INTO s VALUES (1, 'a'), (2, NULL)"
        )
        url = f"s3://{store.bucket}/allowed"
        for count, format in ((2, "parquet"), (4, "csv"), (8, "json")):
            place = f"{url}/{format}"
            assert await env.query("a", f"COPY s TO '{place}' (FORMAT {format})") == f"COPY {count}"
            assert "58P02" in await env.query("a", f"COPY s TO '{place}' (FORMAT {format})")
            answer = await env.query("a", f"COPY s FROM '{place}/*' (FORMAT {format})")
            assert answer == f"COPY {count}"
            await env.ran("a", f"COPY s TO '{place}.{format}'")
        assert "42501" in await env.query("a", f"COPY s TO 's3://{store.bucket}/other.csv'")
        assert "42501" in await env.query("a", f"COPY s TO '{url}b/other.csv'")
        broken = "COPY (SELECT 1 / (x - 100000) FROM generate_series(1, 100000) AS g (x)) TO"
        assert "22012" in await env.query("a", f"{broken} '{url}/broken' (FORMAT csv)")
        assert "58P01" in await env.query("a", f"COPY s FROM '{url}/broken' (FORMAT csv)")


@pytest.mark.full
async def test_a_bucket_is_reached_by_the_keys_of_a_connection(own_env: TestEnvironment) -> None:
    env = own_env
    env.environment.unlock_secrets(bytes(32))
    with object_store() as store:
        options = (
            f"ENDPOINT '{store.endpoint}', REGION 'us-east-1', ACCESS KEY ID 'test',"
            " SECRET ACCESS KEY SECRET pw"
        )
        await env.ran(
            "a",
            "CREATE SECRET pw AS 'test'",
            f"CREATE CONNECTION c TO AWS ({options})",
            "CREATE CONNECTION k TO KAFKA (BROKER 'b:1')",
            "CREATE TABLE s (x int, y text)",
            "INSERT INTO s VALUES (1, 'a'), (2, NULL)",
            "CREATE ROLE r",
            "GRANT ALL ON s TO r",
        )
        place = f"s3://{store.bucket}/sent"
        with_keys = "WITH (AWS CONNECTION = c, FORMAT = 'csv', HEADER = true)"
        assert await env.query("a", f"COPY s TO '{place}/csv' {with_keys}") == "COPY 2"
        assert await env.query("a", f"COPY s FROM '{place}/csv/*.csv' {with_keys}") == "COPY 2"
        whole = f"COPY (SELECT x FROM s) TO '{place}/p' (FORMAT parquet, AWS CONNECTION public.c)"
        assert await env.query("a", whole) == "COPY 4"
        kafka = f"COPY s TO '{place}/k' (FORMAT csv, AWS CONNECTION k)"
        assert 'ERROR 42809: connection "k" is to KAFKA' in await env.query("a", kafka)
        text = f"COPY s TO '{place}/k' (FORMAT csv, aws_connection 'c')"
        assert 'ERROR 42601: option "aws_connection" not recog' in await env.query("a", text)
        local = "COPY s TO '/tmp/x' (FORMAT csv, AWS CONNECTION c)"
        assert "HINT: An AWS CONNECTION reads s3://BUCKET/KEY." in await env.query("a", local)
        await env.ran("a", "SET ROLE r")
        assert "ERROR 42501: permission denied for connection c" in await env.query(
            "a", f"COPY s TO '{place}/r' {with_keys}"
        )
        await env.ran("a", "RESET ROLE", "GRANT USAGE ON CONNECTION c TO r", "SET ROLE r")
        assert await env.query("a", f"COPY s TO '{place}/r' {with_keys}") == "COPY 4"


async def test_a_bucket_that_does_not_answer_holds_up_no_other_statement(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    env.environment.unlock_secrets(bytes(32))
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        await env.ran(
            "a",
            "CREATE SECRET pw AS 'x'",
            "CREATE CONNECTION c TO AWS (ACCESS KEY ID 'a', SECRET ACCESS KEY SECRET pw,"
            f" ENDPOINT '{endpoint}')",
            "CREATE TABLE t (x int)",
            "INSERT INTO t SELECT generate_series(1, 100000)",
        )
        copy = "COPY t FROM 's3://b/x.csv' (FORMAT csv, AWS CONNECTION c)"
        threads = (os.cpu_count() or 1) + 4  # of the loop
        copying = [asyncio.create_task(env.query(f"c{i}", copy)) for i in range(2 * threads)]
        await asyncio.sleep(0.5)  # they are on their threads
        total = "SELECT sum(x), count(DISTINCT x % 7) FROM t"
        async with asyncio.timeout(25):  # the bucket is given up after 30 s
            assert await env.query("a", total) == "5000050000|7\nSELECT 1"
        for each in copying:
            each.cancel()
        await asyncio.gather(*copying, return_exceptions=True)


async def test_a_delta_table_has_versions_that_come_in_again(
    own_env: TestEnvironment, outside: Path, tmp_path: Path
) -> None:
    env = own_env
    await filled(env, outside)
    place = outside / "delta"
    names = ", ".join(name for name in (c.split()[0] for c in COLUMNS.split(", ")) if name != "ti")
    assert await env.query("a", f"COPY t ({names}) TO '{place}' (FORMAT delta)") == "COPY 3"
    table = DeltaTable(str(place))
    assert table.to_pyarrow_table().num_rows == 3
    assert table.schema().to_arrow().field("n").type == pa.decimal128(38, 3)
    first = await env.ran("a", f"SELECT {names} FROM t ORDER BY k")
    await env.ran("a", "DELETE FROM t WHERE k = 2")
    assert await env.query("a", f"COPY t ({names}) TO '{place}' (FORMAT delta)") == "COPY 2"
    assert table.to_pyarrow_table().num_rows == 3  # a version does not change
    table.update_incremental()
    assert (table.version(), table.to_pyarrow_table().num_rows) == (1, 2)
    await env.ran("a", "CREATE TABLE again (LIKE t)")
    copied = f"COPY again ({names}) FROM '{place}' (FORMAT delta"
    assert await env.query("a", f"{copied}, VERSION 0)") == "COPY 3"
    await env.ran("a", "UPDATE again SET nn = nn + 0.00 WHERE k = 1")
    assert await env.ran("a", f"SELECT {names} FROM again ORDER BY k") == first
    assert await env.query("a", f"{copied})") == "COPY 2"
    assert "22P04" in await env.query("a", f"{copied}, VERSION 7)")
    assert "58P01" in await env.query("a", f"COPY again FROM '{outside}/none' (FORMAT delta)")
    assert "22P04" in await env.query("a", f"COPY again FROM '{place}' (FORMAT delta)")  # ti
    (part,) = (place / each.rpartition("/")[2] for each in table.file_uris())
    part.rename(tmp_path / "moved.parquet")
    assert "22P04" in await env.query("a", f"{copied})")
    part.symlink_to(tmp_path / "moved.parquet")
    for statement in (f"{copied})", f"COPY t ({names}) TO '{place}' (FORMAT delta)"):
        assert "ERROR 42501: the place" in await env.query("a", statement), statement


async def test_columns_that_a_format_cannot_have_are_refused(
    own_env: TestEnvironment, outside: Path
) -> None:
    env = own_env
    await filled(env, outside)
    for columns in ("ti", "ARRAY[ti] AS tis"):
        asked = f"COPY (SELECT k, {columns} FROM t) TO '{outside}/times' (FORMAT delta)"
        assert "0A000" in await env.query("a", asked)
    for format in ("parquet", "json", "delta"):
        asked = f"COPY (SELECT 1 AS x, 2 AS x) TO '{outside}/twice' (FORMAT {format})"
        assert "42701" in await env.query("a", asked)
    assert await env.query("a", f"COPY (SELECT 1 AS x, 2 AS x) TO '{outside}/x.csv'") == "COPY 1"
    assert [name for name in os.listdir(outside) if "times" in name or "twice" in name] == []
    pq.write_table(pa.table([[1], [2]], names=["x", "x"]), outside / "given.parquet")
    await env.ran("a", "CREATE TABLE one (x int)")
    assert "22P04" in await env.query("a", f"COPY one FROM '{outside}/given.parquet'")


async def test_a_delta_table_of_inserted_rows_links_batches_and_copies_none(
    own_env: TestEnvironment, outside: Path
) -> None:
    env = own_env
    await settled(env, outside)
    place = outside / "linked"
    assert await env.query("a", f"COPY s TO '{place}' (FORMAT delta)") == "COPY 1002"
    files = sorted(place.glob("*.parquet"))
    linked = [path for path in files if path.stat().st_nlink > 1]
    assert len(linked) == 1
    assert len(files) == 2  # and the rows that were in the log only
    table = DeltaTable(str(place))
    assert table.to_pyarrow_table().column_names == ["x", "y", "z"]
    rows = Counter(map(tuple, (row.values() for row in table.to_pyarrow_table().to_pylist())))
    assert rows == SETTLED
    connection = duckdb.connect()  # of its own: others may be in the middle of a result
    read = connection.read_parquet([str(path) for path in files], union_by_name=True)
    assert read.aggregate("sum(x)").fetchall() == [(500498,)]
    await env.ran("a", "DELETE FROM s WHERE x % 2 = 0")  # now a copy is needed
    assert await env.query("a", f"COPY s TO '{place}' (FORMAT delta)") == "COPY 502"
    table.update_incremental()
    found = table.to_pyarrow_table().column("x").to_pylist()
    assert sorted(found) == [-1, -1, *range(1, 1001, 2)]
    assert table.version() == 1
    await env.ran("a", "CREATE TABLE again (LIKE s)")
    copied = f"COPY again FROM '{place}' (FORMAT delta, VERSION 0)"
    assert await env.query("a", copied) == "COPY 1002"
