"""CREATE SINK ... INTO FILES: a file for each interval, each change once."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from foreshore.adapter.subscribe import reading
from foreshore.sinks.places import FilesTarget
from foreshore.sinks.spec import SinkSpec
from foreshore.sources.files import PLACES
from foreshore.storage.export.files import exporter as exporters
from foreshore.storage.export.files.exporter import FilesExporter
from foreshore.storage.export.files.growing import append_rows
from foreshore.storage.export.files.kind import KIND
from foreshore.storage.export.messages import Export
from foreshore.storage.external import retries
from foreshore.storage.external.access import Access
from foreshore.storage.lake.places import CopyPlaces
from foreshore.types import INT4, ColumnType, RelationDesc
from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import until_state
from tests.harness import object_store


@pytest.fixture
def place(own_env: TestEnvironment, tmp_path: Path) -> Path:
    """Return a new directory that COPY and sinks may write."""
    place = tmp_path / "out"
    place.mkdir()
    own_env.environment.let_copy([str(place)], tmp_path / "data")
    return place


async def test_each_change_is_in_one_file_over_kills_and_restarts(
    own_env: TestEnvironment, place: Path, tmp_path: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int, v text)", "INSERT INTO t VALUES (-1, 'a')")
    into = f"INTO FILES (URL '{place}/t', FORMAT parquet, MERGE = false)"
    await env.ran("a", f"CREATE SINK s FROM t {into} WITH (COMMIT INTERVAL '1 ms')")
    for number in range(60):
        await env.ran("a", f"INSERT INTO t VALUES ({number}, 'v')")
        if number % 10 == 5:
            await env.ran("a", "WAIT FOR SINKS s")
            env.export.last.kill()
        if number == 30:
            await env.reopen()
            env.environment.let_copy([str(place)], tmp_path / "data")
            await env.environment.equip_sources()
    await env.ran("a", "DELETE FROM t WHERE k < 10", "WAIT FOR SINKS s")
    query = f"SELECT k, mz_diff FROM '{place}/t/*.parquet'"
    found = Counter(duckdb.sql(query).fetchall())
    expected = [(k, 1) for k in range(-1, 60)] + [(k, -1) for k in range(-1, 10)]
    assert found == Counter(expected)
    names = sorted(each.name for each in (place / "t").iterdir())
    assert len(names) > 5
    bounds = [tuple(map(int, name[:-8].split("-")[1:])) for name in names if "-" in name]
    assert all(a[1] <= b[0] for a, b in pairwise(bounds))
    await env.ran("a", "DROP SINK s")
    while True:
        if not list((place / "t" / "_foreshore").iterdir()):
            break
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("FORMAT csv, HEADER, DELIMITER ';'", "k;v;mz_timestamp;mz_diff\n1;a;{time};1\n"),
        ("FORMAT json", '{"k":1,"v":"a","mz_timestamp":{time},"mz_diff":1}\n'),
    ],
)
async def test_formats(own_env: TestEnvironment, place: Path, options: str, text: str) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int, v text)", "INSERT INTO t VALUES (1, 'a')")
    await env.ran("a", f"CREATE SINK s FROM t INTO FILES (URL '{place}/t', {options})")
    await env.ran("a", "WAIT FOR SINKS s")
    (file,) = (each for each in (place / "t").iterdir() if each.is_file())
    assert file.read_text() == text.replace("{time}", file.stem.split("-")[1])
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SINK s", shown)
    assert shown == (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]


@pytest.mark.full
async def test_files_in_buckets(own_env: TestEnvironment, tmp_path: Path) -> None:
    env = own_env
    with object_store() as store:
        env.environment.let_copy([store.url("out")], tmp_path / "data")
        await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1), (2)")
        into = f"INTO FILES (URL 's3://{store.bucket}/out/t', FORMAT json)"
        await env.ran("a", f"CREATE SINK s FROM t {into} WITH (COMMIT INTERVAL '1 ms')")
        for number in range(3, 9):
            env.export.last.kill()
            await env.ran("a", f"INSERT INTO t VALUES ({number})")
        await env.ran("a", "WAIT FOR SINKS s")
        location = CopyPlaces((store.url("out"),)).find(f"s3://{store.bucket}/out/t")
        keys = [key for key, _ in location.blob.list("t/foreshore")]
        lines = b"".join(location.blob.get(key) or b"" for key in keys).splitlines()
        assert sorted(json.loads(line)["k"] for line in lines) == list(range(1, 9))


# --- the exporter alone ----------------------------------------------------------------------


def export_to(directory: Path) -> Export:
    places = CopyPlaces((str(directory),)).as_options()
    spec = SinkSpec(FilesTarget(f"{directory}/t", "json"), "append")
    desc = RelationDesc(("k",), (ColumnType(INT4),))
    return Export("sink", spec, desc, {PLACES: Access("files", places)})


def exporter_to(directory: Path) -> FilesExporter:
    made = KIND.exporter(export_to(directory))
    assert isinstance(made, FilesExporter)
    return made


async def parts(*keys: int) -> AsyncIterator[pa.Table]:
    """Yield an interval with a row for each key."""
    if keys:
        times = pa.array([5] * len(keys), pa.int64())
        yield pa.table(
            {"k": pa.array(keys, pa.int32()), "__time": times, "__diff": pa.array([1] * len(keys))}
        )


def keys_in(directory: Path) -> list[int]:
    """Return the keys in all files."""
    files = (each for each in (directory / "t").iterdir() if each.is_file())
    return sorted(json.loads(line)["k"] for file in files for line in file.open())


async def test_of_two_exporters_one_writes(tmp_path: Path) -> None:
    older, newer = exporter_to(tmp_path), exporter_to(tmp_path)
    assert await older.resume() is None
    await older.write(parts(1), 5, 6)
    assert await newer.resume() == 6
    await newer.write(parts(2), 6, 9)
    with pytest.raises(Exception, match="another exporter"):
        await older.write(parts(2, 3), 6, 12)
    await newer.write(parts(), 9, 10)
    assert await exporter_to(tmp_path).resume() == 10
    assert keys_in(tmp_path) == [1, 2]


@pytest.mark.parametrize("step", ["put_file", "create", "rename"])
async def test_what_ends_in_between_is_completed_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    exporter = exporter_to(tmp_path)
    await exporter.resume()
    await exporter.write(parts(1), 5, 6)

    def fails(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patched:
        if step == "rename":
            patched.setattr(exporters.FilesExporter, "_complete", fails)
        else:
            patched.setattr(f"foreshore.storage.blob.FileBlob.{step}", fails)
        with pytest.raises(OSError, match="killed"):
            await exporter.write(parts(2, 3), 6, 9)
    assert keys_in(tmp_path) == [1]
    again = exporter_to(tmp_path)
    frontier = await again.resume()
    assert frontier == (9 if step == "rename" else 6)
    assert keys_in(tmp_path) == ([1, 2, 3] if step == "rename" else [1])
    await again.write(parts(4), frontier, 12)
    assert keys_in(tmp_path) == ([1, 2, 3, 4] if step == "rename" else [1, 4])
    await exporter_to(tmp_path).resume()
    hidden = [each.name for each in (tmp_path / "t" / "_foreshore" / "sink").iterdir()]
    assert all(name.isdecimal() for name in hidden)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INTO FILES (FORMAT json)", '22023: FILES needs the option "url"'),
        ("INTO FILES (URL '{}/t')", '22023: FILES needs the option "format"'),
        ("INTO FILES (URL '{}/t', FORMAT avro)", '22023: unrecognized format "avro"'),
        ("INTO FILES (URL '{}/t', FORMAT json, HEADER)", "22023: HEADER and DELIMITER are"),
        ("INTO FILES (URL '/etc/t', FORMAT json)", '42501: the place "/etc/t" is not allowed'),
        ("INTO FILES (URL '{}/t', FORMAT json) ENVELOPE UPSERT", "0A000: ENVELOPE UPSERT is not"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    own_env: TestEnvironment, place: Path, statement: str, error: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)")
    create = f"CREATE SINK s FROM t {statement.format(place)}"
    assert f"ERROR {error}" in await env.query("a", create)
    assert await env.query("a", "SHOW SINKS") == "SELECT 0"


@pytest.mark.parametrize("mends", ["UPDATE t SET a = 4 WHERE k = 1", "skip"])
async def test_sink_of_a_view_that_failed_begins_once_the_view_can_be_read(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch, mends: str
) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.02)
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE t (k int, a int)",
        "INSERT INTO t VALUES (1, 0), (2, 5)",
        "CREATE MATERIALIZED VIEW m AS SELECT k, 20 / a AS q FROM t",
        f"CREATE SINK s FROM m INTO FILES (URL '{place}/t', FORMAT parquet)",
    )
    stalled = (
        "stalled|materialized view public.m cannot be read for an error in its data (22012):"
        " see mz_internal.mz_view_errors"
    )
    assert (await until_state(env, "stalled")).startswith(stalled)
    alters = "ALTER MATERIALIZED VIEW m SET (ON ERROR = SKIP)"
    await env.ran("a", alters if mends == "skip" else mends)
    await until_state(env, "running")
    await env.ran("a", "INSERT INTO t VALUES (3, 2)", "WAIT FOR SINKS s")
    query = f"SELECT k, q, mz_diff FROM '{place}/t/*.parquet' ORDER BY k"
    expected = [(1, 5, 1), (2, 4, 1), (3, 10, 1)]
    assert duckdb.sql(query).fetchall() == expected[mends == "skip" :]


async def test_sink_of_a_mended_view_passes_more_changes_than_an_interval_has(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(reading, "MOST_ROWS", 2)
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE t (k int, a int)",
        "CREATE MATERIALIZED VIEW m AS SELECT k, 20 / a AS q FROM t",
        f"CREATE SINK s FROM m INTO FILES (URL '{place}/t', FORMAT parquet)",
        "WAIT FOR SINKS s",
        "INSERT INTO t VALUES (1, 0), (2, 5)",
    )
    await until_state(env, "stalled")
    for k in range(3, 7):
        await env.ran("a", f"INSERT INTO t VALUES ({k}, 5)")
    await env.ran("a", "UPDATE t SET a = 5 WHERE k = 1", "WAIT FOR SINKS s")
    query = f"SELECT count(*), sum(mz_diff) FROM '{place}/t/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(6, 6)]


# --- files that grow -------------------------------------------------------------------------

FORMATS = ["FORMAT parquet", "FORMAT csv, HEADER, DELIMITER ';'", "FORMAT csv", "FORMAT json"]


def glob_of(directory: Path, options: str) -> str:
    """Return what DuckDB reads all files with, as any program does that is at work meanwhile."""
    form = options.partition(",")[0].split()[1]
    if form == "csv":
        names = "['k', 'v', 'mz_timestamp', 'mz_diff']"
        header, delimiter = "HEADER" in options, ";" if ";" in options else ","
        more = f", header = {header}, delim = '{delimiter}'"
        return f"read_csv('{directory}/*.csv'{more}{'' if header else f', names = {names}'})"
    return f"read_{form}('{directory}/*.{form}')"


@pytest.mark.parametrize("options", FORMATS)
async def test_small_files_are_few_and_readers_see_each_change_once(
    own_env: TestEnvironment, place: Path, tmp_path: Path, options: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int, v text)", "INSERT INTO t VALUES (0, 'é;\n\"')")
    into = f"INTO FILES (URL '{place}/t', {options}) WITH (COMMIT INTERVAL '1 ms')"
    await env.ran("a", f"CREATE SINK s FROM t {into}", "WAIT FOR SINKS s")
    columns = "(k int, v text, mz_timestamp int8, mz_diff int8)"
    await env.ran(
        "a", f"CREATE SOURCE r {columns} FROM FILES '{place}/t' ({options}, POLL INTERVAL '1 ms')"
    )
    for number in range(1, 41):
        await env.ran("a", f"INSERT INTO t VALUES ({number}, 'v')")
        if number % 10 == 5:
            env.export.last.kill()
        if number == 25:
            await env.reopen()
            env.environment.let_copy([str(place)], tmp_path / "data")
            await env.environment.equip_sources()
        if number % 3:
            await env.ran("a", "WAIT FOR SINKS s")
            query = f"SELECT k FROM {glob_of(place / 't', options)} ORDER BY k"
            assert duckdb.sql(query).fetchall() == [(k,) for k in range(number + 1)]
    await env.ran("a", "WAIT FOR SINKS s")
    assert len([each for each in (place / "t").iterdir() if each.is_file()]) == 1
    await until_answer(env, "SELECT count(*), count(DISTINCT k), sum(mz_diff) FROM r", "41|41|41")
    assert await env.query("a", "SELECT count(*) FROM r_errors") == "0\nSELECT 1"
    assert (await env.query("a", "SELECT k FROM r WHERE v <> 'v'")).startswith("0\n")


async def until_answer(env: TestEnvironment, query: str, expected: str) -> None:
    found = ""
    try:
        async with asyncio.timeout(60):
            while (found := await env.query("a", query)).split("\n")[0] != expected:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{found} instead of {expected}") from None


def growing_exporter(directory: Path) -> FilesExporter:
    made = export_to(directory)
    target = FilesTarget(f"{directory}/t", "json", merge=True)
    found = KIND.exporter(replace(made, spec=replace(made.spec, target=target)))
    assert isinstance(found, FilesExporter)
    return found


async def test_exporter_that_wakes_up_does_not_take_rows_from_a_grown_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = growing_exporter(tmp_path), growing_exporter(tmp_path)
    await older.resume()
    await older.write(parts(1), 5, 6)
    with monkeypatch.context() as patch:  # it is stopped between its claim and its file
        patch.setattr(older, "_complete", lambda lower, claim: None)
        await older.write(parts(2), 6, 7)
    assert await newer.resume() == 7
    await newer.write(parts(3), 7, 8)
    assert older._newest is not None
    older._complete(6, older._newest)
    assert keys_in(tmp_path) == [1, 2, 3]
    assert len([each for each in (tmp_path / "t").iterdir() if each.is_file()]) == 1


async def test_full_file_and_one_that_a_reader_has_removed_get_no_more_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = growing_exporter(tmp_path)
    await exporter.resume()
    await exporter.write(parts(*range(30_000)), 5, 6)  # more than a megabyte
    await exporter.write(parts(1), 6, 7)
    await exporter.write(parts(), 7, 8)
    await exporter.write(parts(2), 8, 9)
    files = sorted(each for each in (tmp_path / "t").iterdir() if each.is_file())
    assert [each.name for each in files] == ["sink-5.json", "sink-6.json"]
    files[1].unlink()
    await exporter.write(parts(3), 9, 10)
    assert (tmp_path / "t" / "sink-9.json").exists()


def parquet_of(path: Path, first: int, rows: int) -> pa.Table:
    numbers = list(range(first, first + rows))
    table = pa.table(
        {
            "i": pa.array(numbers, pa.int64()),
            "t": pa.array([f"é{n}" * (n % 5) if n % 7 else None for n in numbers], pa.string()),
            "f": pa.array([n / 3 for n in numbers]),
            "b": pa.array([n % 2 == 0 for n in numbers]),
            "at": pa.array(numbers, pa.timestamp("us")),
            "d": pa.array([Decimal(n) for n in numbers], pa.decimal128(38, 2)),
            "l": pa.array([[n] * (n % 3) for n in numbers], pa.list_(pa.int32())),
        }
    )
    pq.write_table(table, path, compression="zstd", version="2.6")
    return table


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 50_000, 1, 200), (200_000, 2, 2)])
def test_reader_that_opens_a_grown_parquet_file_twice_reads_what_it_knows_of(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    file, more, copy = (tmp_path / name for name in ("file", "more", "copy"))
    tables = [parquet_of(file, 0, sizes[0])]
    footers = [pq.read_metadata(file)]
    for size in sizes[1:]:
        first = sum(each.num_rows for each in tables)
        tables.append(parquet_of(more, first, size))
        shutil.copyfile(file, copy)
        append_rows(copy, more, "parquet")
        more.replace(file)
        footers.append(pq.read_metadata(file))
    for number, footer in enumerate(footers):
        known = pa.concat_tables(tables[: number + 1])
        with pq.ParquetFile(file, metadata=footer) as opened:
            assert opened.read().equals(known)
    assert duckdb.sql(f"SELECT sum(i) FROM read_parquet('{file}')").fetchall() == [
        (sum(range(sum(sizes))),)
    ]
